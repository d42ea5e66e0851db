"""Reading the words of a script: quotes, escapes and everything that begins with a dollar."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from sandboxio.testing._shell.ast import (
    Arithmetic,
    Literal,
    Parameter,
    Substitution,
    SyntaxRefused,
)

if TYPE_CHECKING:
    from sandboxio.testing._shell.ast import Command, Part, Word

_END = frozenset(" \t\n;&|<>()")
_PLAIN = re.compile(r"""[^\s;&|<>()\\'"$`}]+""")
_PLAIN_QUOTED = re.compile(r"""[^\\'"$`}()]+""")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!-]")
_BRACED = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9]+|[@*#?$!-]")
_LENGTH = re.compile(r"#([A-Za-z_][A-Za-z0-9_]*|[0-9]+|[@*#?$!-])\}")
_OPERATOR = re.compile(r":?[-=?+]|%%?|##?")
_ANSI = re.compile(
    r"\\(?:(?P<octal>[0-7]{1,3})|x(?P<hex>[0-9a-fA-F]{1,2})|u(?P<u>[0-9a-fA-F]{1,4})"
    r"|U(?P<U>[0-9a-fA-F]{1,8})|c(?P<control>.)|(?P<one>.))",
    re.DOTALL,
)
_ONES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "e": "\x1b"}


class Words(ABC):
    """The half of the scanner that is about one word at a time."""

    def __init__(self, text: str, *, bash: bool, line: int = 1) -> None:
        self.text = text
        self.pos = 0
        self.bash = bash
        self._first_line = line
        self._counted = (0, line)

    @property
    def line(self) -> int:
        """The number of the line that is being read."""
        pos, line = self._counted
        if pos <= self.pos:
            line += self.text.count("\n", pos, self.pos)
            self._counted = (self.pos, line)
            return line
        return self._first_line + self.text.count("\n", 0, self.pos)

    def at_end(self) -> bool:
        return self.pos >= len(self.text)

    def next_is(self, start: str) -> bool:
        return self.text.startswith(start, self.pos)

    def refuse(self, text: str) -> SyntaxRefused:
        return SyntaxRefused(text, self.line)

    def word(self) -> Word:
        """Read a word; an empty one where there is none."""
        parts = _Parts()
        while not self.at_end() and self.text[self.pos] not in _END:
            self._piece(parts, quoted=False)
        return parts.done()

    def rest_quoted(self) -> Word:
        """Read all that is left as the text of a here-document."""
        parts = _Parts()
        while not self.at_end():
            if self.text[self.pos] == '"':
                parts.text('"', quoted=True)
                self.pos += 1
            else:
                self._piece(parts, quoted=True, specials="$`\\\n")
        return parts.done()

    @abstractmethod
    def nested(self, text: str | None) -> Command:
        """Read the commands of a substitution: a text of its own, or up to the `)` here."""

    def _piece(self, parts: _Parts, *, quoted: bool, specials: str = '$`"\\\n') -> None:
        char = self.text[self.pos]
        if char == "\\":
            self._escape(parts, quoted=quoted, specials=specials)
        elif char == "$":
            self._dollar(parts, quoted=quoted)
        elif char == "`":
            self._backticks(parts, quoted=quoted)
        elif char == "'" and not quoted:
            self.pos += 1
            parts.text(self._until_quote(), quoted=True)
        elif char == '"':
            self._double(parts)
        else:
            plain = (_PLAIN_QUOTED if quoted else _PLAIN).match(self.text, self.pos)
            found = plain[0] if plain else char
            parts.text(found, quoted=quoted)
            self.pos += len(found)

    def _escape(self, parts: _Parts, *, quoted: bool, specials: str) -> None:
        char = self.text[self.pos + 1 : self.pos + 2]
        self.pos += 1 + len(char)
        if char == "\n":
            return
        if char and (not quoted or char in specials):
            parts.text(char, quoted=True)
        else:
            parts.text(f"\\{char}", quoted=True)

    def _until_quote(self) -> str:
        end = self.text.find("'", self.pos)
        if end < 0:
            raise self.refuse("Syntax error: Unterminated quoted string")
        found = self.text[self.pos : end]
        self.pos = end + 1
        return found

    def _double(self, parts: _Parts) -> None:
        self.pos += 1
        before = len(parts)
        while not self.next_is('"'):
            if self.at_end():
                raise self.refuse("Syntax error: Unterminated quoted string")
            self._piece(parts, quoted=True)
        self.pos += 1
        if len(parts) == before:
            parts.text("", quoted=True)

    def _dollar(self, parts: _Parts, *, quoted: bool) -> None:
        self.pos += 1
        if self.next_is("{"):
            self.pos += 1
            parts.add(self._braced(quoted=quoted))
        elif self.next_is("(("):
            parts.add(self._arithmetic(quoted=quoted))
        elif self.next_is("("):
            self.pos += 1
            parts.add(Substitution(self.nested(None), quoted))
        elif self.bash and self.next_is("'") and not quoted:
            self._ansi(parts)
        elif name := _NAME.match(self.text, self.pos):
            self.pos = name.end()
            parts.add(Parameter(name[0], quoted))
        else:
            parts.text("$", quoted=quoted)

    def _braced(self, *, quoted: bool) -> Parameter:
        if length := _LENGTH.match(self.text, self.pos):
            self.pos = length.end()
            return Parameter(length[1], quoted, "length")
        name = _BRACED.match(self.text, self.pos)
        if name is None:
            raise self.refuse("Bad substitution")
        self.pos = name.end()
        if self.next_is("}"):
            self.pos += 1
            return Parameter(name[0], quoted)
        operator = _OPERATOR.match(self.text, self.pos)
        if operator is None:
            raise self.refuse("Syntax error: Missing '}'" if self.at_end() else "Bad substitution")
        self.pos = operator.end()
        return Parameter(name[0], quoted, operator[0], self._until_brace(quoted, operator[0]))

    def _until_brace(self, quoted: bool, operator: str) -> Word:
        parts = _Parts()
        inside = quoted and operator[0] not in "#%"
        while not self.next_is("}"):
            if self.at_end():
                raise self.refuse("Syntax error: Missing '}'")
            self._piece(parts, quoted=inside, specials='$`"\\\n}')
        self.pos += 1
        return parts.done()

    def _arithmetic(self, *, quoted: bool) -> Part:
        start = self.pos + 1
        self.pos += 2
        parts, depth = _Parts(), 0
        while not (depth == 0 and self.next_is("))")):
            if self.at_end():
                raise self.refuse("Syntax error: Missing '))'")
            if depth == 0 and self.next_is(")"):  # it was $( (...) ...) after all
                self.pos = start
                return Substitution(self.nested(None), quoted)
            depth += {"(": 1, ")": -1}.get(self.text[self.pos], 0)
            if self.next_is('"'):
                self.pos += 1
            else:
                self._piece(parts, quoted=True)
        self.pos += 2
        return Arithmetic(parts.done(), quoted)

    def _backticks(self, parts: _Parts, *, quoted: bool) -> None:
        escaped = '$`\\"' if quoted else "$`\\"
        self.pos += 1
        inside: list[str] = []
        while not self.next_is("`"):
            if self.at_end():
                raise self.refuse("Syntax error: EOF in backquote substitution")
            after = self.text[self.pos + 1 : self.pos + 2]
            if self.text[self.pos] == "\\" and after and after in escaped:
                self.pos += 1
            inside.append(self.text[self.pos])
            self.pos += 1
        self.pos += 1
        parts.add(Substitution(self.nested("".join(inside)), quoted))

    def _ansi(self, parts: _Parts) -> None:
        start = self.pos + 1
        end = start
        while end < len(self.text) and self.text[end] != "'":
            end += 2 if self.text[end] == "\\" else 1
        if end >= len(self.text):
            raise self.refuse("Syntax error: Unterminated quoted string")
        self.pos = end + 1
        parts.text(_unescaped(self.text[start:end]), quoted=True)


