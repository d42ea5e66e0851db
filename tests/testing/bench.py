"""A fake sandbox of which only files, processes and programs are there, to run programs in."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sandboxio.core.models import NetworkPolicy
from sandboxio.testing._disk.fs import FileSystem
from sandboxio.testing._disk.nodes import ROOT, Who
from sandboxio.testing._machine import image
from sandboxio.testing._machine.kernel import Kernel
from sandboxio.testing._machine.launch import CannotRun, execute
from sandboxio.testing._machine.network import Network
from sandboxio.testing.clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sandboxio.testing._machine.process import Fd, Process

USER = Who(10001, 10001)
ENV = {"PATH": "/usr/bin:/bin", "HOME": "/home/sandbox"}


class Outcome(NamedTuple):
    code: int
    out: bytes
    err: bytes


class MemoryFd:
    """A descriptor that gives some bytes, and keeps what is written to it."""

    def __init__(self, data: bytes = b"") -> None:
        self._left = data
        self.written = bytearray()

    async def read(self, size: int) -> bytes:
        piece, self._left = self._left[:size], self._left[size:]
        return piece

    async def write(self, data: bytes) -> None:
        self.written += data

    def dup(self) -> MemoryFd:
        return self

    def close(self) -> None:
        """Nothing: what was written is still to be looked at."""


class Running:
    """A program that has been started."""

    def __init__(self, process: Process, out: MemoryFd, err: MemoryFd) -> None:
        self.process = process
        self._out, self._err = out, err

    @property
    def outcome(self) -> Outcome:
        code = self.process.exit_code
        assert code is not None, f"{self.process} still waits"
        return Outcome(code, bytes(self._out.written), bytes(self._err.written))


class Bench:
    """Files, processes, a clock, and the user whose rights count."""

    def __init__(self, *, policy: NetworkPolicy | None = None) -> None:
        self.clock = FakeClock()
        self.fs = FileSystem(now=lambda: self.clock.wall().timestamp())
        network = Network("bench", policy or NetworkPolicy(), lambda attempt: None)
        self.kernel = Kernel(self.clock, self.fs, network)
        self.who = USER
        self.env = dict(ENV)
        image.build(self.fs, self.kernel, hostname="bench")

    def write(self, path: str, data: bytes, *, who: Who = USER) -> None:
        with self.fs.open(path, cwd="/work", who=who, write=True, create=True) as handle:
            handle.write(data)

    def read(self, path: str) -> bytes:
        return self.fs.read(path, cwd="/work", who=ROOT)

    def start(
        self, argv: Sequence[str], stdin: bytes = b"", *, stdout: Fd | None = None
    ) -> Running:
        """Start a program in `/work` and let it go on until it waits."""
        out, err = MemoryFd(), MemoryFd()

        async def main(process: Process) -> int:
            try:
                return await execute(process, argv)
            except CannotRun as exc:
                return exc.exit_code

        process = self.kernel.spawn(
            main,
            argv,
            call=1,
            env=self.env,
            cwd="/work",
            who=self.who,
            fds={0: MemoryFd(stdin), 1: stdout or out, 2: err},
        )
        self.kernel.run()
        return Running(process, out, err)

    def run(self, argv: Sequence[str], stdin: bytes = b"", *, stdout: Fd | None = None) -> Outcome:
        """Run a program that needs no time to its end."""
        return self.start(argv, stdin, stdout=stdout).outcome
