"""The engine's raw streams: frames, and the answer that turns a request into one."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import anyio
import pytest

from sandboxio import ConnectError, CreationError, LinkLost, SandboxGone
from sandboxio.adapters import _docker_stream
from sandboxio.adapters._docker_endpoint import Endpoint
from sandboxio.adapters._docker_stream import BlockingStream, FrameDecoder, upgrade
from sandboxio.adapters._docker_unix import UnixStream
from sandboxio.core.models import OutputChunk

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from anyio.abc import ByteStream


def frame(kind: int, data: bytes) -> bytes:
    """Return one frame of the engine's protocol."""
    return bytes([kind, 0, 0, 0]) + len(data).to_bytes(4, "big") + data


WHOLE = frame(1, b"out") + frame(2, b"error") + frame(1, b"") + frame(0, b"in") + frame(1, b"x" * 9)
EXPECTED = [("stdout", b"out"), ("stderr", b"error"), ("stdout", b"in" + b"x" * 9)]


def joined(chunks: list[OutputChunk]) -> list[tuple[str, bytes]]:
    """Join neighbouring chunks of one stream."""
    result: list[tuple[str, bytes]] = []
    for chunk in chunks:
        if result and result[-1][0] == chunk.stream:
            result[-1] = (chunk.stream, result[-1][1] + chunk.data)
        else:
            result.append((chunk.stream, chunk.data))
    return result


@pytest.mark.parametrize("offset", range(len(WHOLE) + 1))
def test_frames_cut_anywhere(offset: int) -> None:
    """Wherever the bytes are cut, the same output comes out, and the end is a boundary."""
    decoder = FrameDecoder()
    chunks = decoder.feed(WHOLE[:offset]) + decoder.feed(WHOLE[offset:])
    assert joined(chunks) == EXPECTED
    assert decoder.at_boundary


def test_frames_byte_by_byte() -> None:
    """Output is handed on as it arrives, before its frame is complete."""
    decoder = FrameDecoder()
    assert joined([c for byte in WHOLE for c in decoder.feed(bytes([byte]))]) == EXPECTED
    assert decoder.feed(frame(1, b"abc")[:-1]) == [OutputChunk("stdout", b"ab")]


def test_where_a_frame_ends() -> None:
    """Only the end of a frame is a boundary: not a header, not a part of the content."""
    boundaries = {len(WHOLE[: len(frame(1, b"out"))]), 0}
    for offset in range(len(frame(1, b"out")) + 1):
        decoder = FrameDecoder()
        decoder.feed(WHOLE[:offset])
        assert decoder.at_boundary is (offset in boundaries)


@pytest.mark.parametrize(
    "header", [b"\x03\0\0\0", b"\x01\x01\0\0", b"\x01\0\0\x01", b"HTTP", b"\xff" * 4]
)
def test_what_is_no_header_is_refused(header: bytes) -> None:
    """A stream that is not of the protocol ends the call instead of passing for output."""
    with pytest.raises(LinkLost, match="malformed"):
        FrameDecoder().feed(header + b"\0\0\0\x01x")


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[Engine]:
    """A socket that answers every request with what the test put down."""
    served = Engine(tmp_path / "engine.sock")
    listener = await anyio.create_unix_listener(served.path)
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, served.handle)
        yield served
        tasks.cancel_scope.cancel()


class Engine:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.answer = b""
        self.request = b""

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint(f"unix://{self.path}", "a test")

    async def handle(self, stream: ByteStream) -> None:
        async with stream:
            while b"\r\n\r\n" not in self.request or not self.request.endswith(b"}"):
                self.request += await stream.receive()
            await stream.send(self.answer)


