"""A byte stream over a Unix socket.

anyio's own, on asyncio, logs an error when a wait is cancelled in the turn of the loop in which
data arrives.
"""

from __future__ import annotations

import socket
import weakref
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import anyio
import anyio.lowlevel

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")

_RECEIVED = 65536
_FULL = 0.005
"""Seconds until a listener whose queue is full is tried again."""


class UnixStream:
    """One connection; `anyio`'s exceptions tell how it ended."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._socket = sock
        # Of a handle that is dropped without being closed.
        weakref.finalize(self, sock.close).atexit = False
        self._sending = anyio.Lock()
        self._drained = False

    async def receive(self, max_bytes: int = _RECEIVED) -> bytes:
        """Read, and await nothing after that: what is cancelled then would lose data."""
        if self._drained:
            await self._wait(anyio.wait_readable)
        else:
            await anyio.lowlevel.checkpoint()
        while True:
            try:
                data = self._now(lambda: self._socket.recv(max_bytes))
            except BlockingIOError:
                await self._wait(anyio.wait_readable)
            else:
                self._drained = 0 < len(data) < max_bytes
                if not data:
                    raise anyio.EndOfStream
                return data

    def send_nowait(self, view: memoryview) -> int:
        """Send what fits now, which may be nothing."""
        try:
            return self._now(lambda: self._socket.send(view))
        except BlockingIOError:
            return 0

    async def send_some(self, view: memoryview) -> int:
        """Send what fits now, at least a byte; whoever is cancelled here has sent nothing."""
        await anyio.lowlevel.checkpoint_if_cancelled()
        while not (sent := self.send_nowait(view)):
            await self._wait(anyio.wait_writable)
        return sent

    async def send(self, item: bytes) -> None:
        await anyio.lowlevel.checkpoint_if_cancelled()
        async with self._sending:
            view = memoryview(item)
            while view:
                send = partial(self._socket.send, view)
                view = view[await self._try(send, anyio.wait_writable) :]

    async def send_eof(self) -> None:
        await self._try(lambda: self._socket.shutdown(socket.SHUT_WR), anyio.wait_writable)

    async def aclose(self) -> None:
        if self._socket.fileno() >= 0:
            anyio.notify_closing(self._socket)
            self._socket.close()
        await anyio.lowlevel.checkpoint()

    async def _try(
        self, act: Callable[[], T], wait: Callable[[socket.socket], Awaitable[None]]
    ) -> T:
        """Do something as soon as the socket lets it be done."""
        while True:
            try:
                done = self._now(act)
            except BlockingIOError:
                await self._wait(wait)
            else:
                await anyio.lowlevel.cancel_shielded_checkpoint()
                return done

    async def _wait(self, wait: Callable[[socket.socket], Awaitable[None]]) -> None:
        if self._socket.fileno() < 0:
            raise anyio.ClosedResourceError
        await wait(self._socket)

    def _now(self, act: Callable[[], T]) -> T:
        if self._socket.fileno() < 0:
            raise anyio.ClosedResourceError
        try:
            return act()
        except BlockingIOError:
            raise
        except OSError as exc:
            raise anyio.BrokenResourceError from exc


async def connect(path: str) -> UnixStream:
    """Connect to a socket of this host; raises `OSError` where nothing listens."""
    family: int = socket.AF_UNIX  # type: ignore[attr-defined,unused-ignore]  # not on Windows
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setblocking(False)
    try:
        while True:
            try:
                sock.connect(path)
            except BlockingIOError:  # its queue is full
                await anyio.sleep(_FULL)
            else:
                return UnixStream(sock)
    except BaseException:
        sock.close()
        raise
