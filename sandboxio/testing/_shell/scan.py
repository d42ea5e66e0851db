"""From the text of a script to its tokens, here-documents included."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sandboxio.testing._shell.ast import Literal, Redirect, bare
from sandboxio.testing._shell.grammar import Grammar, Token, unexpected
from sandboxio.testing._shell.quotes import Words

if TYPE_CHECKING:
    from collections.abc import Callable

    from sandboxio.testing._shell.ast import Command, Word

_OPERATORS = re.compile(r"&&|\|\||;;|[;&|()]")
_REDIRECT = re.compile(r"(\d*)(<<-?|<&|<>|<|>>|>&|>\||>)")
_REDIRECT_BASH = re.compile(r"(\d*)(<<<|<<-?|<&|<>|<|>>|>&|>\||>)|(&>>?)")
_OPERATORS_BASH = re.compile(r"&&|\|\||\|&|;;|[;&|()]")
_BLANK = re.compile(r"(?:[ \t]|\\\n)+")
_LACKING = frozenset({"[[", "function", "select", "coproc", "time"})


@dataclass
class _Pending:
    """A here-document whose text begins with the next line."""

    token: Token
    fd: int
    delimiter: str
    quoted: bool
    tabs: bool


class Scanner(Words):
    """Reads a script; `build` makes commands of the tokens of each (part of a) script."""

    def __init__(
        self, text: str, build: Callable[[list[Token]], Command], *, bash: bool, line: int = 1
    ) -> None:
        super().__init__(text, bash=bash, line=line)
        self._build = build
        self._pending: list[_Pending] = []

    def script(self) -> Command:
        """Read all of it.

        Raises:
            SyntaxRefused: it is no script, or needs what this shell lacks.
        """
        return self._build(self._tokens(closing=False))

    def nested(self, text: str | None) -> Command:
        if text is None:
            return self._build(self._tokens(closing=True))
        return Scanner(text, self._build, bash=self.bash, line=self.line).script()

    def _tokens(self, *, closing: bool) -> list[Token]:
        grammar, found = Grammar(), list[Token]()
        while self._skip():
            token = self._token()
            if closing and token.text == ")" and not grammar.owns_paren:
                grammar.finish(")", token.line)
                return found
            grammar.take(token)
            self._refuse_lacking(token, found)
            found.append(token)
        if closing:
            raise unexpected("end of file", self.line, expecting='")"')
        grammar.finish("end of file", self.line)
        self._read_documents()
        return found

    def _skip(self) -> bool:
        """Go to the next token, and say whether there is one."""
        blank = _BLANK.match(self.text, self.pos)
        if blank:
            self.pos = blank.end()
        if self.next_is("#"):
            end = self.text.find("\n", self.pos)
            self.pos = len(self.text) if end < 0 else end
        return not self.at_end()

    def _token(self) -> Token:
        line = self.line
        if self.next_is("\n"):
            self.pos += 1
            self._read_documents()
            return Token("newline", "newline", line)
        redirect = (_REDIRECT_BASH if self.bash else _REDIRECT).match(self.text, self.pos)
        if redirect:
            return self._redirect(redirect, line)
        operator = (_OPERATORS_BASH if self.bash else _OPERATORS).match(self.text, self.pos)
        if operator:
            self.pos = operator.end()
            return Token("operator", operator[0], line)
        word = self.word()
        return Token("word", bare(word) or "", line, word=word)

    def _redirect(self, found: re.Match[str], line: int) -> Token:
        self.pos = found.end()
        operator = found[2] or found[3]
        fd = int(found[1]) if found[1] else 0 if operator.startswith("<") else 1
        blank = _BLANK.match(self.text, self.pos)
        if blank:
            self.pos = blank.end()
        start = self.pos
        word = self.word()
        if not word:
            self._refuse_target()
        token = Token("redirect", found[0], line)
        if operator in ("<<", "<<-"):
            self._expect_document(token, fd, word, self.text[start : self.pos], operator == "<<-")
        else:
            token.redirect = Redirect(fd, operator, word)
        return token

    def _refuse_target(self) -> None:
        if self.bash and self.next_is("("):
            raise self.refuse("Syntax error: this shell has no process substitution")
        if self.at_end():
            raise unexpected("end of file", self.line)
        char = self.text[self.pos]
        shown = {"\n": "newline", "<": "redirection", ">": "redirection"}.get(char, char)
        raise unexpected(shown, self.line)

    def _expect_document(self, token: Token, fd: int, word: Word, raw: str, tabs: bool) -> None:
        literal = [part for part in word if isinstance(part, Literal)]
        plain = len(literal) == len(word)
        delimiter = "".join(part.text for part in literal) if plain else raw
        quoted = any(part.quoted for part in literal)
        self._pending.append(_Pending(token, fd, delimiter, quoted, tabs))

    def _read_documents(self) -> None:
        pending, self._pending = self._pending, []
        for document in pending:
            line = self.line
            text = self._document(document)
            target: Word = (Literal(text, quoted=True),)
            if not document.quoted:
                inner = Scanner(text, self._build, bash=self.bash, line=line)
                target = inner.rest_quoted()
            document.token.redirect = Redirect(document.fd, "<<", target)

    def _document(self, document: _Pending) -> str:
        """Read the lines of a here-document; without its end, all that is left."""
        lines: list[str] = []
        continued = False
        while not self.at_end():
            end = self.text.find("\n", self.pos)
            end = len(self.text) if end < 0 else end + 1
            line = self.text[self.pos : end]
            self.pos = end
            if document.tabs:
                line = line.lstrip("\t")
            if not continued and line.removesuffix("\n") == document.delimiter:
                break
            lines.append(line)
            slashes = len(line) - len(line.removesuffix("\n").rstrip("\\")) - 1
            continued = not document.quoted and slashes % 2 == 1
        return "".join(lines)

    def _refuse_lacking(self, token: Token, before: list[Token]) -> None:
        """Refuse what bash has and this shell does not, rather than read it in another way."""
        if not self.bash or token.role != "command":
            return
        twice = token.text == "(" and before and before[-1].text == "(" and self._glued()
        if token.text in _LACKING or twice:
            shown = "((" if twice else token.text
            raise self.refuse(f"Syntax error: this shell has no {shown!r} of bash")

    def _glued(self) -> bool:
        return self.text[max(0, self.pos - 2) : self.pos] == "(("
