"""Virtual processes: coroutines that run in turn, wait for pipes and for the virtual clock.

Nothing here executes anything on the host. A program is a coroutine function that reads and
writes the descriptors of its process; `Kernel.run()` lets every process go on until all of them
wait for something.
"""

from __future__ import annotations

import errno
import itertools
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence

    from sandboxio.testing._fs import FileSystem
    from sandboxio.testing._network import Network
    from sandboxio.testing._nodes import Who
    from sandboxio.testing.clock import FakeClock, Timer

PIPE_SIZE = 64 * 1024
SLICE = 400
"""Steps a process may take before it is made to use some time."""
FIRST_PAUSE, LONGEST_PAUSE = 0.01, 10.0
KILL, TERM, INT, HUP, PIPE = 9, 15, 2, 1, 13
SIGNALS = {"HUP": 1, "INT": 2, "QUIT": 3, "KILL": 9, "USR1": 10, "USR2": 12, "PIPE": 13, "TERM": 15}


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


class _Pause:
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
            await _Pause()
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


class Kernel:
    """All processes of one fake sandbox, and the files and network they share."""

    def __init__(
        self, clock: FakeClock, fs: FileSystem, network: Network, *, limit: int = 512
    ) -> None:
        self.clock = clock
        self.memory = 64 * 1024 * 1024
        """Bytes that a program may hold before it is killed for them."""
        self.limit = limit
        """Most processes there may be at once."""
        self.fs = fs
        self.network = network
        self.processes: dict[int, Process] = {}
        self._pids = itertools.count(2)
        self._ready: deque[Process] = deque()
        self._current: Process | None = None
        self._running = False

    @property
    def current(self) -> Process:
        """The process whose coroutine runs now."""
        if self._current is None:
            raise RuntimeError("no virtual process is running")
        return self._current

    def spawn(
        self,
        main: Callable[[Process], Coroutine[Any, Any, int]],
        argv: Sequence[str],
        *,
        call: int,
        parent: Process | None = None,
        env: Mapping[str, str],
        cwd: str,
        who: Who,
        umask: int = 0o022,
        fds: Mapping[int, Fd],
        new_session: bool = False,
    ) -> Process:
        """Make a process that runs `main`; it takes over the descriptors it is given.

        Raises:
            BlockingIOError: there are too many processes.
        """
        if len(self.processes) >= self.limit:
            for fd in fds.values():
                fd.close()
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        pid = next(self._pids)
        process = Process(
            self,
            argv,
            pid=pid,
            call=call,
            parent=parent,
            session=pid if new_session or parent is None else parent.session,
            env=env,
            cwd=cwd,
            who=who,
            umask=umask,
            fds=fds,
        )
        process.main = main(process)
        self.processes[pid] = process
        if parent is not None:
            parent.children.add(process)
        self.ready(process)
        return process

    def fork(
        self,
        parent: Process,
        main: Callable[[Process], Coroutine[Any, Any, int]],
        *,
        argv: Sequence[str] | None = None,
        fds: Mapping[int, Fd] | None = None,
        new_session: bool = False,
    ) -> Process:
        """Make a child like its parent: environment, directory, user; descriptors are copied.

        `fds` replaces single descriptors; those handed in are taken over.
        """
        own = dict(fds or {})
        copied = {number: fd.dup() for number, fd in parent.fds.items() if number not in own}
        child = self.spawn(
            main,
            parent.argv if argv is None else argv,
            call=parent.call,
            parent=parent,
            env=parent.env,
            cwd=parent.cwd,
            who=parent.who,
            umask=parent.umask,
            fds={**copied, **own},
            new_session=new_session,
        )
        child.traps = {number: how for number, how in parent.traps.items() if how == ""}
        return child

    def pipe(self) -> tuple[Fd, Fd]:
        """Return the reading and the writing end of a new pipe."""
        shared = _PipeState(self)
        return _PipeEnd(shared, reads=True), _PipeEnd(shared, reads=False)

    def feed(self, end: Fd, data: bytes) -> None:
        """Put data into a pipe from outside, whatever its size; lost when nobody reads it."""
        if isinstance(end, _PipeEnd):
            end.feed(data)

    def waiters(self) -> Waiters:
        return Waiters(self)

    def at(self, when: float, act: Callable[[], None]) -> Timer:
        """Do something at a point of virtual time, and let the processes go on."""

        def fire() -> None:
            act()
            self.run()

        return self.clock.call_at(when, fire)

    def ready(self, process: Process) -> None:
        """Let a process go on in the next round."""
        if process.exit_code is None and process not in self._ready:
            self._ready.append(process)

    def run(self) -> None:
        """Let processes go on until all of them wait."""
        if self._running:
            return
        self._running = True
        try:
            while self._ready:
                self._advance(self._ready.popleft())
        finally:
            self._running = False

    def end(self, process: Process, exit_code: int) -> None:
        """End a process here and now."""
        if process.exit_code is not None:
            return
        process.exit_code = exit_code
        main, process.main = process.main, None
        if main is not None and process is not self._current:
            main.close()
        for fd in process.fds.values():
            fd.close()
        process.fds = {}
        self._bereave(process)
        if process.on_end is not None:
            process.on_end()

    async def kill(self, target: Process, number: int) -> None:
        """Send a signal on behalf of the current process, which may be its own end."""
        target.signal(number)
        if self.current.exit_code is not None:
            await _Pause()

    def kill_call(self, call: int) -> None:
        """End every process of a call, whatever session or parent it has."""
        for process in list(self.processes.values()):
            if process.call == call:
                self.end(process, 128 + KILL)

    def kill_all(self) -> None:
        for process in list(self.processes.values()):
            self.end(process, 128 + KILL)

    def reap(self, process: Process) -> None:
        """Forget a process that has ended and that its parent has asked about."""
        self.processes.pop(process.pid, None)
        if process.parent is not None:
            process.parent.children.discard(process)

    def _advance(self, process: Process) -> None:
        main = process.main
        if main is None:
            return
        self._current = process
        try:
            main.send(None)
        except StopIteration as done:
            self._current = None
            self.end(process, int(done.value or 0) & 0xFF)
        except BrokenPipeError:
            self._current = None
            self.end(process, 128 + PIPE)
        except BlockingIOError:  # a program that could not fork, and had no better answer
            self._current = None
            self.end(process, 2)
        else:
            if process.exit_code is not None:  # it ended itself
                main.close()
        finally:
            self._current = None

    def _bereave(self, process: Process) -> None:
        """Give its children to the first process, which reaps, and tell its parent."""
        for child in list(process.children):
            child.parent = None
            if child.exit_code is not None:
                self.reap(child)
        parent = process.parent
        if parent is None or parent.exit_code is not None:
            self.reap(process)
        else:
            parent.waited.wake()


