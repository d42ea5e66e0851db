"""Expansion: from the words of a script to the arguments of a command."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sandboxio.testing._disk import glob
from sandboxio.testing._shell.arith import ArithmeticRefused, evaluate
from sandboxio.testing._shell.ast import Arithmetic, Literal, Parameter
from sandboxio.testing._shell.state import OPTIONS, ShellError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from sandboxio.testing._machine.process import Process
    from sandboxio.testing._shell.ast import Command, Part, Word
    from sandboxio.testing._shell.state import State

_WILD = re.compile(r"[*?\[]")
_SPECIAL = re.compile(r"([\\*?\[\]!-])")
_WHITE = " \t\n"
_HOMES = {"root": "/root"}

Field = list[tuple[str, bool]]
"""Pieces of one argument, each with whether it was quoted."""


class Expander:
    """Expands words for one process; `substitute` runs the commands of `$(...)`."""

    def __init__(
        self,
        process: Process,
        state: State,
        substitute: Callable[[Command], Awaitable[str]],
        assign: Callable[[str, str], None],
    ) -> None:
        self._process = process
        self._state = state
        self._substitute = substitute
        self._assign = assign

    async def fields(self, words: Iterable[Word]) -> list[str]:
        """Return the arguments that words stand for: split, and with patterns replaced."""
        found: list[str] = []
        for word in words:
            out = _Fields(self._separators())
            await self._parts(_with_home(word, self._home), out)
            for each in out.done():
                found += self._paths(each)
        return found

    async def text(self, word: Word, *, assigned: bool = False) -> str:
        """Return what a word stands for as one text, neither split nor a pattern."""
        return _plain(await self._one(word, assigned=assigned))

    async def pattern(self, word: Word) -> str:
        """Return what a word stands for as a pattern, with what is quoted escaped."""
        return _escaped(await self._one(word))

    def arithmetic(self, text: str) -> int:
        """Return the value of an expression, or raise `ShellError`."""
        try:
            return evaluate(text, self._number, self._assign)
        except ArithmeticRefused as exc:
            raise ShellError(str(exc)) from exc

    async def _one(self, word: Word, *, assigned: bool = False) -> Field:
        out = _Fields(None)
        await self._parts(_with_home(word, self._home, assigned=assigned), out)
        fields = out.done()
        joined: Field = []
        for index, each in enumerate(fields):
            joined += [(" ", True)] * (index > 0) + each
        return joined

    async def _parts(self, word: Word, out: _Fields, *, split: bool = False) -> None:
        """Add the parts of a word; `split` also splits what it says itself."""
        for part in word:
            if isinstance(part, Literal) and split:
                out.value(part.text, quoted=part.quoted)
            elif isinstance(part, Literal):
                out.add(part.text, quoted=part.quoted)
            elif isinstance(part, Parameter):
                await self._parameter(part, out)
            else:
                out.value(await self._computed(part), quoted=part.quoted)

    async def _computed(self, part: Part) -> str:
        if isinstance(part, Arithmetic):
            return str(self.arithmetic(await self.text(part.expression)))
        if isinstance(part, Literal | Parameter):
            raise TypeError("this is not computed")
        return await self._substitute(part.body)

    async def _parameter(self, part: Parameter, out: _Fields) -> None:
        values = self._values(part)
        test = part.operator.lstrip(":")
        if part.operator == "length":
            self._emit(part, [str(len(self._joined(self._known(part, values))))], out)
        elif part.operator and test in "-=?+":
            await self._tested(part, values, test, out)
        elif part.operator:
            pattern = await self.pattern(part.word)
            known = self._known(part, values)
            self._emit(part, [trimmed(each, pattern, part.operator) for each in known], out)
        else:
            self._emit(part, self._known(part, values), out)

    def _known(self, part: Parameter, values: list[str] | None) -> list[str]:
        """Return the values of a parameter, or none if it is not set and need not be."""
        if values is None and "nounset" in self._state.options and part.name not in "@*":
            raise self._unset(part.name)
        return values or []

    def _values(self, part: Parameter) -> list[str] | None:
        if part.name in ("@", "*"):
            return self._state.args or None
        if part.name == "-":
            return [self._flags()]
        value = self._state.get(part.name)
        return None if value is None else [value]

    async def _tested(
        self, part: Parameter, values: list[str] | None, test: str, out: _Fields
    ) -> None:
        empty = values is None or (part.operator.startswith(":") and not any(values))
        if test == "+":
            await self._other(part, () if empty else part.word, out)
        elif not empty:
            self._emit(part, values or [], out)
        elif test == "-":
            await self._other(part, part.word, out)
        else:
            await self._missing(part, test, out)

    async def _other(self, part: Parameter, word: Word, out: _Fields) -> None:
        """Add a word that stands in the place of a parameter."""
        if part.quoted and not word:
            out.add("", quoted=True)
        await self._parts(_with_home(word, self._home), out, split=True)

    async def _missing(self, part: Parameter, test: str, out: _Fields) -> None:
        text = await self.text(part.word)
        if test == "?":
            usual = "parameter not set" + " or null" * part.operator.startswith(":")
            raise ShellError(f"{part.name}: {text or usual}")
        if not (part.name[0].isalpha() or part.name[0] == "_"):
            raise ShellError("Bad substitution")
        self._assign(part.name, text)
        self._emit(part, [text], out)

    def _emit(self, part: Parameter, values: list[str], out: _Fields) -> None:
        if part.name == "@" or (part.name == "*" and not part.quoted):
            for index, value in enumerate(values):
                if index:
                    out.end(force=part.quoted)
                out.value(value, quoted=part.quoted)
        else:
            out.value(self._joined(values), quoted=part.quoted)

    def _joined(self, values: list[str]) -> str:
        return self._separators()[:1].join(values) if len(values) > 1 else "".join(values)

    def _separators(self) -> str:
        found = self._state.variables.get("IFS")
        return _WHITE if found is None else found

    def _flags(self) -> str:
        return "".join(f for f, name in OPTIONS.items() if name in self._state.options)

    def _number(self, name: str) -> str:
        value = self._state.get(name)
        if value is None and "nounset" in self._state.options:
            raise self._unset(name)
        return value or ""

    def _unset(self, name: str) -> ShellError:
        if self._state.bash:
            return ShellError(f"{name}: unbound variable", 127)
        return ShellError(f"{name}: parameter not set")

    def _home(self, user: str) -> str | None:
        if user:
            return _HOMES.get(user)
        return self._state.variables.get("HOME")

    def _paths(self, pieces: Field) -> list[str]:
        plain = _plain(pieces)
        wild = any(not quoted and _WILD.search(text) for text, quoted in pieces)
        if not wild or "noglob" in self._state.options:
            return [plain]
        process = self._process
        found = process.kernel.fs.glob(_escaped(pieces), cwd=process.cwd, who=process.who)
        return found or [plain]


class _Fields:
    """Collects the fields of one word; `separators` of `None` splits nothing."""

    def __init__(self, separators: str | None) -> None:
        self._separators = separators
        self._fields: list[Field] = []
        self._current: Field | None = None
        white = "".join(c for c in separators or "" if c in _WHITE)
        other = "".join(c for c in separators or "" if c not in _WHITE)
        self._split: re.Pattern[str] | None = None
        if separators:
            self._split = re.compile(_splitter(white, other))

    def add(self, text: str, *, quoted: bool) -> None:
        """Add text to the current field."""
        if text or quoted:
            self._current = self._current or []
            self._current.append((text, quoted))

    def value(self, text: str, *, quoted: bool) -> None:
        """Add the value of an expansion, which is split unless it is quoted."""
        if quoted or self._split is None:
            self.add(text, quoted=quoted)
            return
        at = 0
        for found in self._split.finditer(text):
            self.add(text[at : found.start()], quoted=False)
            self.end(force=bool(found["other"]))
            at = found.end()
        self.add(text[at:], quoted=False)

    def end(self, *, force: bool) -> None:
        """End the current field; `force` makes an empty one where there is none."""
        if self._current is not None or force:
            self._fields.append(self._current or [])
        self._current = None

    def done(self) -> list[Field]:
        self.end(force=False)
        return self._fields


def _splitter(white: str, other: str) -> str:
    blanks = f"[{re.escape(white)}]" if white else "(?!)"
    marks = f"[{re.escape(other)}]" if other else "(?!)"
    return f"{blanks}*(?P<other>{marks}){blanks}*|{blanks}+"


def trimmed(text: str, pattern: str, operator: str) -> str:
    """Return a text without the shortest (`#`, `%`) or longest part that matches at one end."""
    if not glob.is_pattern(pattern):
        literal = glob.literal(pattern)
        return text.removeprefix(literal) if operator[0] == "#" else text.removesuffix(literal)
    lengths = range(len(text) + 1)
    if len(operator) == 2:
        lengths = range(len(text), -1, -1)
    for length in lengths:
        part = text[:length] if operator[0] == "#" else text[len(text) - length :]
        if matches(part, pattern):
            return text[length:] if operator[0] == "#" else text[: len(text) - length]
    return text


def matches(text: str, pattern: str) -> bool:
    """Say whether a text matches a pattern; neither dots nor slashes are special here."""
    return glob.matches(f"x{text}", f"x{pattern}")


def _plain(pieces: Field) -> str:
    return "".join(text for text, _ in pieces)


def _escaped(pieces: Field) -> str:
    return "".join(_SPECIAL.sub(r"\\\1", text) if quoted else text for text, quoted in pieces)


def _with_home(word: Word, home: Callable[[str], str | None], *, assigned: bool = False) -> Word:
    """Replace a leading `~`, and in an assignment each that follows a colon."""
    if not word or not isinstance(word[0], Literal) or word[0].quoted:
        return word
    first = word[0]
    pieces = first.text.split(":") if assigned else [first.text]
    if not any(piece.startswith("~") for piece in pieces):
        return word
    parts: list[Part] = []
    for index, piece in enumerate(pieces):
        last = index == len(pieces) - 1
        if index:
            parts.append(Literal(":", quoted=False))
        parts += _home_of(piece, home, whole=last and len(word) > 1)
    return (*parts, *word[1:])


def _home_of(piece: str, home: Callable[[str], str | None], *, whole: bool) -> list[Part]:
    user, slash, rest = piece[1:].partition("/")
    found = home(user) if piece.startswith("~") and (slash or not whole) else None
    if found is None:
        return [Literal(piece, quoted=False)]
    return [Literal(found, quoted=True), Literal(slash + rest, quoted=False)]
