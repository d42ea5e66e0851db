"""Streams whose reads block, as those of a named pipe do, on a pair of plain sockets."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import anyio
import pytest

from sandboxio.adapters._docker_stream import BlockingStream

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.anyio


@pytest.fixture
async def ends() -> AsyncIterator[tuple[BlockingStream, socket.socket]]:
    ours, theirs = socket.socketpair()
    yield BlockingStream(ours), theirs
    theirs.close()
    ours.close()


async def test_a_cancelled_read_loses_nothing(ends: tuple[BlockingStream, socket.socket]) -> None:
    """What arrives after a read was given up is what the next read gets."""
    stream, other = ends
    with anyio.move_on_after(0.01) as scope:
        await stream.receive()
    assert scope.cancelled_caught
    other.sendall(b"FIRST")
    assert await stream.receive() == b"FIRST"
    other.sendall(b"SECOND")
    assert await stream.receive() == b"SECOND"


async def test_the_end(ends: tuple[BlockingStream, socket.socket]) -> None:
    """A side that has closed is the end of the stream."""
    stream, other = ends
    other.close()
    with pytest.raises(anyio.EndOfStream):
        await stream.receive()


async def test_sending(ends: tuple[BlockingStream, socket.socket]) -> None:
    """All of it is sent; half closing is not offered."""
    stream, other = ends
    await stream.send(b"words")
    assert other.recv(16) == b"words"
    with pytest.raises(anyio.BrokenResourceError):
        await stream.send_eof()
    await stream.aclose()
