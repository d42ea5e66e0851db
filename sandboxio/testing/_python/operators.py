"""Operators and formatting on plain values, each with a look at the size of the result first."""

from __future__ import annotations

import ast
import operator
import re
from string import Formatter
from typing import TYPE_CHECKING

from sandboxio.testing._python.objects import NotUnderstood, Value
from sandboxio.testing._python.session import ITEM, MOST_BITS, PLAIN, show, text, weight

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sandboxio.testing._python.session import Session

_SEQUENCES: tuple[type[Value], ...] = (str, bytes, list, tuple)
_TUPLES: tuple[type[Value], ...] = (tuple,)
_LONG_NUMBER = re.compile(r"\d{8}")
_NUMBER = re.compile(r"\d+")

_HOST: Value = operator  # without the types of operands, which nobody knows
BINARY: dict[type[ast.operator], Callable[[Value, Value], Value]] = {
    ast.Add: _HOST.add,
    ast.Sub: _HOST.sub,
    ast.Mult: _HOST.mul,
    ast.Div: _HOST.truediv,
    ast.FloorDiv: _HOST.floordiv,
    ast.Mod: _HOST.mod,
    ast.Pow: _HOST.pow,
    ast.BitAnd: _HOST.and_,
    ast.BitOr: _HOST.or_,
    ast.BitXor: _HOST.xor,
    ast.LShift: _HOST.lshift,
    ast.RShift: _HOST.rshift,
}
_IN_PLACE: dict[type[ast.operator], Callable[[Value, Value], Value]] = {
    ast.Add: _HOST.iadd,
    ast.Mult: _HOST.imul,
    ast.Sub: _HOST.isub,
    ast.BitAnd: _HOST.iand,
    ast.BitOr: _HOST.ior,
    ast.BitXor: _HOST.ixor,
}
UNARY: dict[type[ast.unaryop], Callable[[Value], Value]] = {
    ast.Not: _HOST.not_,
    ast.USub: _HOST.neg,
    ast.UAdd: _HOST.pos,
    ast.Invert: _HOST.invert,
}
_COMPARISONS: dict[type[ast.cmpop], Callable[[Value, Value], bool]] = {
    ast.Eq: _HOST.eq,
    ast.NotEq: _HOST.ne,
    ast.Lt: _HOST.lt,
    ast.LtE: _HOST.le,
    ast.Gt: _HOST.gt,
    ast.GtE: _HOST.ge,
    ast.Is: _HOST.is_,
    ast.IsNot: _HOST.is_not,
    ast.In: lambda left, right: left in right,
    ast.NotIn: lambda left, right: left not in right,
}
COMPARISONS = frozenset(_COMPARISONS)


def binary(
    session: Session, kind: type[ast.operator], left: Value, right: Value, *, in_place: bool = False
) -> Value:
    """Compute `left + right` and its like; `in_place` changes what `left +=` changes."""
    if kind is ast.Mod and isinstance(left, str):
        return session.made(_percent(session, left, right))
    if kind is ast.Mod and isinstance(left, bytes):
        raise NotUnderstood
    session.need(_size(kind, left, right))
    table = _IN_PLACE if in_place and kind in _IN_PLACE else BINARY
    return session.made(table[kind](left, right))


def compare(session: Session, kind: type[ast.cmpop], left: Value, right: Value) -> bool:
    """Compute `left < right` and its like."""
    if kind in (ast.In, ast.NotIn):
        session.guard(left)
        if isinstance(right, str | bytes | list | tuple):
            session.guard(right)
    elif kind not in (ast.Is, ast.IsNot) and isinstance(left, PLAIN):
        session.guard(left, right)
    return bool(_COMPARISONS[kind](left, right))


def formatted(session: Session, value: Value, conversion: str | None, spec: str) -> str:
    """Return what a field of an f-string does; `conversion` is `r`, `s`, `a` or nothing."""
    session.guard(value)
    session.need(_widths(spec))
    if conversion in ("r", "a"):
        value = show(value) if conversion == "r" else ascii(value)
    elif conversion == "s" or not spec:
        value = text(value)
    return str(session.made(format(value, spec)))


def template(
    session: Session, pattern: str, values: Sequence[Value], names: Mapping[str, Value]
) -> str:
    """Return what `str.format()` does; fields with attributes or items are not understood."""
    session.need(pattern.count("{") * (weight(list(values)) + weight(dict(names))))
    parts: list[str] = []
    for position, (literal, field, spec, conversion) in enumerate(_fields(pattern)):
        parts.append(literal)
        if field is None:
            continue
        if set(".[") & set(field) or "{" in (spec or ""):
            raise NotUnderstood
        value = _argument(field or str(position), values, names)
        parts.append(formatted(session, value, conversion, spec or ""))
    session.need(sum(map(len, parts)))
    return "".join(parts)


def _fields(pattern: str) -> list[tuple[str, str | None, str | None, str | None]]:
    """Return the parts of a pattern; only those with a field are counted by position."""
    found: list[tuple[str, str | None, str | None, str | None]] = []
    literals = ""
    for literal, field, spec, conversion in Formatter().parse(pattern):
        if field is None:
            literals += literal
        else:
            found.append((literals + literal, field, spec, conversion))
            literals = ""
    return [*found, (literals, None, None, None)]


def _argument(field: str, values: Sequence[Value], names: Mapping[str, Value]) -> Value:
    if not field.isdigit():
        return names[field]
    if int(field) >= len(values):
        raise IndexError(f"Replacement index {field} out of range for positional args tuple")
    return values[int(field)]


def _percent(session: Session, left: str, right: Value) -> str:
    cost = weight(right)
    stars = sum(abs(n) for n in right if isinstance(n, int)) if isinstance(right, _TUPLES) else 0
    session.need(len(left) + left.count("%") * cost + _widths(left) + stars * left.count("*"))
    return str(left % right)


def _widths(spec: str) -> int:
    if _LONG_NUMBER.search(spec):
        raise MemoryError
    return sum(map(int, _NUMBER.findall(spec)))


def _size(kind: type[ast.operator], left: Value, right: Value) -> int:
    """Return how large the result can be."""
    if isinstance(left, int) and isinstance(right, int):
        return _bits(kind, left, right) // 8
    if kind is ast.Mult:
        many, one = (left, right) if isinstance(right, int) else (right, left)
        if isinstance(many, _SEQUENCES) and isinstance(one, int):
            return max(0, one) * _length(many)
    if kind is ast.Add and isinstance(left, _SEQUENCES) and isinstance(right, _SEQUENCES):
        return _length(left) + _length(right)
    return 0


def _bits(kind: type[ast.operator], left: int, right: int) -> int:
    bits = left.bit_length() + right.bit_length()
    if kind is ast.Pow and right > 0:
        bits = max(0, left.bit_length() - 1) * right
    elif kind is ast.LShift and left:
        bits = left.bit_length() + max(0, right)
    elif kind not in (ast.Mult, ast.Pow, ast.LShift):
        return 0
    if bits > 2 * MOST_BITS:
        raise MemoryError
    return bits


def _length(value: Value) -> int:
    return len(value) * (1 if isinstance(value, str | bytes) else ITEM)
