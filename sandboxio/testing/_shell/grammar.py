"""Where in a script a word is a command, a keyword, a pattern or an argument."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from sandboxio.testing._shell.ast import SyntaxRefused

if TYPE_CHECKING:
    from sandboxio.testing._shell.ast import Redirect, Word

Kind = Literal["word", "keyword", "operator", "newline", "redirect"]
_Place = Literal["command", "words", "name", "in", "list", "pattern", "function", "closed"]

OPENERS = frozenset({"if", "while", "until", "then", "else", "elif", "do", "{", "!"})
CLOSERS = frozenset({"then", "else", "elif", "fi", "do", "done", "}", "esac"})
ENDS = frozenset({"fi", "done", "}", "esac"})
_NEEDS_MORE = OPENERS | {"&&", "||", "|", "|&", "("}


@dataclass
class Token:
    """A piece of a script: `text` is how it is written."""

    kind: Kind
    text: str
    line: int
    word: Word = ()
    redirect: Redirect | None = None
    attached: bool = False
    """A redirection of the compound command before it."""
    separate: bool = False
    """A keyword right after a compound command, as if a semicolon stood between them."""
    role: _Place = "command"
    """Where it was found."""


class Grammar:
    """Follows the tokens of a script in order, and tells what each of them is."""

    def __init__(self) -> None:
        self._place: _Place = "command"
        self._open: list[str] = []
        self._last = ""
        self._about = ""
        self._body = False
        """Right behind `name()`."""

    @property
    def owns_paren(self) -> bool:
        """Whether a `)` would belong to something that was begun here."""
        return self._place in ("pattern", "function") or "(" in self._open

    def take(self, token: Token) -> None:
        """Set a token's kind and role, and go on behind it.

        Raises:
            SyntaxRefused: it cannot stand here.
        """
        token.role = self._place
        if token.kind == "word":
            self._word(token)
        elif token.kind == "redirect":
            self._redirect(token)
        elif token.kind == "newline":
            self._newline(token)
            return
        else:
            self._operator(token)
        self._last = token.text if token.kind != "word" else "word"
        self._body = self._last == ")" and token.role == "function"

    def finish(self, found: str, line: int) -> None:
        """Raise unless the script may end here, where something else was `found`."""
        if self._last in _NEEDS_MORE or self._open or self._place in ("name", "in", "function"):
            raise unexpected(found, line)

    def _word(self, token: Token) -> None:
        place = self._place
        if place == "function":
            raise unexpected("word", token.line)
        if place == "name":
            self._place = "in"
        elif place == "in":
            self._in(token)
        elif place == "pattern":
            if token.text == "esac" and self._last not in ("(", "|"):
                self._close_case(token)
        elif place in ("command", "closed"):
            self._command(token)

    def _in(self, token: Token) -> None:
        if token.text == "in":
            token.kind = "keyword"
            self._place = "list" if self._about == "for" else "pattern"
        elif token.text == "do" and self._about == "for":
            token.kind = "keyword"
            self._place = "command"
        else:
            raise unexpected("word", token.line, expecting='"in"')

    def _command(self, token: Token) -> None:
        text = token.text
        if text in CLOSERS:
            if self._last in _NEEDS_MORE or not self._last:
                raise unexpected(text, token.line)
            token.separate = self._place == "closed"
        elif self._place == "closed":
            raise unexpected("word", token.line)
        if text == "in":
            raise unexpected("in", token.line)
        if text == "esac":
            self._close_case(token)
        elif text in ("for", "case"):
            token.kind, self._place, self._about = "keyword", "name", text
            self._open += ["case"] * (text == "case")
        elif text in OPENERS or text in ENDS:
            if text == "!" and self._last in ("|", "!"):
                raise unexpected("!", token.line)
            token.kind = "keyword"
            self._place = "closed" if text in ENDS else "command"
        else:
            self._refuse_body(token)
            self._place = "words"

    def _refuse_body(self, token: Token) -> None:
        if self._body:
            text = "Syntax error: this shell wants { } around the body of a function"
            raise SyntaxRefused(text, token.line)

    def _close_case(self, token: Token) -> None:
        if not self._open or self._open.pop() != "case":
            raise unexpected("esac", token.line)
        token.kind, self._place = "keyword", "closed"

    def _redirect(self, token: Token) -> None:
        if self._place == "closed":
            token.attached = True
        elif self._place in ("command", "words"):
            self._refuse_body(token)
            self._place = "words"
        else:
            raise unexpected("redirection", token.line)

    def _newline(self, token: Token) -> None:
        if self._place in ("name", "function") or self._last == "!":
            raise unexpected("newline", token.line)
        if self._place in ("words", "closed", "list"):
            self._place = "command"
            self._last = "newline"

    def _operator(self, token: Token) -> None:
        if self._place == "pattern":
            self._in_pattern(token)
        elif token.text == "(":
            self._open_paren(token)
        elif token.text == ")":
            self._close_paren(token)
        elif token.text == ";;":
            self._end_of_item(token)
        else:
            self._separator(token)

    def _in_pattern(self, token: Token) -> None:
        if token.text == ")" and self._last == "word":
            self._place = "command"
        elif not (
            (token.text == "|" and self._last == "word")
            or (token.text == "(" and self._last in ("in", ";;"))
        ):
            raise unexpected(token.text, token.line)

    def _open_paren(self, token: Token) -> None:
        if self._place == "words" and self._last == "word":
            self._place = "function"
        elif self._place == "command":
            self._open.append("(")
        else:
            raise unexpected("(", token.line)

    def _close_paren(self, token: Token) -> None:
        if self._place == "function":
            self._place = "command"
            return
        if self._last in _NEEDS_MORE or not self._open or self._open.pop() != "(":
            raise unexpected(")", token.line)
        self._place = "closed"

    def _end_of_item(self, token: Token) -> None:
        ready = self._last not in _NEEDS_MORE
        if not (ready and self._open and self._open[-1] == "case"):
            raise unexpected(";;", token.line)
        self._place = "pattern"

    def _separator(self, token: Token) -> None:
        if self._place == "in" and token.text == ";" and self._last == "word":
            return
        ends_list = self._place == "list" and token.text == ";"
        if ends_list or self._place in ("words", "closed"):
            self._place = "command"
        else:
            raise unexpected(token.text, token.line)


def unexpected(text: str, line: int, *, expecting: str = "") -> SyntaxRefused:
    """Return the refusal of something that stands where it cannot."""
    shown = text if text in ("word", "newline", "redirection", "end of file") else f'"{text}"'
    wanted = f" (expecting {expecting})" if expecting else ""
    return SyntaxRefused(f"Syntax error: {shown} unexpected{wanted}", line)
