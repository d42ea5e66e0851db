"""What a shell script consists of: commands, and the words they are made of."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeAlias

_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=")


class SyntaxRefused(Exception):
    """A script that is none, or that needs what this shell lacks; in the words of `sh`."""

    def __init__(self, text: str, line: int) -> None:
        super().__init__(text)
        self.text = text
        self.line = line


@dataclass(frozen=True)
class Literal:
    """Text as it stands; what is quoted is neither split nor a pattern."""

    text: str
    quoted: bool


@dataclass(frozen=True)
class Parameter:
    """`$name`, or `${name}` with an operator such as `:-` or `%%` and the word after it.

    The operator `length` stands for `${#name}`.
    """

    name: str
    quoted: bool
    operator: str = ""
    word: Word = ()


@dataclass(frozen=True)
class Substitution:
    """`$(...)` and its older form in backticks."""

    body: Command
    quoted: bool


@dataclass(frozen=True)
class Arithmetic:
    """`$((...))`, whose own expansions come first."""

    expression: Word
    quoted: bool


Part: TypeAlias = Literal | Parameter | Substitution | Arithmetic
Word: TypeAlias = tuple[Part, ...]


@dataclass(frozen=True)
class Redirect:
    """`n>word`; for `<<` the word is the text itself."""

    fd: int
    operator: str
    target: Word


@dataclass(frozen=True)
class Simple:
    """Assignments, the name and arguments of a command, and redirections, each optional."""

    assignments: tuple[tuple[str, Word], ...]
    words: tuple[Word, ...]
    redirects: tuple[Redirect, ...]
    line: int


@dataclass(frozen=True)
class Sequence:
    """Commands one after the other; none at all for an empty script."""

    commands: tuple[Command, ...]


@dataclass(frozen=True)
class Background:
    """`command &`."""

    command: Command


@dataclass(frozen=True)
class AndOr:
    """Commands between which `&&` or `||` stand."""

    first: Command
    rest: tuple[tuple[str, Command], ...]


@dataclass(frozen=True)
class Not:
    """`! pipeline`."""

    command: Command


@dataclass(frozen=True)
class Pipeline:
    commands: tuple[Command, ...]


@dataclass(frozen=True)
class Subshell:
    body: Command


@dataclass(frozen=True)
class Redirected:
    """A compound command with redirections."""

    command: Command
    redirects: tuple[Redirect, ...]
    line: int


@dataclass(frozen=True)
class If:
    condition: Command
    then: Command
    otherwise: Command | None


@dataclass(frozen=True)
class While:
    """`while`, or with `until` its opposite."""

    condition: Command
    body: Command
    until: bool


@dataclass(frozen=True)
class For:
    """`for name in words`; without `in`, `words` is `None`: the positional parameters."""

    name: str
    words: tuple[Word, ...] | None
    body: Command


@dataclass(frozen=True)
class CaseItem:
    patterns: tuple[Word, ...]
    body: Command


@dataclass(frozen=True)
class Case:
    word: Word
    items: tuple[CaseItem, ...]


@dataclass(frozen=True)
class Function:
    """The definition of a function."""

    name: str
    body: Command


Command: TypeAlias = (
    Simple
    | Sequence
    | Background
    | AndOr
    | Not
    | Pipeline
    | Subshell
    | Redirected
    | If
    | While
    | For
    | Case
    | Function
)


def bare(word: Word) -> str | None:
    """Return the text of a word that is nothing but unquoted text."""
    if len(word) == 1 and isinstance(word[0], Literal) and not word[0].quoted:
        return word[0].text
    return None


def assignment(word: Word) -> tuple[str, Word] | None:
    """Return the name and value of a word that is an assignment."""
    if not word:
        return None
    first = word[0]
    if not isinstance(first, Literal) or first.quoted:
        return None
    found = _ASSIGNMENT.match(first.text)
    if found is None:
        return None
    rest = first.text[found.end() :]
    value = (*((Literal(rest, quoted=False),) if rest else ()), *word[1:])
    return found[1], value
