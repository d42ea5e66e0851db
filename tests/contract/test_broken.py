"""Every fault of a table of broken backends is found by the cases that claim to find it.

Each fault is one class that stands in for one part of the fake. Of the suite its test runs the
cases that must fail, and of every area to which the fault is nothing a sample in which no case
may fail: `inner.SAMPLE` cases, chosen by the name of the fault, and the first test of each. What
else fails in the areas that it is about is of no interest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from sandboxio.testing.suite import AREAS, CASES, BackendContractSuite
from sandboxio.testing.suite._case import case_of
from tests.contract import broken_claims as claims
from tests.contract import broken_life as life
from tests.contract import broken_output as output
from tests.contract import inner
from tests.contract.around import HandleAround

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from tests.contract.around import Part

LEAST = 1
"""Cases of a sample that have to be run: one may be without its probe."""
STATEFUL = {"FLAG-010"}
"""Cases that no whole backend runs: nothing keeps state yet."""


@dataclass(frozen=True)
class Fault:
    """A broken part, the cases that must fail for it, and the areas in which others may."""

    part: type[Part]
    must: str
    may: str = ""

    @property
    def cases(self) -> set[str]:
        return set(self.must.split())

    @property
    def areas(self) -> set[str]:
        return {CASES[number].area for number in self.cases} | set(self.may.split())


FAULTS = (
    # What a command is given, writes, and ends with.
    Fault(output.LosesTheLastByte, "RUN-019 RUN-030 CODE-021", "stdin timeouts"),
    Fault(output.SwapsTheStreams, "STREAM-005 STREAM-007 SYNC-006", "stdin"),
    Fault(output.MergesTheStreams, "RUN-002 RUN-028 SYNC-004", "stdin timeouts"),
    Fault(output.HidesTheExitCode, "CODE-002 CODE-004 CODE-005", "caps policy"),
    Fault(output.HidesTheSignal, "RUN-001 RUN-003 STREAM-020", "caps run_code"),
    Fault(output.TranslatesLineEnds, "RUN-002 RUN-034 STREAM-007"),
    Fault(output.StumblesOverBytes, "RUN-031 RUN-043"),
    Fault(output.HidesWhatWasCut, "RUN-038 RUN-040 RUN-042 SYNC-004"),
    Fault(output.RunsAgain, "RUN-017"),
    Fault(output.LetsAShellReadLists, "RUN-007 RUN-010 STREAM-010", "files transfer"),
    Fault(output.LeaksTheHost, "RUN-051"),
    Fault(output.RemembersNames, "CODE-014"),
    Fault(output.NeverEndsInput, "STDIN-014 STDIN-017 SYNC-007"),
    Fault(output.DropsInput, "STDIN-003 STDIN-004 FLAG-014", "cancellation timeouts"),
    # How calls are ended.
    Fault(life.ReturnsPartOfIt, "TIME-016 TIME-017 SYNC-012", "errors"),
    Fault(life.IgnoresTheTimeout, "TIME-003 TIME-004", "run_code errors"),
    Fault(life.RaisesTheBuiltinTimeout, "TIME-003 TIME-004 TIME-019", "run_code errors"),
    Fault(life.LeavesLateCommands, "TIME-002 TIME-003 TIME-023", "caps"),
    Fault(life.LeavesCancelledCommands, "CANCEL-001 CANCEL-002 CANCEL-023", "errors timeouts"),
    Fault(life.LeavesStreamedCommands, "STREAM-033 STREAM-034 CANCEL-004", "stdin errors"),
    Fault(life.SwallowsCancellation, "CANCEL-001 CANCEL-011 CANCEL-023"),
    Fault(life.WrapsCancellation, "CANCEL-001 CANCEL-011 CANCEL-023", "errors lifecycle"),
    Fault(life.DiffersByThread, "SYNC-004 SYNC-006"),
    # How sandboxes are made, found and removed.
    Fault(life.KillsOnce, "LIFE-033 LIFE-037 SYNC-025", "reaping"),
    Fault(life.RunsInNothing, "LIFE-038 SYNC-025", "errors"),
    Fault(life.TakesRemovalForAnEnd, "ERR-014 ERR-016 LIFE-043 REAP-017"),
    Fault(life.ConnectsToAnything, "LIFE-025 LIFE-026", "errors"),
    Fault(life.RaisesTheProvidersError, "ERR-006 SYNC-015"),
    Fault(life.LeavesFailedCreations, "ERR-006 ERR-007", "sync_parity"),
    Fault(life.LeavesCancelledCreations, "CANCEL-028 TIME-008"),
    Fault(life.StoresOneLabel, "LIFE-006 REAP-002 REAP-007"),
    Fault(life.ListsWithoutLabels, "REAP-002 REAP-007"),
    Fault(life.ListsByKey, "REAP-005 REAP-006"),
    Fault(life.RemovesByPrefix, "REAP-014"),
    # What is promised: policy, caps, tiers, capabilities, secrets, paths.
    Fault(claims.IgnoresDeny, "NET-001 NET-002 NET-007 FLAG-020"),
    Fault(claims.IgnoresTheAllowlist, "NET-015"),
    Fault(claims.IgnoresTheMemoryCap, "CAP-002 CAP-003"),
    Fault(claims.IgnoresTheDiskCap, "CAP-017"),
    Fault(claims.ReadsTheHost, "FS-020"),
    Fault(claims.ReadsNothingAsEmpty, "FS-041 FS-054 SYNC-013", "errors"),
    Fault(claims.WritesBesideLinks, "FS-011 FS-059 XFER-010"),
    Fault(claims.WritesThroughLinks, "XFER-022"),
    Fault(claims.IgnoresTheMode, "FS-050 XFER-007", "sync_parity"),
    Fault(claims.RefusesInput, "STDIN-003 FLAG-014", "cancellation errors timeouts"),
    Fault(claims.RefusesAllowlists, "FLAG-022 NET-015"),
    Fault(claims.PretendsState, "FLAG-010"),
    Fault(claims.DeclaresTooMuch, "FLAG-001 FLAG-003"),
    Fault(claims.OutdoesTheClaim, "TIER-011"),
    Fault(claims.GuessesTheTier, "TIER-002 LIFE-022"),
    Fault(claims.ShowsItsVariables, "LIFE-016 RUN-055 SYNC-011"),
    Fault(claims.KeepsItsVariables, "LIFE-017"),
)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.part.__name__)
def test_a_fault_is_found(fault: Fault, tmp_path: Path) -> None:
    """The cases that claim to find a fault fail, and none of what it has nothing to do with."""
    name = fault.part.__name__
    others = inner.sample(set(AREAS) - fault.areas, name)
    found = inner.run(fault.part, tmp_path, whole=fault.cases, others=others)
    assert fault.cases <= found.failed.keys(), f"missed by {fault.cases - found.failed.keys()}"
    amiss = {number: said for number, said in found.failed.items() if number in others}
    assert not amiss, f"failed although it is in none of {fault.areas}: {amiss}"
    assert _fewest(found, set(AREAS) - fault.areas) >= LEAST


def test_without_a_fault_nothing_fails(tmp_path: Path) -> None:
    """On a backend that is put together in the same way, of parts that are whole, every case
    that finds a fault passes, and a sample of each area."""
    numbers = {number for fault in FAULTS for number in fault.cases} - STATEFUL
    others = inner.sample(AREAS, "whole")
    found = inner.run(HandleAround, tmp_path, whole=numbers, others=others)
    assert found.failed == {}
    assert numbers <= found.ran
    assert _fewest(found, AREAS) >= LEAST


def test_every_area_finds_a_fault() -> None:
    """No area of the suite is without a fault that it has to find."""
    proven = {CASES[number].area for fault in FAULTS for number in fault.cases}
    assert set(AREAS) - proven == set()


def test_every_fault_is_in_the_table_once() -> None:
    """The modules of faults hold no part that is not tried."""
    defined = [
        thing
        for module in (claims, life, output)
        for thing in vars(module).values()
        if isinstance(thing, type) and thing.__module__ == module.__name__
        if not thing.__name__.startswith("_")
    ]
    assert sorted(map(str, defined)) == sorted(str(fault.part) for fault in FAULTS)


def test_the_suite_reaches_every_case() -> None:
    """No area takes a name of a test from another: all cases are attributes of the suite."""
    found = [case_of(getattr(BackendContractSuite, name)) for name in dir(BackendContractSuite)]
    assert {case.number for case in found if case is not None} == CASES.keys()


def _fewest(found: inner.Outcomes, areas: Collection[str]) -> int:
    """Return how many cases were run of the area of which the fewest were."""
    ran = [CASES[number].area for number in found.ran]
    return min(ran.count(area) for area in areas)
