"""The pytest plugin: the fixtures of the fake, offline runs, and the report of the contract.

Every pytest run of an environment with sandboxio loads it. It imports the rest of the package
only when a test, an option or a marker needs it.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from difflib import get_close_matches
from typing import TYPE_CHECKING, cast

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    from sandboxio.core.sync import SyncSandbox
    from sandboxio.testing._report import Report
    from sandboxio.testing.fake import FakeBackend

FAKE = "fake://"
CASE = "sandboxio_area"
"""The report property of every case of the contract: `suite.fixtures.ALL_SKIPPED`."""
MARKERS = (
    "sbx_offline: refuse every real sandbox backend while this test runs, its fixtures included",
    "sbx_contract: this test can be pointed at another backend with --sandboxio-backend",
)


@pytest.fixture
def sbx_fake() -> Generator[FakeBackend]:
    """A fresh FakeBackend, to which `fake://` leads while the test runs.
    Its `sandbox` is a ready async sandbox, its `calls` are what it was asked to do.
    """
    from sandboxio.testing.fake import FakeBackend

    with FakeBackend().serving() as fake:
        yield fake


@pytest.fixture
def sbx_fake_sync(sbx_fake: FakeBackend) -> Generator[SyncSandbox]:
    """A ready SyncSandbox of `sbx_fake`, for blocking code; closed when the test ends."""
    from sandboxio._api import create_sync

    sandbox = create_sync(FAKE)
    try:
        yield sandbox
    finally:
        sbx_fake.simulate()  # faults are for the test, not for its end
        sandbox.close()


@pytest.fixture(scope="session")
def sandboxio_backend(pytestconfig: pytest.Config) -> str:
    """The DSN of --sandboxio-backend; `fake://` unless the run says otherwise."""
    return _target(pytestconfig)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("sandboxio")
    offline = "Refuse every real sandbox backend during the whole run."
    backend = f"The backend that the fixture sandboxio_backend names (default: {FAKE})."
    group.addoption("--sandboxio-offline", action="store_true", default=False, help=offline)
    group.addoption("--sandboxio-backend", metavar="DSN", default=None, help=backend)
    parser.addini("sandboxio_offline", offline, type="bool", default=False)
    parser.addini("sandboxio_backend", backend, default=FAKE)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)
    reason = _offline_reason(config)
    _check_target(_target(config), reason)
    if reason is not None:
        _go_offline(config, reason)
    if not hasattr(config, "workerinput"):  # a worker of xdist sees only its share of an area
        config.pluginmanager.register(_ContractReport(), "sandboxio-contract-report")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    if item.get_closest_marker("sbx_offline") is None:
        return (yield)
    from sandboxio.core import offline

    with offline.enforced("the marker sbx_offline"):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makeitem() -> Generator[None, object, object]:
    made = yield
    if isinstance(made, pytest.Class):
        _check_deviations(made)
    return made


class _ContractReport:
    """Keeps the reports of contract cases until the end, when they are judged together."""

    def __init__(self) -> None:
        self._seen: list[pytest.TestReport] = []
        self._report: Report | None = None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if any(name == CASE for name, _ in report.user_properties):
            self._seen.append(report)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if not self._seen:
            return
        from sandboxio.testing._report import Report

        self._report = Report(self._seen)
        if self._report.complaints() and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._report is None:
            return
        terminalreporter.write_sep("=", "sandboxio contract")
        for line in self._report.lines():
            terminalreporter.write_line(line)
        for line in self._report.complaints():
            terminalreporter.write_line(line, red=True)


def _target(config: pytest.Config) -> str:
    given = config.getoption("--sandboxio-backend")
    return cast("str", config.getini("sandboxio_backend") if given is None else given)


def _offline_reason(config: pytest.Config) -> str | None:
    """Return what asked for an offline run, if something did."""
    if config.getoption("--sandboxio-offline"):
        return "--sandboxio-offline"
    return "the setting sandboxio_offline" if config.getini("sandboxio_offline") else None


def _check_target(target: str, offline: str | None) -> None:
    """Refuse a target that is no DSN, or that an offline run could not use.

    Neither message repeats the target, since it may hold what it must not.
    """
    if target == FAKE:
        return
    from sandboxio.core import dsn
    from sandboxio.core.errors import ConfigurationError

    try:
        backend = dsn.parse(target).backend
    except ConfigurationError as exc:
        raise pytest.UsageError(f"--sandboxio-backend: {exc}") from exc
    if offline is not None and backend != "fake":
        raise pytest.UsageError(
            f"--sandboxio-backend names the backend {backend!r}, and this run is offline "
            f"({offline}).\n  Fix:  leave one of them out, or add --sandboxio-backend {FAKE}"
        )


def _go_offline(config: pytest.Config, reason: str) -> None:
    from sandboxio.core import offline

    stack = ExitStack()
    stack.enter_context(offline.enforced(reason))
    config.add_cleanup(stack.close)


def _check_deviations(made: pytest.Class) -> None:
    """Refuse a contract suite whose deviations name a case there is none of."""
    fixtures = sys.modules.get("sandboxio.testing.suite.fixtures")
    if fixtures is None or not issubclass(made.obj, fixtures.SuiteFixtures):
        return
    known = list(cast("Iterable[str]", fixtures.CASES))
    for number in cast("Iterable[str]", made.obj.deviations):
        if number not in known:
            near = get_close_matches(number, known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else "."
            raise made.CollectError(
                f"{made.nodeid}: deviations name {number!r}, which is no case of the contract{hint}"
            )