@pytest.mark.anyio
@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Type: application/vnd.docker.raw-stream\r\n\r\n",
    ],
)
async def test_early_bytes_are_kept(engine: Engine, head: bytes) -> None:
    """Output that comes with the answer's head is part of the stream."""
    engine.answer = head + frame(1, b"early")
    stream, early = await upgrade(engine.endpoint, "call", "/v1.44/exec/x/start", {"Tty": False})
    rest = b""
    try:
        while len(early + rest) < len(frame(1, b"early")):
            rest += await stream.receive()
    finally:
        await stream.aclose()
    assert early + rest == frame(1, b"early")
    assert engine.request.startswith(b"POST /v1.44/exec/x/start HTTP/1.1\r\n")
    assert b"Upgrade: tcp" in engine.request


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        (
            b"HTTP/1.1 404 Not Found\r\nContent-Length: 35\r\n\r\n"
            b'{"message":"No such container: 3f"} ',
            SandboxGone,
            "No such container: 3f",
        ),
        (b"HTTP/1.1 500 Oops\r\nContent-Length: 5\r\n\r\nplain", ConnectError, "500: plain"),
        (b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n", ConnectError, "no message"),
        (b"HTTP/1.1 500 Oops\r\nContent-Length: 2\r\n\r\n[]", ConnectError, r"\[\]"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", ConnectError, "closed the connection"),
        (b"", ConnectError, ""),
        (b"HTTP/1.1 101 Switch", ConnectError, ""),
    ],
)
async def test_answers_that_are_no_stream(
    engine: Engine, answer: bytes, error: type[Exception], words: str
) -> None:
    """Every other answer is a mapped error with the engine's own words."""
    engine.answer = answer
    with pytest.raises(error, match=words or None):
        await upgrade(engine.endpoint, "call", "/exec/x/start", {})


@pytest.mark.anyio
async def test_the_phase_decides(engine: Engine) -> None:
    """The same answer means another thing while a sandbox is being made."""
    engine.answer = b"HTTP/1.1 500 Oops\r\nContent-Length: 4\r\n\r\noops"
    with pytest.raises(CreationError):
        await upgrade(engine.endpoint, "create", "/containers/x/attach", {})


@pytest.mark.anyio
async def test_a_connection_that_is_reset_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that goes away before it has the request is a `ConnectError` like any other."""
    ours, other = socket.socketpair()
    other.close()

    async def opened(endpoint: Endpoint) -> UnixStream:
        return UnixStream(ours)

    monkeypatch.setattr(_docker_stream, "connect", opened)
    with pytest.raises(ConnectError, match="closed the connection") as caught:
        await upgrade(Endpoint("unix:///run/engine.sock", "a test"), "call", "/exec/e/start", {})
    assert caught.value.outcome == "unknown"
    assert ours.fileno() == -1


@pytest.mark.anyio
async def test_nobody_listens(tmp_path: Path) -> None:
    """A socket that is not there is a `ConnectError` whose hint names it."""
    endpoint = Endpoint(f"unix://{tmp_path}/none.sock", "DOCKER_HOST")
    with pytest.raises(ConnectError) as caught:
        await upgrade(endpoint, "call", "/x", {})
    assert f"{tmp_path}/none.sock (from DOCKER_HOST)" in caught.value.hint
    assert isinstance(caught.value.__cause__, OSError)


@pytest.mark.anyio
async def test_a_blocking_socket_as_a_stream() -> None:
    """Where no event loop can wait, threads do; its end is `EndOfStream`."""

    class Pipe:
        def __init__(self) -> None:
            self.parts = [b"one", b""]
            self.sent = b""
            self.closed = False

        def recv(self, size: int) -> bytes:
            return self.parts.pop(0)

        def sendall(self, data: bytes) -> None:
            self.sent += data

        def close(self) -> None:
            self.closed = True

    pipe = Pipe()
    stream = BlockingStream(pipe)
    await stream.send(b"hello")
    assert await stream.receive() == b"one"
    with pytest.raises(anyio.EndOfStream):
        await stream.receive()
    with pytest.raises(anyio.BrokenResourceError):
        await stream.send_eof()
    await stream.aclose()
    assert (pipe.sent, pipe.closed) == (b"hello", True)
