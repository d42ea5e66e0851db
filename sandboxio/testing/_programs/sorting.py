"""sort: lines by keys."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from typing import TYPE_CHECKING

from sandboxio.testing._disk.nodes import encoded
from sandboxio.testing._programs._common import (
    Failure,
    here,
    hold,
    put,
    quoted,
    quoted_if_needed,
    tool,
)
from sandboxio.testing._programs._input import Source
from sandboxio.testing._programs._options import parse

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sandboxio.testing._machine.process import Process
    from sandboxio.testing._programs._options import Options

_SORT = {
    "numeric-sort": "n",
    "reverse": "r",
    "unique": "u",
    "key=": "k",
    "field-separator=": "t",
    "ignore-case": "f",
    "ignore-leading-blanks": "b",
    "stable": "s",
    "check": "c",
    "output=": "o",
}
_NUMBER = re.compile(rb"[ \t]*(-?(?:\d+(?:\.\d*)?|\.\d+))")
_KEY = re.compile(r"(\d+)(?:\.(\d+))?([bfnr]*)(?:,(\d+)(?:\.(\d+))?([bfnr]*))?")
_BLANK_FIELD = re.compile(rb"[ \t]*[^ \t]*")


@dataclass(frozen=True)
class _Key:
    """What part of a line is compared, and how; fields and characters count from 1."""

    how: str
    first: int = 1
    first_char: int = 1
    last: int | None = None
    last_char: int | None = None

    def order(self, separator: bytes) -> Callable[[bytes], tuple[Decimal, bytes]]:
        """Return a function that maps a line to what is compared of it."""

        def ordered(line: bytes) -> tuple[Decimal, bytes]:
            text = self._part(line, separator)
            if "n" in self.how:
                number = _NUMBER.match(text)
                return Decimal(number[1].decode()) if number else Decimal(0), b""
            text = text.lstrip(b" \t") if "b" in self.how else text
            return Decimal(0), text.upper() if "f" in self.how else text

        return ordered

    def _part(self, line: bytes, separator: bytes) -> bytes:
        if self.first == 1 and self.first_char == 1 and self.last is None:
            return line
        spans = _spans(line, separator)
        begin = _at(spans, self.first, len(line)) + self.first_char - 1
        if self.last is None:
            return line[begin:]
        if self.last_char:
            end = _at(spans, self.last, len(line)) + self.last_char
        else:
            end = spans[self.last - 1][1] if self.last <= len(spans) else len(line)
        return line[begin:end]


def _spans(line: bytes, separator: bytes) -> list[tuple[int, int]]:
    """Return where fields begin and end; blanks belong to the field that follows them."""
    if not separator:
        return [match.span() for match in _BLANK_FIELD.finditer(line) if match[0]]
    spans: list[tuple[int, int]] = []
    at = 0
    for field in line.split(separator):
        spans.append((at, at + len(field)))
        at += len(field) + 1
    return spans


def _at(spans: list[tuple[int, int]], field: int, end: int) -> int:
    return spans[field - 1][0] if field <= len(spans) else end


@tool("sort", trouble=2)
async def sort(process: Process, args: Sequence[str]) -> int:
    """Sort the lines of all files together, by their bytes."""
    options = parse("sort", args, "nruk:t:fbsco:", _SORT, code=2)
    separator = _separator("sort", options.get("t"), 2)
    keys = _keys(options)
    lines: list[bytes] = []
    size = 0
    for name in options.operands or ["-"]:
        try:
            with Source(process, name) as source:
                while batch := await source.lines():
                    lines += [line.removesuffix(b"\n") for line in batch]
                    size += sum(map(len, batch))
                    await hold(process, size)
        except OSError as exc:
            what = "read failed" if isinstance(exc, IsADirectoryError) else "cannot read"
            raise Failure(f"sort: {what}: {quoted_if_needed(name)}: {exc.strerror}", 2) from exc
    if "c" in options:
        return _check(lines, keys, separator, options)
    await _write_sorted(process, _sorted(lines, keys, separator, options), options)
    return 0


def _separator(name: str, text: str, code: int = 1) -> bytes:
    value = b"\0" if text == "\\0" else encoded(text)
    if len(value) > 1:
        raise Failure(f"{name}: multi-character tab {quoted(text)}", code)
    return value


def _keys(options: Options) -> list[_Key]:
    general = "".join(letter for letter in "bfnr" if letter in options)
    if "k" not in options:
        return [_Key(general)]
    return [_key(text, general) for text in options.all("k")]


def _key(text: str, general: str) -> _Key:
    match = _KEY.fullmatch(text)
    if match is None:
        problem = f"invalid count at start of {quoted(text)}"
        raise Failure(f"sort: invalid number at field start: {problem}", 2)
    first, first_char, begin, last, last_char, end = match.groups()
    if first == "0":
        raise Failure(f"sort: field number is zero: invalid field specification {quoted(text)}", 2)
    return _Key(
        (begin + (end or "")) or general,
        int(first),
        int(first_char or 1),
        int(last) if last else None,
        int(last_char) if last_char else None,
    )


def _sorted(
    lines: list[bytes], keys: list[_Key], separator: bytes, options: Options
) -> list[bytes]:
    found = list(lines)
    if "s" not in options and "u" not in options:
        found.sort(reverse="r" in options)
    for key in reversed(keys):
        found.sort(key=key.order(separator), reverse="r" in key.how)
    if "u" not in options:
        return found
    unique: list[bytes] = []
    for line in found:
        if not unique or _differ(unique[-1], line, keys, separator):
            unique.append(line)
    return unique


def _differ(left: bytes, right: bytes, keys: list[_Key], separator: bytes) -> bool:
    orders = [key.order(separator) for key in keys]
    return any(order(left) != order(right) for order in orders)


def _check(lines: list[bytes], keys: list[_Key], separator: bytes, options: Options) -> int:
    for at, pair in enumerate(pairwise(lines), start=2):
        if _sorted(list(pair), keys, separator, options) != list(pair):
            name = (options.operands or ["-"])[0]
            shown = pair[1].decode("utf-8", "surrogateescape")
            raise Failure(f"sort: {name}:{at}: disorder: {shown}")
    return 0


async def _write_sorted(process: Process, lines: list[bytes], options: Options) -> None:
    data = b"".join(line + b"\n" for line in lines)
    if "o" not in options:
        await put(process, data)
        return
    name = options.get("o")
    try:
        with process.kernel.fs.open(
            name, **here(process), write=True, create=True, truncate=True, umask=process.umask
        ) as handle:
            handle.write(data)
    except OSError as exc:
        raise Failure(f"sort: open failed: {quoted_if_needed(name)}: {exc.strerror}", 2) from exc
