"""Command lines as `getopt_long` reads them, with its complaints."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sandboxio.testing._programs._common import misused

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sandboxio.testing._programs._common import Failure


@dataclass
class Options:
    """The options of a command line in their order, and its operands."""

    given: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    operands: list[str] = field(default_factory=list[str])

    def __contains__(self, name: str) -> bool:
        return any(name == key for key, _ in self.given)

    def get(self, name: str, default: str = "") -> str:
        """Return the last value of an option."""
        return next((value for key, value in reversed(self.given) if key == name), default)

    def all(self, name: str) -> list[str]:
        """Return every value of an option."""
        return [value for key, value in self.given if key == name]

    def last(self, names: str) -> str:
        """Return which of some one-letter options came last; nothing where none did."""
        return next((key for key, _ in reversed(self.given) if key in names), "")


def parse(
    name: str,
    args: Sequence[str],
    short: str,
    long: Mapping[str, str] | None = None,
    *,
    code: int = 1,
    permute: bool = True,
) -> Options:
    """Read options: `short` as for `getopt`, `long` maps a long name to the letter it stands for.

    A long name that ends in `=` takes a value, one that ends in `?` may have one. Without
    `permute` the first operand ends the options.

    Raises:
        Failure: an option is unknown or lacks its value.
    """
    return _Parser(name, list(args), short, long or {}, code).run(permute=permute)


class _Parser:
    def __init__(
        self, name: str, args: list[str], short: str, long: Mapping[str, str], code: int
    ) -> None:
        self._name = name
        self._args = args
        self._short = short
        self._long = long
        self._code = code
        self._found = Options()

    def run(self, *, permute: bool) -> Options:
        found, args = self._found, self._args
        while args:
            arg = args.pop(0)
            if arg == "--":
                break
            if arg.startswith("--"):
                self._read_long(arg[2:])
            elif arg.startswith("-") and arg != "-":
                self._read_short(arg[1:])
            else:
                found.operands.append(arg)
                if not permute:
                    break
        found.operands += args
        return found

    def _read_short(self, letters: str) -> None:
        rest = iter(letters)
        for letter in rest:
            at = self._short.find(letter)
            if at < 0 or letter == ":":
                raise self._failure(f"invalid option -- '{letter}'")
            if self._short[at + 1 : at + 2] != ":":
                self._found.given.append((letter, ""))
            else:
                self._found.given.append((letter, self._short_value(letter, rest)))

    def _short_value(self, letter: str, rest: Iterator[str]) -> str:
        value = "".join(rest)
        if value:
            return value
        if not self._args:
            raise self._failure(f"option requires an argument -- '{letter}'")
        return self._args.pop(0)

    def _read_long(self, arg: str) -> None:
        written, equals, value = arg.partition("=")
        full = self._full_name(written, arg)
        name, kind = full.rstrip("=?"), full[-1]
        if equals and kind not in "=?":
            raise self._failure(f"option '--{name}' doesn't allow an argument")
        if kind == "=" and not equals:
            if not self._args:
                raise self._failure(f"option '--{name}' requires an argument")
            value = self._args.pop(0)
        self._found.given.append((self._long[full], value))

    def _full_name(self, written: str, arg: str) -> str:
        """Return the one long option that a name or its beginning stands for."""
        names = [full for full in self._long if full.startswith(written)]
        exact = [full for full in names if full.rstrip("=?") == written]
        if len(exact or names) != 1:
            ambiguous, unknown = f"option '--{arg}' is ambiguous", f"unrecognized option '--{arg}'"
            raise self._failure(ambiguous if names else unknown)
        return (exact or names)[0]

    def _failure(self, message: str) -> Failure:
        return misused(self._name, message, self._code)
