"""The watcher: a small process that outlives this one, and then removes its sandboxes.

It holds the reading end of a pipe whose only writing end is here, and so learns of the end of
this process however it comes. This module starts it; `_docker_watch` is what it runs.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import warnings
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

from sandboxio.core import owner, threads
from sandboxio.core.errors import CrashCleanupWarning

if TYPE_CHECKING:
    from sandboxio.adapters._docker_endpoint import Endpoint

VARIABLE = "SBX_DOCKER_REAPER"
ARMED = b"armed\n"
HANDSHAKE_SECONDS = 10.0
"""How long the first creation of a process waits, at its end, for the watcher to have armed."""
BEGUN, ANSWERED = b"+\n", b"-\n"
"""What the watcher is told of the creations that the engine has not answered yet."""
_PROGRAM = """\
import json, os, sys
if hasattr(os, "fork") and os.fork():
    os._exit(0)
settings = json.loads(sys.stdin.buffer.readline())
sys.path[:] = settings.pop("path")
from sandboxio.adapters import _docker_watch
_docker_watch.main(**settings)
"""
"""Forks at once, so that the watcher is nobody's child and no exit of this program awaits it."""
_KEPT = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT", "HOME", "USERPROFILE")
"""What of the environment a Python may need to start; the rest may hold secrets."""
_LAST_WORDS = 500


class Watcher:
    """The watcher of this process for one engine; started once, by the first sandbox."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._starting = threading.Lock()
        self._started_in = 0
        self._pipe: IO[bytes] | None = None
        self._settled = threading.Event()
        self._trouble: str | None = None

    async def start(self) -> None:
        """Start it, unless that was done in this process or is switched off."""
        if self._started_in != os.getpid() and os.environ.get(VARIABLE) != "0":
            await threads.run(self._start)

    async def settle(self) -> None:
        """Wait until it has armed; where it cannot, warn once."""
        settled = self._settled
        if self._started_in != os.getpid():
            return
        if not settled.is_set() and not await threads.run(lambda: settled.wait(HANDSHAKE_SECONDS)):
            self._trouble = f"it did not arm within {HANDSHAKE_SECONDS:g} s"
            settled.set()
        trouble, self._trouble = self._trouble, None
        if trouble is not None:
            warnings.warn(
                f"Crash clean-up is off: {trouble}. Sandboxes of this program, should it be "
                f"killed, run until their lifetime ends. {VARIABLE}=0 accepts that.",
                CrashCleanupWarning,
                stacklevel=2,
            )

    def tell(self, word: bytes) -> None:
        """Tell it that the engine is being asked for a container, or has answered."""
        if self._pipe is not None and self._started_in == os.getpid():
            with suppress(OSError, ValueError):
                self._pipe.write(word)

    def _start(self) -> None:
        with self._starting:
            if self._started_in == os.getpid():
                return
            self._pipe, self._trouble, self._settled = None, unable(), threading.Event()
            self._started_in = os.getpid()
            if self._trouble is None:
                try:
                    self._spawn()
                except (OSError, subprocess.SubprocessError) as exc:
                    self._trouble = f"{sys.executable} does not start: {exc}"
            if self._trouble is not None:
                self._settled.set()

    def _spawn(self) -> None:
        process = subprocess.Popen(  # this interpreter, with a program of ours
            [sys.executable, "-I", "-c", _PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            cwd=Path(sys.executable).anchor,
            env={name: os.environ[name] for name in _KEPT if name in os.environ},
            start_new_session=True,
        )
        pipe = process.stdin
        assert pipe is not None  # noqa: S101  # for the type checkers
        _ours.append(pipe)
        settings = {
            "path": [str(Path(entry).absolute()) for entry in sys.path],
            "endpoint": self._endpoint.url,
            "tls_directory": self._endpoint.tls_directory,
            "session": owner.session(),
        }
        pipe.write(json.dumps(settings).encode() + b"\n")
        if os.name == "posix":
            process.wait(HANDSHAKE_SECONDS)
        else:
            process.returncode = 0  # it is to outlive this process, and nobody waits for it
        self._pipe = pipe
        listen = threading.Thread(target=self._listen, args=(process, self._settled), daemon=True)
        listen.start()

    def _listen(self, process: subprocess.Popen[bytes], settled: threading.Event) -> None:
        """Hear the handshake, or the last words instead of it."""
        assert process.stdout is not None  # noqa: S101
        assert process.stderr is not None  # noqa: S101
        with process.stdout as stdout, process.stderr as stderr:
            if stdout.readline() != ARMED:
                words = stderr.read().decode("utf-8", "replace").strip()[-_LAST_WORDS:]
                self._trouble = f"the watcher ended ({words.splitlines()[-1] if words else '?'})"
        settled.set()


def watcher_for(endpoint: Endpoint) -> Watcher:
    """Return the one watcher that this process has for an engine."""
    with _lock:
        return _watchers.setdefault((endpoint.url, endpoint.tls_directory), Watcher(endpoint))


def unable() -> str | None:
    """Say why no watcher can be started here, if that is so."""
    name = Path(sys.executable or "").name
    if getattr(sys, "frozen", False) or not re.match(r"(python|pypy)", name, re.IGNORECASE):
        return "sys.executable is no Python interpreter that could run a watcher"
    return None


_lock = threading.Lock()
_watchers: dict[tuple[str, str | None], Watcher] = {}
_ours: list[IO[bytes]] = []
"""The writing ends; a forked child must not hold them, or the end of this process is missed."""


def _let_go() -> None:
    for pipe in _ours:
        with suppress(OSError):
            pipe.close()
    _ours.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)
