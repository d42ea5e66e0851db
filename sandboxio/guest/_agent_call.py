"""Part of the agent: one call, and all the processes it leads to."""

from __future__ import annotations

import fcntl
import os
import select
import time

from sandboxio.guest._agent_sweep import parent_of, sweep
from sandboxio.guest._agent_wire import (
    CREDIT,
    CREDIT_MAX,
    DATA,
    ERROUT,
    LENGTH,
    PAYLOAD_MAX,
    RESULT,
    WINDOW,
    Invalid,
    pack,
    suppress,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections import deque
    from typing import Any

    from sandboxio.guest._agent_link import Link
    from sandboxio.guest._agent_start import Program
else:  # what they wrap is there already, and they take long to import
    import _signal as signal
    from _collections import deque

PIPE = 1024 * 1024
SILENCE = 0.2
LAST_SECONDS, LAST_BYTES = 10.0, 16 * 1024 * 1024
GRANT = 64 * 1024
F_SETPIPE_SZ = 1031


def widen(fd: int) -> None:
    """Let a pipe hold more: each time it is full, two processes have to take turns."""
    with suppress(OSError):  # a user's share of pipe buffers is limited; it may be no pipe
        fcntl.fcntl(fd, F_SETPIPE_SZ, PIPE)


class Channel:
    """What a host opened; closed by its `RESULT`."""

    def __init__(self, link: Link, channel: int) -> None:
        self.link = link
        self.agent = link.agent
        self.channel = channel
        self.credit = WINDOW
        self.window = WINDOW
        self.over = False
        self.half_closed = False

    def credited(self, count: int) -> None:
        self.credit += count
        if self.credit > CREDIT_MAX:
            raise Invalid
        self.refresh()

    def incoming(self, data: bytes) -> None:
        self.window -= len(data)
        if self.window < 0 or self.half_closed:
            raise Invalid
        self.data(data)

    def give_back(self, count: int) -> None:
        if count and not self.over:
            self.window += count
            self.link.send(self.channel, CREDIT, LENGTH.pack(count))

    def result(self, fields: list[bytes]) -> None:
        if not self.over:
            self.over = True
            self.link.channels.pop(self.channel, None)
            self.agent.bounded.pop(self, None)
            self.link.send(self.channel, RESULT, pack(fields))

    def data(self, data: bytes) -> None:
        raise Invalid

    def closed(self) -> None:
        """The host will send no more."""

    def refresh(self) -> None:
        """Credit, or room in the link, has changed."""

    def signal(self, number: int) -> None:
        """Pass a signal on."""

    def end(self) -> None:
        self.result([b"error", b"ended", b"ended"])


class Call(Channel):
    """One command, or one piece of code, and all processes it leads to."""

    def __init__(self, link: Link, channel: int, deadline: int) -> None:
        super().__init__(link, channel)
        self.group = self.agent.next_group()
        self.pid = self.parent = 0
        self.status: int | None = None
        self.usage: Any = None
        self.stdin = -1
        self.waiting: deque[memoryview] = deque()
        self.unreturned = 0
        self.outputs: dict[int, int] = {}
        self.reading: set[int] = set()
        self.report = -1
        self.widened: set[int] = set()
        self.ended = self.complete = self.cut = False
        self.last = self.until = 0.0
        self.lingered = 0
        self.kills = self.agent.oom_kills.count()
        self.agent.bounded[self] = deadline / 1000 + time.monotonic()

    def began(self, pid: int, program: Program, parent: int) -> None:
        self.pid = pid
        self.stdin, self.report = program.stdin, program.report
        self.parent = parent
        self.outputs = {program.stdout: DATA, program.stderr: ERROUT}
        for fd in self.outputs:
            self.agent.watch(fd, 0, self.readable)
        if self.stdin >= 0:
            self.agent.watch(self.stdin, 0, self.writable)
            self.writable(self.stdin, 0)
        self.refresh()
        if self.ended:
            self.sweep()

    # Standard input.

    def data(self, data: bytes) -> None:
        self.waiting.append(memoryview(data))
        if self.stdin >= 0:
            self.writable(self.stdin, 0)
        elif self.pid:
            self.forget_input()

    def closed(self) -> None:
        self.half_closed = True
        if self.stdin >= 0:
            self.writable(self.stdin, 0)

    def writable(self, fd: int, events: int) -> None:
        try:
            while self.waiting:
                sent = os.write(fd, self.waiting[0])
                self.unreturned += sent
                rest = self.waiting[0][sent:]
                if rest:
                    self.waiting[0] = rest
                else:
                    self.waiting.popleft()
        except BlockingIOError:
            pass
        except OSError:
            self.forget_input()
            return
        if self.unreturned >= GRANT or not self.waiting:
            self.give_back(self.unreturned)
            self.unreturned = 0
        if self.waiting:
            self.agent.change(fd, select.EPOLLOUT)
        elif self.half_closed:
            self.close_input()
        else:
            self.agent.change(fd, 0)

    def forget_input(self) -> None:
        """Take what nobody will read, so that its sender is not kept waiting."""
        self.close_input()
        self.give_back(self.unreturned + sum(map(len, self.waiting)))
        self.unreturned = 0
        self.waiting.clear()

    def close_input(self) -> None:
        if self.stdin >= 0:
            self.agent.forget(self.stdin)
            os.close(self.stdin)
            self.stdin = -1

    # Output.

    def refresh(self) -> None:
        wanted = self.credit > 0 and not self.link.full
        for fd in self.outputs:
            if wanted != (fd in self.reading):
                self.agent.change(fd, select.EPOLLIN if wanted else 0)
                (self.reading.add if wanted else self.reading.discard)(fd)

    def readable(self, fd: int, events: int) -> None:
        kind = self.outputs.get(fd)
        if kind is None or (not self.ended and (self.credit <= 0 or self.link.full)):
            return
        room = PAYLOAD_MAX if self.ended else min(self.credit, PAYLOAD_MAX)
        try:
            data = os.read(fd, room)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.close_output(fd)
        elif not self.ended:
            self.forward(fd, kind, data)

    def forward(self, fd: int, kind: int, data: bytes) -> None:
        self.credit -= len(data)
        self.link.send(self.channel, kind, data)
        if len(data) >= 0x10000 and fd not in self.widened:
            self.widened.add(fd)
            widen(fd)
        if self.status is not None:
            self.last = time.monotonic()
            self.lingered += len(data)
            self.cut = self.lingered > LAST_BYTES
            if self.cut:
                self.finish()
                return
        if self.credit <= 0 or self.link.full:
            self.refresh()

    def close_output(self, fd: int) -> None:
        if self.outputs.pop(fd, None) is not None:
            self.reading.discard(fd)
            self.agent.forget(fd)
            os.close(fd)
        if not self.outputs and self.status is not None:
            self.finish()

    # The end.

    def exited(self, status: int, usage: Any) -> None:
        self.status, self.usage = status, usage
        self.forget_input()
        if self.ended:
            return
        for fd in 2 * list(self.outputs):
            self.readable(fd, 0)
        if not self.outputs:
            self.finish()
        if self.over:
            return
        self.last = time.monotonic()
        self.until = self.last + LAST_SECONDS
        self.agent.later(SILENCE / 4, self.linger)

    def linger(self) -> None:
        """Wait until its children have been silent for a while, if the host takes all they say."""
        if self.over or self.ended:
            return
        now = time.monotonic()
        if self.credit <= 0 or self.link.full:
            self.until += now - max(self.last, now - SILENCE / 4)
            self.last = now
        self.cut = now >= self.until
        if self.cut or now - self.last >= SILENCE:
            self.finish()
        else:
            self.agent.later(SILENCE / 4, self.linger)

    def finish(self) -> None:
        if self.over or self.status is None or (self.ended and not self.complete):
            return
        self.forget_input()
        words = b""
        if self.report >= 0:
            with suppress(OSError):
                words = os.read(self.report, 512)
            os.close(self.report)
            self.report = -1
        for fd in list(self.outputs):
            self.outputs.pop(fd)
            self.agent.drain(fd)
        self.agent.calls.pop(self.pid, None)
        if words and not self.ended:
            self.result([b"error"] + words.split(b"\0", 1))
        else:
            self.result(self.verdict())
        self.agent.settle(self)

    def verdict(self) -> list[bytes]:
        status = self.status or 0
        code = 128 + (status & 0x7F) if status & 0x7F else status >> 8
        oom = code == 137 and not self.ended and self.agent.oom_kills.count() > self.kills
        usage = self.usage
        return [
            b"ok",
            b"%d" % code,
            b"%d" % self.cut,
            b"%d" % oom,
            b"%d" % self.ended,
            b"%d" % self.complete,
            b"%d" % (usage.ru_utime * 1000 if usage else 0),
            b"%d" % (usage.ru_stime * 1000 if usage else 0),
            b"%d" % (usage.ru_maxrss if usage else 0),
        ]

    def failed(self, fields: list[bytes]) -> None:
        """It could not be started."""
        self.forget_input()
        self.complete = True
        self.result(fields)
        self.agent.settle(self)

    def signal(self, number: int) -> None:
        """Send a signal to the command and what shares its process group."""
        if self.pid and self.status is None:
            with suppress(OSError):
                os.killpg(self.pid, number)

    def end(self) -> None:
        if self.over or self.ended:
            return
        self.ended = True
        self.forget_input()
        for fd in list(self.outputs):
            self.agent.change(fd, select.EPOLLIN)
        if self.pid:
            self.sweep()

    def sweep(self) -> None:
        """Kill what belongs to the call until two looks in a row find nothing."""
        if self.status is None and parent_of(self.pid) == self.parent:
            with suppress(OSError):
                os.kill(self.pid, signal.SIGKILL)
        if sweep(self.group, self.agent.reap):
            self.complete = True
            self.agent.reap()
            if self.status is None:
                self.agent.later(0.001, self.sweep)
            else:
                self.finish()
        else:
            self.agent.later(0.001, self.sweep)
