"""The contract of a backend, as tests that ship with the package.

Each area is a mixin of its own; `BackendContractSuite` is all of them.

Example:
    from sandboxio.testing.suite import BackendContractSuite

    class TestMine(BackendContractSuite):
        backend = MyBackend()
"""

from pathlib import Path

import pytest

pytest.register_assert_rewrite(
    *(f"{__name__}.{path.stem}" for path in Path(__file__).parent.glob("*.py"))
)

from sandboxio.testing.suite._case import CASES, Case, case  # noqa: E402
from sandboxio.testing.suite.cancellation import CancellationSuite  # noqa: E402
from sandboxio.testing.suite.capability_honesty import CapabilityHonestySuite  # noqa: E402
from sandboxio.testing.suite.caps import CapsSuite  # noqa: E402
from sandboxio.testing.suite.errors import ErrorsSuite  # noqa: E402
from sandboxio.testing.suite.files import FilesSuite  # noqa: E402
from sandboxio.testing.suite.fixtures import Create, SuiteFixtures  # noqa: E402
from sandboxio.testing.suite.isolation_honesty import IsolationHonestySuite  # noqa: E402
from sandboxio.testing.suite.lifecycle import LifecycleSuite  # noqa: E402
from sandboxio.testing.suite.policy import PolicySuite  # noqa: E402
from sandboxio.testing.suite.reaping import ReapingSuite  # noqa: E402
from sandboxio.testing.suite.run import RunSuite  # noqa: E402
from sandboxio.testing.suite.run_code import RunCodeSuite  # noqa: E402
from sandboxio.testing.suite.settings import Canary, SuiteSettings  # noqa: E402
from sandboxio.testing.suite.stdin import StdinSuite  # noqa: E402
from sandboxio.testing.suite.streaming import StreamingSuite  # noqa: E402
from sandboxio.testing.suite.sync_parity import SyncParitySuite  # noqa: E402
from sandboxio.testing.suite.timeouts import TimeoutsSuite  # noqa: E402
from sandboxio.testing.suite.transfer import TransferSuite  # noqa: E402

__all__ = [
    "AREAS",
    "CASES",
    "BackendContractSuite",
    "Canary",
    "CancellationSuite",
    "CapabilityHonestySuite",
    "CapsSuite",
    "Case",
    "Create",
    "ErrorsSuite",
    "FilesSuite",
    "IsolationHonestySuite",
    "LifecycleSuite",
    "PolicySuite",
    "ReapingSuite",
    "RunCodeSuite",
    "RunSuite",
    "StdinSuite",
    "StreamingSuite",
    "SuiteFixtures",
    "SuiteSettings",
    "SyncParitySuite",
    "TimeoutsSuite",
    "TransferSuite",
    "case",
]

AREAS = (
    "lifecycle",
    "cancellation",
    "run",
    "run_code",
    "streaming",
    "stdin",
    "files",
    "transfer",
    "policy",
    "caps",
    "timeouts",
    "errors",
    "capability_honesty",
    "isolation_honesty",
    "sync_parity",
    "reaping",
)
"""Every area, in the order of the documentation."""


class BackendContractSuite(
    LifecycleSuite,
    CancellationSuite,
    RunSuite,
    RunCodeSuite,
    StreamingSuite,
    StdinSuite,
    FilesSuite,
    TransferSuite,
    PolicySuite,
    CapsSuite,
    TimeoutsSuite,
    ErrorsSuite,
    CapabilityHonestySuite,
    IsolationHonestySuite,
    SyncParitySuite,
    ReapingSuite,
):
    """Every area of the contract."""
