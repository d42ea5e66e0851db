"""Virtual pipes, whose readers and writers wait for each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandboxio.testing._machine.process import Waiters

if TYPE_CHECKING:
    from sandboxio.testing._machine.kernel import Kernel

PIPE_SIZE = 64 * 1024


def pipe(kernel: Kernel) -> tuple[PipeEnd, PipeEnd]:
    """Return the reading and the writing end of a new pipe."""
    shared = _Shared(kernel)
    return PipeEnd(shared, reads=True), PipeEnd(shared, reads=False)


class _Shared:
    def __init__(self, kernel: Kernel) -> None:
        self.buffer = bytearray()
        self.readers = self.writers = 0
        self.readable, self.writable = Waiters(kernel), Waiters(kernel)


class PipeEnd:
    """One holder of one end of a pipe."""

    def __init__(self, shared: _Shared, *, reads: bool) -> None:
        self._shared = shared
        self._reads = reads
        self._open = True
        if reads:
            shared.readers += 1
        else:
            shared.writers += 1

    async def read(self, size: int) -> bytes:
        shared = self._shared
        while not shared.buffer and shared.writers:
            await shared.readable.wait()
        data = bytes(shared.buffer[:size])
        del shared.buffer[:size]
        shared.writable.wake()
        return data

    async def write(self, data: bytes) -> None:
        shared = self._shared
        view = memoryview(data)
        while len(view):
            while len(shared.buffer) >= PIPE_SIZE and shared.readers:
                await shared.writable.wait()
            if not shared.readers:
                raise BrokenPipeError
            room = PIPE_SIZE - len(shared.buffer)
            shared.buffer += view[:room]
            view = view[room:]
            shared.readable.wake()

    def feed(self, data: bytes) -> None:
        """Put data in from outside, whatever its size; lost when nobody reads it."""
        if self._shared.readers:
            self._shared.buffer += data
            self._shared.readable.wake()

    def dup(self) -> PipeEnd:
        return PipeEnd(self._shared, reads=self._reads)

    def close(self) -> None:
        if not self._open:
            return
        self._open = False
        if self._reads:
            self._shared.readers -= 1
            self._shared.writable.wake()
        else:
            self._shared.writers -= 1
            self._shared.readable.wake()
