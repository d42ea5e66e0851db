"""The builtins of the shell, by name."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from sandboxio.testing._disk.nodes import Directory
from sandboxio.testing._machine.launch import PROGRAMS, find
from sandboxio.testing._shell.grammar import CLOSERS, OPENERS
from sandboxio.testing._shell.state import OPTIONS, Leave, Loop, Return, ShellError

if TYPE_CHECKING:
    from sandboxio.testing._shell.run import Shell

Builtin = Callable[["Shell", list[str]], Awaitable[int]]

BUILTINS: dict[str, Builtin] = {}
SPECIAL = frozenset(
    {
        *(":", ".", "break", "continue", "eval", "exec", "exit", "export"),
        *("readonly", "return", "set", "shift", "trap", "unset", "local"),
    }
)
"""Those whose errors end the shell, and whose assignments stay."""
_LACKING = frozenset({"alias", "unalias", "jobs", "fg", "bg", "ulimit", "times", "fc"})
_LACKING_OF_BASH = frozenset(
    {
        *("declare", "typeset", "let", "shopt", "mapfile", "readarray", "pushd", "popd", "dirs"),
        *("builtin", "enable", "disown", "suspend", "history", "bind", "compgen", "complete"),
    }
)
ONLY_BASH = frozenset({"source", "echo"})
"""Builtins that dash lacks, or has in another way."""
DEEPEST = 40
"""Most functions, `eval`s and `.`s inside each other; each takes Python's stack."""
IN_PROCESS = frozenset({"echo", "printf", "test", "[", "true", "false", "kill"})
"""Programs that a shell has built in: they run in its own process."""
KEYWORDS = OPENERS | CLOSERS | {"for", "case", "in"}


def builtin(*names: str) -> Callable[[Builtin], Builtin]:
    """Enter a builtin into the table, under one or more names."""

    def enter(main: Builtin) -> Builtin:
        for name in names:
            BUILTINS[name] = main
        return main

    return enter


def number(name: str, text: str) -> int:
    """Return a number that is not negative, or raise `ShellError`."""
    if not (text.isascii() and text.isdecimal()):
        raise ShellError(f"{name}: Illegal number: {text}")
    return int(text)


def set_options(
    options: set[str], args: list[str], *, letters: str = "", bash: bool = False
) -> tuple[list[str], str]:
    """Set the options at the head of arguments; return the rest, and those of `letters` found.

    Raises:
        ShellError: there is no such option.
    """
    found = ""
    rest = list(args)
    while rest and len(rest[0]) > 1 and rest[0][0] in "-+" and rest[0] != "--":
        word = rest.pop(0)
        for letter in word[1:]:
            if letter in letters:
                found += letter
                continue
            name = OPTIONS.get(letter)
            if letter == "o":
                name = _long(rest, word[0], bash=bash)
            if name is None:
                raise ShellError(f"Illegal option -{letter}")
            (options.add if word[0] == "-" else options.discard)(name)
    return rest, found


def _long(rest: list[str], sign: str, *, bash: bool) -> str:
    name = rest.pop(0) if rest else ""
    known = set(OPTIONS.values()) | ({"pipefail"} if bash else set[str]())
    if name not in known:
        raise ShellError(f"Illegal option {sign}o {name}".rstrip())
    return name


def refuse_lacking(name: str, *, bash: bool) -> None:
    """Raise `ShellError` for a builtin that a real shell has and this one has not."""
    if name in _LACKING or (bash and name in _LACKING_OF_BASH):
        raise ShellError(f"{name}: the fake's shell has no such builtin")


@builtin(":")
async def _nothing(shell: Shell, args: list[str]) -> int:
    return 0


@builtin("exit")
async def _exit(shell: Shell, args: list[str]) -> int:
    raise Leave(number("exit", args[0]) & 0xFF if args else shell.state.status)


@builtin("return")
async def _return(shell: Shell, args: list[str]) -> int:
    raise Return(number("return", args[0]) & 0xFF if args else shell.state.status)


