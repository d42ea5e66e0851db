"""A file of a sandbox as chunks, taken as fast as the reader takes them."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

import anyio

from sandboxio.core.errors import ConfigurationError, ExecutionTimeout
from sandboxio.core.mapping import Deadline, DeadlinePassed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from contextlib import AbstractContextManager
    from types import TracebackType
    from typing import Self

    from anyio.abc import TaskGroup
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

    from sandboxio.core.clock import Clock
    from sandboxio.core.record import OperationRecord

    class Read(Protocol):
        """The `read()` of a driver, with all its arguments but the sink."""

        def __call__(self, *, sink: Callable[[bytes], Awaitable[None]]) -> Awaitable[None]: ...


class SandboxFileReader:
    """One file that is being read; see `file_protocols.FileReader`.

    The driver's `read()` runs beside the reader and hands over one piece at a time: it waits
    until the piece is taken, so that nothing gathers.
    """

    def __init__(
        self,
        read: Read,
        *,
        timeout: float,
        operation: AbstractContextManager[OperationRecord],
        clock: Clock,
    ) -> None:
        self._read = read
        self._timeout = timeout
        self._operation = operation
        self._clock = clock
        self._begun = self._left = self._late = self._ended = self._complete = False
        self._error: Exception | None = None
        self._first: bytes | None = None
        self._tasks: TaskGroup
        self._deadline: Deadline
        self._reading: anyio.CancelScope
        self._pieces_in: MemoryObjectSendStream[bytes]
        self._pieces: MemoryObjectReceiveStream[bytes]

    async def __aenter__(self) -> Self:
        if self._begun:
            raise ConfigurationError("A reader is entered once; call open_read() again.")
        self._begun = True
        self._deadline = Deadline(self._timeout, self._clock)
        self._reading = anyio.CancelScope()
        self._pieces_in, self._pieces = anyio.create_memory_object_stream[bytes](0)
        self._tasks = await anyio.create_task_group().__aenter__()
        self._tasks.start_soon(self._pump)
        try:
            self._first = await self._receive()  # what hinders is raised here, as by open()
        except BaseException:
            await self._leave()
            raise
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        await self._leave()

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        if not self._begun or self._left:
            raise ConfigurationError("A reader is used in its `async with` block.")
        piece, self._first = self._first, None
        piece = piece or await self._receive()
        if piece is None:
            raise StopAsyncIteration
        return piece

    async def _receive(self) -> bytes | None:
        """Return the next piece, `None` at the end, or raise why there is none."""
        if not self._ended:
            try:
                return await self._deadline.bound(self._pieces.receive)
            except anyio.EndOfStream:
                pass
            except DeadlinePassed:
                await self._end_late()
            self._ended = True
        if self._error is not None:
            raise self._error
        if self._left:
            raise ConfigurationError("The reader's block was left meanwhile.")
        if not self._complete:  # cancelled, and the piece that is missing came here first
            await anyio.sleep_forever()
        return None

    async def _end_late(self) -> None:
        self._late = True
        self._reading.cancel()
        with suppress(anyio.EndOfStream):
            while True:
                await self._pieces.receive()

    async def _pump(self) -> None:
        """Read to the end; an error is kept for the reader, so that no task group wraps it."""
        with self._pieces_in:
            try:
                with self._operation as record:
                    await self._recorded(record)
            except Exception as exc:  # noqa: BLE001  # raised where the reader waits
                self._error = exc

    async def _recorded(self, record: OperationRecord) -> None:
        async def put(piece: bytes) -> None:
            record.bytes_out += len(piece)
            if piece:
                await self._pieces_in.send(piece)

        with self._reading:
            await self._read(sink=put)
            self._complete = True
        if self._late:
            raise ExecutionTimeout(f"The file was not read within {self._timeout:g} s.")
        if self._reading.cancelled_caught:
            record.outcome = "killed"

    async def _leave(self) -> None:
        self._left = True
        self._reading.cancel()
        try:
            # Without the error of the block: the group would wrap it.
            await self._tasks.__aexit__(None, None, None)
        finally:
            self._pieces.close()
