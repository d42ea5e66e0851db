"""A fake sandbox of which only files, clock and network are there, to play Python code in."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest

from sandboxio.core.models import NetworkPolicy
from sandboxio.testing._disk.fs import FileSystem, Special, Who
from sandboxio.testing._machine.kernel import Kernel
from sandboxio.testing._machine.network import EgressAttempt, Network
from sandboxio.testing._python.program import python
from sandboxio.testing.clock import FakeClock

if TYPE_CHECKING:
    from sandboxio.testing._machine.process import Process

ENV = {"MODE": "fast", "TOKEN": "hunter2"}


class MemoryFd:
    """Keeps what is written to it; `error` is raised instead."""

    def __init__(self, error: OSError | None = None) -> None:
        self.data = bytearray()
        self.error = error

    async def read(self, size: int) -> bytes:
        return b"never read"

    async def write(self, data: bytes) -> None:
        if self.error is not None:
            raise self.error
        self.data += data

    def dup(self) -> MemoryFd:
        return self

    def close(self) -> None:
        """Nothing: what was written is still to be looked at."""


class Played(NamedTuple):
    code: int | None
    out: str
    err: str


class Box:
    """One sandbox; `play()` gives it something to do, once."""

    def __init__(self, policy: NetworkPolicy | None = None) -> None:
        self.clock = FakeClock(autojump=False)
        self.fs = FileSystem(now=lambda: self.clock.wall().timestamp())
        self.fs.populate("/work", mode=0o777)
        self.fs.populate("/etc/secret", b"root's", mode=0o600)
        self.fs.attach("/dev/zero", Special(mode=0o666, device="zero"))
        self.attempts: list[EgressAttempt] = []
        network = Network("box", policy or NetworkPolicy(), self.attempts.append)
        self.kernel = Kernel(self.clock, self.fs, network)
        self.out, self.err = MemoryFd(), MemoryFd()

    async def play(self, code: str, *, deadline: float = 60, umask: int = 0o022) -> Played:
        """Play a program; what still runs at the deadline is killed."""

        async def main(process: Process) -> int:
            return await python(process, code)

        process = self.kernel.spawn(
            main,
            ["python3"],
            call=1,
            env=ENV,
            cwd="/work",
            who=Who(1000, 1000),
            umask=umask,
            fds={0: MemoryFd(), 1: self.out, 2: self.err},
        )
        self.kernel.at(deadline, self.kernel.kill_all)
        self.kernel.run()
        if process.exit_code is None:
            await self.clock.advance(deadline)
        out, err = (fd.data.decode("utf-8", "surrogateescape") for fd in (self.out, self.err))
        return Played(process.exit_code, out, err)


@pytest.fixture
def box() -> Box:
    return Box()
