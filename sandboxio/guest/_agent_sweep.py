"""Part of the agent: ending every process of a call.

A process belongs to a call as long as it lists the call's group. `/proc` is read name by name, so
what forks and leaves faster than that can be missed: then everything is stopped for a moment.
"""

from __future__ import annotations

import os
import time

from sandboxio.guest._agent_wire import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from typing import Callable
else:  # what it wraps is there already, and it takes long to import
    import _signal as signal

SWEEP_SECONDS = 0.05
UNSURE = 4
"""Looks that are no proof, one after the other, until all are stopped for one that is."""


class Look:
    """What one reading of `/proc` found."""

    def __init__(self, group: int, until: float = 0.0) -> None:
        """Give up at `until`, unless that is 0: a storm leaves the agent no time and no memory."""
        self.partial = False
        self.members: list[int] = []
        self.ended: set[int] = set()
        """Members that were waited for by nobody yet: a moment before they may have forked."""
        self.present: set[int] = set()
        self.stopped: set[int] = set()
        self.vanished = 0
        mark = b"%d" % group
        for name in os.listdir("/proc"):
            if name.isdigit():
                self.read(int(name), mark)
            if until and (self.members or self.vanished) and time.monotonic() > until:
                self.partial = True
                break

    def read(self, pid: int, mark: bytes) -> None:
        status = status_of(pid)
        if status is None:
            self.vanished += 1
            return
        state = status.get(b"State", b"?")[:1]
        (self.stopped if state == b"T" else self.present).add(pid)
        if mark not in status.get(b"Groups", b"").split():
            return
        # The first thread of a process can have ended while others go on.
        if state in b"ZX" and status.get(b"Threads", b"1") in (b"0", b"1"):
            self.ended.add(pid)
        else:
            self.members.append(pid)


def status_of(pid: int) -> dict[bytes, bytes] | None:
    try:
        fd = os.open("/proc/%d/status" % pid, os.O_RDONLY)
    except OSError:
        return None
    try:
        lines = os.read(fd, 65536).splitlines()
    except OSError:
        return None
    finally:
        os.close(fd)
    return {key: value.strip() for key, _, value in (line.partition(b":") for line in lines)}


def sweep(group: int, reap: Callable[[], None]) -> bool:
    """Kill the processes of a call; true once none is left.

    That is when two looks in a row found none, and nobody who may just have made another; or one
    look while nothing moved.
    """
    until = time.monotonic() + SWEEP_SECONDS
    quiet = unsure = 0
    ended: set[int] = set()
    while quiet < 2:
        look = Look(group, until if os.getpid() == 1 else 0.0)
        kill(look.members)
        if not (look.partial or look.members or look.vanished or look.ended - ended):
            quiet += 1
            continue
        quiet, ended = 0, look.ended
        unsure += 1
        late = time.monotonic() > until
        if (late or unsure >= UNSURE) and kill_standing(group, look.stopped):
            return True
        if late:
            return False
        reap()
    return True


def kill(pids: list[int]) -> None:
    """Stop them all before the first is killed, so that none of them can make another."""
    for sent in (signal.SIGSTOP, signal.SIGKILL):
        for pid in pids:
            with suppress(OSError):
                os.kill(pid, sent)


def kill_standing(group: int, stopped: set[int]) -> bool:
    """Kill while nothing moves: the kernel sends to all, and lets no fork come between.

    `stopped` are those who stay so; in a storm there is no time to find all of them. True when
    there was nobody to kill, nor can be any more.
    """
    if os.getpid() != 1:
        return False
    with suppress(OSError):
        os.kill(-1, signal.SIGSTOP)
    present: set[int] = set()
    try:
        look = Look(group)
        kill(look.members)
        present = look.present | look.stopped
    finally:
        for pid in present - stopped - {1}:
            with suppress(OSError):  # also to those who have not come to stop yet
                os.kill(pid, signal.SIGCONT)
    return not look.members


def parent_of(pid: int) -> int:
    """Return the parent of a process, 0 where there is none: a number may be another's by now."""
    status = status_of(pid)
    return int(status.get(b"PPid", b"0")) if status else 0
