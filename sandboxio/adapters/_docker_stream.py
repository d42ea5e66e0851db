"""Raw streams to the engine: the upgraded connections of exec and attach, and their frames.

These run on the event loop, one socket each and no thread, so that a quiet command can last as
long as its own deadline allows and cancelling one closes it at once. Only a Windows pipe, which
no event loop can wait for, is served by worker threads.
"""

from __future__ import annotations

import json
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

import anyio
import anyio.from_thread
import anyio.lowlevel

from sandboxio.adapters import _docker_unix
from sandboxio.adapters._docker_failure import Phase, failure
from sandboxio.adapters._loader import load
from sandboxio.core import threads
from sandboxio.core.errors import ConnectError, LinkLost
from sandboxio.core.models import OutputChunk, StreamName

if TYPE_CHECKING:
    from sandboxio.adapters._docker_endpoint import Endpoint

READ_BYTES = 256 * 1024
CLOSED = (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError)
"""What a stream raises when either side has ended it."""
_HEADER = 8
_STREAMS: dict[int, StreamName] = {0: "stdout", 1: "stdout", 2: "stderr"}
_BODY_LIMIT = 64 * 1024
_CONNECT_TIMEOUT = 5.0


class ByteStream(Protocol):
    """What is needed of a connection: a slice of `anyio.abc.ByteStream`."""

    async def receive(self, max_bytes: int = ...) -> bytes: ...
    async def send(self, item: bytes) -> None: ...
    async def send_eof(self) -> None: ...
    async def aclose(self) -> None: ...


class FrameDecoder:
    """Cuts the engine's multiplexed stream into chunks as bytes arrive, whatever their size.

    Raises `LinkLost` for a header the protocol does not have.
    """

    def __init__(self) -> None:
        self._header = b""
        self._left = 0
        self._stream: StreamName = "stdout"

    @property
    def at_boundary(self) -> bool:
        """Whether the bytes so far end with a whole frame."""
        return not self._header and not self._left

    def feed(self, data: bytes) -> list[OutputChunk]:
        chunks: list[OutputChunk] = []
        view = memoryview(data)
        while view:
            if self._left:
                piece = view[: self._left]
                self._left -= len(piece)
                chunks.append(OutputChunk(self._stream, bytes(piece)))
            else:
                piece = view[: _HEADER - len(self._header)]
                self._header += bytes(piece)
                self._begin()
            view = view[len(piece) :]
        return chunks

    def _begin(self) -> None:
        if len(self._header) < _HEADER:
            return
        kind, zeros = self._header[0], self._header[1:4]
        if kind not in _STREAMS or any(zeros):
            raise LinkLost("The engine's output stream is malformed.", outcome="unknown")
        self._stream = _STREAMS[kind]
        self._left = int.from_bytes(self._header[4:], "big")
        self._header = b""


async def upgrade(
    endpoint: Endpoint, phase: Phase, path: str, body: dict[str, Any] | None = None
) -> tuple[ByteStream, bytes]:
    """POST a request that turns into a raw stream; return it and the bytes that came early."""
    stream = await connect(endpoint)
    try:
        return stream, await _handshake(stream, phase, path, body)
    except BaseException:
        await _close(stream)
        raise


async def connect(endpoint: Endpoint) -> ByteStream:
    """Open a connection to the engine.

    Raises:
        ConnectError: nothing answers there.
    """
    try:
        with anyio.fail_after(_CONNECT_TIMEOUT):
            return await _open(endpoint)
    except (OSError, TimeoutError, anyio.BrokenResourceError, anyio.EndOfStream) as exc:
        raise ConnectError(
            f"The engine cannot be reached: {type(exc).__name__}.",
            hint=endpoint.hint,
            outcome="not_started",
        ) from exc


async def _open(endpoint: Endpoint) -> ByteStream:
    if endpoint.scheme == "unix":
        return await _docker_unix.connect(endpoint.address)
    if endpoint.scheme == "npipe":
        return await _open_pipe(endpoint.address)
    parts = urlsplit(endpoint.url)
    host, port = (
        parts.hostname or "localhost",
        parts.port or (2376 if endpoint.tls_directory else 2375),
    )
    context = endpoint.ssl_context()
    if context is None:
        return await anyio.connect_tcp(host, port)
    return await anyio.connect_tcp(host, port, ssl_context=context, tls_standard_compatible=False)


