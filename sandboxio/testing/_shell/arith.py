"""Arithmetic of the shell: 64-bit integers, the operators of C, and variables."""

from __future__ import annotations

import operator
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    Get = Callable[[str], str]
    Set = Callable[[str, str], None]

_TOKEN = re.compile(
    r"\s*(?:(?P<number>[0-9][0-9A-Za-z]*)|(?P<name>[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<op><<=|>>=|&&|\|\||<<|>>|<=|>=|==|!=|[-+*/%&|^]=|[-+*/%<>=!~&|^()?:]))"
)
_LEVELS: tuple[tuple[str, ...], ...] = (
    ("||",),
    ("&&",),
    ("|",),
    ("^",),
    ("&",),
    ("==", "!="),
    ("<", "<=", ">", ">="),
    ("<<", ">>"),
    ("+", "-"),
    ("*", "/", "%"),
)
_DEEPEST = 60
"""Most parentheses and unary operators inside each other; each takes Python's stack."""


class ArithmeticRefused(Exception):
    """An expression that has no value, in the words of `sh`."""


def evaluate(text: str, get: Get, put: Set) -> int:
    """Return the value of an expression; `get` and `put` reach the variables it names.

    Raises:
        ArithmeticRefused: it is no expression, or divides by zero.
    """
    return _Expression(text, get, put).value()


class _Expression:
    def __init__(self, text: str, get: Get, put: Set) -> None:
        self._text = text
        self._get, self._put = get, put
        self._tokens = self._split()
        self._at = 0
        self._depth = 0
        self._skipping = 0
        """Inside an operand that the one before it has made superfluous."""

    def value(self) -> int:
        if not self._tokens:
            return 0
        value = self._assignment()
        if self._at < len(self._tokens):
            raise self._refuse("expecting EOF")
        return value

    def _split(self) -> list[str]:
        tokens: list[str] = []
        at, end = 0, len(self._text.rstrip())
        while at < end:
            found = _TOKEN.match(self._text, at)
            if found is None:
                raise self._refuse("expecting EOF" if tokens else "expecting primary")
            tokens.append(found[0].strip())
            at = found.end()
        return tokens

    def _refuse(self, why: str) -> ArithmeticRefused:
        return ArithmeticRefused(f'arithmetic expression: {why}: "{self._text}"')

    def _next(self, ahead: int = 0) -> str:
        at = self._at + ahead
        return self._tokens[at] if at < len(self._tokens) else ""

    def _take(self, *wanted: str) -> str:
        token = self._next()
        if token not in wanted:
            return ""
        self._at += 1
        return token

    def _assignment(self) -> int:
        name, sign = self._next(), self._next(1)
        if not (_is_name(name) and sign.endswith("=") and sign not in ("==", "<=", ">=", "!=")):
            return self._choice()
        self._at += 2
        self._deeper()
        value = self._assignment()
        self._depth -= 1
        if sign != "=":
            value = self._apply(sign[:-1], self._variable(name), value)
        if not self._skipping:
            self._put(name, str(value))
        return value

    def _choice(self) -> int:
        condition = self._binary(0)
        if not self._take("?"):
            return condition
        self._deeper()
        first = self._unless(not condition, self._assignment)
        if not self._take(":"):
            raise self._refuse("expecting ':'")
        second = self._unless(bool(condition), self._choice)
        self._depth -= 1
        return first if condition else second

    def _unless(self, skip: bool, operand: Callable[[], int]) -> int:
        """Read an operand, without an effect if it is to be skipped."""
        self._skipping += skip
        try:
            return operand()
        finally:
            self._skipping -= skip

    def _binary(self, level: int) -> int:
        if level == len(_LEVELS):
            return self._unary()
        value = self._binary(level + 1)
        while sign := self._take(*_LEVELS[level]):
            skip = (sign == "&&" and not value) or (sign == "||" and value != 0)
            right = self._unless(skip, lambda: self._binary(level + 1))
            value = self._apply(sign, value, right)
        return value

    def _unary(self) -> int:
        sign = self._take("-", "+", "!", "~")
        if not sign:
            return self._primary()
        self._deeper()
        value = self._unary()
        self._depth -= 1
        return _wrapped({"-": -value, "+": value, "!": int(not value), "~": ~value}[sign])

    def _primary(self) -> int:
        if self._take("("):
            self._deeper()
            value = self._assignment()
            self._depth -= 1
            if not self._take(")"):
                raise self._refuse("expecting ')'")
            return value
        token = self._next()
        self._at += 1
        if _is_name(token):
            return self._variable(token)
        if not token[:1].isdigit():
            raise self._refuse("expecting primary")
        return self._number(token)

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise self._refuse("nested too deeply")

    def _variable(self, name: str) -> int:
        if self._skipping:
            return 0
        text = self._get(name).strip()
        sign = -1 if text.startswith("-") else 1
        return sign * self._number(text.lstrip("+-")) if text else 0

    def _number(self, text: str) -> int:
        base = 16 if text[:2] in ("0x", "0X") else 8 if text.startswith("0") else 10
        try:
            return min(int(text.replace("_", "?"), base), 2**63 - 1)
        except ValueError:
            raise ArithmeticRefused(f"Illegal number: {text}") from None

    def _apply(self, sign: str, left: int, right: int) -> int:
        if sign in ("/", "%"):
            return self._divided(sign, left, right)
        if sign in ("<<", ">>"):
            moved = left << (right & 63) if sign == "<<" else left >> (right & 63)
            return _wrapped(moved)
        return _wrapped(int(_APPLY[sign](left, right)))

    def _divided(self, sign: str, left: int, right: int) -> int:
        if self._skipping:
            return 0
        if right == 0:
            raise self._refuse("division by zero")
        quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
        return _wrapped(quotient if sign == "/" else left - quotient * right)


_APPLY: dict[str, Callable[[int, int], int]] = {
    "||": lambda left, right: left != 0 or right != 0,
    "&&": lambda left, right: left != 0 and right != 0,
    "|": int.__or__,
    "^": int.__xor__,
    "&": int.__and__,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
}


def _is_name(token: str) -> bool:
    return token[:1].isalpha() or token[:1] == "_"


def _wrapped(value: int) -> int:
    return (value + 2**63) % 2**64 - 2**63
