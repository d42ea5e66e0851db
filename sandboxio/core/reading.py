"""A file of a sandbox as chunks, taken as fast as the reader takes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from sandboxio.core.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from types import TracebackType
    from typing import Self

    from anyio.abc import TaskGroup

    Sink = Callable[[bytes], Awaitable[None]]


class SandboxFileReader:
    """One file that is being read; see `protocols.FileReader`.

    The driver's `read()` runs beside the reader and hands over one piece at a time: it waits
    until the piece is taken, so that nothing gathers.
    """

    def __init__(self, read: Callable[[Sink], Awaitable[None]]) -> None:
        self._read = read
        self._begun = False
        self._ended = False
        self._error: Exception | None = None
        self._first: bytes | None = None
        self._tasks: TaskGroup
        self._pieces_in, self._pieces = anyio.create_memory_object_stream[bytes](0)

    async def __aenter__(self) -> Self:
        if self._begun:
            raise ConfigurationError("A reader is entered once; call open_read() again.")
        self._begun = True
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
        if not self._begun:
            raise ConfigurationError("A reader is used in its `async with` block.")
        piece, self._first = self._first, None
        piece = piece or await self._receive()
        if piece is None:
            raise StopAsyncIteration
        return piece

    async def _receive(self) -> bytes | None:
        """Return the next piece, `None` at the end, or raise why there is none."""
        if self._ended:
            return None
        try:
            return await self._pieces.receive()
        except anyio.EndOfStream:
            pass
        except anyio.ClosedResourceError:
            raise ConfigurationError("The reader's block has been left.") from None
        self._ended = True
        if self._error is not None:
            raise self._error
        return None

    async def _pump(self) -> None:
        """Read to the end; an error is kept for the reader, so that no task group wraps it."""
        with self._pieces_in:
            try:
                await self._read(self._put)
            except Exception as exc:  # noqa: BLE001  # raised where the reader waits
                self._error = exc

    async def _put(self, piece: bytes) -> None:
        if piece:
            await self._pieces_in.send(piece)

    async def _leave(self) -> None:
        self._tasks.cancel_scope.cancel()
        try:
            # Without the error of the block: the group would wrap it.
            await self._tasks.__aexit__(None, None, None)
        finally:
            self._pieces.close()