class _Parts:
    """The parts of a word, with neighbouring text of one kind put together."""

    def __init__(self) -> None:
        self._parts: list[Part] = []
        self._text: list[str] = []
        self._quoted = False

    def __len__(self) -> int:
        return len(self._parts) + len(self._text)

    def text(self, text: str, *, quoted: bool) -> None:
        if self._text and quoted != self._quoted:
            self._flush()
        self._quoted = quoted
        self._text.append(text)

    def add(self, part: Part) -> None:
        self._flush()
        self._parts.append(part)

    def done(self) -> Word:
        self._flush()
        return tuple(self._parts)

    def _flush(self) -> None:
        if self._text:
            self._parts.append(Literal("".join(self._text), self._quoted))
            self._text = []


def _unescaped(text: str) -> str:
    pieces: list[bytes] = []
    last = 0
    for found in _ANSI.finditer(text):
        pieces += [_encoded(text[last : found.start()]), _escaped(found)]
        last = found.end()
    pieces.append(_encoded(text[last:]))
    return b"".join(pieces).decode("utf-8", "surrogateescape")


def _escaped(found: re.Match[str]) -> bytes:
    if found["octal"] or found["hex"]:
        code = int(found["octal"], 8) if found["octal"] else int(found["hex"], 16)
        return bytes([code & 0xFF])
    if found["u"] or found["U"]:
        return chr(min(int(found["u"] or found["U"], 16), 0x10FFFF)).encode("utf-8", "replace")
    if found["control"]:
        return bytes([ord(found["control"]) & 0x1F])
    one = found["one"]
    known = _ONES.get(one.lower() if one == "E" else one)
    return _encoded(known or (one if one in "\\'\"?" else f"\\{one}"))


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
