"""Who made a sandbox."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sandboxio.core import owner

ROOT = Path(__file__).parents[2]


def test_a_process_has_one_session() -> None:
    """The id stays the same for a process, and is random between processes."""
    code = "from sandboxio.core.owner import session; print(session())"
    other = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert owner.session() == owner.session()
    assert len(other.stdout.strip()) == len(owner.session()) == 16
    assert other.stdout.strip() != owner.session()


def test_a_forked_child_has_a_session_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a child makes is not taken for its parent's."""
    monkeypatch.setattr(owner, "_session", (0, ""))
    mine = owner.session()
    monkeypatch.setattr(os, "getpid", lambda: -5)
    assert owner.session() != mine


@pytest.mark.skipif(sys.platform != "linux", reason="other systems tell less")
def test_an_owner_can_be_told_from_a_later_process() -> None:
    """Pid, start time, boot and namespace are all told, the same each time."""
    told = owner.owner()
    assert told == owner.owner()
    assert (told["pid"], told["session"]) == (str(os.getpid()), owner.session())
    assert told["start"].isdecimal()
    assert told["pidns"].isdecimal()
    assert told["boot"]


def test_a_host_that_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the facts are missing they are empty, so that nobody is judged dead by mistake."""
    monkeypatch.setattr(sys, "platform", "other")
    told = owner.owner()
    assert (told["machine"], told["boot"], told["pidns"], told["start"]) == ("", "", "", "")
