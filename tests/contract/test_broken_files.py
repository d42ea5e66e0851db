"""Each fault of `broken_files` is found by the cases that claim to find it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.contract import broken_files as broken
from tests.contract import inner

if TYPE_CHECKING:
    from pathlib import Path

    from tests.contract.around import Part

FAULTS: tuple[tuple[type[Part], str], ...] = (
    (broken.LosesTheMode, "FS-083"),
    (broken.CopiesWhatLinksLeadTo, "FS-078"),
    (broken.EntersDirectories, "FS-080"),
    (broken.EditsTheFirst, "FS-096"),
    (broken.GlobsThroughLinks, "FS-107"),
    (broken.HidesDotfiles, "FS-103 FS-104"),
    (broken.PublishesHalves, "FS-125 SYNC-030"),
    (broken.CountsNoProcesses, "CAP-021 CAP-022"),
)
WHOLE = {"FS-004", "FS-022", "FS-095", "FS-112", "CAP-020", "RUN-001", "XFER-001"}
"""Cases that none of the faults has to do with."""


@pytest.mark.parametrize(("part", "must"), FAULTS, ids=lambda value: getattr(value, "__name__", ""))
def test_a_fault_of_files_is_found(part: type[Part], must: str, tmp_path: Path) -> None:
    """The cases that claim to find a fault fail, and those that have nothing to do with it pass."""
    found = inner.run(part, tmp_path, whole=set(must.split()), others=WHOLE)
    assert found.failed.keys() == set(must.split())
    assert found.ran >= WHOLE


def test_every_fault_of_files_is_in_the_table_once() -> None:
    """The module of faults holds no part that is not tried."""
    defined = [
        thing
        for thing in vars(broken).values()
        if isinstance(thing, type) and thing.__module__ == broken.__name__
    ]
    assert sorted(map(str, defined)) == sorted(str(part) for part, _ in FAULTS)
