"""A fake machine for tests of the shell: a clock, files, a network, processes, and `run()`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import anyio

from sandboxio.core.models import NetworkPolicy
from sandboxio.testing._disk.fs import ROOT, FileSystem
from sandboxio.testing._machine import image
from sandboxio.testing._machine.fds import NullFd, TextFd
from sandboxio.testing._machine.kernel import Kernel
from sandboxio.testing._machine.launch import DEFAULT_PATH, execute
from sandboxio.testing._machine.network import Network
from sandboxio.testing._shell import interpreter
from sandboxio.testing.clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sandboxio.testing._machine.process import Process

assert interpreter.sh is not None  # importing it enters the shell into the table of programs

LIMIT = 100_000.0
"""Virtual seconds after which a script counts as endless."""


class Done(NamedTuple):
    """What a script that has ended left behind."""

    exit: int
    out: str
    err: str


class SinkFd:
    """Keeps what is written; its copies write to the same place."""

    def __init__(self) -> None:
        self.data = bytearray()

    async def read(self, size: int) -> bytes:
        return b""

    async def write(self, data: bytes) -> None:
        self.data += data

    def dup(self) -> SinkFd:
        return self

    def close(self) -> None:
        return

    @property
    def text(self) -> str:
        return self.data.decode("utf-8", "surrogateescape")


class World:
    """One machine. `start()` begins a script, `run()` also waits for its end."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.fs = FileSystem(now=lambda: self.clock.wall().timestamp())
        network = Network("world", NetworkPolicy(), lambda attempt: None)
        self.kernel = Kernel(self.clock, self.fs, network)
        self.out, self.err = SinkFd(), SinkFd()
        self.env = {"PATH": DEFAULT_PATH, "HOME": "/home/me"}
        image.build(self.fs, self.kernel)
        for path in ("/work", "/home/me"):
            if not self.fs.exists(path, who=ROOT):
                self.fs.mkdir(path, who=ROOT, parents=True)

    def start(self, *argv: str, stdin: bytes | None = None) -> Process:
        """Start a program and let it go on until everything waits."""
        self.out, self.err = SinkFd(), SinkFd()

        async def main(process: Process) -> int:
            return await execute(process, argv)

        process = self.kernel.spawn(
            main,
            argv,
            call=1,
            env=self.env,
            cwd="/work",
            who=ROOT,
            fds={0: NullFd() if stdin is None else TextFd(stdin), 1: self.out, 2: self.err},
        )
        self.kernel.run()
        return process

    async def run(self, text: str, *args: str, shell: str = "sh", stdin: bytes = b"") -> Done:
        """Run the text of a script to its end in virtual time."""
        return await self.call([shell, "-c", text, *args], stdin=stdin)

    async def call(self, argv: Sequence[str], *, stdin: bytes = b"") -> Done:
        """Run a program to its end in virtual time."""
        process = self.start(*argv, stdin=stdin)
        if process.exit_code is None:
            over = anyio.Event()
            process.on_end = over.set
            with self.clock.limit(self.clock.time() + LIMIT):
                await over.wait()
        assert process.exit_code is not None, f"{argv} does not end"
        return Done(process.exit_code, self.out.text, self.err.text)

    def alive(self) -> list[str]:
        """Return the command lines of the processes that run."""
        found = [p for p in self.kernel.processes.values() if p.exit_code is None]
        return [" ".join(process.argv) for process in found]
