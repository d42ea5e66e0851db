"""Who made a sandbox."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from subprocess import PIPE

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
    mine = owner.session()
    monkeypatch.setattr(os, "getpid", lambda: -5)
    assert owner.session() != mine


def test_threads_agree_on_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two that ask for the first time at once are told the same, or a watcher would miss one."""
    both = threading.Barrier(2)
    made = iter(["one", "two"])

    def token(_: int) -> str:
        both.wait(5)
        return next(made)

    told: list[str] = []
    monkeypatch.setattr(os, "getpid", lambda: -6)
    monkeypatch.setattr("secrets.token_hex", token)
    asking = [threading.Thread(target=lambda: told.append(owner.session())) for _ in range(2)]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join()
    assert told[0] == told[1]


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


linux = pytest.mark.skipif(sys.platform != "linux", reason="nobody is judged on other systems")


def once() -> dict[str, str]:
    """Describe a process that had this one's pid before it, and so is dead."""
    return {**owner.owner(), "start": "1"}


@linux
def test_a_process_that_runs_is_alive() -> None:
    """Pid and start time are those of a process that is there."""
    assert not owner.is_dead(owner.owner())


@linux
def test_a_pid_that_was_used_again() -> None:
    """The pid is there, and belongs to a process that started at another time."""
    assert owner.is_dead(once())


@linux
@pytest.mark.parametrize("name", ["machine", "boot", "pidns"])
@pytest.mark.parametrize("value", ["elsewhere", ""])
def test_a_process_of_another_place_is_never_judged(name: str, value: str) -> None:
    """On another machine, boot or pid namespace the pid would mean nothing."""
    assert not owner.is_dead({**once(), name: value})


@linux
@pytest.mark.parametrize("name", ["machine", "boot", "pidns", "pid", "start"])
def test_a_label_that_is_absent_judges_nobody(name: str) -> None:
    """What somebody else's container does not say is not made up."""
    told = once()
    del told[name]
    assert not owner.is_dead(told)


@linux
@pytest.mark.parametrize("pid", ["", "0", "-1", "x", "1.5", "\u0661", "9" * 11, "9" * 5000])
def test_a_pid_that_is_none(pid: str) -> None:
    """A label is just text; none of it judges anybody or raises."""
    assert not owner.is_dead({**once(), "pid": pid})


@linux
def test_a_host_that_tells_nothing_judges_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Empty equals empty, and proves nothing."""
    monkeypatch.setattr(sys, "platform", "other")
    assert not owner.is_dead({**owner.owner(), "start": "1"})


@linux
def test_a_zombie_is_dead_and_so_is_what_was_reaped() -> None:
    """A process that has ended holds nothing, whether or not its parent asked."""
    code = "import json; from sandboxio.core import owner; print(json.dumps(owner.owner()))"
    ask = [sys.executable, "-c", f"{code}; input()"]
    with subprocess.Popen(ask, cwd=ROOT, stdin=PIPE, stdout=PIPE, bufsize=0) as child:
        assert child.stdout is not None
        told = json.loads(child.stdout.readline())
        assert not owner.is_dead(told)
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert owner.is_dead(told)
    assert owner.is_dead(told)


@linux
def test_a_process_that_is_hidden_is_not_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under `hidepid` another user's process is not in /proc, and is there."""
    told = once()
    monkeypatch.setattr(owner, "_status", _unseen)
    monkeypatch.setattr(os, "kill", _refused)
    assert not owner.is_dead(told)


def _unseen(pid: int) -> tuple[str, str]:
    return ("", "")


def _refused(pid: int, number: int) -> None:
    raise PermissionError


@linux
def test_a_proc_of_another_pid_namespace_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its numbers are not ours: neither are we described by them, nor anybody judged."""
    told = once()
    monkeypatch.setattr(os, "getpid", lambda: 7)
    assert owner.owner()["pidns"] == ""
    assert not owner.is_dead(told)
