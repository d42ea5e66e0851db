"""What calling one of Python's own types makes, where that is known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandboxio.testing._python.methods import require_codec
from sandboxio.testing._python.objects import Value, constructor
from sandboxio.testing._python.session import text

if TYPE_CHECKING:
    from sandboxio.testing._python.session import Session

_NOTHING = object()


@constructor(type)
async def _type(session: Session, value: Value) -> Value:
    return value.__class__


@constructor(bool)
async def _bool(session: Session, value: Value = False) -> bool:
    return bool(value)


@constructor(int)
async def _int(session: Session, value: Value = 0, base: Value = _NOTHING) -> int:
    session.guard(value)
    made = int(value) if base is _NOTHING else int(value, base)
    return int(session.made(made))


@constructor(float)
async def _float(session: Session, value: Value = 0.0) -> float:
    session.guard(value)
    return float(value)


@constructor(str)
async def _str(
    session: Session, value: Value = "", encoding: Value = None, errors: Value = None
) -> str:
    session.guard(value)
    if encoding is None and errors is None:
        return str(session.made(text(value)))
    require_codec(encoding, errors)
    return str(session.made(str(value, encoding or "utf-8", errors or "strict")))


@constructor(bytes)
async def _bytes(
    session: Session, value: Value = b"", encoding: Value = None, errors: Value = None
) -> bytes:
    if isinstance(value, str):
        require_codec(encoding, errors)
        if encoding is None:
            raise TypeError("string argument without an encoding")
        return bytes(session.made(value.encode(encoding, errors or "strict")))
    if isinstance(value, int):
        session.need(max(0, value))
        return bytes(session.made(bytes(value)))
    return bytes(session.made(bytes(await session.items(value))))


@constructor(list)
async def _list(session: Session, items: Value = ()) -> list[Value]:
    return await session.items(items)


@constructor(tuple)
async def _tuple(session: Session, items: Value = ()) -> tuple[Value, ...]:
    return tuple(await session.items(items))


@constructor(set)
async def _set(session: Session, items: Value = ()) -> set[Value]:
    found = await session.items(items)
    session.guard(found)
    return set(found)


@constructor(frozenset)
async def _frozenset(session: Session, items: Value = ()) -> frozenset[Value]:
    return frozenset(await _set(session, items))


@constructor(dict)
async def _dict(session: Session, items: Value = (), **named: Value) -> dict[Value, Value]:
    if isinstance(items, dict):
        return dict(session.made({**items, **named}))
    found = await session.items(items)
    session.guard(found)
    return dict(session.made(dict(found, **named)))


@constructor(range)
async def _range(session: Session, *bounds: Value) -> range:
    return range(*bounds)
