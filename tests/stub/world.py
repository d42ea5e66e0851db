"""What the stub engine knows: images, containers and calls that are only said to run."""

from __future__ import annotations

import base64
import io
import itertools
import json
import secrets
import tarfile
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sandboxio.guest import shell_kill
from sandboxio.guest.program import NO_PYTHON

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.stub.wire import Wire

IMAGE = "sandboxio-test/stub"
REPORT = (
    b"CapEff: 0000000000000000\nCapBnd: 0000000000000000\nNoNewPrivs: 1\nSeccomp: 2\n"
    b"Interface: lo\nProgram: python3\nReady:\n"
)
PASSWD = b"root:x:0:0:root:/root:/bin/sh\n"
_WRAPPER = ["/sbin/docker-init", "-s", "--"]
_MARKER = "SANDBOXIO_CALL="
_DIRECTORY = 1 << 31


@dataclass(frozen=True)
class Program:
    """What a process is said to write, and its end; `lasts` for one that does not end."""

    out: bytes = b""
    err: bytes = b""
    exit_code: int = 0
    lasts: bool = False
    stream: int = 1
    """The number its output travels under."""


@dataclass
class Call:
    """An exec."""

    id: str
    argv: list[str]
    marker: str
    pid: int
    started: bool = False
    exit_code: int | None = None

    @property
    def running(self) -> bool:
        return self.started and self.exit_code is None

    @property
    def state(self) -> dict[str, Any]:
        pid = self.pid if self.started else 0
        return {"ID": self.id, "Running": self.running, "ExitCode": self.exit_code, "Pid": pid}


@dataclass
class Box:
    """A container."""

    id: str
    name: str
    config: dict[str, Any]
    started: bool = False
    exit_code: int = 0
    running: bool = False
    gone: bool = False
    archives: list[bytes] = field(default_factory=list[bytes])
    calls: list[Call] = field(default_factory=list[Call])

    @property
    def status(self) -> str:
        return "running" if self.running else "exited" if self.started else "created"

    @property
    def labels(self) -> dict[str, str]:
        return dict(self.config["Labels"])


class World:
    """All of it, and what a test may change of it."""

    def __init__(self) -> None:
        self.images: dict[str, dict[str, Any]] = {IMAGE: image()}
        self.pulls: dict[str, list[dict[str, Any]]] = {}
        """Progress of pulls that succeed, by `repository:tag`."""
        self.files: dict[str, bytes | None] = {"/etc/passwd": PASSWD, "/etc/group": b"root:x:0:\n"}
        """What images hold by path; `None` for a directory."""
        self.first = Program(out=REPORT, lasts=True)
        """What the first process of a container does."""
        self.agent = Program(exit_code=NO_PYTHON)
        """The same where it is to be the agent."""
        self.programs: dict[str, Program] = {}
        """What a call does, by its last argument; others say nothing and succeed."""
        self.held: dict[str, Any] = {"Runtime": "runc"}
        """What is in force in place of what was asked."""
        self.boxes: list[Box] = []
        self.changed = threading.Condition()
        self._pids = itertools.count(1001)

    def wait(self, wire: Wire, ready: Callable[[], bool]) -> None:
        """Block until something is so, or the connection is gone."""
        with self.changed:
            self.changed.wait_for(lambda: ready() or wire.gone.is_set())

    def find(self, name: str) -> Box | None:
        return next((box for box in self.boxes if name in (box.id, box.name)), None)

    def call(self, exec_id: str) -> tuple[Box, Call] | None:
        found = ((box, call) for box in self.boxes for call in box.calls)
        return next((pair for pair in found if pair[1].id == exec_id), None)

    def add_box(self, name: str, config: dict[str, Any]) -> Box:
        box = Box(secrets.token_hex(32), name, config)
        with self.changed:
            self.boxes.append(box)
            self.changed.notify_all()
        return box

    def add_call(self, box: Box, asked: dict[str, Any]) -> Call:
        argv = list[str](asked["Cmd"])
        if argv[: len(_WRAPPER)] == _WRAPPER:
            argv = argv[len(_WRAPPER) :]
        env = list[str](asked.get("Env") or [])
        marker = next((v.removeprefix(_MARKER) for v in env if v.startswith(_MARKER)), "")
        call = Call(secrets.token_hex(32), argv, marker, next(self._pids))
        with self.changed:
            box.calls.append(call)
        return call

    def begins(self, box: Box) -> Program:
        """Return what a container begins with."""
        return self.agent if box.config.get("OpenStdin") else self.first

    def start(self, box: Box) -> None:
        with self.changed:
            first = self.begins(box)
            box.started, box.running = True, first.lasts
            box.exit_code = first.exit_code
            self.changed.notify_all()

    def remove(self, box: Box) -> None:
        with self.changed:
            self.boxes.remove(box)
            box.gone, box.running = True, False
            for call in box.calls:
                call.exit_code = 137 if call.running else call.exit_code
            self.changed.notify_all()

    def end(self, call: Call, exit_code: int) -> None:
        with self.changed:
            if call.exit_code is None:
                call.exit_code = exit_code
            self.changed.notify_all()

    def program(self, box: Box, call: Call) -> Program:
        """Return what a call does; the scripts that end calls have their effect."""
        if shell_kill.END_ORPHANS in call.argv:
            return Program(out=b"absent\n")
        if shell_kill.END_CALL not in call.argv:
            return self.programs.get(call.argv[-1], Program())
        for other in box.calls:
            if other.marker == call.argv[-1] and other.running:
                self.end(other, 137)
                return Program(out=b"ended\n")
        return Program(out=b"absent\n")

    def description(self, box: Box) -> dict[str, Any]:
        state = {
            "Status": box.status,
            "Running": box.running,
            "ExitCode": box.exit_code,
            "Pid": 1000 if box.running else 0,
        }
        return {
            "Id": box.id,
            "Name": f"/{box.name}",
            "Image": box.config["Image"],
            "State": state,
            "Config": {"Labels": box.labels},
            "HostConfig": {**box.config["HostConfig"], **self.held},
            "ExecIDs": [call.id for call in box.calls if call.running] or None,
        }

    def processes(self, box: Box) -> dict[str, Any]:
        rows = [["1000", "1", "S"]]
        rows += [[str(call.pid), "1", "S"] for call in box.calls if call.running]
        return {"Titles": ["PID", "PPID", "STAT"], "Processes": rows}

    def stat(self, path: str) -> str | None:
        """Return the header that describes a path of any image."""
        if path not in self.files:
            return None
        mode = 0o755 | (_DIRECTORY if self.files[path] is None else 0)
        described = {"name": path.rpartition("/")[2], "mode": mode, "linkTarget": ""}
        return base64.b64encode(json.dumps(described).encode()).decode()

    def archive(self, path: str) -> bytes:
        content, buffer = self.files[path] or b"", io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            member = tarfile.TarInfo(path.rpartition("/")[2])
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        return buffer.getvalue()


def image(**config: object) -> dict[str, Any]:
    """Return what `inspect` says of an image of that configuration."""
    return {
        "Id": f"sha256:{secrets.token_hex(32)}",
        "Os": "linux",
        "Architecture": "amd64",
        "Config": {"Env": ["PATH=/usr/bin:/bin"], "User": "", "Labels": {}, **config},
    }
