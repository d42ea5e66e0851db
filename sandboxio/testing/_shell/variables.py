"""The builtins of the shell that are about its variables."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sandboxio.testing._shell.builtins import builtin, number, quoted
from sandboxio.testing._shell.state import ShellError

if TYPE_CHECKING:
    from sandboxio.testing._shell.run import Shell

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WHITE = " \t\n"
_MOST = 1024 * 1024
"""Most bytes of a line that `read` takes."""


def require_name(command: str, name: str) -> None:
    """Raise `ShellError` unless a variable can have this name."""
    if not _NAME.fullmatch(name):
        raise ShellError(f"{command}: {name}: bad variable name")


@builtin("export")
async def _export(shell: Shell, args: list[str]) -> int:
    return await _declare(shell, "export", args, shell.state.exported)


@builtin("readonly")
async def _readonly(shell: Shell, args: list[str]) -> int:
    return await _declare(shell, "readonly", args, shell.state.readonly)


async def _declare(shell: Shell, command: str, args: list[str], kind: set[str]) -> int:
    if args[:1] == ["-n"] and shell.state.bash and command == "export":
        return _keep_inside(shell, args[1:])
    if not args or args[0] == "-p":
        for name in sorted(kind):
            value = shell.state.variables.get(name)
            shown = "" if value is None else f"={quoted(value)}"
            await shell.process.out(f"{command} {name}{shown}\n")
        return 0
    for arg in args:
        name, sign, value = arg.partition("=")
        require_name(command, name)
        if sign:
            shell.assign(name, value)
        kind.add(name)
    shell.process.env = shell.state.environment()
    return 0


def _keep_inside(shell: Shell, names: list[str]) -> int:
    shell.state.exported -= set(names)
    shell.process.env = shell.state.environment()
    return 0


@builtin("unset")
async def _unset(shell: Shell, args: list[str]) -> int:
    functions = args[:1] == ["-f"]
    for name in args[1:] if args[:1] in (["-f"], ["-v"]) else args:
        require_name("unset", name)
        if functions:
            shell.state.functions.pop(name, None)
            continue
        try:
            shell.state.drop(name)
        except ShellError as exc:
            raise ShellError(f"unset: {exc.text}") from exc
        shell.process.env.pop(name, None)
    return 0


@builtin("local")
async def _local(shell: Shell, args: list[str]) -> int:
    if not shell.state.locals:
        raise ShellError("local: not in a function")
    frame = shell.state.locals[-1]
    for arg in args:
        name, sign, value = arg.partition("=")
        require_name("local", name)
        frame.setdefault(name, shell.state.variables.get(name))
        if sign:
            shell.assign(name, value)
        elif shell.state.bash:
            shell.state.variables.pop(name, None)
    return 0


@builtin("read")
async def _read(shell: Shell, args: list[str]) -> int:
    raw, names = False, list(args)
    while names and names[0] in ("-r", "-p"):
        if names.pop(0) == "-r":
            raw = True
        elif names:
            del names[0]  # a prompt, which only a terminal is shown
    if names and names[0].startswith("-") and names[0] != "-":
        raise ShellError(f"read: Illegal option {names[0]}")
    if not names and not shell.state.bash:
        raise ShellError("read: arg count")
    chars, ended = await _line(shell, raw=raw)
    separators = shell.state.variables.get("IFS")
    values = _values(chars, max(1, len(names)), _WHITE if separators is None else separators)
    if not names:
        values, names = ["".join(char for char, _ in chars)], ["REPLY"]
    for name, value in zip(names, values, strict=True):
        require_name("read", name)
        shell.assign(name, value)
    return 0 if ended else 1


async def _line(shell: Shell, *, raw: bool) -> tuple[list[tuple[str, bool]], bool]:
    """Read a line byte by byte, for the rest of the input is somebody else's.

    Returns its characters, each with whether a backslash stood before it, and whether it ended.
    """
    found: list[tuple[bytes, bool]] = []
    slash = ended = False
    while not ended and len(found) < _MOST:
        byte = await shell.process.stdin.read(1)
        if not byte:
            break
        await shell.process.step()
        if byte == b"\\" and not raw and not slash:
            slash = True
        elif slash:
            found += [(byte, True)] * (byte != b"\n")
            slash = False
        elif byte == b"\n":
            ended = True
        elif byte != b"\0":
            found.append((byte, False))
    return _decoded(found), ended


def _decoded(found: list[tuple[bytes, bool]]) -> list[tuple[str, bool]]:
    text = b"".join(byte for byte, _ in found).decode("utf-8", "surrogateescape")
    chars: list[tuple[str, bool]] = []
    at = 0
    for char in text:
        chars.append((char, found[at][1]))
        at += len(char.encode("utf-8", "surrogateescape"))
    return chars


def _values(chars: list[tuple[str, bool]], count: int, separators: str) -> list[str]:
    """Share the characters of a line out to so many variables, the last of which gets the rest."""
    marks = [char in separators and not escaped for char, escaped in chars]
    text = "".join(char for char, _ in chars)
    values: list[str] = []
    at = _past(text, marks, 0)
    while len(values) < count - 1:
        end = at
        while end < len(text) and not marks[end]:
            end += 1
        values.append(text[at:end])
        at = _past(text, marks, end)
        if at < len(text) and marks[at]:
            at = _past(text, marks, at + 1)
    return [*values, _rest(text, marks, at)]


def _past(text: str, marks: list[bool], at: int) -> int:
    while at < len(text) and marks[at] and text[at] in _WHITE:
        at += 1
    return at


def _rest(text: str, marks: list[bool], at: int) -> str:
    """Return what the last variable gets: without white space, or a sole separator, at the end."""
    end = len(text)
    while end > at and marks[end - 1] and text[end - 1] in _WHITE:
        end -= 1
    if end > at and marks[end - 1] and not any(marks[at : end - 1]):
        end -= 1
    return text[at:end]


@builtin("getopts")
async def _getopts(shell: Shell, args: list[str]) -> int:
    if len(args) < 2:
        raise ShellError("getopts: Usage: getopts optstring var [arg]")
    known, name, words = args[0], args[1], args[2:] or shell.state.args
    index = number("getopts", shell.state.variables.get("OPTIND", "1")) - 1
    within = number("getopts", shell.state.variables.get("_OPTPOS", "1"))
    word = words[index] if 0 <= index < len(words) else ""
    if len(word) < 2 or not word.startswith("-") or word == "--":
        shell.assign("OPTIND", str(index + 1 + (word == "--")))
        shell.assign(name, "?")
        return 1
    letter, rest = word[within], word[within + 1 :]
    takes = known.find(letter) if letter != ":" else -1
    shell.state.variables.pop("OPTARG", None)
    if takes >= 0 and known[takes + 1 : takes + 2] == ":":
        letter, index = await _argument(shell, letter, rest, words, index, known)
        rest = ""
    elif takes < 0:
        letter = await _bad_option(shell, f"Illegal option -{letter}", letter, known)
    shell.assign("_OPTPOS", str(within + 1 if rest else 1))
    shell.assign("OPTIND", str(index + 1 if rest else index + 2))
    shell.assign(name, letter)
    return 0


async def _argument(
    shell: Shell, letter: str, rest: str, words: list[str], index: int, known: str
) -> tuple[str, int]:
    if rest:
        shell.assign("OPTARG", rest)
        return letter, index
    if index + 1 < len(words):
        shell.assign("OPTARG", words[index + 1])
        return letter, index + 1
    bad = await _bad_option(shell, f"No arg for -{letter} option", letter, known)
    return (":" if known.startswith(":") else bad), index


async def _bad_option(shell: Shell, text: str, letter: str, known: str) -> str:
    if known.startswith(":"):
        shell.assign("OPTARG", letter)
    else:
        await shell.process.err(f"{text}\n")
    return "?"
