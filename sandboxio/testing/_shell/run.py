"""The interpreter: runs the commands of a script in a virtual process."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from sandboxio.testing._machine.fds import NullFd
from sandboxio.testing._shell.ast import (
    AndOr,
    Background,
    Case,
    For,
    Function,
    If,
    Not,
    Pipeline,
    Redirected,
    Sequence,
    Simple,
    Subshell,
    While,
)
from sandboxio.testing._shell.base import BaseShell
from sandboxio.testing._shell.redirect import CannotRedirect
from sandboxio.testing._shell.simple import run_simple
from sandboxio.testing._shell.state import Loop, ShellError
from sandboxio.testing._shell.words import matches

if TYPE_CHECKING:
    from collections.abc import Generator

    from sandboxio.testing._machine.process import Fd, Process
    from sandboxio.testing._shell.ast import Command


class Shell(BaseShell):
    """A shell that knows every kind of command."""

    async def run(self, command: Command, *, tail: bool = False) -> int:
        """Run a command and note its exit code."""
        self.state.status = await self._run(command, tail)
        return self.state.status

    async def _run(self, command: Command, tail: bool) -> int:
        match command:
            case Simple():
                return self.checked(await run_simple(self, command, tail=tail))
            case Sequence():
                return await self._sequence(command, tail)
            case AndOr():
                return await self._and_or(command, tail)
            case Not():
                with self.testing():
                    return int(await self.run(command.command) == 0)
            case Pipeline():
                return self.checked(await self._pipeline(command))
            case Background():
                return self._background(command.command)
            case Subshell():
                return self.checked(await self._subshell(command, tail))
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

    async def _sequence(self, command: Sequence, tail: bool) -> int:
        status = 0
        for index, each in enumerate(command.commands):
            last = index == len(command.commands) - 1
            status = await self.run(each, tail=tail and last)
        return status

    async def _and_or(self, command: AndOr, tail: bool) -> int:
        parts = (("", command.first), *command.rest)
        status = 0
        for index, (operator, each) in enumerate(parts):
            if operator and (status == 0) != (operator == "&&"):
                continue
            if index == len(parts) - 1:
                return await self.run(each, tail=tail)
            with self.testing():
                status = await self.run(each)
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
        with self.testing():
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
                    with self.testing():
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
