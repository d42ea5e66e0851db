"""The running calls of a fake: one scripted, one made of virtual processes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel

from sandboxio.core.driver import ExitStatus, KillReport
from sandboxio.core.models import OutputChunk

if TYPE_CHECKING:
    from sandboxio.core.models import StreamName
    from sandboxio.testing._inside import Inside
    from sandboxio.testing._machine.kernel import Kernel
    from sandboxio.testing._machine.process import Fd, Process, Waiters
    from sandboxio.testing._rules import Answer
    from sandboxio.testing.calls import Call

WINDOW = 1024 * 1024
"""Bytes a virtual command may be ahead of its reader."""


class Channel(ABC):
    """What both kinds share: waiting for a change, and the end of the sandbox."""

    def __init__(self, inside: Inside, call: Call) -> None:
        self._inside = inside
        self._call = call
        self._changed = anyio.Event()
        self._killed = False

    def wake(self) -> None:
        """Let whoever waits look again."""
        self._changed.set()

    async def receive(self) -> OutputChunk | None:
        await anyio.lowlevel.checkpoint()
        while True:
            chunk = self._next()
            if chunk is not None:
                return chunk
            self._inside.require_alive()
            if self._killed or self._is_over():
                return None
            await self._change()

    async def wait(self) -> ExitStatus:
        while not self._killed and not self._is_over():
            self._inside.require_alive()
            await self._change()
        return self._status()

    async def send(self, data: bytes) -> None:
        await anyio.lowlevel.checkpoint()
        self._inside.require_alive()
        self._call.stdin = (self._call.stdin or b"") + data

    async def close_stdin(self) -> None:
        await anyio.lowlevel.checkpoint()

    async def kill(self) -> KillReport:
        await anyio.lowlevel.checkpoint()
        self._killed = True
        self.wake()
        return KillReport(complete=True)

    async def aclose(self) -> None:
        self._inside.channels.discard(self)

    @abstractmethod
    def _next(self) -> OutputChunk | None: ...

    @abstractmethod
    def _is_over(self) -> bool: ...

    @abstractmethod
    def _status(self) -> ExitStatus: ...

    async def _change(self) -> None:
        self._changed = anyio.Event()
        await self._changed.wait()


class ScriptedChannel(Channel):
    """A call that does what a rule says."""

    def __init__(self, inside: Inside, call: Call, answer: Answer) -> None:
        super().__init__(inside, call)
        self._answer = answer
        self._began = inside.clock.time()
        self._left = deque(answer.pieces)
        moments = sorted({at for at, _ in answer.pieces} | {answer.ends_at})
        self._timers = [inside.clock.call_at(self._began + at, self.wake) for at in moments]

    async def aclose(self) -> None:
        for timer in self._timers:
            timer.cancel()
        await super().aclose()

    def _next(self) -> OutputChunk | None:
        if self._left and self._left[0][0] <= self._elapsed() and not self._killed:
            return self._left.popleft()[1]
        return None

    def _is_over(self) -> bool:
        over = not self._answer.hangs and self._elapsed() >= self._answer.ends_at
        if over and self._answer.error is not None:
            raise self._answer.error
        return over

    def _status(self) -> ExitStatus:
        return ExitStatus(self._answer.result.exit_code, results=self._answer.result.results)

    def _elapsed(self) -> float:
        return self._inside.clock.time() - self._began + 1e-9


class VirtualChannel(Channel):
    """A call that is a tree of virtual processes."""

    def __init__(self, inside: Inside, call: Call, number: int, stdin: Fd | None) -> None:
        super().__init__(inside, call)
        self._kernel: Kernel = inside.kernel
        self._number = number
        self._stdin = stdin
        self._input = deque[bytes]()
        self._chunks = deque[OutputChunk]()
        self._ahead = 0
        self._main: Process | None = None
        self.writable: Waiters = inside.kernel.waiters()

    def attach(self, main: Process) -> None:
        """Belong to a process: its end is the end of the call."""
        self._main = main
        main.on_end = self.wake

    async def send(self, data: bytes) -> None:
        await super().send(data)
        if self._stdin is not None and self._main is not None and self._main.exit_code is None:
            self._kernel.feed(self._stdin, data)
            self._kernel.run()

    async def close_stdin(self) -> None:
        await super().close_stdin()
        if self._stdin is not None:
            self._stdin.close()
            self._kernel.run()

    async def kill(self) -> KillReport:
        self._kernel.kill_call(self._number)
        self._kernel.run()
        return await super().kill()

    async def aclose(self) -> None:
        self._chunks.clear()
        self._ahead = 0
        if self._stdin is not None:
            self._stdin.close()
        self.writable.wake()
        self._kernel.run()
        await super().aclose()

    @property
    def is_full(self) -> bool:
        return self._ahead >= WINDOW and self in self._inside.channels

    def put(self, stream: StreamName, data: bytes) -> None:
        """Take output of a virtual process; what comes after the end of the call is lost."""
        if self._main is None or self._main.exit_code is None:
            self._chunks.append(OutputChunk(stream, data))
            self._ahead += len(data)
            self.wake()

    def _next(self) -> OutputChunk | None:
        if not self._chunks or self._killed:
            return None
        chunk = self._chunks.popleft()
        self._ahead -= len(chunk.data)
        self.writable.wake()
        self._kernel.run()
        return chunk

    def _is_over(self) -> bool:
        return self._main is not None and self._main.exit_code is not None and not self._chunks

    def _status(self) -> ExitStatus:
        code = None if self._main is None else self._main.exit_code
        return ExitStatus(137 if code is None else code)


class OutputFd:
    """stdout or stderr of the processes of a call, as the host reads it."""

    def __init__(self, channel: VirtualChannel, stream: StreamName) -> None:
        self._channel = channel
        self._stream: StreamName = stream

    async def read(self, size: int) -> bytes:
        return b""

    async def write(self, data: bytes) -> None:
        while self._channel.is_full:
            await self._channel.writable.wait()
        if data:
            self._channel.put(self._stream, bytes(data))

    def dup(self) -> OutputFd:
        return self

    def close(self) -> None:
        """Nothing: the call ends with its first process, not with its output."""
