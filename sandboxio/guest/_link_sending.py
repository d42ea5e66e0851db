"""What waits to be sent over a link: whole frames, in one order, whoever gets to send them."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Protocol, cast

import anyio
import anyio.lowlevel

from sandboxio.core.errors import SandboxError
from sandboxio.core.lifecycle import to_its_end
from sandboxio.guest._link_turns import Turns

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

CLOSED = (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError, SandboxError)
"""What a stream raises when either side has ended it."""
MOST_WAITING = 1024 * 1024
"""Bytes in the buffer from which on nothing but answers is added."""
_CHUNK = 256 * 1024
_PATIENCE = 0.002
"""Seconds until a stream that takes nothing is worth reading from as well."""


class ByteStream(Protocol):
    """What a link needs of a connection: a slice of `anyio.abc.ByteStream`.

    A `receive()` that is cancelled must not lose what it has read. A stream may offer
    `async send_some(memoryview) -> int` too, which sends what it can and awaits nothing after
    that, and `send_nowait(memoryview) -> int`, which awaits nothing at all. Without either,
    sending is shielded, once it is cancelled for no longer than the teardown grace.
    """

    async def receive(self, max_bytes: int = ..., /) -> bytes: ...
    async def send(self, item: bytes, /) -> None: ...
    async def aclose(self) -> None: ...


class Outgoing:
    """The buffer between those who have something to say and the stream."""

    def __init__(self, stream: ByteStream, lose: Callable[[str, Exception | None], None]) -> None:
        self._stream = stream
        self._some = cast(
            "Callable[[memoryview], Awaitable[int]] | None", getattr(stream, "send_some", None)
        )
        self._nowait = cast(
            "Callable[[memoryview], int] | None", getattr(stream, "send_nowait", None)
        )
        self._lose = lose
        self._parts: deque[bytes | memoryview] = deque()
        self._chunk = memoryview(b"")
        self._closed = False
        self.turns = Turns()
        self.told = 0
        """Bytes ever put in."""
        self.sent = 0
        """Bytes that the stream has taken of them."""

    @property
    def idle(self) -> bool:
        """There is something to send, and nobody sends it."""
        return self.told > self.sent and not self.turns.busy

    @property
    def full(self) -> bool:
        return self.told - self.sent > MOST_WAITING

    def put(self, *parts: bytes | memoryview) -> None:
        """Add a whole frame."""
        if not self._closed:
            self._parts.extend(parts)
            self.told += sum(map(len, parts))

    def reached(self, target: int) -> bool:
        return self.sent >= target or self._closed

    async def attempt(self, target: int) -> bool:
        """Send, unless that would take long; say whether the target is reached."""
        if self._nowait is not None:
            self._send_now(self._nowait, target)
        elif self._some is not None:
            self.turns.busy = True
            try:
                with anyio.move_on_after(_PATIENCE):
                    await self.drain(target)
            finally:
                self.turns.busy = False
        return self.reached(target)

    def _send_now(self, send: Callable[[memoryview], int], target: int) -> None:
        while not self.reached(target):
            try:
                count = send(self._current())
            except CLOSED as exc:
                self._lose("the connection broke", exc)
                return
            if not count:
                return
            self._advance(count)

    async def drain(self, target: int) -> None:
        """Send up to a target, or until the stream is closed; for who holds the turn."""
        while not self.reached(target):
            try:
                await self._send()
            except CLOSED as exc:
                self._lose("the connection broke", exc)
            self.turns.wake_ready()

    async def _send(self) -> None:
        chunk = self._current()
        if self._some is not None:
            self._advance(await self._some(chunk))
            return
        await anyio.lowlevel.checkpoint_if_cancelled()
        await self._send_whole(bytes(chunk))

    async def _send_whole(self, chunk: bytes) -> None:
        done = False

        async def act() -> None:
            nonlocal done
            await self._stream.send(chunk)
            done = True

        try:
            await to_its_end(act)
        except anyio.get_cancelled_exc_class():
            if not done:
                self._lose("a cancelled call left it inside of a frame", None)
            raise
        finally:
            if done:
                self._advance(len(chunk))

    def _current(self) -> memoryview:
        if not self._chunk:
            self._chunk = self._next()
        return self._chunk

    def _next(self) -> memoryview:
        """Take what one send may take: the many small parts together, copied once."""
        first = self._parts.popleft()
        parts, size = [first], len(first)
        while self._parts and size + len(self._parts[0]) <= _CHUNK + 64:
            parts.append(self._parts.popleft())
            size += len(parts[-1])
        return memoryview(first if len(parts) == 1 else b"".join(parts))

    def _advance(self, count: int) -> None:
        self.sent += count
        self._chunk = self._chunk[count:]

    def close(self) -> None:
        """Drop what is left: nobody will get it."""
        self._closed = True
        self._parts.clear()
        self._chunk = memoryview(b"")
        self.turns.wake_all()
