"""Streams whose reads block, as those of a named pipe do, on a pair of plain sockets."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import anyio
import pytest

from sandboxio.adapters._docker_stream import CLOSED, BlockingStream

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.anyio


@pytest.fixture
def sockets() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


@pytest.fixture
def other(sockets: tuple[socket.socket, socket.socket]) -> socket.socket:
    """The far end of the stream under test."""
    return sockets[1]


@pytest.fixture
def stream(sockets: tuple[socket.socket, socket.socket]) -> BlockingStream:
    return BlockingStream(sockets[0])


async def test_a_cancelled_read_loses_nothing(stream: BlockingStream, other: socket.socket) -> None:
    """What arrives after a read was given up is what the next read gets."""
    with anyio.move_on_after(0.01) as scope:
        await stream.receive()
    assert scope.cancelled_caught
    other.sendall(b"FIRST")
    assert await stream.receive() == b"FIRST"
    other.sendall(b"SECOND")
    assert await stream.receive() == b"SECOND"


async def test_reads_cancelled_again_and_again(
    stream: BlockingStream, other: socket.socket
) -> None:
    """Every byte arrives once and in order, however many reads were given up in between."""
    received = b""
    for number in range(50):
        other.sendall(bytes([number]))
        with anyio.CancelScope() as scope:
            scope.cancel()
            received += await stream.receive()
    with anyio.fail_after(5):
        while len(received) < 50:
            received += await stream.receive()
    assert received == bytes(range(50))


async def test_a_read_takes_at_most_what_was_asked(
    stream: BlockingStream, other: socket.socket
) -> None:
    """The rest stays for the next read."""
    other.sendall(b"abcdef")
    assert await stream.receive(4) == b"abcd"
    assert await stream.receive(4) == b"ef"


async def test_the_end(stream: BlockingStream, other: socket.socket) -> None:
    """A side that has closed is the end of the stream, after what it had sent, and stays it."""
    other.sendall(b"last")
    other.close()
    assert await stream.receive() == b"last"
    for _ in range(2):
        with pytest.raises(anyio.EndOfStream):
            await stream.receive()


async def test_a_broken_read(stream: BlockingStream, other: socket.socket) -> None:
    """The reason of a read that fails is kept as the cause, and the stream stays broken."""
    await stream.send(b"never read")
    other.close()
    for _ in range(2):
        with pytest.raises(anyio.BrokenResourceError) as caught:
            await stream.receive()
        assert isinstance(caught.value.__cause__, ConnectionResetError)


async def test_a_read_that_broke_while_nobody_waited(
    stream: BlockingStream, other: socket.socket
) -> None:
    """The failure is not lost either."""
    await stream.send(b"never read")
    with anyio.move_on_after(0.01):
        await stream.receive()
    other.close()
    with pytest.raises(anyio.BrokenResourceError):
        await stream.receive()


async def test_sending(stream: BlockingStream, other: socket.socket) -> None:
    """All of it is sent, also more than fits in between; half closing is not offered."""
    data, received = bytes(2_000_000), b""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stream.send, data)
        while len(received) < len(data):
            received += await anyio.to_thread.run_sync(other.recv, 65536)
    assert received == data
    with pytest.raises(anyio.BrokenResourceError):
        await stream.send_eof()


async def test_sending_to_nobody(stream: BlockingStream, other: socket.socket) -> None:
    """A write that fails raises what every stream raises when the other side has gone."""
    other.close()
    with pytest.raises(CLOSED):
        await stream.send(b"words")


async def test_closing(stream: BlockingStream, other: socket.socket) -> None:
    """The other side sees the end."""
    await stream.aclose()
    assert other.recv(1) == b""
