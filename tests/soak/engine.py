"""An engine of a test's own, which may be restarted and killed without harm to any other."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import docker

if TYPE_CHECKING:
    from collections.abc import Generator

START_SECONDS = 60.0
_STOP_SECONDS = 60.0
_PAUSE = 0.1


class PrivateEngine:
    """A dockerd with folders of its own; needs root, and `dockerd` on the PATH.

    With `keeps` its containers live on while it is restarted.
    """

    def __init__(self, folder: Path, *, keeps: bool = False) -> None:
        self.socket = str(folder / "docker.sock")
        self._folder = folder
        self._options = ["--live-restore"] if keeps else []
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"unix://{self.socket}"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self._clear()
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    # Without a bridge of its own it removes the default one: of its own network.
                    *(
                        "unshare",
                        "--net",
                        "--",
                        "dockerd",
                        "--host",
                        self.url,
                        "--pidfile",
                        str(self._folder / "pid"),
                    ),
                    *("--data-root", str(self._folder / "data")),
                    *("--exec-root", str(self._folder / "exec")),
                    *("--bridge", "none", "--iptables=false", "--ip-forward=false"),
                    *self._options,
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        until = time.monotonic() + START_SECONDS
        while not self._answers():
            if time.monotonic() > until or self._process.poll() is not None:
                raise RuntimeError(f"the engine does not start: {self.last_words()}")
            time.sleep(_PAUSE)

    def stop(self, number: int = signal.SIGTERM) -> None:
        """End it by a signal; SIGKILL leaves its containers running, until the next start."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(number)
            process.wait(_STOP_SECONDS)

    def restart(self, number: int) -> None:
        self.stop(number)
        self.start()

    def client(self) -> docker.DockerClient:
        """Return a client past the library."""
        return docker.DockerClient(self.url, timeout=60)

    def load(self, image: str) -> None:
        """Copy an image from the default engine."""
        source, target = docker.from_env(timeout=300), docker.DockerClient(self.url, timeout=300)
        with contextlib.closing(source), contextlib.closing(target):
            target.images.load(b"".join(source.images.get(image).save(named=True)))

    def last_words(self) -> str:
        return (self._folder / "log").read_text(errors="replace")[-2000:]

    def remove(self) -> None:
        """End it and everything it started, and delete its folders."""
        self.stop()
        self._end("containerd", "containerd-shim-runc-v2")
        for line in reversed(Path("/proc/mounts").read_text().splitlines()):
            place = line.split()[1]
            if place.startswith(str(self._folder)):
                subprocess.run(["umount", "--lazy", place], check=False)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _clear(self) -> None:
        """Remove what an engine that was killed leaves, and what would keep the next from starting.

        Its containerd dies with it; the shims, and so the containers, do not.
        """
        self._end("containerd")
        state = self._folder / "exec" / "containerd"
        for path in (self._folder / "pid", *state.glob("*.sock*"), state / "containerd.pid"):
            path.unlink(missing_ok=True)

    def _end(self, *names: str) -> None:
        """Kill its processes of those names; they have its folder in their arguments."""
        for entry in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                arguments = entry.read_bytes().split(b"\0")
                ours = any(os.fsencode(self._folder) in argument for argument in arguments)
                if ours and Path(os.fsdecode(arguments[0])).name in names:
                    os.kill(int(entry.parent.name), signal.SIGKILL)

    def _answers(self) -> bool:
        with socket.socket(socket.AF_UNIX) as sock, contextlib.suppress(OSError):
            sock.settimeout(5)
            sock.connect(self.socket)
            sock.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
            return b" 200 " in sock.recv(64)
        return False


@contextlib.contextmanager
def private_engine(*, keeps: bool = False) -> Generator[PrivateEngine]:
    """Run an engine for the length of the block."""
    # Socket paths may have 108 bytes, so that the folder has a short name.
    engine = PrivateEngine(Path(tempfile.mkdtemp(prefix="sbx-soak-")), keeps=keeps)
    try:
        engine.start()
        yield engine
    finally:
        engine.remove()
