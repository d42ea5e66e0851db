"""The stream over a Unix socket, which is how most engines are reached."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from sandboxio.adapters._docker_unix import UnixStream, connect

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.anyio

LARGE = bytes(range(256)) * 8192


@pytest.fixture
def ends() -> Iterator[tuple[UnixStream, socket.socket]]:
    """A stream, and the other end as a plain socket."""
    ours, other = socket.socketpair()
    with ours, other:
        other.settimeout(10)
        yield UnixStream(ours), other


async def test_data_and_its_end(ends: tuple[UnixStream, socket.socket]) -> None:
    """Bytes arrive as they are sent; the other's end is `EndOfStream`, ours reaches it."""
    stream, other = ends
    other.sendall(b"ab")
    assert (await stream.receive(1), await stream.receive()) == (b"a", b"b")
    await stream.send(b"x")
    await stream.send_eof()
    assert (other.recv(9), other.recv(9)) == (b"x", b"")
    other.close()
    with pytest.raises(anyio.EndOfStream):
        await stream.receive()


async def test_a_slow_reader_is_waited_for(ends: tuple[UnixStream, socket.socket]) -> None:
    """Much data is sent whole, in order, as fast as it is read."""
    stream, other = ends
    got = b""
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stream.send, LARGE)
            while len(got) < len(LARGE):
                got += await anyio.to_thread.run_sync(other.recv, 65536)
    assert got == LARGE


async def test_closing_wakes_who_waits(ends: tuple[UnixStream, socket.socket]) -> None:
    """Whoever waits for data hears that the stream was closed, and so does who comes later."""
    stream, _ = ends
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_closed, stream)
        await anyio.wait_all_tasks_blocked()
        await stream.aclose()
    await _closed(stream)
    await stream.aclose()
    with pytest.raises(anyio.ClosedResourceError):
        await stream.send(b"x")


async def test_a_reader_that_is_gone(ends: tuple[UnixStream, socket.socket]) -> None:
    """Writing to nobody is `BrokenResourceError`."""
    stream, other = ends
    other.close()
    with pytest.raises(anyio.BrokenResourceError):
        await stream.send(b"x")


async def test_nobody_listens(tmp_path: Path) -> None:
    """A path without a listener raises `OSError`."""
    with pytest.raises(OSError, match="No such file"):
        await connect(str(tmp_path / "none"))


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_cancelled_as_data_arrives(ends: tuple[UnixStream, socket.socket]) -> None:
    """A wait that is cancelled in the turn in which data arrives is cancelled, and no more."""
    stream, other = ends
    troubles: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: troubles.append(context))
    waiting = asyncio.ensure_future(stream.receive())
    await anyio.wait_all_tasks_blocked()
    other.sendall(b"x")
    loop.call_soon(waiting.cancel)
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await anyio.wait_all_tasks_blocked()
    assert troubles == []
    assert await stream.receive() == b"x"


async def _closed(stream: UnixStream) -> None:
    with pytest.raises(anyio.ClosedResourceError):
        await stream.receive()
