"""What a shell is apart from its commands: its process, its forks, its end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, TypeGuard

from sandboxio.testing._shell.ast import Literal, Simple, SyntaxRefused
from sandboxio.testing._shell.redirect import redirect
from sandboxio.testing._shell.state import LARGEST, CannotFork, Leave, Loop, ShellError
from sandboxio.testing._shell.tree import parse
from sandboxio.testing._shell.words import Expander

if TYPE_CHECKING:
    from collections.abc import Awaitable, Generator, Mapping, Sequence

    from sandboxio.testing._machine.process import Fd, Process
    from sandboxio.testing._shell.ast import Command, Redirect
    from sandboxio.testing._shell.redirect import Redirections
    from sandboxio.testing._shell.state import State

FORK_PAUSE = 1.0
"""Virtual seconds that it takes to find out that there are too many processes."""
_PIECE = 64 * 1024


class BaseShell(ABC):
    """One shell. Its process is the one it runs in; a subshell is another of each."""

    def __init__(
        self,
        process: Process,
        state: State,
        *,
        ignored: frozenset[int] = frozenset(),
        tested: int = 0,
    ) -> None:
        """Make one; `ignored` are signals that it was started to ignore, and always will."""
        self.process = process
        self.state = state
        self.traps: dict[int, str] = {n: "" for n, how in process.traps.items() if how == ""}
        """What to do at signals, and as number 0 at the end; `""` ignores."""
        self.ignored_at_start = ignored
        self.jobs: dict[int, Process] = {}
        """Background processes by number, until somebody has waited for them."""
        self.loops = 0
        self.calls = 0
        """Functions and texts inside each other; each takes Python's stack."""
        self.substituted = 0
        """Exit code of the last `$(...)` of the command that is being expanded."""
        self.expander = Expander(process, state, self._substitute, self.assign)
        self.open: list[Redirections] = []
        """Redirections to be undone, which a program run by `exec` does not get."""
        self.tested = tested
        """How many commands are running whose exit code decides something."""

    async def finish(self, work: Awaitable[int]) -> int:
        """Run something as all that this shell does, with what it does at its end."""
        status = await self._guarded(work)
        at_end = self.traps.pop(0, "")
        if at_end:
            self.state.status = status
            return await self._guarded(self._at_end(at_end, status))
        return status

    async def run_text(self, text: str, *, tail: bool = False) -> int:
        """Run the text of a script; `tail`: nothing comes after it."""
        command = parse(text, bash=self.state.bash)
        if "noexec" in self.state.options:
            return 0
        return await self.run(command, tail=tail)

    @abstractmethod
    async def run(self, command: Command, *, tail: bool = False) -> int:
        """Run a command and note its exit code."""

    async def step(self) -> None:
        """Let virtual time pass where it must, and handle signals."""
        await self.process.step()
        while self.process.pending:
            number = self.process.pending.popleft()
            before = self.state.status
            if self.traps.get(number):
                await self.run_text(self.traps[number])
            self.state.status = before

    def assign(self, name: str, value: str) -> None:
        """Set a variable, in the environment too if it is exported."""
        self.state.put(name, value)
        if name in self.state.exported:
            self.process.env[name] = value

    async def complain(self, text: str, line: int | None = None) -> None:
        """Say on stderr what is wrong."""
        number = self.state.line if line is None else line
        where = f"line {number}" if self.state.bash else number
        with suppress(KeyError):
            try:
                await self.process.err(f"{self.state.name}: {where}: {text}\n")
            except BrokenPipeError:
                raise
            except OSError:
                return

    async def redirected(self, redirects: Sequence[Redirect]) -> Redirections:
        """Carry out redirections; raises as `redirect()` does."""
        done = await redirect(self.process, self.state, self.expander, redirects)
        self.open.append(done)
        return done

    def fork(
        self, command: Command, *, fds: Mapping[int, Fd] | None = None, tested: bool = False
    ) -> Process:
        """Run a command in a process of its own, a copy of this shell.

        Raises:
            ShellError: there are too many processes.
        """
        state, depth = self.state.copy(), self.tested if tested else 0

        async def main(child: Process) -> int:
            shell = type(self)(child, state, ignored=self.ignored_at_start, tested=depth)
            return await shell.finish(shell.run(command, tail=True))

        self.reap()
        try:
            return self.process.kernel.fork(self.process, main, fds=fds)
        except BlockingIOError:
            raise CannotFork from None

    async def wait(self, child: Process) -> int:
        """Wait for a child that runs in the foreground; signals are handled afterwards."""
        while child.exit_code is None:
            await self.process.waited.wait()
        self.process.kernel.reap(child)
        return child.exit_code

    def reap(self) -> None:
        """Let go of the children that have ended; what they returned stays known."""
        for child in tuple(self.process.children):
            if child.exit_code is not None:
                self.process.kernel.reap(child)

    async def _guarded(self, work: Awaitable[int]) -> int:
        try:
            return await work
        except Leave as exc:
            return exc.status
        except Loop:
            return 0
        except ShellError as exc:
            if isinstance(exc, CannotFork):  # or a fork bomb would go on without using time
                await self.process.sleep(FORK_PAUSE)
            await self.complain(exc.text)
            return exc.exit_code
        except SyntaxRefused as exc:
            await self.complain(exc.text, exc.line)
            return 2
        except RecursionError:
            await self.complain("nested too deeply")
            return 2

    async def _at_end(self, text: str, status: int) -> int:
        await self.run_text(text)
        return status

    def checked(self, status: int) -> int:
        """End the shell, under `set -e`, when something fails that nobody asks about."""
        if status and "errexit" in self.state.options and not self.tested:
            raise Leave(status)
        return status

    @contextmanager
    def testing(self) -> Generator[None]:
        """While the exit code of what runs decides something, failing ends nothing."""
        self.tested += 1
        try:
            yield
        finally:
            self.tested -= 1

    async def _substitute(self, command: Command) -> str:
        if self.state.bash and _only_reads(command):
            command = replace(command, words=((Literal("cat", quoted=False),),))
        reader, writer = self.process.kernel.pipe()
        found = bytearray()
        try:
            child = self.fork(command, fds={1: writer})
            while piece := await reader.read(_PIECE):
                found += piece
                if len(found) > LARGEST:
                    raise ShellError("Out of space")
                await self.process.step()
        finally:
            reader.close()
        self.substituted = await self.wait(child)
        text = bytes(found).replace(b"\0", b"").decode("utf-8", "surrogateescape")
        return text.rstrip("\n")


def _only_reads(command: Command) -> TypeGuard[Simple]:
    """Recognise bash's `$(<file)`."""
    return (
        isinstance(command, Simple)
        and not command.words
        and not command.assignments
        and [each.operator for each in command.redirects] == ["<"]
    )
