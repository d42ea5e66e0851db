"""The interpreter: runs the commands of a script in a virtual process."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, TypeGuard

from sandboxio.testing._fds import NullFd
from sandboxio.testing._shell_ast import (
    AndOr,
    Background,
    Case,
    For,
    Function,
    If,
    Literal,
    Not,
    Pipeline,
    Redirected,
    Sequence,
    Simple,
    Subshell,
    SyntaxRefused,
    While,
)
from sandboxio.testing._shell_redirect import CannotRedirect, redirect
from sandboxio.testing._shell_simple import run_simple
from sandboxio.testing._shell_state import LARGEST, Leave, Loop, ShellError
from sandboxio.testing._shell_tree import parse
from sandboxio.testing._shell_words import Expander, matches

if TYPE_CHECKING:
    from collections.abc import Awaitable, Generator, Mapping
    from collections.abc import Sequence as AbstractSequence

    from sandboxio.testing._kernel import Fd, Process
    from sandboxio.testing._shell_ast import Command, Redirect
    from sandboxio.testing._shell_redirect import Redirections
    from sandboxio.testing._shell_state import State

_PIECE = 64 * 1024


class Shell:
    """One shell. Its process is the one it runs in; a subshell is another of each."""

    def __init__(self, process: Process, state: State, *, tested: int = 0) -> None:
        self.process = process
        self.state = state
        self.traps: dict[int, str] = {n: "" for n, how in process.traps.items() if how == ""}
        """What to do at signals, and as number 0 at the end; `""` ignores."""
        self.ignored_at_start = frozenset(self.traps)
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
        self._tested = tested

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

    async def run(self, command: Command, *, tail: bool = False) -> int:
        """Run a command and note its exit code."""
        self.state.status = await self._run(command, tail)
        return self.state.status

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

    async def redirected(self, redirects: AbstractSequence[Redirect]) -> Redirections:
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
        state, depth = self.state.copy(), self._tested if tested else 0

        async def main(child: Process) -> int:
            shell = Shell(child, state, tested=depth)
            return await shell.finish(shell.run(command, tail=True))

        self.reap()
        try:
            return self.process.kernel.fork(self.process, main, fds=fds)
        except BlockingIOError:
            raise ShellError("Cannot fork") from None

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
            await self.complain(exc.text)
            return exc.exit_code
        except SyntaxRefused as exc:
            await self.complain(exc.text, exc.line)
            return 2

    async def _at_end(self, text: str, status: int) -> int:
        await self.run_text(text)
        return status

    async def _run(self, command: Command, tail: bool) -> int:
        match command:
            case Simple():
                return self._checked(await run_simple(self, command, tail=tail))
            case Sequence():
                return await self._sequence(command, tail)
            case AndOr():
                return await self._and_or(command, tail)
            case Not():
                with self._testing():
                    return int(await self.run(command.command) == 0)
            case Pipeline():
                return self._checked(await self._pipeline(command))
            case Background():
                return self._background(command.command)
            case Subshell():
                return self._checked(await self._subshell(command, tail))
            case Redirected():
                return await self._redirected(command)
            case _:
                return await self._compound(command, tail)

    async def _compound(self, command: Command, tail: bool) -> int:
        match command:
            case If():
                return await self._if(command, tail)
            case While():
                return await self._while(command)
            case For():
                return await self._for(command)
            case Case():
                return await self._case(command, tail)
            case Function():
                self.state.functions[command.name] = command.body
                return 0
            case _:
                raise TypeError(f"not a command: {command!r}")

    def _checked(self, status: int) -> int:
        """End the shell, under `set -e`, when something fails that nobody asks about."""
        if status and "errexit" in self.state.options and not self._tested:
            raise Leave(status)
        return status

    @contextmanager
    def _testing(self) -> Generator[None]:
        """While the exit code of what runs decides something, failing ends nothing."""
        self._tested += 1
        try:
            yield
        finally:
            self._tested -= 1

    async def _sequence(self, command: Sequence, tail: bool) -> int:
        status = 0
        for index, each in enumerate(command.commands):
            last = index == len(command.commands) - 1
            status = await self.run(each, tail=tail and last)
        return status

    async def _and_or(self, command: AndOr, tail: bool) -> int:
        with self._testing():
            status = await self.run(command.left)
        if (status == 0) == (command.operator == "&&"):
            return await self.run(command.right, tail=tail)
        return status

    async def _subshell(self, command: Subshell, tail: bool) -> int:
        if tail and not any(self.traps.values()):
            return await self.run(command.body, tail=True)
        return await self.wait(self.fork(command.body, tested=True))

    async def _redirected(self, command: Redirected) -> int:
        self.state.line = command.line
        try:
            done = await self.redirected(command.redirects)
        except CannotRedirect as exc:
            await self.complain(str(exc))
            return 1 if self.state.bash else 2
        try:
            return await self.run(command.command)
        finally:
            self.open.remove(done)
            done.restore()

    async def _pipeline(self, command: Pipeline) -> int:
        children = self._start_pipeline(command.commands, None)
        statuses = [await self.wait(child) for child in children]
        if "pipefail" in self.state.options:
            return next((status for status in reversed(statuses) if status), 0)
        return statuses[-1]

    def _start_pipeline(self, commands: tuple[Command, ...], source: Fd | None) -> list[Process]:
        kernel = self.process.kernel
        children: list[Process] = []
        for index, command in enumerate(commands):
            fds: dict[int, Fd] = {} if source is None else {0: source}
            source = None
            if index < len(commands) - 1:
                source, fds[1] = kernel.pipe()
            try:
                children.append(self.fork(command, fds=fds, tested=True))
            except ShellError:
                if source is not None:
                    source.close()
                raise
        return children

    def _background(self, command: Command) -> int:
        if isinstance(command, Pipeline):
            children = self._start_pipeline(command.commands, NullFd())
        else:
            children = [self.fork(command, fds={0: NullFd()})]
        self.state.background = children[-1].pid
        self.jobs[children[-1].pid] = children[-1]
        return 0

    async def _if(self, command: If, tail: bool) -> int:
        with self._testing():
            status = await self.run(command.condition)
        if status == 0:
            return await self.run(command.then, tail=tail)
        if command.otherwise is not None:
            return await self.run(command.otherwise, tail=tail)
        return 0

    async def _while(self, command: While) -> int:
        status = 0
        with self._looping():
            while True:
                await self.step()
                try:
                    with self._testing():
                        stops = (await self.run(command.condition) == 0) == command.until
                    if stops:
                        return status
                    status = await self.run(command.body)
                except Loop as exc:
                    status = 0
                    if not self._goes_on(exc):
                        return status

    async def _for(self, command: For) -> int:
        status = 0
        words = command.words
        values = self.state.args if words is None else await self.expander.fields(words)
        with self._looping():
            for value in tuple(values):
                await self.step()
                self.assign(command.name, value)
                try:
                    status = await self.run(command.body)
                except Loop as exc:
                    status = 0
                    if not self._goes_on(exc):
                        return status
        return status

    @contextmanager
    def _looping(self) -> Generator[None]:
        self.loops += 1
        try:
            yield
        finally:
            self.loops -= 1

    def _goes_on(self, exc: Loop) -> bool:
        if exc.levels > 1 and self.loops > 1:
            raise Loop(exc.levels - 1, again=exc.again) from None
        return exc.again

    async def _case(self, command: Case, tail: bool) -> int:
        text = await self.expander.text(command.word)
        for item in command.items:
            for pattern in item.patterns:
                if matches(text, await self.expander.pattern(pattern)):
                    return await self.run(item.body, tail=tail)
        return 0

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
