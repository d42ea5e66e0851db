"""The watcher: a small process that outlives this one, and then removes its sandboxes.

It holds the reading end of a pipe whose only writing end is here, and so learns of the end of
this process however it comes. This module starts it; `_docker_watch` is what it runs.
"""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
import threading
import time
import warnings
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from sandboxio.core import owner, threads
from sandboxio.core.errors import CrashCleanupWarning

if TYPE_CHECKING:
    from collections.abc import Generator

    from sandboxio.adapters._docker_endpoint import Endpoint

VARIABLE = "SBX_DOCKER_REAPER"
ARMED = b"armed\n"
HANDSHAKE_SECONDS = 10.0
"""How long the first creation of a process waits, at its end, for the watcher to have armed."""
BEGUN, ANSWERED, _NOTHING = b"+\n", b"-\n", b"\n"
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
    """The watcher of one session for one engine; started by the first sandbox.

    Without a session it has nothing to remove, and only shows whether it can be had.
    """

    def __init__(self, endpoint: Endpoint, session: str | None) -> None:
        self._endpoint = endpoint
        self._session = session
        self._starting = threading.Lock()
        self._pipe: int | None = None
        """The writing end; a number, for what is left open at the interpreter's exit is meant."""
        self._settled = threading.Event()
        self._due = math.inf
        self._armed = False
        self._trouble: str | None = None

    async def start(self) -> None:
        """Start it, unless it runs or is switched off; one that was ended is started again."""
        if not switched_off():
            await threads.run(self.start_now)

    async def settle(self) -> None:
        """Wait until it has armed; where it cannot, warn once.

        The wait leaves time to a caller who has little: a verdict then comes with a later one.
        """
        if self._due == math.inf:
            return
        left = anyio.current_effective_deadline() - anyio.current_time()
        if not self._settled.is_set():
            await threads.run(lambda: self.wait(left / 2))
        if (trouble := self.trouble()) is not None:
            warnings.warn(
                f"Crash clean-up is off: {trouble}. Sandboxes of this program, should it be "
                f"killed, run until their lifetime ends. {VARIABLE}=0 accepts that.",
                CrashCleanupWarning,
                stacklevel=2,
            )

    def tell(self, word: bytes) -> bool:
        """Tell it that the engine is being asked for a container, or has answered."""
        with _lock, suppress(OSError):
            return self._pipe is not None and os.write(self._pipe, word) > 0
        return False

    def trouble(self) -> str | None:
        """Say, once, why it is not armed."""
        trouble, self._trouble = self._trouble, None
        return trouble

    def start_now(self) -> None:
        """Do what `start()` does; blocking."""
        with self._starting:
            if self._due < math.inf and (not self._armed or self.tell(_NOTHING)):
                return
            self.end()
            self._settled, self._armed = threading.Event(), False
            self._due = time.monotonic() + HANDSHAKE_SECONDS
            self._trouble = unable()
            if self._trouble is None:
                try:
                    self._spawn()
                except (OSError, RuntimeError) as exc:
                    self._trouble = f"{sys.executable} does not start: {exc}"
                    self.end()
            if self._trouble is not None:
                self._settled.set()

    def wait(self, seconds: float = math.inf) -> None:
        """Wait for it to arm, as long as it may take to and no longer than `seconds`."""
        left = max(0.0, self._due - time.monotonic())
        if not self._settled.wait(min(seconds, left)) and seconds >= left:
            self._trouble = f"it did not arm within {HANDSHAKE_SECONDS:g} s"
            self._settled.set()

    def end(self) -> None:
        """Let it find that its program has ended."""
        with _lock, suppress(OSError):  # nobody writes to a number that was closed
            pipe, self._pipe = self._pipe, None
            if pipe is not None:
                os.close(pipe)

    def _spawn(self) -> None:
        settings = {
            "path": [str(Path(entry).absolute()) for entry in sys.path if isinstance(entry, str)],
            "endpoint": self._endpoint.url,
            "tls_directory": self._endpoint.tls_directory,
            "session": self._session,
        }
        with _lock, _pipe() as (reader, self._pipe):  # no fork comes in between
            process = subprocess.Popen(  # this interpreter, with a program of ours
                [sys.executable, "-I", "-c", _PROGRAM],
                stdin=reader,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                cwd=Path(sys.executable).anchor,
                env={name: os.environ[name] for name in _KEPT if name in os.environ},
                start_new_session=True,
            )
        self.tell(json.dumps(settings).encode() + b"\n")
        listen = threading.Thread(target=self._listen, args=(process, self._settled), daemon=True)
        listen.start()

    def _listen(self, process: subprocess.Popen[bytes], settled: threading.Event) -> None:
        """Hear the handshake, or the last words instead of it."""
        assert process.stdout is not None  # noqa: S101  # for the type checkers
        assert process.stderr is not None  # noqa: S101
        with process.stdout as stdout, process.stderr as stderr:
            _release(process)
            if stdout.readline() == ARMED:
                self._armed = True
            else:
                words = stderr.read().decode("utf-8", "replace").strip()[-_LAST_WORDS:]
                said = words.splitlines()[-1] if words else "without a word"
                self._trouble = None if settled.is_set() else f"the watcher ended ({said})"
                self.end()
        settled.set()


@contextmanager
def _pipe() -> Generator[tuple[int, int]]:
    """Make a pipe for another process to read, whose reading end is not kept here."""
    reader, writer = os.pipe()
    try:
        yield reader, writer
    finally:
        os.close(reader)


def _release(process: subprocess.Popen[bytes]) -> None:
    """Let go of a process that is to outlive this one: here its first half ends at once."""
    if os.name == "posix":
        process.wait()
    else:
        process.returncode = 0


def watcher_for(endpoint: Endpoint) -> Watcher:
    """Return the one watcher that this process has for an engine."""
    with _lock:
        fresh = Watcher(endpoint, owner.session())
        return _watchers.setdefault((endpoint.url, endpoint.tls_directory), fresh)


def switched_off() -> bool:
    """Say whether this program's user wants no watcher."""
    return os.environ.get(VARIABLE) == "0"


def unable() -> str | None:
    """Say why no watcher can be started here, if that is so."""
    name = Path(sys.executable or "").name
    if getattr(sys, "frozen", False) or not re.match(r"(python|pypy)", name, re.IGNORECASE):
        return "sys.executable is no Python interpreter that could run a watcher"
    return None


def trial(endpoint: Endpoint) -> str | None:
    """Start a watcher that has nothing to remove and let it end; blocking.

    Returns why it did not arm; `None` when it did.
    """
    watcher = Watcher(endpoint, None)
    watcher.start_now()
    watcher.wait()
    watcher.end()
    return watcher.trouble()


_lock = threading.RLock()
"""Held while this process forks, and while a writing end is made, used or closed."""
_watchers: dict[tuple[str, str | None], Watcher] = {}


def _let_go() -> None:
    """Close, in a forked child, the writing ends, or the end of its parent would be missed."""
    for watcher in _watchers.values():
        watcher.end()
    _watchers.clear()
    _lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_let_go)
