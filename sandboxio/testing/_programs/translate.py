"""tr: bytes for bytes."""

from __future__ import annotations

import re
import string
from typing import TYPE_CHECKING

from sandboxio.testing._disk.nodes import encoded
from sandboxio.testing._programs._common import (
    Failure,
    misused,
    put,
    quoted,
    refuse_operand,
    tool,
)
from sandboxio.testing._programs._input import Source
from sandboxio.testing._programs._options import parse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sandboxio.testing._machine.process import Process
    from sandboxio.testing._programs._options import Options

CLASSES = {
    "alnum": string.digits + string.ascii_uppercase + string.ascii_lowercase,
    "alpha": string.ascii_uppercase + string.ascii_lowercase,
    "blank": "\t ",
    "cntrl": "".join(map(chr, range(32))) + "\x7f",
    "digit": string.digits,
    "graph": "".join(map(chr, range(33, 127))),
    "lower": string.ascii_lowercase,
    "print": "".join(map(chr, range(32, 127))),
    "punct": string.punctuation,
    "space": "\t\n\v\f\r ",
    "upper": string.ascii_uppercase,
    "xdigit": string.digits + "ABCDEFabcdef",
}
"""The bytes of the classes of the C locale."""
_ESCAPES = {"a": 7, "b": 8, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11}
_TOKEN = re.compile(rb"\[:([a-z]*):\]|\[(.)\*(\d*)\]|\\([0-7]{1,3})|\\(.)|(.)", re.DOTALL)
_OPTIONS = {"delete": "d", "squeeze-repeats": "s", "complement": "c", "truncate-set1": "t"}


@tool("tr")
async def tr(process: Process, args: Sequence[str]) -> int:
    """Replace, delete or squeeze bytes of stdin."""
    options = parse("tr", args, "dscCt", _OPTIONS, permute=False)
    _check(options)
    table, delete, squeeze = _plan(options)
    runs = (
        re.compile(b"([%b])\\1+" % b"".join(map(_escaped, squeeze)), re.DOTALL) if squeeze else None
    )
    last = b""
    with Source(process, "-") as source:
        while piece := await source.read():
            piece = piece.translate(table, delete)
            if runs is not None and piece:
                piece = runs.sub(rb"\1", piece.lstrip(last) if last in squeeze else piece)
                last = piece[-1:] or last
            await put(process, piece)
    return 0


def _check(options: Options) -> None:
    operands = options.operands
    if not operands:
        raise misused("tr", "missing operand")
    both = "d" in options, "s" in options
    least = 2 if both in ((False, False), (True, True)) else 1
    if len(operands) < least:
        why = {
            (False, False): "Two strings must be given when translating.",
            (True, True): "Two strings must be given when both deleting and squeezing repeats.",
        }[both]
        raise misused("tr", f"missing operand after {quoted(operands[0])}\n{why}")
    if both == (True, False) and len(operands) > 1:
        why = "Only one string may be given when deleting without squeezing repeats."
        raise misused("tr", f"extra operand {quoted(operands[1])}\n{why}")
    refuse_operand("tr", operands, 2)


def _plan(options: Options) -> tuple[bytes, bytes, bytes]:
    """Return how bytes are replaced, which are deleted before, which are squeezed after."""
    first, _ = expand(options.operands[0])
    if "c" in options or "C" in options:
        first = bytes(byte for byte in range(256) if byte not in first)
    second, fill = expand(options.operands[1]) if len(options.operands) > 1 else (b"", None)
    same = bytes(range(256))
    if "d" in options:
        return same, first, second if "s" in options else b""
    if len(options.operands) == 1:
        return same, b"", first
    if not second and fill is None:
        raise Failure("tr: when not truncating set1, string2 must be non-empty")
    if "t" in options:
        first = first[: len(second)]
    lacking = max(0, len(first) - len(second))
    if fill is None:
        second += second[-1:] * lacking
    else:
        at, byte = fill
        second = second[:at] + bytes((byte,)) * lacking + second[at:]
    replaced = dict(zip(first, second, strict=False))
    table = bytes(replaced.get(byte, byte) for byte in range(256))
    return table, b"", bytes(sorted(set(second))) if "s" in options else b""


def expand(text: str) -> tuple[bytes, tuple[int, int] | None]:
    """Return the bytes a set stands for, and where it may be stretched with which byte."""
    found = bytearray()
    fill: tuple[int, int] | None = None
    ranged = False
    for match in _TOKEN.finditer(encoded(text)):
        name, repeated, count, *_ = match.groups()
        if name is not None:
            found += _class(name.decode())
        elif repeated is not None and not count:
            fill = len(found), repeated[0]
        elif repeated is not None:
            found += repeated * int(count, 8 if count.startswith(b"0") else 10)
        elif match[0] == b"-" and found and not ranged and match.end() < len(encoded(text)):
            ranged = True
            continue
        elif ranged:
            found += _range(found[-1], _byte(match))
        else:
            found.append(_byte(match))
        ranged = False
    return bytes(found), fill


def _class(name: str) -> bytes:
    if name not in CLASSES:
        raise Failure(f"tr: invalid character class {quoted(name)}")
    return CLASSES[name].encode()


def _byte(match: re.Match[bytes]) -> int:
    octal, named, plain = match.group(4, 5, 6)
    if octal is not None:
        return int(octal, 8) & 0xFF
    if named is not None:
        return _ESCAPES.get(chr(named[0]), named[0])
    return plain[0]


def _range(first: int, last: int) -> bytes:
    if last < first:
        shown = f"{chr(first)}-{chr(last)}"
        raise Failure(
            f"tr: range-endpoints of {quoted(shown)} are in reverse collating sequence order"
        )
    return bytes(range(first + 1, last + 1))


def _escaped(byte: int) -> bytes:
    return b"\\x%02x" % byte
