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
UNSURE = 8
"""Looks that find nothing but somebody who was about to leave, until all are stopped."""


class Look:
    """What one reading of `/proc` found."""

    def __init__(self, group: int) -> None:
        self.members: list[int] = []
        self.stopped: list[int] = []
        self.vanished = 0
        mark = b"%d" % group
        for name in os.listdir("/proc"):
            if name.isdigit():
                self.read(int(name), mark)

    def read(self, pid: int, mark: bytes) -> None:
        status = status_of(pid)
        if status is None:
            self.vanished += 1
            return
        state = status.get(b"State", b"?")[:1]
        if state == b"T":
            self.stopped.append(pid)
        # The first thread of a process can have ended while others go on.
        ended = state in b"ZX" and status.get(b"Threads", b"1") in (b"0", b"1")
        if not ended and mark in status.get(b"Groups", b"").split():
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
    """Kill the processes of a call; true when two looks in a row found none."""
    until = time.monotonic() + SWEEP_SECONDS
    quiet = unsure = 0
    while quiet < 2:
        look = Look(group)
        kill(look.members)
        if look.members:
            quiet = 0
            reap()
            if time.monotonic() > until:
                return False
        elif look.vanished:
            quiet = 0
            unsure += 1
            if unsure >= UNSURE:
                kill_standing(group)
                unsure = 0
        else:
            quiet += 1
    return True


def kill(pids: list[int]) -> None:
    """Stop them all before the first is killed, so that none of them can make another."""
    for sent in (signal.SIGSTOP, signal.SIGKILL):
        for pid in pids:
            with suppress(OSError):
                os.kill(pid, sent)


def kill_standing(group: int) -> None:
    """Kill while nothing moves: the kernel sends to all, and lets no fork come between."""
    if os.getpid() != 1:
        return
    before = set(Look(group).stopped)
    with suppress(OSError):
        os.kill(-1, signal.SIGSTOP)
    try:
        kill(Look(group).members)
    finally:
        for pid in set(Look(group).stopped) - before:
            with suppress(OSError):
                os.kill(pid, signal.SIGCONT)


def parent_of(pid: int) -> int:
    """Return the parent of a process, 0 where there is none: a number may be another's by now."""
    status = status_of(pid)
    return int(status.get(b"PPid", b"0")) if status else 0
