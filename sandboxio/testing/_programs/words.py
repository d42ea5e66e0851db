"""Programs that print their arguments: echo as dash has it, printf."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sandboxio.testing._disk.nodes import encoded
from sandboxio.testing._programs._common import Failure, misused, put, quoted, say, tool

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sandboxio.testing._machine.process import Process

_ESCAPE = re.compile(
    rb"\\(?:(?P<octal>[0-7]{1,3})|x(?P<hex>[0-9A-Fa-f]{1,2})|u(?P<point>[0-9A-Fa-f]{4})|"
    rb"(?P<name>.))",
    re.DOTALL,
)
_ECHO_ESCAPE = re.compile(
    rb"\\(?:0(?P<zero>[0-7]{1,3})|(?P<octal>[0-7]{1,3})|(?P<name>.))", re.DOTALL
)
_ARGUMENT_ESCAPE = re.compile(
    rb"\\(?:0(?P<zero>[0-7]{1,3})|(?P<octal>[0-7]{1,3})|x(?P<hex>[0-9A-Fa-f]{1,2})|(?P<name>.))",
    re.DOTALL,
)
_NAMED = {
    b"a": b"\a",
    b"b": b"\b",
    b"e": b"\x1b",
    b"f": b"\f",
    b"n": b"\n",
    b"r": b"\r",
    b"t": b"\t",
    b"v": b"\v",
    b"\\": b"\\",
}
_TOKEN = re.compile(
    rb"%%|%(?P<flags>[-+ #0']*)(?P<width>\*|\d+)?(?:\.(?P<precision>\*|\d*))?"
    rb"(?:hh|h|ll|l|L|j|z|t)?(?P<kind>[a-zA-Z%])?|\\.[0-9A-Fa-f]*|[^%\\]+|[%\\]",
    re.DOTALL,
)
_NUMBER = re.compile(rb"[ \t\n]*([+-]?)(0[xX][0-9a-fA-F]+|0[0-7]*|[1-9]\d*)")
_FLOAT = re.compile(rb"[ \t\n]*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|[+-]?inf|[+-]?nan)")
_UNSIGNED = 1 << 64
_WIDEST = 1 << 20


def unescape(
    data: bytes, escape: re.Pattern[bytes], names: dict[bytes, bytes]
) -> tuple[bytes, bool]:
    """Return what escapes stand for, and whether `\\c` ended it."""
    found = bytearray()
    at = 0
    for match in escape.finditer(data):
        found += data[at : match.start()]
        at = match.end()
        if match["name"] == b"c":
            return bytes(found), True
        found += _meaning(match, names)
    return bytes(found + data[at:]), False


def _meaning(match: re.Match[bytes], names: dict[bytes, bytes]) -> bytes:
    groups = match.groupdict()
    octal = groups.get("zero") or groups.get("octal")
    if octal:
        return bytes((int(octal, 8) & 0xFF,))
    if groups.get("hex"):
        return bytes((int(groups["hex"], 16),))
    if groups.get("point"):
        return chr(int(groups["point"], 16)).encode("utf-8", "replace")
    return names.get(groups["name"], match[0])


@tool("echo")
async def echo(process: Process, args: Sequence[str]) -> int:
    """Write the arguments and a newline; escapes are always interpreted, as by dash."""
    bare = bool(args) and args[0] == "-n"
    text = encoded(" ".join(args[1:] if bare else args))
    data, ended = unescape(text, _ECHO_ESCAPE, _NAMED)
    await put(process, data if bare or ended else data + b"\n")
    return 0


@tool("printf")
async def printf(process: Process, args: Sequence[str]) -> int:
    """Write the arguments as a format says, again and again until they are used up."""
    words = list(args[1:] if args[:1] == ["--"] else args)
    if not words:
        raise misused("printf", "missing operand")
    work = _Printf(encoded(words[0]), [encoded(word) for word in words[1:]])
    while True:
        await process.step()
        before = len(work.values)
        try:
            await put(process, work.once())
        except Failure:
            await put(process, bytes(work.out))
            raise
        for message in work.complaints:
            await say(process, f"printf: {message}")
        work.failed = work.failed or bool(work.complaints)
        work.complaints.clear()
        if work.ended or not work.values or len(work.values) == before:
            return int(work.failed)


class _Printf:
    """A format and what is left of its arguments."""

    def __init__(self, form: bytes, values: list[bytes]) -> None:
        self._form = form
        self.values = values
        self.out = bytearray()
        self.complaints: list[str] = []
        self.failed = self.ended = False

    def once(self) -> bytes:
        """Go through the format once."""
        self.out = bytearray()
        for match in _TOKEN.finditer(self._form):
            if self.ended:
                break
            token = match[0]
            if token == b"%%":
                self.out += b"%"
            elif token.startswith(b"%"):
                self.out += self._conversion(match)
            elif token.startswith(b"\\"):
                self._escape(token)
            else:
                self.out += token
        return bytes(self.out)

    def _escape(self, token: bytes) -> None:
        data, self.ended = unescape(token, _ESCAPE, {**_NAMED, b'"': b'"'})
        self.out += data

    def _conversion(self, match: re.Match[bytes]) -> bytes:
        kind = match["kind"] or b""
        if not kind or kind not in b"diouxXcsbqeEfFgG":
            shown = match[0].decode("utf-8", "surrogateescape")
            raise Failure(f"printf: {shown}: invalid conversion specification")
        flags = match["flags"].replace(b"'", b"")
        width = self._size(match["width"])
        precision = self._size(match["precision"])
        value = self.values.pop(0) if self.values else b""
        if width is not None and width < 0:
            flags, width = flags + b"-", -width
        size = b"" if not width else b"%d" % width
        size += b"" if precision is None or precision < 0 else b".%d" % precision
        return self._formatted(kind, flags, size, value)

    def _size(self, text: bytes | None) -> int | None:
        if text is None:
            return None
        size = int(text or 0) if text != b"*" else 0
        if text == b"*" and self.values:
            size = self._number(self.values.pop(0))
        if abs(size) > _WIDEST:
            raise Failure("printf: write error: Cannot allocate memory")
        return size

    def _formatted(self, kind: bytes, flags: bytes, size: bytes, value: bytes) -> bytes:
        if kind in b"scbq":
            form = b"%" + flags.translate(None, b"+ #0") + size + b"s"
            return form % self._text(kind, value)
        if kind in b"eEfFgG":
            return (b"%" + flags + size + kind) % self._float(value)
        number = self._number(value)
        if kind in b"di":
            return (b"%" + flags + size + b"d") % number
        flags = flags.translate(None, b"+ ")
        if kind == b"o" and b"#" in flags:  # Python would write 0o17
            flags, size = flags.replace(b"#", b""), size or b".%d" % (len(b"%o" % number) + 1)
        return (b"%" + flags + size + kind.replace(b"u", b"d")) % (number % _UNSIGNED)

    def _text(self, kind: bytes, value: bytes) -> bytes:
        if kind == b"c":
            return value[:1]
        if kind == b"b":
            value, self.ended = unescape(value, _ARGUMENT_ESCAPE, _NAMED)
        return value

    def _number(self, value: bytes) -> int:
        if not value:
            return 0
        if value[:1] in b"'\"":
            return value[1] if len(value) > 1 else 0
        match = _NUMBER.match(value)
        self._complain(value, match)
        if match is None:
            return 0
        digits = match[2].lower()
        base = 16 if digits.startswith(b"0x") else 8 if digits.startswith(b"0") else 10
        return int(match[1] + digits, base)

    def _float(self, value: bytes) -> float:
        match = _FLOAT.match(value)
        if value:
            self._complain(value, match)
        return float(match[1]) if match else 0.0

    def _complain(self, value: bytes, match: re.Match[bytes] | None) -> None:
        shown = quoted(value.decode("utf-8", "surrogateescape"))
        if match is None:
            self.complaints.append(f"{shown}: expected a numeric value")
        elif match.end() < len(value):
            self.complaints.append(f"{shown}: value not completely converted")
