"""HTTP/1.1 over the engine's unix socket, as little of it as the engine needs."""

from __future__ import annotations

import select
import socket
from typing import TYPE_CHECKING, BinaryIO, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

API = "/v1.41"
PIECE = 256 * 1024
PATIENCE = 120.0
"""Seconds after which a side that says nothing is given up, so that no run waits for ever."""
JSON, TAR = "application/json", "application/x-tar"


class EngineRefused(RuntimeError):
    """The engine answered with an error; the raw twin has no other way to deal with one."""


class Answer:
    """The head of an answer, and its body still to be read."""

    def __init__(self, reader: BinaryIO) -> None:
        self._reader = reader
        self.status = int(reader.readline().split(None, 2)[1])
        self._fields: dict[bytes, bytes] = {}
        while (line := reader.readline()) not in (b"\r\n", b""):
            name, _, value = line.partition(b":")
            self._fields[name.lower()] = value.strip()

    def pieces(self) -> Iterator[bytes]:
        """Yield the body as it comes, a piece at most `PIECE` bytes long."""
        if self._fields.get(b"transfer-encoding") == b"chunked":
            while size := int(self._reader.readline(), 16):
                yield from self._exactly(size)
                self._reader.readline()
            self._reader.readline()
        elif (length := self._fields.get(b"content-length")) is not None:
            yield from self._exactly(int(length))
        elif self.status != 204:
            while piece := self._reader.read(PIECE):
                yield piece

    def read(self) -> bytes:
        return b"".join(self.pieces())

    def take(self, size: int) -> bytes:
        """Return so many bytes of a stream that ends with its connection; fewer at its end."""
        return self._reader.read(size)

    def _exactly(self, size: int) -> Iterator[bytes]:
        while size > 0:
            piece = self._reader.read(min(size, PIECE))
            if not piece:
                raise EngineRefused("the engine closed the connection within an answer")
            size -= len(piece)
            yield piece


class Wire:
    """One connection, kept for the next request."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._socket: socket.socket | None = None
        self._reader: BinaryIO | None = None

    def request(self, method: str, path: str, body: bytes = b"", kind: str = JSON) -> Answer:
        """Send a request; its answer has to be read before the next one."""
        return self.send(method, path, kind, len(body), lambda sock: sock.sendall(body))

    def call(self, method: str, path: str, body: bytes = b"", kind: str = JSON) -> bytes:
        return self.request(method, path, body, kind).read()

    def send(
        self, method: str, path: str, kind: str, size: int, put: Callable[[socket.socket], object]
    ) -> Answer:
        """Send a request whose body `put` writes."""
        sock, reader = self._connected()
        head = f"{method} {API}{path} HTTP/1.1\r\nHost: engine\r\nContent-Type: {kind}\r\n"
        sock.sendall(f"{head}Content-Length: {size}\r\n\r\n".encode())
        if size:
            put(sock)
        answer = Answer(reader)
        if answer.status >= 400:
            raise EngineRefused(f"{method} {path}: {answer.status} {answer.read()[:200]!r}")
        return answer

    def close(self) -> None:
        for end in (self._reader, self._socket):
            if end is not None:
                end.close()
        self._socket = self._reader = None

    def _connected(self) -> tuple[socket.socket, BinaryIO]:
        if self._socket is not None and not is_idle(self._socket):
            self.close()
        if self._socket is None or self._reader is None:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._socket.settimeout(PATIENCE)
            self._socket.connect(self._path)
            self._reader = cast("BinaryIO", self._socket.makefile("rb", buffering=PIECE))
        return self._socket, self._reader


def is_idle(sock: socket.socket) -> bool:
    """Say whether a kept connection can be used: the engine closes one that idles for 300 s.

    There is something to read at its end, and where bytes came that nobody asked for.
    """
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return not poll.poll(0)
