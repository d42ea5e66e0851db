"""Virtual processes: coroutines that run in turn, wait for pipes and for the virtual clock.

Nothing here executes anything on the host. A program is a coroutine function that reads and
writes the descriptors of its process; `Kernel.run()` lets every process go on until all of them
wait for something.
"""

from __future__ import annotations

import errno
import itertools
from collections import deque
from typing import TYPE_CHECKING, Any

from sandboxio.testing._machine.pipes import PipeEnd, pipe
from sandboxio.testing._machine.process import KILL, PIPE, Fd, Pause, Process, Waiters

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence

    from sandboxio.testing._disk.fs import FileSystem
    from sandboxio.testing._disk.nodes import Who
    from sandboxio.testing._machine.network import Network
    from sandboxio.testing.clock import FakeClock, Timer


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
        child.traps = dict(parent.traps)
        child.forget_handlers()  # a handler is text of the parent's shell
        return child

    def pipe(self) -> tuple[Fd, Fd]:
        """Return the reading and the writing end of a new pipe."""
        return pipe(self)

    def feed(self, end: Fd, data: bytes) -> None:
        """Put data into a pipe from outside, whatever its size; lost when nobody reads it."""
        if isinstance(end, PipeEnd):
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
            await Pause()

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
