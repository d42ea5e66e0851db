"""The least a client can do: the engine's own API, written by hand.

Every ratio is taken against this, in the same seconds, on the same engine.
"""

from __future__ import annotations

import json
import secrets
import tarfile
import time
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from benchmarks.wire import JSON, PATIENCE, TAR, Answer, EngineRefused, Wire

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator
    from pathlib import Path

LABEL = "sandboxio-benchmarks.run"
DIRECTORY = "/tmp"
USER = 10001
LIFETIME = 3600
HOST_CONFIG: dict[str, object] = {
    "NetworkMode": "none",
    "Init": True,
    "CapDrop": ["ALL"],
    "SecurityOpt": ["no-new-privileges"],
    "PidsLimit": 512,
    "Memory": 512 * 1024 * 1024,
    "MemorySwap": 512 * 1024 * 1024,
    "NanoCpus": 1_000_000_000,
    "OomScoreAdj": 500,
    "LogConfig": {"Type": "none", "Config": {}},
}
_BLOCK = tarfile.BLOCKSIZE
_END = b"\0" * (2 * _BLOCK)


class Ran(NamedTuple):
    """What a command left behind."""

    exit_code: int
    stdout: bytes
    stderr: bytes


class Raw:
    """A client for one thread: one kept connection, and a fresh one per exec stream."""

    def __init__(self, path: str, image: str, run: str | None = None) -> None:
        self._path = path
        self._image = image
        self._run = run or secrets.token_hex(8)
        self._wire = Wire(path)

    def another(self) -> Raw:
        """Return a client with connections of its own, whose containers count as ours."""
        return Raw(self._path, self._image, self._run)

    def close(self) -> None:
        self._wire.close()

    def ask(self, path: str) -> Any:
        return json.loads(self._wire.call("GET", path))

    def create(self) -> str:
        body: dict[str, object] = {
            "Image": self._image,
            "Entrypoint": ["sleep"],
            "Cmd": [str(LIFETIME)],
            "Labels": {LABEL: self._run},
            "HostConfig": HOST_CONFIG,
        }
        container: str = json.loads(self._post("/containers/create", body))["Id"]
        self._post(f"/containers/{container}/start")
        return container

    def remove(self, container: str) -> None:
        self._wire.call("DELETE", f"/containers/{container}?force=1&v=1")

    def remove_all(self) -> None:
        """Remove whatever this run has made and not removed."""
        filters = quote(json.dumps({"label": [f"{LABEL}={self._run}"]}))
        for entry in self.ask(f"/containers/json?all=1&filters={filters}"):
            self.remove(entry["Id"])

    def run(self, container: str, cmd: list[str]) -> Ran:
        started, answer, stream = self._start(container, cmd)
        kept: dict[int, list[bytes]] = {1: [], 2: []}
        for kind, payload in _frames(answer):
            kept[kind].append(payload)
        stream.close()
        return Ran(self._exit_code(started), b"".join(kept[1]), b"".join(kept[2]))

    def stream(self, container: str, cmd: list[str]) -> Iterator[bytes]:
        """Yield the output of a command while it runs."""
        started, answer, stream = self._start(container, cmd)
        for _, payload in _frames(answer):
            yield payload
        stream.close()
        if code := self._exit_code(started):
            raise RuntimeError(f"{cmd[0]} ended with {code}")

    def write(self, container: str, name: str, data: bytes) -> None:
        body = _header(name, len(data)) + data + _padding(len(data)) + _END
        self._wire.call("PUT", _archive(container, DIRECTORY), body, TAR)

    def read(self, container: str, name: str) -> bytes:
        answer = self._wire.request("GET", _archive(container, f"{DIRECTORY}/{name}"))
        return b"".join(content_of(answer.pieces()))

    def upload(self, container: str, local: Path, name: str) -> None:
        with local.open("rb") as file:
            size = local.stat().st_size
            head, tail = _header(name, size), _padding(size) + _END

            def put(sock: socket.socket) -> None:
                sock.sendall(head)
                sock.sendfile(file)
                sock.sendall(tail)

            path = _archive(container, DIRECTORY)
            self._wire.send("PUT", path, TAR, len(head) + size + len(tail), put).read()

    def download(self, container: str, name: str, local: Path) -> None:
        answer = self._wire.request("GET", _archive(container, f"{DIRECTORY}/{name}"))
        with local.open("wb", buffering=0) as file:
            for piece in content_of(answer.pieces()):
                file.write(piece)

    def _post(self, path: str, body: Any = None) -> bytes:
        return self._wire.call("POST", path, b"" if body is None else json.dumps(body).encode())

    def _start(self, container: str, cmd: list[str]) -> tuple[str, Answer, Wire]:
        body = {"Cmd": cmd, "AttachStdout": True, "AttachStderr": True, "User": f"{USER}:{USER}"}
        made: str = json.loads(self._post(f"/containers/{container}/exec", body))["Id"]
        stream = Wire(self._path)
        return (
            made,
            stream.request("POST", f"/exec/{made}/start", b'{"Detach":false}', JSON),
            stream,
        )

    def _exit_code(self, started: str) -> int:
        deadline = time.monotonic() + PATIENCE
        while (state := self.ask(f"/exec/{started}/json"))["Running"]:
            if time.monotonic() > deadline:
                raise EngineRefused("an exec whose output ended goes on running")
        return int(state["ExitCode"])


def _frames(answer: Answer) -> Iterator[tuple[int, bytes]]:
    """Yield what stdout (1) and stderr (2) got; each frame has a head of eight bytes."""
    while len(head := answer.take(8)) == 8:
        yield head[0], answer.take(int.from_bytes(head[4:], "big"))


def _archive(container: str, path: str) -> str:
    return f"/containers/{container}/archive?path={quote(path)}"


def _header(name: str, size: int) -> bytes:
    member = tarfile.TarInfo(name)
    member.size, member.uid, member.gid = size, USER, USER
    return member.tobuf(tarfile.USTAR_FORMAT)


def _padding(size: int) -> bytes:
    return b"\0" * (-size % _BLOCK)


def content_of(pieces: Iterator[bytes]) -> Iterator[bytes | memoryview]:
    """Yield the content of the one file of an archive, and read the archive to its end."""
    head = b""
    while len(head) < _BLOCK:
        piece = next(pieces, b"")
        if not piece:
            raise EngineRefused("an archive without a file")
        head += piece
    member = tarfile.TarInfo.frombuf(head[:_BLOCK], "utf-8", "strict")
    if not member.isreg():
        raise EngineRefused(f"an archive that begins with {member.type!r}")
    left, rest = member.size, memoryview(head)[_BLOCK:]
    while left:
        yield rest[:left]
        left -= min(left, len(rest))
        if left:
            rest = memoryview(next(pieces))
    for _ in pieces:
        pass
