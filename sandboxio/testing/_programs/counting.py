"""Programs that count and list numbers: wc, seq, yes."""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from itertools import islice
from typing import TYPE_CHECKING

from sandboxio.testing._disk.nodes import File, encoded
from sandboxio.testing._programs._common import (
    here,
    misused,
    put,
    put_text,
    quoted,
    refuse_operand,
    require_operands,
    say,
    tool,
)
from sandboxio.testing._programs._input import Source, complaint
from sandboxio.testing._programs._options import parse

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sandboxio.testing._machine.process import Process

_KINDS = "lwmc"
_WC = {"lines": "l", "words": "w", "bytes": "c", "chars": "m"}
_NO_WORD = bytes(byte for byte in (*range(32), 127) if byte not in b"\t\n\v\f\r")
_NO_CHARACTER = bytes(range(0x80, 0xC0))
_WIDE = 7
_ROWS = 1024
_LINES = 8 * 1024


@tool("wc")
async def wc(process: Process, args: Sequence[str]) -> int:
    """Count lines, words, characters (of UTF-8) and bytes."""
    options = parse("wc", args, _KINDS, _WC)
    names = options.operands
    kinds = [kind for kind in _KINDS if kind in options] or ["l", "w", "c"]
    width = 1 if len(names) < 2 and len(kinds) == 1 else _width(process, names)
    total = dict.fromkeys(_KINDS, 0)
    code = 0
    for name in names or ["-"]:
        found = dict.fromkeys(_KINDS, 0)
        try:
            with Source(process, name) as source:
                await _count(source, found, kinds)
        except OSError as exc:
            await say(process, f"wc: {complaint(name, exc)}")
            code = 1
            if not isinstance(exc, IsADirectoryError):
                continue
        await _show(process, found, kinds, width, name if names else None)
        total = {kind: total[kind] + found[kind] for kind in _KINDS}
    if len(names) > 1:
        await _show(process, total, kinds, width, "total")
    return code


async def _count(source: Source, found: dict[str, int], kinds: Sequence[str]) -> None:
    inside = False
    while piece := await source.read():
        found["c"] += len(piece)
        if "l" in kinds:
            found["l"] += piece.count(b"\n")
        if "m" in kinds:
            found["m"] += len(piece.translate(None, _NO_CHARACTER))
        if "w" not in kinds:
            continue
        text = piece.translate(None, _NO_WORD)
        if text:
            found["w"] += len(text.split()) - (inside and not text[:1].isspace())
            inside = not text[-1:].isspace()


async def _show(
    process: Process, found: dict[str, int], kinds: Sequence[str], width: int, name: str | None
) -> None:
    numbers = " ".join(f"{found[kind]:{width}d}" for kind in kinds)
    await put_text(process, numbers + ("" if name is None else f" {name}") + "\n")


def _width(process: Process, names: Sequence[str]) -> int:
    """Return how wide numbers are shown: as the sum of the sizes, wider for what is no file."""
    size, least = 0, 1
    for name in names or ["-"]:
        if name == "-":
            least = _WIDE
            continue
        try:
            node = process.kernel.fs.stat(name, **here(process))
        except OSError:
            continue
        if isinstance(node, File):
            size += node.size
        else:
            least = _WIDE
    return max(least, len(str(size)))


@tool("seq")
async def seq(process: Process, args: Sequence[str]) -> int:
    """List numbers from a first to a last one."""
    at = _options_end(args)
    long = {"separator=": "s", "equal-width": "w"}
    options, numbers = parse("seq", args[:at], "s:w", long), args[at:]
    require_operands("seq", numbers)
    refuse_operand("seq", numbers, 3)
    values = [_number(text) for text in numbers]
    first = values[0] if len(values) > 1 else Decimal(1)
    step = values[1] if len(values) > 2 else Decimal(1)
    if step == 0:
        raise misused("seq", f"invalid Zero increment value: {quoted(numbers[1])}")
    last = values[-1]
    places = max(_places(first), _places(step))
    width = max(len(f"{value:.{places}f}") for value in (first, last)) if "w" in options else 0
    separator = options.get("s", "\n")
    form = f"0{width}.{places}f" if width else f".{places}f"
    lead = end = ""
    for rows in _shown(first, step, last, form, separator):
        await process.step()
        await put_text(process, lead + rows)
        lead, end = separator, "\n"
    await put_text(process, end)
    return 0


def _options_end(args: Sequence[str]) -> int:
    """Return where the numbers begin, which may be negative."""
    at = 0
    while at < len(args) and re.match(r"-[^.\d]", args[at]):
        at += 2 if args[at] in ("-s", "--separator") else 1
    return at


def _number(text: str) -> Decimal:
    if not re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d{1,3})?", text, re.IGNORECASE):
        raise misused("seq", f"invalid floating point argument: {quoted(text)}")
    return Decimal(text)


def _places(value: Decimal) -> int:
    return max(0, -int(value.as_tuple().exponent))


def _shown(
    first: Decimal, step: Decimal, last: Decimal, form: str, separator: str
) -> Iterator[str]:
    """Return the numbers, many joined at a time."""
    if form != ".0f":
        return _joined(_decimals(first, step, last, form), separator)
    end = int(last.to_integral_value(ROUND_FLOOR if step > 0 else ROUND_CEILING))
    if step == 1 and first >= 0:
        return _thousands(int(first), end, separator)
    numbers = range(int(first), end + (1 if step > 0 else -1), int(step))
    return _joined(map(str, numbers), separator)


def _joined(numbers: Iterator[str], separator: str) -> Iterator[str]:
    while rows := list(islice(numbers, _ROWS)):
        yield separator.join(rows)


def _thousands(first: int, last: int, separator: str) -> Iterator[str]:
    """Count by one: tests have megabytes of it made, so whole thousands share their endings."""
    endings = separator.join(f"\0{number:03d}" for number in range(1000))
    for thousand in range(first // 1000, last // 1000 + 1):
        low, high = max(first, thousand * 1000), min(last, thousand * 1000 + 999)
        if thousand and high - low == 999:
            yield endings.replace("\0", str(thousand))
        elif low <= high:
            yield separator.join(map(str, range(low, high + 1)))


def _decimals(first: Decimal, step: Decimal, last: Decimal, form: str) -> Iterator[str]:
    value = first
    while value <= last if step > 0 else value >= last:
        yield f"{value:{form}}"
        value += step


@tool("yes")
async def yes(process: Process, args: Sequence[str]) -> int:
    """Write a line again and again."""
    line = encoded(" ".join(args) or "y") + b"\n"
    piece = line * max(1, _LINES // len(line))
    while True:
        await process.step()
        await put(process, piece)
