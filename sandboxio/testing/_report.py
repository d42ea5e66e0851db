"""What a run says about the contract: cases by suite, deviations, areas that skipped everything."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pytest

AREA = "sandboxio_area"
DEVIATION = "sandboxio_deviation"
VERDICTS = ("passed", "skipped", "deviating", "fixed", "failed", "unfinished")
"""What a case came to; `fixed` is a deviation that passes."""
RANKS = ("failed", "fixed", "deviating", "passed", "skipped")
"""Worst first: of several tests of one case, the worst is the case's."""
FATES = {
    "deviating": "fails as stated",
    "fixed": "passes now: take it out of `deviations`",
}
_SHOWN = 3
"""Case numbers that a line of skips lists; of more it gives the count."""


@dataclass
class Test:
    """What became of one case on one event loop."""

    suite: str
    area: str
    number: str
    size: int
    """Cases that the area has."""
    deviation: str | None
    verdict: str = ""
    reason: str = ""
    """Why it was skipped."""

    def add(self, report: pytest.TestReport) -> None:
        """Take in the report of one phase; no later phase makes up for a failure."""
        verdict = _verdict(report)
        if verdict and self.verdict not in ("failed", "fixed"):
            self.verdict = verdict
        if verdict == "skipped":
            self.reason = _reason(report).removeprefix(f"{self.number} ")


class Report:
    """What the reports of a run come to."""

    def __init__(self, reports: Iterable[pytest.TestReport]) -> None:
        self._tests: dict[str, Test] = {}
        for report in reports:
            if report.nodeid not in self._tests:
                self._tests[report.nodeid] = _test(report)
            self._tests[report.nodeid].add(report)

    def lines(self) -> list[str]:
        """Return the counts of each suite, what it skipped and why, and its deviations."""
        return [
            line
            for suite, tests in _by(self._tests.values(), "suite").items()
            for line in (f"{suite}: {_counts(tests)}", *_skips(tests), *_deviations(tests))
        ]

    def complaints(self) -> list[str]:
        """Return a line for each area of which every case was selected, and none was tried."""
        return [
            f"contract: area {area!r} of {suite} skipped every case; declare what it needs, "
            "write the probes that the skips name, or derive from the suites of the other areas"
            for suite, tests in _by(self._tests.values(), "suite").items()
            for area, members in _by(tests, "area").items()
            if _untried(members)
        ]


def _test(report: pytest.TestReport) -> Test:
    properties = cast("dict[str, Any]", dict(report.user_properties))
    suite, area, number, size = properties[AREA]
    *_, deviation = properties.get(DEVIATION, (None,))
    return Test(suite, area, number, size, deviation)


def _verdict(report: pytest.TestReport) -> str:
    if report.failed:
        return "fixed" if str(report.longrepr).startswith("[XPASS(strict)]") else "failed"
    if report.skipped:
        return "deviating" if hasattr(report, "wasxfail") else "skipped"
    return "passed" if report.when == "call" and report.passed else ""


def _reason(report: pytest.TestReport) -> str:
    """Return what a skip said; its report is a path, a line number and the message."""
    found = cast("tuple[str, int, str]", report.longrepr)
    return found[-1].removeprefix("Skipped: ")


def _by(tests: Iterable[Test], attribute: str) -> dict[str, list[Test]]:
    """Group tests, sorted: workers of xdist report in any order."""
    groups: defaultdict[str, list[Test]] = defaultdict(list)
    for test in tests:
        groups[getattr(test, attribute)].append(test)
    return dict(sorted(groups.items()))


def _untried(area: list[Test]) -> bool:
    everything = len({test.number for test in area}) == area[0].size
    return everything and all(test.verdict == "skipped" for test in area)


def _worst(case: list[Test]) -> str:
    verdicts = {test.verdict for test in case}
    return next((rank for rank in RANKS if rank in verdicts), "unfinished")


def _counts(suite: list[Test]) -> str:
    found = [_worst(case) for case in _by(suite, "number").values()]
    parts = [f"{found.count(verdict)} {verdict}" for verdict in VERDICTS if verdict in found]
    cases = "1 case" if len(found) == 1 else f"{len(found)} cases"
    return f"{cases}: {', '.join(parts)}"


def _skips(suite: list[Test]) -> list[str]:
    """Return a line for each reason; `partly` where the other event loop has tried them."""
    cases = _by(suite, "number")
    numbers: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for number, tests in cases.items():
        word = "skipped" if _worst(tests) == "skipped" else "partly skipped"
        for test in tests:
            if test.verdict == "skipped":
                numbers[word, test.reason].add(number)
    lines = sorted((sorted(found), *why) for why, found in numbers.items())
    return [f"  {word}: {reason} ({_list(found)})" for found, word, reason in lines]


def _list(numbers: list[str]) -> str:
    return ", ".join(numbers) if len(numbers) <= _SHOWN else f"{len(numbers)} cases"


def _deviations(suite: list[Test]) -> list[str]:
    return [
        f"  deviation {number} ({_fate(tests)}): {tests[0].deviation}"
        for number, tests in _by(suite, "number").items()
        if tests[0].deviation is not None
    ]


def _fate(case: list[Test]) -> str:
    if {"fixed", "deviating"} <= {test.verdict for test in case}:
        return "fails on one event loop only"
    return FATES.get(_worst(case), _worst(case))
