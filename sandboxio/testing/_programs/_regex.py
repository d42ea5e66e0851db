"""POSIX regular expressions, basic and extended with GNU's additions, in terms of `re`."""

from __future__ import annotations

import re

from sandboxio.testing._programs.translate import CLASSES

_SAME = {b"w": rb"\w", b"W": rb"\W", b"s": rb"\s", b"S": rb"\S", b"b": rb"\b", b"B": rb"\B"}
_ANCHORS = {b"<": rb"\b(?=\w)", b">": rb"\b(?<=\w)", b"`": rb"\A", b"'": rb"\Z"}
_INTERVAL = re.compile(rb"(\d*)(,?)(\d*)")
_CLASS = re.compile(rb"\[:([a-z]+):\]")


class BadPattern(Exception):
    """A pattern that is none, in the words of GNU's regex."""


def compile_posix(pattern: bytes, *, extended: bool, flags: int = 0) -> re.Pattern[bytes]:
    """Compile a pattern of one line.

    Raises:
        BadPattern: it is not a regular expression.
    """
    translated = _Translator(pattern, extended=extended).run()
    try:
        return re.compile(translated, flags | re.DOTALL)
    except (re.error, OverflowError, RecursionError) as exc:
        raise BadPattern("Invalid regular expression") from exc


class _Translator:
    def __init__(self, pattern: bytes, *, extended: bool) -> None:
        self._pattern = pattern
        self._extended = extended
        self._at = 0
        self._out: list[bytes] = []
        self._open: list[int] = []
        self._groups = 0
        self._fresh = True
        """Nothing stands here yet that could be repeated."""

    def run(self) -> bytes:
        while self._at < len(self._pattern):
            self._take(*self._token())
        if self._open:
            raise BadPattern("Unmatched ( or \\(")
        return b"".join(self._out)

    def _token(self) -> tuple[str, bytes]:
        """Return the next operator as extended expressions write it, or a literal."""
        byte = self._pattern[self._at : self._at + 1]
        self._at += 1
        escaped = byte == b"\\"
        if escaped:
            byte = self._pattern[self._at : self._at + 1]
            self._at += 1
            if not byte:
                raise BadPattern("Trailing backslash")
        if byte in b"(){}|+?":
            return ("operator" if escaped != self._extended else "literal"), byte
        if escaped:
            return "escape", byte
        return ("operator" if byte in b".*[^$" else "literal"), byte

    def _take(self, kind: str, byte: bytes) -> None:
        if kind == "literal":
            self._atom(re.escape(byte))
        elif kind == "escape":
            self._escape(byte)
        else:
            {
                b"(": self._begin_group,
                b")": self._end_group,
                b"{": self._interval,
                b"}": lambda: self._atom(rb"\}"),
                b"|": self._alternative,
                b"*": lambda: self._repeat(b"*"),
                b"+": lambda: self._repeat(b"+"),
                b"?": lambda: self._repeat(b"?"),
                b".": lambda: self._atom(b"."),
                b"[": self._bracket,
                b"^": self._begin,
                b"$": self._end,
            }[byte]()

    def _atom(self, text: bytes) -> None:
        self._out.append(text)
        self._fresh = False

    def _escape(self, byte: bytes) -> None:
        if byte.isdigit() and byte != b"0":
            if int(byte) > self._groups:
                raise BadPattern("Invalid back reference")
            self._atom(b"(?:\\%b)" % byte)
        else:
            self._atom(_SAME.get(byte) or _ANCHORS.get(byte) or re.escape(byte))

    def _begin_group(self) -> None:
        self._open.append(len(self._out))
        self._out.append(b"(")
        self._groups += 1
        self._fresh = True

    def _end_group(self) -> None:
        if not self._open and self._extended:
            self._atom(rb"\)")
            return
        if not self._open:
            raise BadPattern("Unmatched ) or \\)")
        at = self._open.pop()
        whole = b"".join(self._out[at:]) + b")"
        self._out[at:] = [whole]
        self._fresh = False

    def _alternative(self) -> None:
        self._out.append(b"|")
        self._fresh = True

    def _repeat(self, how: bytes) -> None:
        """Repeat what stands before; wrapped, since `re` reads `a+?` and `a++` otherwise."""
        if self._fresh:
            if not self._extended or how == b"*":
                self._atom(re.escape(how))
            return
        self._out[-1] = b"(?:" + self._out[-1] + how + b")"

    def _interval(self) -> None:
        close = b"}" if self._extended else b"\\}"
        end = self._pattern.find(close, self._at)
        text = self._pattern[self._at : end] if end >= 0 else b""
        match = _INTERVAL.fullmatch(text) if text else None
        if match is None:
            if self._extended:
                self._atom(rb"\{")
                return
            raise BadPattern("Unmatched \\{" if end < 0 else "Invalid content of \\{\\}")
        least, comma, most = int(match[1] or 0), match[2], match[3]
        if most and int(most) < least:
            raise BadPattern("Invalid content of \\{\\}")
        self._at = end + len(close)
        self._repeat(b"{%d%b%b}" % (least, comma, most))

    def _begin(self) -> None:
        if self._extended or self._fresh:
            self._out.append(rb"\A")
        else:
            self._atom(rb"\^")

    def _end(self) -> None:
        rest = self._pattern[self._at :]
        last = not rest or rest.startswith((b"\\)", b"\\|"))
        self._atom(rb"\Z" if self._extended or last else rb"\$")

    def _bracket(self) -> None:
        negated = self._pattern[self._at : self._at + 1] == b"^"
        self._at += negated
        found: set[int] = set()
        first = True
        while first or self._pattern[self._at : self._at + 1] != b"]":
            first = False
            name = _CLASS.match(self._pattern, self._at)
            if name is not None:
                self._at = name.end()
                found.update(_class(name[1].decode()))
            else:
                found.update(self._range())
        self._at += 1
        members = b"".join(b"\\x%02x" % byte for byte in sorted(found))
        self._atom(b"[^%b]" % members if negated else b"[%b]" % members)

    def _range(self) -> range:
        begin = self._member()
        dash = self._pattern[self._at : self._at + 2]
        if dash[:1] != b"-" or dash[1:] in (b"]", b""):
            return range(begin, begin + 1)
        self._at += 1
        end = self._member()
        if end < begin:
            raise BadPattern("Invalid range end")
        return range(begin, end + 1)

    def _member(self) -> int:
        special = re.compile(rb"\[([.=])(.)\1\]", re.DOTALL).match(self._pattern, self._at)
        if special is not None:
            self._at = special.end()
            return special[2][0]
        if self._at >= len(self._pattern):
            raise BadPattern("Invalid regular expression")
        self._at += 1
        return self._pattern[self._at - 1]


def _class(name: str) -> bytes:
    if name not in CLASSES:
        raise BadPattern("Invalid character class name")
    return CLASSES[name].encode()