@builtin("break")
async def _break(shell: Shell, args: list[str]) -> int:
    return _leave_loop(shell, "break", args)


@builtin("continue")
async def _continue(shell: Shell, args: list[str]) -> int:
    return _leave_loop(shell, "continue", args)


def _leave_loop(shell: Shell, name: str, args: list[str]) -> int:
    levels = number(name, args[0]) if args else 1
    if levels == 0:
        raise ShellError(f"{name}: Illegal number: 0")
    if shell.loops:
        raise Loop(levels, again=name == "continue")
    return 0


@builtin("shift")
async def _shift(shell: Shell, args: list[str]) -> int:
    count = number("shift", args[0]) if args else 1
    if count > len(shell.state.args):
        raise ShellError("shift: can't shift that many")
    shell.state.args = shell.state.args[count:]
    return 0


@builtin("set")
async def _set(shell: Shell, args: list[str]) -> int:
    state = shell.state
    if not args:
        for name, value in sorted(state.variables.items()):
            await shell.process.out(f"{name}={quoted(value)}\n")
        return 0
    try:
        rest, _ = set_options(state.options, args, bash=state.bash)
    except ShellError as exc:
        raise ShellError(f"set: {exc.text}") from exc
    if rest[:1] in (["--"], ["-"]):
        state.args = rest[1:]
    elif rest:
        state.args = rest
    return 0


@builtin("eval")
async def _eval(shell: Shell, args: list[str]) -> int:
    return await deeper(shell, " ".join(args))


@builtin(".", "source")
async def _dot(shell: Shell, args: list[str]) -> int:
    if not args:
        raise ShellError(".: filename argument required")
    process = shell.process
    path = args[0] if "/" in args[0] else _readable(shell, args[0])
    try:
        data = process.kernel.fs.read(path, cwd=process.cwd, who=process.who)
    except OSError as exc:
        missing = isinstance(exc, FileNotFoundError)
        why = "No such file" if missing else exc.strerror
        raise ShellError(f".: cannot open {path}: {why}") from exc
    try:
        return await deeper(shell, data.decode("utf-8", "surrogateescape"))
    except Return as exc:
        return exc.status


def _readable(shell: Shell, name: str) -> str:
    process = shell.process
    for folder in process.env.get("PATH", "").split(":"):
        path = f"{folder or '.'}/{name}"
        if process.kernel.fs.access(path, cwd=process.cwd, who=process.who, read=True):
            return path
    raise ShellError(f".: {name}: not found")


async def deeper(shell: Shell, text: str) -> int:
    """Run a text inside of what runs, which may not go on like that for ever."""
    if shell.calls >= DEEPEST:
        raise ShellError(f"Maximum function recursion depth ({DEEPEST}) reached")
    shell.calls += 1
    line = shell.state.line
    try:
        return await shell.run_text(text)
    finally:
        shell.calls -= 1
        shell.state.line = line


@builtin("cd", "chdir")
async def _cd(shell: Shell, args: list[str]) -> int:
    words = [arg for arg in args if arg not in ("-L", "-P", "--")]
    target = words[0] if words else shell.state.variables.get("HOME", "")
    shown = target == "-"
    if shown:
        target = shell.state.variables.get("OLDPWD", "")
    process, fs = shell.process, shell.process.kernel.fs
    path = logical(process.cwd, target)
    try:
        found = isinstance(fs.resolve(path, who=process.who), Directory)
        found = found and fs.access(path, who=process.who, execute=True)
        if "-P" in args:
            path = fs.realpath(path, who=process.who)
    except OSError:
        found = False
    if not found:
        bash = shell.state.bash
        why = f"{target}: No such file or directory" if bash else f"can't cd to {target}"
        await shell.complain(f"cd: {why}")
        return 1 if bash else 2
    shell.assign("OLDPWD", process.cwd)
    process.cwd = path
    shell.assign("PWD", path)
    if shown:
        await process.out(f"{path}\n")
    return 0