class _PipeState:
    def __init__(self, kernel: Kernel) -> None:
        self.buffer = bytearray()
        self.readers = self.writers = 0
        self.readable, self.writable = Waiters(kernel), Waiters(kernel)


class _PipeEnd:
    """One holder of one end of a pipe."""

    def __init__(self, shared: _PipeState, *, reads: bool) -> None:
        self._shared = shared
        self._reads = reads
        self._open = True
        if reads:
            shared.readers += 1
        else:
            shared.writers += 1

    async def read(self, size: int) -> bytes:
        shared = self._shared
        while not shared.buffer and shared.writers:
            await shared.readable.wait()
        data = bytes(shared.buffer[:size])
        del shared.buffer[:size]
        shared.writable.wake()
        return data

    async def write(self, data: bytes) -> None:
        shared = self._shared
        view = memoryview(data)
        while len(view):
            while len(shared.buffer) >= PIPE_SIZE and shared.readers:
                await shared.writable.wait()
            if not shared.readers:
                raise BrokenPipeError
            room = PIPE_SIZE - len(shared.buffer)
            shared.buffer += view[:room]
            view = view[room:]
            shared.readable.wake()

    def feed(self, data: bytes) -> None:
        if self._shared.readers:
            self._shared.buffer += data
            self._shared.readable.wake()

    def dup(self) -> _PipeEnd:
        return _PipeEnd(self._shared, reads=self._reads)

    def close(self) -> None:
        if not self._open:
            return
        self._open = False
        if self._reads:
            self._shared.readers -= 1
            self._shared.writable.wake()
        else:
            self._shared.writers -= 1
            self._shared.readable.wake()
