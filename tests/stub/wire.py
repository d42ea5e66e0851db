"""One connection to the stub engine: requests, answers, raw streams, and how they break."""

from __future__ import annotations

import re
import socket
import struct
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, unquote, urlsplit

import h11

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.stub.faults import Answer, Fault

_READ = 64 * 1024
_GLANCE = 0.01
_UPGRADED = (
    b"HTTP/1.1 101 UPGRADED\r\nContent-Type: application/vnd.docker.raw-stream\r\n"
    b"Connection: Upgrade\r\nUpgrade: tcp\r\n\r\n"
)
_VERSIONED = re.compile(r"/v(\d+\.\d+)(/.*)")


class Over(Exception):
    """This connection is not used any further."""


@dataclass(frozen=True)
class Request:
    """A request, its path without the version."""

    method: str
    path: str
    version: str | None
    query: dict[str, str]
    body: bytes

    @property
    def route(self) -> str:
        return f"{self.method} {self.path}"


def parsed(request: h11.Request, body: bytes) -> Request:
    parts = urlsplit(request.target.decode())
    versioned = _VERSIONED.fullmatch(parts.path)
    version, path = versioned.groups() if versioned else (None, parts.path)
    query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    return Request(request.method.decode(), unquote(path), version, query, body)


def frame(stream: int, content: bytes) -> bytes:
    """Return one frame of the engine's multiplexed output."""
    return struct.pack(">BxxxL", stream, len(content)) + content


class Wire:
    """A connection, served by a thread that may block; `hang_up()` ends it from another one."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._http = h11.Connection(h11.SERVER)
        self._fault: Fault | None = None
        self._sent = 0
        self._bare = False
        self.gone = threading.Event()

    def requests(self) -> Iterator[Request]:
        """Return what the client asks, one after the other, until it has gone."""
        while True:
            head, body = self._next_event(), b""
            if not isinstance(head, h11.Request):
                return
            while isinstance(event := self._next_event(), h11.Data):
                body += bytes(event.data)
            self._fault, self._sent = None, 0
            self._bare = head.method == b"HEAD"
            yield parsed(head, body)
            if self._http.our_state is not h11.DONE:
                return
            self._http.start_next_cycle()

    def _next_event(self) -> object:
        try:
            while (event := self._http.next_event()) is h11.NEED_DATA:
                self._http.receive_data(self._received())
        except h11.RemoteProtocolError:
            self.raw(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
            raise Over from None
        return event

    def _received(self) -> bytes:
        try:
            return self._sock.recv(_READ)
        except OSError:
            return b""

    def suffer(self, fault: Fault | None) -> None:
        """Let a fault strike the request at hand."""
        self._fault = fault
        if fault is None:
            return
        self.pause(fault.hold)
        while fault.gate is not None and not fault.gate.is_set():
            self.pause(_GLANCE)

    def pause(self, seconds: float) -> None:
        """Do nothing for a while."""
        if seconds and self.gone.wait(seconds):
            raise Over

    def answer(self, answer: Answer) -> None:
        """Answer the request at hand."""
        if self._fault is not None:
            self.pause(self._fault.delay)
        length = ("Content-Length", str(len(answer.body)))
        chunked = ("Transfer-Encoding", "chunked")
        bodiless = self._bare or answer.status in (204, 304)
        framing = () if answer.status in (204, 304) else (chunked,) if answer.chunked else (length,)
        head = h11.Response(
            status_code=answer.status,
            headers=[("Content-Type", answer.kind), *framing, *answer.headers],
        )
        said = self._http.send(head) or b""
        parts = answer.body.splitlines(keepends=True) if answer.chunked else [answer.body]
        for part in [] if bodiless else parts:
            said += self._http.send(h11.Data(data=part)) or b""
        self.raw(said + (self._http.send(h11.EndOfMessage()) or b""))

    def upgrade(self) -> None:
        """Turn the connection into a raw stream."""
        if self._fault is not None:
            self.pause(self._fault.delay)
        self.raw(_UPGRADED)

    def end_stream(self) -> None:
        """End what we say, and take what the client still has to say."""
        try:
            self._sock.shutdown(socket.SHUT_WR)
        except OSError:
            raise Over from None
        while self._received():
            pass
        raise Over

    def raw(self, content: bytes | None) -> None:
        """Send bytes, as many as the fault lets through."""
        content = content or b""
        limit = None if self._fault is None else self._fault.passes
        allowed = content if limit is None else content[: limit - self._sent]
        self._sent += len(allowed)
        try:
            self._sock.sendall(allowed)
        except OSError:
            raise Over from None
        if len(allowed) < len(content) or limit == self._sent:
            self.fail()

    def fail(self) -> None:
        """Do what follows the bytes that a fault let through."""
        if self._fault is not None and self._fault.then == "silence":
            self.gone.wait()
        if self._fault is not None and self._fault.then == "reset":
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self._sock.close()
        raise Over

    def hang_up(self) -> None:
        """End the connection from another thread."""
        self.gone.set()
        try:
            self._sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            return

    def close(self) -> None:
        self._sock.close()
