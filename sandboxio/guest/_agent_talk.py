"""Part of the agent: how a worker speaks to the agent, and the places it works on."""

from __future__ import annotations

import errno
import os
import select
import stat

from sandboxio.guest._agent_paths import Place, open_at, refusal, walk
from sandboxio.guest._agent_wire import DATA, END, EOF, HEADER, Invalid, header

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator
else:  # what it wraps is there already, and it takes long to import
    import _socket as socket

PIECE = 64 * 1024


class Ended(Exception):
    """Nobody waits for the operation any more."""


class Talk:
    """One operation after the other, over a socket."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.channel = 0
        self.base = b"/"
        self.steps = 0

    def frame(self) -> tuple[int, int, bytes]:
        channel, word = HEADER.unpack(self.exactly(HEADER.size))
        return channel, word >> 24, self.exactly(word & 0xFFFFFF)

    def exactly(self, size: int) -> bytes:
        """Return so many bytes, which mostly come in one piece: then nothing is copied."""
        taken = self.sock.recv(size, socket.MSG_WAITALL) if size else b""
        while len(taken) < size:
            piece = self.sock.recv(size - len(taken), socket.MSG_WAITALL)
            if not piece:
                os._exit(0)
            taken += piece
        return taken

    def send(self, kind: int, payload: bytes) -> None:
        head = header(self.channel, kind, len(payload))
        sent = self.sock.sendmsg([head, payload])
        if sent < len(head):
            self.sock.sendall(head[sent:])
        if sent < len(head) + len(payload):
            self.sock.sendall(memoryview(payload)[max(0, sent - len(head)) :])

    def give(self, data: bytes) -> None:
        self.look()
        for at in range(0, len(data), PIECE):
            self.send(DATA, data if len(data) <= PIECE else data[at : at + PIECE])

    def look(self) -> None:
        """Notice, between steps, that the operation was ended."""
        while select.select([self.sock], [], [], 0)[0]:
            channel, kind, _ = self.frame()
            if channel == self.channel and kind == END:
                raise Ended

    def tick(self) -> None:
        self.steps += 1
        if self.steps % 64 == 0:
            self.look()

    def pieces(self) -> Iterator[bytes]:
        """Yield what the host sends, up to its end."""
        while True:
            channel, kind, payload = self.frame()
            if channel != self.channel:
                continue
            if kind == END:
                raise Ended
            if kind == EOF:
                return
            if kind == DATA:
                yield payload

    def at(self, path: bytes, follow: bool) -> Place:
        if not path or b"\0" in path:
            raise Invalid
        return walk(path, self.base, follow)

    def existing(self, place: Place) -> os.stat_result:
        status = place.status()
        if place.slashed and not stat.S_ISDIR(status.st_mode):
            raise refusal(errno.ENOTDIR)
        return status

    def directory(self, path: bytes) -> int:
        """Open a directory to list it; the path may end in a link to one."""
        place = self.at(path, True)
        try:
            if not stat.S_ISDIR(place.status().st_mode):
                raise refusal(errno.ENOTDIR)
            return open_at(place, os.O_RDONLY | os.O_DIRECTORY)
        finally:
            place.close()
