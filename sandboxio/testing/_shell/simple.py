"""Simple commands: assignments, functions, builtins and programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandboxio.testing._machine.launch import (
    NOT_EXECUTABLE,
    NOT_FOUND,
    PROGRAMS,
    CannotRun,
    execute,
)
from sandboxio.testing._shell.ast import assignment, bare
from sandboxio.testing._shell.builtins import (
    BUILTINS,
    DEEPEST,
    IN_PROCESS,
    ONLY_BASH,
    SPECIAL,
    refuse_lacking,
)
from sandboxio.testing._shell.redirect import CannotRedirect
from sandboxio.testing._shell.state import CannotFork, Leave, Return, ShellError

if TYPE_CHECKING:
    from sandboxio.testing._machine.process import Process
    from sandboxio.testing._shell.ast import Command, Simple
    from sandboxio.testing._shell.run import Shell

DECLARING = frozenset({"export", "readonly", "local"})
"""Builtins whose arguments are assignments, which are not split."""

Assigned = dict[str, str]


async def run_simple(shell: Shell, command: Simple, *, tail: bool) -> int:
    """Run a simple command; `tail`: nothing comes after it in this process."""
    shell.state.line = command.line
    await shell.step()
    shell.substituted = 0
    words = await _words(shell, command)
    plain, special = _without_command(words)
    try:
        done = await shell.redirected(command.redirects)
    except CannotRedirect as exc:
        return await _not_redirected(shell, str(exc), fatal=special)
    try:
        assigned = await _assigned(shell, command)
        await _trace(shell, assigned, words)
        if not words:
            for name, value in assigned.items():
                shell.assign(name, value)
            return shell.substituted
        if plain and plain[0] == "exec":
            return await _exec(shell, plain[1:], assigned)
        return await _dispatch(shell, plain, assigned, functions=plain is words, tail=tail)
    finally:
        shell.open.remove(done)
        done.restore()


async def _words(shell: Shell, command: Simple) -> list[str]:
    if not command.words or bare(command.words[0]) not in DECLARING:
        return await shell.expander.fields(command.words)
    found: list[str] = []
    for word in command.words:
        made = assignment(word)
        if made is None:
            found += await shell.expander.fields([word])
        else:
            found.append(f"{made[0]}={await shell.expander.text(made[1], assigned=True)}")
    return found


def _without_command(words: list[str]) -> tuple[list[str], bool]:
    """Take `command` away where it only says that no function is meant.

    Also says whether what is left is a special builtin, whose errors end the shell.
    """
    rest = words
    while len(rest) > 1 and rest[0] == "command" and not rest[1].startswith("-"):
        rest = rest[1:]
    if rest is words:
        return words, bool(words) and words[0] in SPECIAL
    return rest, False


async def _not_redirected(shell: Shell, text: str, *, fatal: bool) -> int:
    status = 1 if shell.state.bash else 2
    if fatal:
        raise ShellError(text, status)
    await shell.complain(text)
    return status


async def _assigned(shell: Shell, command: Simple) -> Assigned:
    found: Assigned = {}
    for name, word in command.assignments:
        shell.state.require_writable(name)
        found[name] = await shell.expander.text(word, assigned=True)
        if not command.words:  # x=1 y=$x
            shell.assign(name, found[name])
    return found


async def _trace(shell: Shell, assigned: Assigned, words: list[str]) -> None:
    if "xtrace" in shell.state.options:
        pieces = [f"{name}={value}" for name, value in assigned.items()] + words
        prefix = shell.state.variables.get("PS4", "+ ")
        await shell.process.err(f"{prefix}{' '.join(pieces)}\n")


async def _dispatch(
    shell: Shell, words: list[str], assigned: Assigned, *, functions: bool, tail: bool
) -> int:
    name, args = words[0], words[1:]
    special = name in SPECIAL and functions
    body = shell.state.functions.get(name) if functions and not special else None
    if special:
        for each, value in assigned.items():
            shell.assign(each, value)
        return await BUILTINS[name](shell, args)
    if body is not None:
        return await _during(shell, assigned, _Call(shell, body, args))
    if name in BUILTINS and (shell.state.bash or name not in ONLY_BASH):
        return await _during(shell, assigned, _Builtin(shell, name, args))
    if name in IN_PROCESS and name in PROGRAMS:
        return await _during(shell, assigned, _Inner(shell, name, args))
    refuse_lacking(name, bash=shell.state.bash)
    env = {**shell.process.env, **assigned}
    if tail and not any(shell.traps.values()):
        return await _replace(shell, words, env)
    return await _external(shell, words, env)


async def _during(shell: Shell, assigned: Assigned, call: _Call | _Builtin | _Inner) -> int:
    """Run something with variables that it, and what it starts, alone sees."""
    if not assigned:
        return await call.run()
    state, process = shell.state, shell.process
    before = {name: state.variables.get(name) for name in assigned}
    for name, value in assigned.items():
        state.put(name, value)
    process.env = {**process.env, **assigned}
    try:
        return await call.run()
    finally:
        state.restore(before)
        process.env = state.environment()


class _Call:
    """A call of a function."""

    def __init__(self, shell: Shell, body: Command, args: list[str]) -> None:
        self._shell = shell
        self._body = body
        self._args = args

    async def run(self) -> int:
        shell, state = self._shell, self._shell.state
        if shell.calls >= DEEPEST:
            raise ShellError(f"Maximum function recursion depth ({DEEPEST}) reached")
        args, loops = state.args, shell.loops
        state.args, shell.loops = self._args, 0
        shell.calls += 1
        state.locals.append({})
        try:
            return await shell.run(self._body)
        except Return as exc:
            return exc.status
        finally:
            shell.calls -= 1
            state.args, shell.loops = args, loops
            state.restore(state.locals.pop())
            shell.process.env = state.environment()


class _Builtin:
    """A builtin whose errors are not the end of the shell."""

    def __init__(self, shell: Shell, name: str, args: list[str]) -> None:
        self._shell = shell
        self._name = name
        self._args = args

    async def run(self) -> int:
        try:
            return await BUILTINS[self._name](self._shell, self._args)
        except ShellError as exc:
            await self._shell.complain(exc.text)
            return exc.exit_code
        except BrokenPipeError:
            raise
        except OSError as exc:
            await self._shell.complain(f"{self._name}: {exc.strerror}")
            return 1


class _Inner:
    """A program that runs in the process of the shell."""

    def __init__(self, shell: Shell, name: str, args: list[str]) -> None:
        self._shell = shell
        self._name = name
        self._args = args

    async def run(self) -> int:
        shell, args = self._shell, self._args
        if self._name == "kill":
            args = [_job(shell, arg) for arg in args]
        try:
            return await PROGRAMS[self._name](shell.process, args)
        except BrokenPipeError:
            raise
        except OSError:
            await shell.complain(f"{self._name}: {self._name}: I/O error")
            return 1


def _job(shell: Shell, text: str) -> str:
    """Return the process number that `%1`, `%%` or `%+` stands for."""
    if not text.startswith("%"):
        return text
    pids = list(shell.jobs)
    if text[1:] in ("", "%", "+") and pids:
        return str(pids[-1])
    if text[1:].isdecimal() and 0 < int(text[1:]) <= len(pids):
        return str(pids[int(text[1:]) - 1])
    raise ShellError(f"kill: No such job: {text}")


async def _exec(shell: Shell, words: list[str], assigned: Assigned) -> int:
    if words[:1] == ["--"]:
        words = words[1:]
    for name, value in assigned.items():
        shell.assign(name, value)
    if not words:
        shell.open[-1].keep()
        return 0
    status = await _replace(shell, words, shell.process.env, complaint="exec: ")
    raise Leave(status)


async def _replace(
    shell: Shell, words: list[str], env: dict[str, str], *, complaint: str = ""
) -> int:
    """Let a program take the place of this shell: it gets its traps, but not its commands."""
    process = shell.process
    process.env = env
    process.traps = {number: how for number, how in process.traps.items() if how == ""}
    shell.traps = {}
    for done in shell.open:
        done.keep()
    try:
        return await execute(process, words)
    except CannotRun as exc:
        await shell.complain(complaint + _cannot_run(shell, words[0], exc))
        return exc.exit_code


async def _external(shell: Shell, words: list[str], env: dict[str, str]) -> int:
    """Run a program in a process of its own, which says itself when it cannot be run."""

    async def main(child: Process) -> int:
        child.env = env
        try:
            return await execute(child, words)
        except CannotRun as exc:
            where = f"line {shell.state.line}" if shell.state.bash else shell.state.line
            text = _cannot_run(shell, words[0], exc)
            await child.err(f"{shell.state.name}: {where}: {text}\n")
            return exc.exit_code

    shell.reap()
    try:
        child = shell.process.kernel.fork(shell.process, main, argv=words)
    except BlockingIOError:
        raise CannotFork from None
    return await shell.wait(child)


def _cannot_run(shell: Shell, name: str, exc: CannotRun) -> str:
    if exc.exit_code == NOT_EXECUTABLE or not shell.state.bash:
        reason = exc.reason if exc.exit_code == NOT_EXECUTABLE else "not found"
        return f"{name}: {reason}"
    missing = exc.exit_code == NOT_FOUND and "/" not in name
    return f"{name}: command not found" if missing else f"{name}: {exc.reason}"
