"""A virtual process: its descriptors, its signals, its waiting."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence

    from sandboxio.testing._disk.nodes import Who
    from sandboxio.testing._machine.kernel import Kernel

SLICE = 400
"""Steps a process may take before it is made to use some time."""
FIRST_PAUSE, LONGEST_PAUSE = 0.01, 10.0
KILL, TERM, INT, HUP, PIPE = 9, 15, 2, 1, 13
SIGNALS = {
    "HUP": 1,
    "INT": 2,
    "QUIT": 3,
    "TRAP": 5,
    "ABRT": 6,
    "BUS": 7,
    "FPE": 8,
    "KILL": 9,
    "USR1": 10,
    "SEGV": 11,
    "USR2": 12,
    "PIPE": 13,
    "ALRM": 14,
    "TERM": 15,
    "CHLD": 17,
    "CONT": 18,
    "STOP": 19,
    "TSTP": 20,
    "WINCH": 28,
}
LAST_SIGNAL = 64


def signal_number(text: str) -> int | None:
    """Return the signal that a number or a name, with or without `SIG`, stands for."""
    if text.isdecimal():
        return int(text) if int(text) <= LAST_SIGNAL else None
    return SIGNALS.get(text.upper().removeprefix("SIG"))


class Fd(Protocol):
    """One end of something that can be read or written; `dup()` and `close()` count its holders."""

    async def read(self, size: int) -> bytes:
        """Return at most `size` bytes, waiting for the first; `b""` at end of file."""
        ...

    async def write(self, data: bytes) -> None:
        """Write all of it; raises `BrokenPipeError` when nobody can read it any more."""
        ...

    def dup(self) -> Fd: ...
    def close(self) -> None: ...


class Pause:
    def __await__(self) -> Generator[None]:
        yield


class Waiters:
    """Processes that wait for one thing."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._waiting: list[Process] = []

    async def wait(self) -> None:
        """Let the current process wait until it is woken; it then looks again."""
        process = self._kernel.current
        self._waiting.append(process)
        try:
            await Pause()
        finally:
            with suppress(ValueError):
                self._waiting.remove(process)

    def wake(self) -> None:
        for process in self._waiting:
            self._kernel.ready(process)


class Process:
    """One virtual process."""

    def __init__(
        self,
        kernel: Kernel,
        argv: Sequence[str],
        *,
        pid: int,
        call: int,
        parent: Process | None,
        session: int,
        env: Mapping[str, str],
        cwd: str,
        who: Who,
        umask: int,
        fds: Mapping[int, Fd],
    ) -> None:
        self.kernel = kernel
        self.argv = tuple(argv)
        self.pid, self.call, self.session = pid, call, session
        self.parent = parent
        self.env = dict(env)
        self.cwd, self.who, self.umask = cwd, who, umask
        self.fds = dict(fds)
        self.children: set[Process] = set()
        self.traps: dict[int, str] = {}
        """Signals it handles: `""` ignores one, anything else is for its program to run."""
        self.pending: deque[int] = deque()
        """Signals that have arrived and that it handles itself."""
        self.exit_code: int | None = None
        self.waited = Waiters(kernel)
        """Who waits for one of its children to end, or for a signal."""
        self.main: Coroutine[Any, Any, int] | None = None
        self.on_end: Callable[[], None] | None = None
        """Called once, when it has ended."""
        self._steps = 0
        self._pause = FIRST_PAUSE
        self._used_at = -1.0

    def __repr__(self) -> str:
        return f"<Process {self.pid} {' '.join(self.argv)!r} {self.exit_code}>"

    @property
    def stdin(self) -> Fd:
        return self.fds[0]

    @property
    def stdout(self) -> Fd:
        return self.fds[1]

    @property
    def stderr(self) -> Fd:
        return self.fds[2]

    async def out(self, text: str) -> None:
        """Write text to stdout."""
        await self.stdout.write(text.encode("utf-8", "surrogateescape"))

    async def err(self, text: str) -> None:
        """Write text to stderr."""
        await self.stderr.write(text.encode("utf-8", "surrogateescape"))

    async def sleep(self, seconds: float) -> None:
        """Wait for virtual time; a signal that the process handles ends it early."""
        clock, over = self.kernel.clock, Waiters(self.kernel)
        until = clock.time() + seconds
        timer = self.kernel.at(until, over.wake)
        try:
            while clock.time() < until and not self.pending:
                await over.wait()
        finally:
            timer.cancel()

    async def wait(self, child: Process) -> int:
        """Wait for a child to end, and return its exit code; stops early for a handled signal."""
        while child.exit_code is None and not self.pending:
            await self.waited.wait()
        if child.exit_code is None:
            return 128 + self.pending[0]
        self.kernel.reap(child)
        return child.exit_code

    async def step(self) -> None:
        """Count one command or loop; who takes too many without waiting has to wait."""
        self._steps += 1
        if self._steps < SLICE:
            return
        self._steps = 0
        now = self.kernel.clock.time()
        self._pause = min(self._pause * 2, LONGEST_PAUSE) if now == self._used_at else FIRST_PAUSE
        self._used_at = now + self._pause
        await self.sleep(self._pause)

    def forget_handlers(self) -> None:
        """Do what exec does: a signal that was handled is its end again, one ignored stays so."""
        self.traps = {number: how for number, how in self.traps.items() if how == ""}

    def signal(self, number: int) -> None:
        """Deliver a signal: ignored, handled by its program, or its end."""
        if self.exit_code is not None:
            return
        handler = self.traps.get(number) if number != KILL else None
        if handler == "":
            return
        if handler is not None:
            self.pending.append(number)
            self.waited.wake()
            self.kernel.ready(self)
            return
        self.kernel.end(self, 128 + number)
