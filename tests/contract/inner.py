"""The suite on a backend that is broken on purpose: a run of pytest inside of a test."""

from __future__ import annotations

import gc
import warnings
from typing import TYPE_CHECKING, ClassVar
from zlib import crc32

import pytest

from sandboxio.testing.fake import EVERYTHING
from sandboxio.testing.suite import AREAS, CASES
from sandboxio.testing.suite._case import case_of
from tests.contract.around import AroundBackend, Part
from tests.contract.fakes import FakeSuite

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from sandboxio.testing import FakeBackend

HANG = 20
"""Real seconds after which a case is given up; on the virtual clock all have their patience."""
SAMPLE = 2
"""Cases that are run of an area to which a fault is nothing."""
PLUGINS = ("-panyio", "-ppytest_timeout", "-psandboxio.testing.plugin")
"""What the cases need; to look for the plugins of all packages takes as long as some cases."""
APART = {
    *("CANCEL-013", "CANCEL-016", "CANCEL-018", "CANCEL-019", "CANCEL-020", "CANCEL-021"),
    *("CAP-011", "CAP-012", "CAP-017", "CODE-003", "CODE-022", "FS-006", "FS-007", "FS-009"),
    *("FS-065", "RUN-036", "RUN-045", "STDIN-007", "STREAM-005", "STREAM-022", "STREAM-023"),
    *("STREAM-026", "TIME-035", "XFER-003", "XFER-017", "XFER-020", "XFER-027"),
}
"""Cases that are in no sample: they move megabytes, are repeated at every step of a call, or
parse so much code that Python 3.11 may collect garbage meanwhile, which its parser takes amiss."""


class TestBroken(FakeSuite):
    """The contract on a backend with one part broken, on one event loop."""

    part: ClassVar[type[Part]]

    @pytest.fixture
    def anyio_backend(self) -> str:
        return "asyncio"

    def make_fake(self) -> FakeBackend:
        return AroundBackend(self.part)


class Outcomes:
    """A plugin that collects some cases, all tests of `whole` and one test of each of `others`,
    and keeps what became of them."""

    def __init__(self, whole: Collection[str], others: Collection[str]) -> None:
        self._whole = whole
        self._numbers = {*whole, *others}
        self._cases: dict[str, str] = {}
        self.ran: set[str] = set()
        self.failed: dict[str, str] = {}
        """The last line of what each one said."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_pycollect_makeitem(self, collector: pytest.Collector, obj: object) -> object:
        found = case_of(obj)
        wanted = found is not None and found.number in self._numbers
        return None if wanted or isinstance(collector, pytest.Module) else []

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items.copy():
            found = case_of(getattr(item, "function", None))
            assert found is not None
            if found.number in self._cases.values() and found.number not in self._whole:
                items.remove(item)
            else:
                self._cases[item.nodeid] = found.number

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        number = self._cases[report.nodeid]
        if report.when == "call" and not report.skipped:
            self.ran.add(number)
        if report.failed:
            self.failed.setdefault(number, report.longreprtext.strip().rpartition("\n")[2])


def run(part: type[Part], folder: Path, *, whole: set[str], others: set[str]) -> Outcomes:
    """Run cases on a backend with that part, as pytest would; of `others` the first test each."""
    found = Outcomes(whole, others)
    TestBroken.part = part
    # What is lost is looked for by the run around this one, and asserts are rewritten already.
    off = ("-pno:cacheprovider", "-pno:faulthandler", "-pno:unraisableexception", "--assert=plain")
    how = ("-qq", "--tb=native", f"--timeout={HANG}", f"--basetemp={folder / 'inner'}")
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        patch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
        # A case that is broken on purpose, or given up, may leave a coroutine behind.
        warnings.simplefilter("ignore", RuntimeWarning)
        pytest.main([*PLUGINS, *off, *how, f"{__file__}::TestBroken"], plugins=[found])
        gc.collect()
    return found


def sample(areas: Collection[str], name: str) -> set[str]:
    """Return `SAMPLE` cases of each area; which ones, the name decides, the same every time.

    Cases that the complete fake skips, and those of `APART`, are in none. Different names have
    different samples, so that together they run nearly every case.
    """

    def rank(number: str) -> int:
        return crc32(f"{name} {number}".encode())

    fit = [case for case in CASES.values() if case.unfit(EVERYTHING) is None]
    members = {
        area: [case.number for case in fit if case.area == area and case.number not in APART]
        for area in AREAS
    }
    return {number for area in areas for number in sorted(members[area], key=rank)[:SAMPLE]}
