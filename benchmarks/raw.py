"""The least a client can do: the engine's own HTTP API over its socket, written by hand.

Every ratio is taken against this, in the same seconds, on the same engine.
"""

from __future__ import annotations

import http.client
import io
import json
import socket
import tarfile
from typing import Any
from urllib.parse import quote

API = "/v1.41"
HOST_CONFIG = {
    "NetworkMode": "none",
    "Init": True,
    "CapDrop": ["ALL"],
    "SecurityOpt": ["no-new-privileges"],
    "PidsLimit": 512,
    "Memory": 512 * 1024 * 1024,
    "MemorySwap": 512 * 1024 * 1024,
    "NanoCpus": 1_000_000_000,
}


class Connection(http.client.HTTPConnection):
    """HTTP over the engine's unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost")
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.connect(self._path)


class Raw:
    """One kept connection, and a fresh one per exec stream."""

    def __init__(self, path: str, image: str) -> None:
        self._path = path
        self._image = image
        self._connection = Connection(path)

    def call(self, method: str, path: str, body: Any = None) -> bytes:
        data = body if isinstance(body, bytes) else None if body is None else json.dumps(body)
        kind = "application/x-tar" if isinstance(body, bytes) else "application/json"
        self._connection.request(method, API + path, data, {"Content-Type": kind})
        answer = self._connection.getresponse()
        content = answer.read()
        if answer.status >= 400:
            raise RuntimeError(f"{method} {path}: {answer.status} {content[:200]!r}")
        return content

    def create(self) -> str:
        body = {"Image": self._image, "Cmd": ["sleep", "600"], "HostConfig": HOST_CONFIG}
        container: str = json.loads(self.call("POST", "/containers/create", body))["Id"]
        self.call("POST", f"/containers/{container}/start")
        return container

    def remove(self, container: str) -> None:
        self.call("DELETE", f"/containers/{container}?force=1&v=1")

    def run(self, container: str, cmd: list[str]) -> tuple[int, int]:
        """Return the exit code and the number of bytes of output."""
        body = {"Cmd": cmd, "AttachStdout": True, "AttachStderr": True}
        made = json.loads(self.call("POST", f"/containers/{container}/exec", body))["Id"]
        stream = Connection(self._path)
        start = json.dumps({"Detach": False, "Tty": False})
        headers = {"Content-Type": "application/json"}
        stream.request("POST", f"{API}/exec/{made}/start", start, headers)
        size = len(stream.getresponse().read())
        stream.close()
        return json.loads(self.call("GET", f"/exec/{made}/json"))["ExitCode"], size

    def write(self, container: str, name: str, data: bytes) -> None:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
        self.call("PUT", f"/containers/{container}/archive?path=/tmp", buffer.getvalue())

    def read(self, container: str, name: str) -> bytes:
        path = quote(f"/tmp/{name}")
        return self.call("GET", f"/containers/{container}/archive?path={path}")
