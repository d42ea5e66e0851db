"""Programs that pass text on: cat, tee, head, tail, wc."""

from __future__ import annotations

import re
from collections import deque
from typing import TYPE_CHECKING

from sandboxio.testing._machine.fds import open_fd
from sandboxio.testing._programs._common import (
    Failure,
    hold,
    put,
    put_text,
    quoted,
    say,
    tool,
)
from sandboxio.testing._programs._input import Source, complaint, over
from sandboxio.testing._programs._options import parse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sandboxio.testing._machine.process import Fd, Process
    from sandboxio.testing._programs._options import Options

_UNITS = {"": 1, "b": 512, "k": 1024, "K": 1024, "M": 1024**2, "G": 1024**3, "kB": 1000}
_FOLLOW_PAUSE = 1.0
_CAT = {
    "number": "n",
    "number-nonblank": "b",
    "squeeze-blank": "s",
    "show-ends": "E",
    "show-tabs": "T",
    "show-nonprinting": "v",
    "show-all": "A",
}
_ENDS = {"lines=": "n", "bytes=": "c", "quiet": "q", "silent": "q", "verbose": "v"}


@tool("cat")
async def cat(process: Process, args: Sequence[str]) -> int:
    """Write files to stdout."""
    options = parse("cat", args, "nbsETAvetu", _CAT)
    flags = "".join(name for name, _ in options.given).translate(
        {ord("A"): "vET", ord("e"): "vE", ord("t"): "vT", ord("u"): ""}
    )
    if not flags:
        return await over(process, "cat", options.operands, _pass_on)
    lister = _Lister(process, flags)
    return await over(process, "cat", options.operands, lister.list)


async def _pass_on(source: Source) -> None:
    while piece := await source.read():
        await put(source.process, piece)


class _Lister:
    """cat with options: its numbers go on from one file to the next."""

    def __init__(self, process: Process, flags: str) -> None:
        self._process = process
        self._flags = flags
        self._number = 0
        self._blank = False

    async def list(self, source: Source) -> None:
        while lines := await source.lines():
            await put(self._process, b"".join(map(self._shown, lines)))

    def _shown(self, line: bytes) -> bytes:
        blank, repeated = line == b"\n", self._blank
        self._blank = blank
        if blank and repeated and "s" in self._flags:
            return b""
        text = line.removesuffix(b"\n")
        shown = _visible(text, self._flags)
        if line != text:
            shown += b"$\n" if "E" in self._flags else b"\n"
        if "b" in self._flags and blank:
            return shown
        if "n" in self._flags or "b" in self._flags:
            self._number += 1
            return b"%6d\t%b" % (self._number, shown)
        return shown


def _visible(text: bytes, flags: str) -> bytes:
    if "v" in flags:
        text = b"".join(_caret(byte) for byte in text)
    return text.replace(b"\t", b"^I") if "T" in flags else text


def _caret(byte: int) -> bytes:
    if byte >= 128:
        return b"M-" + (_caret(byte - 128) if byte not in (137, 138) else b"^%c" % (byte - 64))
    if byte == 127:
        return b"^?"
    return bytes((byte,)) if byte >= 32 or byte == 9 else b"^%c" % (byte + 64)


@tool("tee")
async def tee(process: Process, args: Sequence[str]) -> int:
    """Copy stdin to stdout and to files."""
    options = parse("tee", args, "ai", {"append": "a", "ignore-interrupts": "i"})
    append = "a" in options
    files: dict[str, Fd] = {}
    code = 0
    for name in options.operands:
        try:
            files[name] = open_fd(
                process, name, write=True, create=True, append=append, truncate=not append
            )
        except OSError as exc:
            await say(process, f"tee: {complaint(name, exc)}")
            code = 1
    try:
        return max(code, await _tee(process, files))
    finally:
        for fd in files.values():
            fd.close()


async def _tee(process: Process, files: dict[str, Fd]) -> int:
    working = dict(files)
    with Source(process, "-") as source:
        while piece := await source.read():
            await put(process, piece)
            for name, fd in list(working.items()):
                try:
                    await fd.write(piece)
                except OSError as exc:
                    del working[name]
                    await say(process, f"tee: {complaint(name, exc)}")
    return int(len(working) < len(files))


class _Part:
    """What head and tail have in common: a count of lines or bytes, and titles."""

    def __init__(self, process: Process, name: str, options: Options) -> None:
        self.process = process
        self.bytes = options.last("nc") == "c"
        text = options.get("c" if self.bytes else "n", "10")
        self.sign = text[0] if text[:1] in "+-" and text else ""
        self.count = _amount(name, text, what="bytes" if self.bytes else "lines")
        last = options.last("qv")
        self.titles = last == "v" or (last != "q" and len(options.operands) > 1)
        self._first = True

    async def title(self, source: Source) -> None:
        if self.titles:
            shown = "standard input" if source.is_stdin else source.name
            await put_text(self.process, f"{'' if self._first else chr(10)}==> {shown} <==\n")
        self._first = False


