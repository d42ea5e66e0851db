"""Programs of their own that use the library, and what the host knows of their watchers."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.docker.outside import METADATA, TARGET, Outside, host_arguments, unique_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

ROOT = Path(__file__).parents[2]
_PRELUDE = """\
import os, signal, sys, threading, time
import anyio, sandboxio
sys.excepthook = lambda *_: None

def say(word="ready"):
    print(word, flush=True)

OPTIONS = {{"target": {target!r}, "timeout": 50}}
METADATA = {metadata!r}

def make(**more):
    return sandboxio.create_sync(**OPTIONS, metadata=METADATA, **more)

async def amake():
    return await sandboxio.create(**OPTIONS, metadata=METADATA)

"""


class Program:
    """One that runs; its sandboxes carry a label of its own."""

    def __init__(self, process: subprocess.Popen[str], outside: Outside, label: str) -> None:
        self.process = process
        self.label = label
        self._outside = outside

    @property
    def pid(self) -> int:
        return self.process.pid

    def hear(self, word: str = "ready") -> None:
        """Wait until it says the word."""
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == f"{word}\n"

    def told(self) -> str:
        """Wait for its next word."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def go_on(self) -> None:
        """Let its `input()` return."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def killed(self, number: signal.Signals = signal.SIGKILL) -> None:
        self.process.send_signal(number)
        assert self.process.wait(15) == -number

    def left(self) -> list[str]:
        """Names of the containers it has on the engine."""
        return self._outside.containers(program=self.label)

    def wait_for_none(self) -> None:
        """Wait until it has no container any more."""
        wait_until(lambda: not self.left())

    def watchers(self) -> list[int]:
        """Pids of the watchers at the other end of its pipes."""
        mine = set(descriptors(self.pid).values())
        return [pid for pid in watchers() if descriptors(pid).get(0, "none") in mine]

    def watcher(self) -> int:
        (pid,) = self.watchers()
        return pid


class Programs:
    """Starts programs, and ends them and what they left."""

    def __init__(self, folder: Path, outside: Outside) -> None:
        self._folder = folder
        self._outside = outside
        self._started: list[Program] = []

    def __call__(self, code: str, *prefix: str, **environment: str) -> Program:
        label = unique_seconds()
        script = self._folder / f"{label}.py"
        metadata = {**METADATA, "program": label}
        prelude = _PRELUDE.format(target=TARGET, metadata=metadata)
        script.write_text(prelude + textwrap.dedent(code))
        process = subprocess.Popen(
            [*prefix, sys.executable, "-W", "error::UserWarning", str(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
            start_new_session=True,
        )
        self._started.append(Program(process, self._outside, label))
        return self._started[-1]

    def end(self) -> None:
        for program in self._started:
            with contextlib.suppress(ProcessLookupError):  # forked children are of its group
                os.killpg(program.pid, signal.SIGKILL)
            program.process.communicate()
            for name in program.left():
                with contextlib.suppress(Exception):  # somebody else was quicker
                    self._outside.client.containers.get(name).remove(force=True)


@contextlib.contextmanager
def programs_in(folder: Path, outside: Outside) -> Generator[Programs]:
    programs = Programs(folder, outside)
    try:
        yield programs
    finally:
        programs.end()


def wait_until(check: Callable[[], object], *, within: float = 20.0) -> None:
    """Look until there is something true, or fail."""
    until = time.monotonic() + within
    while not check():
        assert time.monotonic() < until, "it did not come true"
        time.sleep(0.05)


def watchers() -> list[int]:
    return [pid for pid, arguments in host_arguments() if "_docker_watch.main" in arguments]


def descriptors(pid: int) -> dict[int, str]:
    """What a process holds open; empty when it is gone."""
    held: dict[int, str] = {}
    with contextlib.suppress(OSError):
        for path in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                held[int(path.name)] = str(path.readlink())
    return held


def at_home_in(folder: Path) -> list[int]:
    """Pids of processes whose home is the folder."""
    found: list[int] = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            home = f"HOME={folder}".encode() in path.read_bytes().split(b"\0")
            found += [int(path.parent.name)] if home else []
    return found


def children(pid: int) -> list[int]:
    """Pids of the children of a process, zombies included."""
    found: list[int] = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError):
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            found += [int(folder.name)] if int(fields[1]) == pid else []
    return found


def is_running(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return False
    return fields[0] not in "ZX"
