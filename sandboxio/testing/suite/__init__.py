"""The contract of a backend, as tests that ship with the package.

Example:
    from sandboxio.testing.suite import BackendContractSuite

    class TestMine(BackendContractSuite):
        backend = MyBackend()
"""

import pytest

AREAS = ("run",)
"""The areas, each a module of this package; assertions in them explain themselves."""

pytest.register_assert_rewrite(
    *(f"{__name__}.{module}" for module in (*AREAS, "fixtures", "settings"))
)

from sandboxio.testing.suite.run import RunSuite  # noqa: E402  # after the line above

__all__ = ["BackendContractSuite", "RunSuite"]


class BackendContractSuite(RunSuite):
    """Every area of the contract."""