def _amount(name: str, text: str, *, what: str) -> int:
    match = re.fullmatch(r"[+-]?(\d+)(b|k|K|M|G|kB)?", text)
    if match is None:
        raise Failure(f"{name}: invalid number of {what}: {quoted(text)}")
    return int(match[1]) * _UNITS[match[2] or ""]


def _cannot(name: str, exc: OSError) -> str:
    if isinstance(exc, IsADirectoryError):
        return f"error reading {quoted(name)}: {exc.strerror}"
    return f"cannot open {quoted(name)} for reading: {exc.strerror}"


def _modern(args: Sequence[str]) -> list[str]:
    """Turn the old `-5` into `-n 5`."""
    if args and re.fullmatch(r"-\d+", args[0]):
        return ["-n", args[0][1:], *args[1:]]
    return list(args)


@tool("head")
async def head(process: Process, args: Sequence[str]) -> int:
    """Write the first lines or bytes of files."""
    options = parse("head", _modern(args), "n:c:qv", _ENDS)
    part = _Part(process, "head", options)

    async def show(source: Source) -> None:
        await part.title(source)
        if part.sign == "-":
            await _all_but_last(source, part.count, whole=not part.bytes)
        elif part.bytes:
            await _first_bytes(source, part.count)
        else:
            await _first_lines(source, part.count)

    return await over(process, "head", options.operands, show, complain=_cannot)


async def _first_lines(source: Source, count: int) -> None:
    while count > 0 and (lines := await source.lines()):
        await put(source.process, b"".join(lines[:count]))
        count -= len(lines)


async def _first_bytes(source: Source, count: int) -> None:
    while count > 0 and (piece := await source.read(count)):
        await put(source.process, piece)
        count -= len(piece)


async def _all_but_last(source: Source, count: int, *, whole: bool) -> None:
    kept = _Kept(source.process, count)
    if whole:
        while lines := await source.lines():
            await put(source.process, await kept.add(lines))
        return
    held = bytearray()
    while piece := await source.read():
        held += piece
        ready = max(0, len(held) - count)
        await put(source.process, bytes(held[:ready]))
        del held[:ready]
        await hold(source.process, len(held))


class _Kept:
    """The last lines of what was read."""

    def __init__(self, process: Process, count: int) -> None:
        self.lines: deque[bytes] = deque()
        self._process = process
        self._count = count
        self._size = 0

    async def add(self, lines: list[bytes]) -> bytes:
        """Take lines in, and return those that are too many now."""
        self.lines.extend(lines)
        surplus = [self.lines.popleft() for _ in range(len(self.lines) - self._count)]
        self._size += sum(map(len, lines)) - sum(map(len, surplus))
        await hold(self._process, self._size)
        return b"".join(surplus)


@tool("tail")
async def tail(process: Process, args: Sequence[str]) -> int:
    """Write the last lines or bytes of files; `-f` goes on as the file grows."""
    long = {**_ENDS, "follow": "f", "retry": "F"}
    options = parse("tail", _modern(args), "n:c:qvfF", long)
    part = _Part(process, "tail", options)
    follow = "f" in options or "F" in options

    async def show(source: Source) -> None:
        await part.title(source)
        if part.sign == "+":
            await _from(source, max(0, part.count - 1), whole=not part.bytes)
        elif part.bytes:
            await _last_bytes(source, part.count)
        else:
            await _last_lines(source, part.count)
        while follow and not source.is_stdin:
            await _pass_on(source)
            await process.sleep(_FOLLOW_PAUSE)

    return await over(process, "tail", options.operands, show, complain=_cannot)


async def _from(source: Source, skipped: int, *, whole: bool) -> None:
    if not whole:
        while skipped and (piece := await source.read(skipped)):
            skipped -= len(piece)
        await _pass_on(source)
        return
    while lines := await source.lines():
        await put(source.process, b"".join(lines[skipped:]))
        skipped = max(0, skipped - len(lines))


async def _last_lines(source: Source, count: int) -> None:
    kept = _Kept(source.process, count)
    while lines := await source.lines():
        await kept.add(lines)
    await put(source.process, b"".join(kept.lines))


async def _last_bytes(source: Source, count: int) -> None:
    kept = bytearray()
    while piece := await source.read():
        kept += piece
        del kept[: max(0, len(kept) - count)]
        await hold(source.process, len(kept))
    await put(source.process, bytes(kept))
