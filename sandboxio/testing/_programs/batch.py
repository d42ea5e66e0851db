"""xargs: command lines from stdin."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sandboxio.testing._disk.nodes import encoded
from sandboxio.testing._machine.fds import NullFd
from sandboxio.testing._machine.launch import CannotRun, start
from sandboxio.testing._programs._common import Failure, misused, say, tool
from sandboxio.testing._programs._input import Source
from sandboxio.testing._programs._options import parse
from sandboxio.testing._programs.processes import cannot_run

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sandboxio.testing._machine.process import Process
    from sandboxio.testing._programs._options import Options

_LONG = {
    "null": "0",
    "max-args=": "n",
    "replace=": "I",
    "no-run-if-empty": "r",
    "delimiter=": "d",
    "verbose": "t",
}
_MOST_BYTES = 128 * 1024
_WORD = re.compile(rb"(?:'[^'\n]*'|\"[^\"\n]*\"|\\.|[^\s'\"\\])+", re.DOTALL)
_PART = re.compile(rb"'([^']*)'|\"([^\"]*)\"|\\(.)|([^'\"\\]+)", re.DOTALL)
_STOP = 255


@tool("xargs")
async def xargs(process: Process, args: Sequence[str]) -> int:
    """Run a program with the words of stdin as its arguments."""
    options = parse("xargs", args, "0n:I:rd:t", _LONG, permute=False)
    command = options.operands or ["echo"]
    most = options.get("n", "0")
    if "n" in options and (not most.isdecimal() or int(most) == 0):
        raise misused("xargs", f'invalid number "{most}" for -n option')
    with Source(process, "-") as source:
        words = _words(await source.all(), options)
    if not words and ("r" in options or "I" in options):
        return 0
    lines = (
        _replaced(command, words, options) if "I" in options else _joined(command, words, int(most))
    )
    code = 0
    for line in lines:
        code = max(code, await _run(process, line, options))
    return code


def _words(data: bytes, options: Options) -> list[str]:
    if "0" in options or "d" in options:
        named = {"\\n": "\n", "\\t": "\t", "\\0": "\0"}
        given = options.get("d", "\0")
        end = b"\0" if "0" in options else encoded(named.get(given, given))
        pieces = data.split(end)
        return [_text(piece) for piece in (pieces if pieces[-1] else pieces[:-1])]
    if "I" in options:
        lines = [line.lstrip() for line in data.split(b"\n")]
        return [_text(_unquoted(line)) for line in lines if line]
    left = _WORD.sub(b"", data).strip()
    if left:
        kind = "single" if left.startswith(b"'") else "double"
        hint = "by default quotes are special to xargs unless you use the -0 option"
        raise Failure(f"xargs: unmatched {kind} quote; {hint}")
    return [_text(_unquoted(word)) for word in _WORD.findall(data)]


def _unquoted(word: bytes) -> bytes:
    return b"".join(next((part for part in parts if part), b"") for parts in _PART.findall(word))


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _replaced(command: list[str], words: list[str], options: Options) -> Iterator[list[str]]:
    mark = options.get("I")
    for word in words:
        yield [command[0], *(part.replace(mark, word) for part in command[1:])]


def _joined(command: list[str], words: list[str], most: int) -> Iterator[list[str]]:
    line, size = list(command), 0
    for word in words:
        full = most and len(line) - len(command) >= most
        if len(line) > len(command) and (full or size + len(word) > _MOST_BYTES):
            yield line
            line, size = list(command), 0
        line.append(word)
        size += len(word) + 1
    yield line


async def _run(process: Process, line: list[str], options: Options) -> int:
    await process.step()
    if "t" in options:
        await say(process, " ".join(line))
    try:
        child = start(process, line, fds={0: NullFd()})
    except CannotRun as exc:
        message = f"xargs: {cannot_run(line[0], exc).replace(chr(39), '')}"
        raise Failure(message, exc.exit_code) from exc
    except BlockingIOError as exc:
        raise Failure(f"xargs: cannot fork: {exc.strerror}", 1) from exc
    code = await process.wait(child)
    if code == _STOP:
        raise Failure(f"xargs: {line[0]}: exited with status 255; aborting", 124)
    if code > 128:
        raise Failure(f"xargs: {line[0]}: terminated by signal {code - 128}", 125)
    return 123 if code else 0
