"""What the pytest plugin says about a run of the contract, and when it lets the run fail."""

from __future__ import annotations

from typing import Any

import pytest

from sandboxio.testing import _report
from sandboxio.testing.suite import fixtures

pytest_plugins = ["pytester"]

TINY = """
import pytest
from sandboxio.testing import FakeBackend
from sandboxio.testing.suite._case import case
from sandboxio.testing.suite.fixtures import SuiteFixtures

class TinySuite(SuiteFixtures):
    backend = FakeBackend()

    @case("ONE-001", area="one")
    async def test_passes(self): ...

    @case("ONE-002", area="one")
    async def test_fails(self):
        assert False

    @case("TWO-001", area="two")
    async def test_wants_more(self):
        pytest.skip(reason="TWO-001 needs STDIN, which this sandbox does not declare")

    @case("TWO-002", area="two")
    async def test_may_want_more(self):
        if self.loops == ("asyncio",):
            pytest.skip(reason="TWO-002 needs STDIN, which this sandbox does not declare")
"""
KNOWN = '{"ONE-002": "one is not two"}'
ALL_OF_TWO = "contract: area 'two' of test_mine.py::TestMine skipped every case; declare *"


class Contract:
    """A contract of four cases, tried by pytest in a process of its own."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self._pytester = pytester
        pytester.makepyfile(tiny=TINY)

    def try_(self, body: str, *args: str) -> pytest.RunResult:
        suite = f"from tiny import TinySuite\nclass TestMine(TinySuite):\n    {body}\n"
        self._pytester.makepyfile(test_mine=suite)
        return self._pytester.runpytest_subprocess(
            *("-W", "error", "-p", "no:asyncio", *args), timeout=60
        )


@pytest.fixture
def contract(pytester: pytest.Pytester) -> Contract:
    return Contract(pytester)


def test_a_run_that_holds(contract: Contract) -> None:
    """Each suite is listed with its counts, its deviations, and what it skipped and why."""
    done = contract.try_(f"deviations = {KNOWN}")
    assert done.ret == 0
    done.stdout.fnmatch_lines(
        [
            "=* sandboxio contract =*",
            "test_mine.py::TestMine: 4 cases: 2 passed, 1 skipped, 1 deviating",
            "  skipped: needs STDIN, which this sandbox does not declare (TWO-001)",
            "  deviation ONE-002 (fails as stated): one is not two",
        ],
        consecutive=True,
    )


@pytest.mark.parametrize("workers", ["0", "2"])
def test_an_area_that_skips_everything(contract: Contract, workers: str) -> None:
    """The run fails, though no test has, and says what to do; workers of xdist add up."""
    done = contract.try_(f"deviations = {KNOWN}; loops = ('asyncio',)", "-n", workers)
    assert done.ret == pytest.ExitCode.TESTS_FAILED
    done.assert_outcomes(passed=1, skipped=6, xfailed=1)
    done.stdout.fnmatch_lines(
        [
            "test_mine.py::TestMine: 4 cases: 1 passed, 2 skipped, 1 deviating",
            "  partly skipped: TestMine leaves trio out of `loops` (ONE-001, ONE-002)",
            "  skipped: TestMine leaves trio out of `loops` (TWO-001, TWO-002)",
            "  skipped: needs STDIN, which this sandbox does not declare (TWO-001, TWO-002)",
        ]
    )
    done.stdout.fnmatch_lines([ALL_OF_TWO])


def test_an_area_of_which_a_part_was_selected(contract: Contract) -> None:
    """It is not judged by that part."""
    done = contract.try_("loops = ('asyncio',)", "-k", "test_passes or test_wants_more")
    assert done.ret == 0
    done.stdout.fnmatch_lines(["test_mine.py::TestMine: 2 cases: 1 passed, 1 skipped"])
    done.stdout.no_fnmatch_line("contract:*")


def test_a_deviation_that_is_none_any_more(contract: Contract) -> None:
    """A case that passes must be taken out of the deviations; until then the run fails."""
    done = contract.try_('deviations = {"ONE-001": "was broken"}')
    assert done.ret == pytest.ExitCode.TESTS_FAILED
    done.stdout.fnmatch_lines(
        ["  deviation ONE-001 (passes now: take it out of `deviations`): was broken"]
    )


def test_a_deviation_before_the_case(contract: Contract) -> None:
    """A case whose fixtures fail deviates as one that fails itself; a subclass may do without."""
    fails = "def make_backend(self): assert False"
    done = contract.try_(
        f"""deviations = {KNOWN}
    {fails}
class TestOther(TestMine):
    deviations = {{}}