async def _handshake(
    stream: ByteStream, phase: Phase, path: str, body: dict[str, Any] | None
) -> bytes:
    h11: Any = load("h11", backend="docker", extra="docker")
    payload = b"" if body is None else json.dumps(body).encode()
    connection = h11.Connection(h11.CLIENT)
    request = h11.Request(
        method="POST",
        target=path,
        headers=[
            ("Host", "docker"),
            ("Content-Type", "application/json"),
            ("Content-Length", str(len(payload))),
            ("Connection", "Upgrade"),
            ("Upgrade", "tcp"),
        ],
    )
    events = (request, h11.Data(data=payload), h11.EndOfMessage())
    try:
        await stream.send(b"".join(connection.send(event) for event in events))
    except (anyio.BrokenResourceError, OSError) as exc:
        raise ConnectError("The engine closed the connection.", outcome="unknown") from exc
    response = await _next_event(h11, connection, stream)
    if response.status_code == 101:
        return bytes(connection.trailing_data[0])
    if response.status_code == 200:
        if {b"content-length", b"transfer-encoding"} & {name for name, _ in response.headers}:
            raise ConnectError("The engine's answer is not a stream.", outcome="unknown")
        event = connection.next_event()
        return bytes(event.data) if isinstance(event, h11.Data) else b""
    raise failure(phase, response.status_code, await _message(h11, connection, stream))


async def _next_event(h11: Any, connection: Any, stream: ByteStream) -> Any:
    while True:
        try:
            event = connection.next_event()
        except h11.RemoteProtocolError as exc:
            raise ConnectError("The engine's answer is not HTTP.", outcome="unknown") from exc
        if event is not h11.NEED_DATA:
            return event
        try:
            connection.receive_data(await stream.receive(READ_BYTES))
        except anyio.EndOfStream:
            raise ConnectError("The engine closed the connection.", outcome="unknown") from None
        except (anyio.BrokenResourceError, OSError) as exc:
            raise ConnectError("The engine closed the connection.", outcome="unknown") from exc


async def _message(h11: Any, connection: Any, stream: ByteStream) -> str:
    body = b""
    while len(body) < _BODY_LIMIT:
        try:
            event = await _next_event(h11, connection, stream)
        except ConnectError:  # it ends with the connection
            break
        if not isinstance(event, h11.Data):
            break
        body += bytes(event.data)
    text = body[:_BODY_LIMIT].decode("utf-8", "replace")
    try:
        return str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        return text


async def _close(stream: ByteStream) -> None:
    with anyio.move_on_after(1, shield=True):
        await stream.aclose()


class BlockingStream:
    """A byte stream over a blocking socket-like object, read by a thread.

    A read that nobody waits for any more goes on; whoever reads next gets what it brings.
    """

    def __init__(self, sock: Any) -> None:
        self._sock = sock
        self._read: _BlockingRead | None = None

    async def receive(self, max_bytes: int = READ_BYTES) -> bytes:
        if self._read is None:
            self._read = _BlockingRead(self._sock, max_bytes)
        data = await self._read.result()
        self._read = None
        if not data:
            raise anyio.EndOfStream
        return data

    async def send(self, item: bytes) -> None:
        await threads.run(lambda: self._sock.sendall(item))

    async def send_eof(self) -> None:
        raise anyio.BrokenResourceError

    async def aclose(self) -> None:
        await threads.run(self._sock.close, lane="teardown")


class _BlockingRead:
    """One read in a daemon thread, awaited as often as need be."""

    def __init__(self, sock: Any, size: int) -> None:
        self._heard, self._token = anyio.Event(), anyio.lowlevel.current_token()
        self._data: list[bytes] = []
        self._errors: list[Exception] = []
        threading.Thread(target=self._work, args=(sock, size), daemon=True).start()

    async def result(self) -> bytes:
        await self._heard.wait()
        if self._errors:
            raise anyio.BrokenResourceError from self._errors[0]
        return self._data[0]

    def _work(self, sock: Any, size: int) -> None:
        try:
            self._data.append(sock.recv(size))
        except Exception as exc:  # noqa: BLE001  # raised where the read is awaited
            self._errors.append(exc)
        with suppress(RuntimeError):  # the event loop has ended meanwhile
            anyio.from_thread.run_sync(self._heard.set, token=self._token)


async def _open_pipe(path: str) -> BlockingStream:
    transport: Any = load("docker.transport", backend="docker", extra="docker")

    def open_pipe() -> Any:
        pipe = transport.NpipeSocket()
        pipe.connect(path)
        return pipe

    return BlockingStream(await threads.run(open_pipe))
