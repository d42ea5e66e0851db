"""The contract of a backend, as tests that ship with the package.

Example:
    from sandboxio.testing.suite import BackendContractSuite

    class TestMine(BackendContractSuite):
        backend = MyBackend()
"""

import pytest

pytest.register_assert_rewrite("sandboxio.testing.suite")

from sandboxio.testing.suite.run import RunSuite  # noqa: E402  # after the line above

__all__ = ["BackendContractSuite", "RunSuite"]


class BackendContractSuite(RunSuite):
    """Every area of the contract."""