def logical(folder: str, path: str) -> str:
    """Return an absolute path without dots; a link followed by `..` is as if it were none."""
    pieces: list[str] = []
    whole = path if path.startswith("/") else f"{folder}/{path}"
    for piece in whole.split("/"):
        if piece == "..":
            del pieces[-1:]
        elif piece not in ("", "."):
            pieces.append(piece)
    return "/" + "/".join(pieces)


@builtin("echo")
async def _echo(shell: Shell, args: list[str]) -> int:
    """Be bash's `echo`, which needs `-e` for what dash's always does."""
    words, flags = list(args), ""
    while words and re.fullmatch(r"-[neE]+", words[0]):
        flags += words.pop(0)[1:]
    quiet = ["-n"] * ("n" in flags)
    if flags.rstrip("n").endswith("e"):
        return await PROGRAMS["echo"](shell.process, [*quiet, *words])
    await shell.process.out(" ".join(words) + "\n" * (not quiet))
    return 0


@builtin("pwd")
async def _pwd(shell: Shell, args: list[str]) -> int:
    process = shell.process
    path = process.cwd
    if args[-1:] == ["-P"]:
        path = process.kernel.fs.realpath(path, who=process.who)
    await process.out(f"{path}\n")
    return 0


@builtin("umask")
async def _umask(shell: Shell, args: list[str]) -> int:
    process = shell.process
    if not args:
        await process.out(f"{process.umask:04o}\n")
        return 0
    if args[0] == "-S":
        await process.out(f"{_symbolic(process.umask)}\n")
        return 0
    if not all(digit in "01234567" for digit in args[0]) or len(args[0]) > 4:
        raise ShellError(f"umask: Illegal mode: {args[0]}")
    process.umask = int(args[0], 8) & 0o777
    return 0


def _symbolic(umask: int) -> str:
    shown: list[str] = []
    for who, shift in (("u", 6), ("g", 3), ("o", 0)):
        bits = ~umask >> shift
        shown.append(
            f"{who}=" + "".join(r * (bits >> at & 1) for at, r in ((2, "r"), (1, "w"), (0, "x")))
        )
    return ",".join(shown)


@builtin("type")
async def _type(shell: Shell, args: list[str]) -> int:
    status = 0
    for name in args:
        kind = _kind(shell, name)
        path = find(shell.process, name) if kind is None else None
        if kind is None and path is None:
            status = 127
        await shell.process.out(f"{name}{kind or (f' is {path}' if path else ': not found')}\n")
    return status


def _kind(shell: Shell, name: str) -> str | None:
    if name in KEYWORDS:
        return " is a shell keyword"
    if name in shell.state.functions:
        return " is a shell function"
    if name in SPECIAL:
        return " is a special shell builtin"
    return " is a shell builtin" if name in BUILTINS or name in IN_PROCESS else None


@builtin("command")
async def _command(shell: Shell, args: list[str]) -> int:
    """Answer `-v` and `-V`; without an option the interpreter has taken `command` away."""
    if args[:1] == ["-V"]:
        return await _type(shell, args[1:])
    if args[:1] != ["-v"]:
        if args:
            raise ShellError(f"command: Illegal option {args[0]}")
        return 0
    if len(args) < 2:
        return 0
    name = args[1]
    path = name if _kind(shell, name) else find(shell.process, name)
    if path is None:
        return 127
    await shell.process.out(f"{path}\n")
    return 0


@builtin("hash")
async def _hash(shell: Shell, args: list[str]) -> int:
    missing = [name for name in args if name != "-r" and find(shell.process, name) is None]
    for name in missing:
        await shell.complain(f"hash: {name}: not found")
    return 1 if missing else 0


def quoted(text: str) -> str:
    """Return a text in single quotes, to be read by a shell."""
    return "'" + text.replace("'", "'\"'\"'") + "'"