""",
        "-k",
        "test_fails",
    )
    done.assert_outcomes(xfailed=2, errors=2)
    done.stdout.fnmatch_lines(["  deviation ONE-002 (fails as stated): one is not two"])


@pytest.mark.parametrize(("word", "outcome"), [("fail", "failed"), ("skip", "skipped")])
def test_a_case_that_fails_in_a_task(pytester: pytest.Pytester, word: str, outcome: str) -> None:
    """A failure or skip inside of a task group is one, and the fixtures of the case end well."""
    pytester.makepyfile(f"""
        import anyio, pytest
        from sandboxio.testing import FakeBackend
        from sandboxio.testing.suite._case import case
        from sandboxio.testing.suite.fixtures import SuiteFixtures

        async def bad():
            pytest.{word}("in a task")

        class TestMine(SuiteFixtures):
            backend = FakeBackend()

            @case("ONE-001", area="one")
            async def test_in_a_task(self, sandbox):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(bad)
    """)
    done = pytester.runpytest_subprocess("-W", "error", "-p", "no:asyncio", timeout=60)
    done.assert_outcomes(**{outcome: 2})
    done.stdout.fnmatch_lines(["*in a task*"])


def test_a_deviation_from_nothing(contract: Contract) -> None:
    """A number that no case has fails at collection, with the nearest one."""
    done = contract.try_('deviations = {"ONE-01": "?"}')
    done.assert_outcomes(errors=1)
    done.stdout.fnmatch_lines(
        [
            "test_mine.py::TestMine: deviations name 'ONE-01', which is no case of the contract; "
            "did you mean 'ONE-001'?"
        ]
    )


def test_without_the_plugin(contract: Contract) -> None:
    """The suite needs no plugin of ours; deviations are applied, and nothing is summed up."""
    done = contract.try_(f"deviations = {KNOWN}; loops = ('asyncio',)", "-p", "no:sandboxio")
    assert done.ret == 0
    done.assert_outcomes(passed=1, skipped=6, xfailed=1)
    done.stdout.no_fnmatch_line("*sandboxio contract*")


def test_the_names_of_the_properties() -> None:
    """The report is loaded without the suite, and knows its properties by the same names."""
    from sandboxio.testing import plugin

    assert fixtures.ALL_SKIPPED == _report.AREA == plugin.CASE
    assert fixtures.DEVIATION == _report.DEVIATION


def report(
    outcome: str, said: object = None, *, when: str = "call", loop: str = "asyncio"
) -> pytest.TestReport:
    """Make the report of one phase of case A-001, as xdist hands it on."""
    make: Any = pytest.TestReport
    case = ["sandboxio_area", ["t.py::TestMine", "a", "A-001", 1]]
    deviation = ["sandboxio_deviation", ["t.py::TestMine", "A-001", "it is slow"]]
    where = (f"t.py::TestMine::test_a[{loop}]", ("t.py", 1, "test_a"))
    made = make(*where, {}, outcome, said, when, user_properties=[case, deviation])
    if outcome == "skipped" and said is None:
        made.wasxfail = "A-001: it is slow"
    return made  # type: ignore[no-any-return]


FIXED = report("failed", "[XPASS(strict)] A-001: it is slow")
FAILS = report("skipped")


@pytest.mark.parametrize(
    ("reports", "count", "fate"),
    [
        ([report("passed", when="setup"), FAILS], "1 deviating", "fails as stated"),
        ([FIXED, report("skipped", loop="trio")], "1 fixed", "fails on one event loop only"),
        ([FAILS, report("failed", "boom", when="teardown")], "1 failed", "failed"),
        ([report("failed", "boom", when="setup")], "1 failed", "failed"),
        ([report("passed", when="setup")], "1 unfinished", "unfinished"),
        (
            [FAILS, report("skipped", ("p", 1, "Skipped: no"), loop="trio")],
            "1 deviating",
            "fails as stated",
        ),
    ],
)
def test_what_a_case_comes_to(reports: list[pytest.TestReport], count: str, fate: str) -> None:
    """The worst of its phases and event loops; nothing makes up for a failure."""
    found = _report.Report(reports)
    assert found.lines()[0] == f"t.py::TestMine: 1 case: {count}"
    assert found.lines()[-1] == f"  deviation A-001 ({fate}): it is slow"
    assert found.complaints() == []


@pytest.mark.parametrize(
    ("backend", "said"),
    [
        ("FakeBackend", "its backend is a class. Write `backend = FakeBackend()`."),
        ("FakeBackend()._fake", "a driver. Write `backend = DriverBackend(FakeDriver())`."),
        ("3", "int lacks what `Backend` has: name, capabilities, isolation, create, connect."),
    ],
)
def test_what_is_no_backend(contract: Contract, backend: str, said: str) -> None:
    """The author is told what to write instead."""
    done = contract.try_(
        f"from sandboxio.testing import FakeBackend; backend = {backend}",
        *("-k", "test_passes and asyncio"),
    )
    done.assert_outcomes(errors=1)
    done.stdout.fnmatch_lines([f"*TestMine: *{said}"])
