"""Programs that choose from lines: uniq, cut."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sandboxio.testing._disk.nodes import encoded
from sandboxio.testing._machine.fds import open_fd
from sandboxio.testing._programs._common import (
    Failure,
    misused,
    put,
    quoted,
    refuse_operand,
    tool,
)
from sandboxio.testing._programs._input import Source, complaint, over
from sandboxio.testing._programs._options import parse

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sandboxio.testing._machine.process import Fd, Process
    from sandboxio.testing._programs._options import Options

_UNIQ = {"count": "c", "repeated": "d", "unique": "u", "ignore-case": "i", "skip-fields=": "f"}
_CUT = {
    "bytes=": "b",
    "characters=": "c",
    "fields=": "f",
    "delimiter=": "d",
    "only-delimited": "s",
    "complement": "C",
    "output-delimiter=": "O",
}
_ENDLESS = 1 << 62


@tool("uniq")
async def uniq(process: Process, args: Sequence[str]) -> int:
    """Write each line once where lines that follow one another are equal."""
    options = parse("uniq", args, "cduif:", _UNIQ)
    names = options.operands
    refuse_operand("uniq", names, 2)
    skipped = options.get("f", "0")
    if not skipped.isdecimal():
        raise Failure(f"uniq: {skipped}: invalid number of fields to skip")
    collector = _Uniq(options, int(skipped))
    name = names[0] if names else "-"
    try:
        source = Source(process, name)
        if len(names) > 1:
            process.fds[1] = _target(process, names[1])
    except IsADirectoryError as exc:
        raise Failure(f"uniq: error reading {quoted(name)}") from exc
    except OSError as exc:
        raise Failure(f"uniq: {complaint(str(exc.filename), exc)}") from exc
    with source:
        while lines := await source.lines():
            await put(process, b"".join(map(collector.take, lines)))
    await put(process, collector.finish())
    return 0


def _target(process: Process, name: str) -> Fd:
    """Open what takes the place of stdout."""
    fd = open_fd(process, name, write=True, create=True, truncate=True)
    process.fds[1].close()
    return fd


class _Uniq:
    """The last line seen, and how often."""

    def __init__(self, options: Options, skipped: int) -> None:
        self._options = options
        self._skip = re.compile(rb"(?:[ \t]*[^ \t]*){%d}" % skipped)
        self._line: bytes | None = None
        self._key = b""
        self._count = 0

    def take(self, line: bytes) -> bytes:
        """Take a line, and return what is now known to be complete."""
        text = line.removesuffix(b"\n")
        key = self._skip.sub(b"", text, count=1)
        key = key.lower() if "i" in self._options else key
        if self._line is not None and key == self._key:
            self._count += 1
            return b""
        done = self.finish()
        self._line, self._key, self._count = text, key, 1
        return done

    def finish(self) -> bytes:
        unwanted = self._count > 1 if "u" in self._options else False
        if "d" in self._options and self._count == 1:
            unwanted = True
        if self._line is None or unwanted:
            return b""
        count = b"%7d " % self._count if "c" in self._options else b""
        return count + self._line + b"\n"


@tool("cut")
async def cut(process: Process, args: Sequence[str]) -> int:
    """Write chosen bytes or fields of each line."""
    options = parse("cut", args, "b:c:f:d:s", _CUT)
    kinds = [kind for kind, _ in options.given if kind in "bcf"]
    if not kinds:
        raise misused("cut", "you must specify a list of bytes, characters, or fields")
    if len(kinds) > 1:
        raise misused("cut", "only one list may be specified")
    choose = _chooser(options, kinds[0])

    async def show(source: Source) -> None:
        while lines := await source.lines():
            await put(process, b"".join(choose(line.removesuffix(b"\n")) for line in lines))

    return await over(process, "cut", options.operands, show)


def _chooser(options: Options, kind: str) -> Callable[[bytes], bytes]:
    what = "field" if kind == "f" else "byte/character"
    delimiter = encoded(options.get("d", "\t")) or b"\0"
    if len(delimiter) > 1:
        raise misused("cut", "the delimiter must be a single character")
    if kind != "f" and "d" in options:
        raise misused("cut", "an input delimiter may be specified only when operating on fields")
    ranges = _ranges(options.get(kind), what, complement="C" in options)
    glue = encoded(options.get("O")) if "O" in options else delimiter if kind == "f" else b""

    def bytes_of(line: bytes) -> bytes:
        return glue.join(line[first - 1 : last] for first, last in ranges) + b"\n"

    def fields_of(line: bytes) -> bytes:
        if delimiter not in line:
            return b"" if "s" in options else line + b"\n"
        fields = line.split(delimiter)
        chosen = [field for first, last in ranges for field in fields[first - 1 : last]]
        return glue.join(chosen) + b"\n"

    return fields_of if kind == "f" else bytes_of


def _ranges(text: str, what: str, *, complement: bool) -> list[tuple[int, int]]:
    """Return the ranges of a list such as `1,3-5,7-`, sorted and merged."""
    found = sorted(_range(part, what) for part in re.split(r"[,\s]", text))
    merged: list[tuple[int, int]] = []
    for first, last in found:
        if merged and first <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], last)
        else:
            merged.append((first, last))
    if not complement:
        return merged
    begins = [1, *(last + 1 for _, last in merged)]
    ends = [*(first - 1 for first, _ in merged), _ENDLESS]
    return [(begin, end) for begin, end in zip(begins, ends, strict=True) if begin <= end]


def _range(part: str, what: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d*)(-?)(\d*)", part)
    if match is None or part == "-":
        kind = "field value" if what == "field" else "byte/character position"
        unbounded, unread = "invalid range with no endpoint: -", f"invalid {kind} {quoted(part)}"
        raise misused("cut", unbounded if part == "-" else unread)
    first = int(match[1] or 1) if match[2] or match[1] else 0
    last = int(match[3]) if match[3] else _ENDLESS if match[2] else first
    if first == 0:
        numbered = "fields are" if what == "field" else "byte/character positions are"
        raise misused("cut", f"{numbered} numbered from 1")
    if last < first:
        raise misused("cut", "invalid decreasing range")
    return first, last
