"""One channel of a link: what came, what may be sent, and how it ended."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import anyio.lowlevel

from sandboxio.guest import frames
from sandboxio.guest.frames import RuleBroken

if TYPE_CHECKING:
    from sandboxio.guest._link_turns import Waiter
    from sandboxio.guest.link import Link

WINDOW_MAX = 1024 * 1024
"""What may be under way, or wait here, for a reader that keeps up."""
ERRORS = frozenset(
    b"not-found permission not-a-directory is-a-directory exists not-empty no-space busy invalid "
    b"unsupported ended other".split()
)
_JOINED = 16 * 1024
_MOST_PIECES = 256
"""Pieces that wait at most; beyond, what came on stdout and on stderr is joined, each for itself:
a piece takes memory even when it holds one byte."""


class Channel:
    """What the host has opened; the agent's `RESULT` closes it.

    Everything that waits raises `LinkLost` once the link is lost.
    """

    def __init__(self, link: Link, number: int) -> None:
        self._link = link
        self.number = number
        self.result: list[bytes] | None = None
        """The fields of its `RESULT`, once that has come."""
        self.watchers: list[Waiter] = []
        self._pieces: deque[tuple[int, bytes | bytearray]] = deque()
        self._held = 0
        self._window = self._target = frames.WINDOW
        self._taken = 0
        self._ended_output = False
        self._credit = frames.WINDOW
        self._offered: memoryview | None = None
        self._ended_input = False
        self._dropping = False

    # For who holds it.

    async def receive(self) -> tuple[int, bytes] | None:
        """Return what came next, `DATA` or `ERROUT`; `None` once there is a result.

        A cancelled call takes nothing.
        """
        if self._pieces:
            await anyio.lowlevel.checkpoint_if_cancelled()
        elif self._taken >= self._target:
            self._target = min(2 * self._target, WINDOW_MAX)
        if self._give_back():
            await self._link.flush()
        await self._link.until(self._readable, self.watchers)
        if self._pieces:
            return self._next()
        await self._require()
        return None

    async def send(self, data: bytes) -> None:
        """Send all of it as credit comes; silent when the other side takes no more."""
        view = memoryview(data)
        while view:
            await self._link.until(self._writable, self.watchers)
            if self._over:
                return
            await self._require()
            await self._link.room()
            view = view[self._put_data(view) :]
            await self._link.flush()

    async def send_eof(self) -> None:
        """Say that there is no more."""
        if not self._over and not self._ended_input:
            self._put_eof()
            await self._link.flush()

    def offer(self, data: bytes) -> None:
        """Have data and its end sent as credit comes, by whoever reads from the link."""
        self._offered = memoryview(data)
        self._push()

    async def signal(self, number: int) -> None:
        """Pass a signal, 1 to 64, to the command."""
        if not self._over:
            await self._link.room()
            self._link.put(self.number, frames.SIGNAL, bytes([number]))
            await self._link.flush()

    async def finish(self) -> list[bytes]:
        """End the call, drop what it still says, and return the result."""
        await self.abandon()
        await self._link.until(self._has_result, self.watchers)
        await self._require()
        return self.result or []

    async def abandon(self) -> None:
        """End the call for somebody who went away; nobody is stalled by what it still says."""
        if self._dropping:
            return
        self._dropping = True
        self._pieces.clear()
        self._held = 0
        self._offered = None
        if self.result is None:
            self._link.put(self.number, frames.END)
            self._give_back()
            await self._link.flush()

    # For the link.

    def incoming(self, kind: int, payload: bytes) -> None:
        """Take a frame, or a piece of one, of a kind that the decoder has checked."""
        if kind in (frames.DATA, frames.ERROUT):
            self._arrived(kind, payload)
        elif kind == frames.RESULT:
            self.result = _checked(frames.unpack(payload))
        elif kind == frames.EOF:
            if self._ended_output:
                raise RuleBroken("EOF came twice")
            self._ended_output = True
        else:
            self._credit += frames.credited(payload)
            if self._credit > frames.CREDIT_MAX:
                raise RuleBroken("credit went beyond 2^30")
            self._push()

    def _arrived(self, kind: int, payload: bytes) -> None:
        if self._ended_output:
            raise RuleBroken("output came after EOF")
        self._window -= len(payload)
        if self._window < 0:
            raise RuleBroken("output went beyond its credit")
        if self._dropping:
            self._give_back()
            return
        self._held += len(payload)
        self._keep(kind, payload)

    def _keep(self, kind: int, payload: bytes) -> None:
        pieces = self._pieces
        if pieces and pieces[-1][0] == kind and len(pieces[-1][1]) + len(payload) <= _JOINED:
            self._join(len(pieces) - 1, payload)
        elif len(pieces) >= _MOST_PIECES:
            last = len(pieces) - 1
            at = next((i for i in (last, last - 1) if pieces[i][0] == kind), None)
            if at is None:
                pieces.append((kind, payload))
            else:
                self._join(at, payload)
        else:
            pieces.append((kind, payload))

    def _join(self, at: int, payload: bytes) -> None:
        kind, before = self._pieces[at]
        if isinstance(before, bytearray):
            before += payload
        else:
            self._pieces[at] = kind, bytearray(before + payload)

    def _next(self) -> tuple[int, bytes]:
        kind, piece = self._pieces.popleft()
        self._held -= len(piece)
        self._taken += len(piece)
        return kind, piece if isinstance(piece, bytes) else bytes(piece)

    def _give_back(self) -> bool:
        """Give credit for what has left our memory, in batches."""
        owed = self._target - self._window - self._held
        if owed < self._target // 4 or self._ended_output or self.result is not None:
            return False
        self._window += owed
        self._link.put_whole(frames.credit(self.number, owed))
        return True

    def _push(self) -> None:
        while self._offered is not None and not self._over:
            if self._offered and not self._credit:
                return
            if not self._offered:
                self._offered = None
                self._put_eof()
            else:
                self._offered = self._offered[self._put_data(self._offered) :]

    def _put_data(self, view: memoryview) -> int:
        size = 0 if self._over else min(len(view), self._credit, frames.PAYLOAD_MAX)
        if size:
            self._credit -= size
            self._link.put(self.number, frames.DATA, view[:size])
        return size

    def _put_eof(self) -> None:
        self._ended_input = True
        self._link.put(self.number, frames.EOF)

    @property
    def _over(self) -> bool:
        return self.result is not None or self._dropping

    def _has_result(self) -> bool:
        return self.result is not None

    def _readable(self) -> bool:
        return bool(self._pieces) or self.result is not None

    def _writable(self) -> bool:
        return self._credit > 0 or self._over

    async def _require(self) -> None:
        if self.result is None:
            await self._link.require()


def _checked(fields: list[bytes]) -> list[bytes]:
    known = fields[:1] == [b"ok"] or (
        len(fields) == 3 and fields[0] == b"error" and fields[1] in ERRORS
    )
    if not known:
        raise RuleBroken("a RESULT is neither ok nor an error with a name")
    return fields
