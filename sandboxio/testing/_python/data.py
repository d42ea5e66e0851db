"""What is known of `json` and `math`: their real functions on plain data, within bounds."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

from sandboxio.testing._python.calls import pure
from sandboxio.testing._python.objects import CONSTANTS, Value, function
from sandboxio.testing._python.session import ITEM

if TYPE_CHECKING:
    from collections.abc import Callable

    from sandboxio.testing._python.session import Session

LARGEST_FACTORIAL = 8_000
"""The largest whose result is an integer that may be."""
WIDEST = 100
"""Most characters by which `json.dumps()` indents each level."""
_MATH: dict[str, Callable[..., Value]] = {
    "ceil": math.ceil,
    "cos": math.cos,
    "exp": math.exp,
    "fabs": math.fabs,
    "floor": math.floor,
    "gcd": math.gcd,
    "hypot": math.hypot,
    "isclose": math.isclose,
    "isinf": math.isinf,
    "isnan": math.isnan,
    "isqrt": math.isqrt,
    "log": math.log,
    "log10": math.log10,
    "log2": math.log2,
    "pow": math.pow,
    "sin": math.sin,
    "sqrt": math.sqrt,
    "tan": math.tan,
    "trunc": math.trunc,
}

for _name in _MATH:
    pure(f"math.{_name}", _MATH[_name])
CONSTANTS.update({"math.pi": math.pi, "math.e": math.e, "math.inf": math.inf, "math.nan": math.nan})
CONSTANTS["__future__.annotations"] = None
CONSTANTS["json.JSONDecodeError"] = json.JSONDecodeError


@function("math.factorial")
async def _factorial(session: Session, number: Value) -> int:
    if isinstance(number, int) and number > LARGEST_FACTORIAL:
        raise MemoryError
    return math.factorial(number)


@function("json.dumps")
async def _dumps(
    session: Session,
    value: Value,
    *,
    indent: Value = None,
    sort_keys: Value = False,
    ensure_ascii: Value = True,
    separators: Value = None,
) -> str:
    session.guard(value)
    width = indent if isinstance(indent, int) else len(indent or "")
    if width > WIDEST:
        raise MemoryError
    session.guard(separators)
    made = json.dumps(
        value,
        indent=indent,
        sort_keys=bool(sort_keys),
        ensure_ascii=bool(ensure_ascii),
        separators=separators,
    )
    return str(session.made(made))


@function("json.loads")
async def _loads(session: Session, source: Value) -> Value:
    if not isinstance(source, str | bytes):
        kind = type(source).__name__
        raise TypeError(f"the JSON object must be str, bytes or bytearray, not {kind}")
    session.guard(source)
    commas = source.count(",") if isinstance(source, str) else source.count(b",")
    session.need(ITEM * (commas + 1))
    return session.made(json.loads(source))
