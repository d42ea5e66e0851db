"""Whether a call was killed for memory, told from what an engine remembers of its events."""

from __future__ import annotations

from typing import Any

import pytest

from sandboxio.adapters._docker_memory import verdict

OOM = "oom"


def event(action: str, exec_id: str | None = None) -> dict[str, Any]:
    """Make an event as the engine's API gives it."""
    attributes = {"image": "sha256:1", "name": "sandboxio-1"}
    if exec_id is not None:
        attributes["execID"] = exec_id
    return {"Type": "container", "Action": action, "Actor": {"ID": "1", "Attributes": attributes}}


def started(exec_id: str) -> dict[str, Any]:
    return event("exec_start: /sbin/docker-init -s -- python3", exec_id)


def died(exec_id: str) -> dict[str, Any]:
    return event("exec_die", exec_id)


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([started("us"), event(OOM), died("us")], True),
        ([started("us"), died("us")], False),
        ([event(OOM), started("us"), died("us")], False),
        ([started("us"), died("us"), event(OOM)], False),
        ([started("us"), started("other"), event(OOM), died("other"), died("us")], True),
        ([started("other"), event(OOM), died("other"), started("us"), died("us")], False),
        ([event(OOM), died("us")], True),
        ([event("start"), died("us")], False),
        ([started("us"), event(OOM)], True),
        ([started("us"), event(OOM), event(OOM), died("us")], True),
        ([], False),
        ([{}, {"Action": None, "Actor": None}, died("us")], False),
    ],
    ids=[
        "during it",
        "not at all",
        "before it",
        "after it",
        "beside another call",
        "of an earlier call",
        "its start is forgotten",
        "its start is forgotten, nothing happened",
        "its end is still to come",
        "twice",
        "everything is forgotten",
        "odd events",
    ],
)
def test_the_verdict(events: list[dict[str, Any]], expected: bool) -> None:
    """Only an `oom` while the call was running counts, by the order of events, not by clocks."""
    assert verdict(events, "us") is expected
