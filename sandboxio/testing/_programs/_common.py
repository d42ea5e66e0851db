"""What the virtual programs share: their entry, their messages, and what they write to."""

from __future__ import annotations

import errno
import re
from functools import wraps
from typing import TYPE_CHECKING, NoReturn, TypedDict

from sandboxio.testing._disk.nodes import encoded
from sandboxio.testing._machine.launch import program
from sandboxio.testing._machine.process import KILL

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sandboxio.testing._disk.nodes import Who
    from sandboxio.testing._machine.launch import Program
    from sandboxio.testing._machine.process import Process

CHUNK = 64 * 1024
"""Most bytes read or written at once."""
MEMORY = 192 * 1024 * 1024
"""Most bytes a program may hold, whatever the cap of its sandbox: they are the host's."""

_PLAIN = re.compile(r"(?![#~]|[{}]\Z)[^\s!\"$&'()*;<=>?\[\\^`|\x00-\x1f\x7f]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]+")
_NAMED = {"\a": "\\a", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\v": "\\v", "\f": "\\f", "\r": "\\r"}


class Place(TypedDict):
    cwd: str
    who: Who


class Failure(Exception):
    """The end of a program that prints a message; `code` is its exit code."""

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.message = message
        self.code = code


def tool(*names: str, trouble: int = 1) -> Callable[[Program], Program]:
    """Enter a program that may raise `Failure`, or `OSError` when its stdout cannot be written.

    `trouble` is its exit code for the latter.
    """

    def enter(main: Program) -> Program:
        @wraps(main)
        async def guarded(process: Process, args: Sequence[str]) -> int:
            try:
                return await main(process, args)
            except Failure as exc:
                await say(process, exc.message)
                return exc.code
            except (BrokenPipeError, BlockingIOError):
                raise
            except OSError as exc:
                await say(process, f"{names[0]}: write error: {exc.strerror}")
                return trouble

        return program(*names)(guarded)

    return enter


def misused(name: str, message: str, code: int = 1) -> Failure:
    """Return the complaint about a wrong command line."""
    return Failure(f"{name}: {message}\nTry '{name} --help' for more information.", code)


def refuse_operand(name: str, operands: Sequence[str], most: int, code: int = 1) -> None:
    """Raise when there are more operands than a program takes."""
    if len(operands) > most:
        raise misused(name, f"extra operand {quoted(operands[most])}", code)


def require_operands(name: str, operands: Sequence[str], least: int = 1) -> None:
    """Raise when there are fewer operands than a program needs."""
    if not operands:
        raise misused(name, "missing operand")
    if len(operands) < least:
        raise misused(name, f"missing operand after {quoted(operands[-1])}")


async def put(process: Process, data: bytes) -> None:
    """Write to stdout, if there is any; an `OSError` is for `tool` to report."""
    if 1 not in process.fds:
        raise OSError(errno.EBADF, "Bad file descriptor")
    for at in range(0, len(data), CHUNK):
        await process.fds[1].write(data[at : at + CHUNK])


async def put_text(process: Process, text: str) -> None:
    await put(process, encoded(text))


async def say(process: Process, message: str) -> None:
    """Write a line to stderr; where it cannot be written, it is lost."""
    if 2 not in process.fds:
        return
    try:
        await process.fds[2].write(encoded(message) + b"\n")
    except BrokenPipeError:
        raise
    except OSError:
        return


async def hold(process: Process, size: int) -> None:
    """Account for what a program keeps in memory; too much of it is the program's end."""
    if size > min(process.kernel.memory, MEMORY):
        await process.kernel.kill(process, KILL)


def here(process: Process) -> Place:
    """Return where a process is and who it is, as the file system wants to know it."""
    return {"cwd": process.cwd, "who": process.who}


def quoted(name: str) -> str:
    """Return a name in quotes, as messages of GNU programs show it."""
    if "'" in name and not re.search(r'["$`\\!\x00-\x1f\x7f]', name):
        return f'"{name}"'
    if not _CONTROL.search(name):
        return "'" + name.replace("'", "'\\''") + "'"
    shown = _CONTROL.sub(lambda match: f"'$'{_escaped(match[0])}''", name.replace("'", "'\\''"))
    return f"'{shown}'".removesuffix("''")


def quoted_if_needed(name: str) -> str:
    """Return a name bare where a shell would take it so, else in quotes."""
    return name if _PLAIN.fullmatch(name) else quoted(name)


def invalid_number(name: str, what: str, value: str, code: int = 1) -> NoReturn:
    raise Failure(f"{name}: invalid {what}: {quoted(value)}", code)


def _escaped(text: str) -> str:
    return "".join(_NAMED.get(char, f"\\{ord(char):03o}") for char in text)
