"""The built-in functions that are known, and how anything that is known is called."""

from __future__ import annotations

from functools import lru_cache
from inspect import Signature, signature
from typing import TYPE_CHECKING

from sandboxio.testing._python.objects import (
    ATTRIBUTES,
    CONSTANTS,
    CONSTRUCTORS,
    FUNCTIONS,
    METHODS,
    Function,
    Generator,
    NotUnderstood,
    Once,
    Raised,
    Thing,
    Value,
    function,
    method,
)
from sandboxio.testing._python.operators import formatted
from sandboxio.testing._python.session import ITEM, show, text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sandboxio.testing._python.objects import Act
    from sandboxio.testing._python.session import Session

FINEST = 400
"""Most digits that `round()` rounds to; no float has more."""


@lru_cache(maxsize=4096)
def _signature(act: Act) -> Signature:
    return signature(act)


async def call(
    session: Session, target: Value, given: Sequence[Value], named: Mapping[str, Value]
) -> Value:
    """Call a function, a method or a type of the tables; anything else is an error or refused."""
    if isinstance(target, type):
        if issubclass(target, BaseException):
            session.guard(*given)
            return target(*given, **named)
        if target not in CONSTRUCTORS:
            raise NotUnderstood
        target = CONSTRUCTORS[target]
    if not isinstance(target, Function):
        raise TypeError(f"{type(target).__name__!r} object is not callable")
    arguments = (session, *target.receiver, *given)
    try:
        _signature(target.act).bind(*arguments, **named)
    except TypeError:  # an argument that is not known, or a mistake: both are refused
        raise NotUnderstood from None
    return await target.act(*arguments, **named)


def attribute(value: Value, name: str) -> Value:
    """Return an attribute from the tables.

    Raises:
        AttributeError: Python's value has none of that name either.
        NotUnderstood: it may have one, that is not known.
    """
    for kind in type(value).__mro__:
        if name in METHODS.get(kind, {}):
            return Function(name, METHODS[kind][name], value)
        if name in ATTRIBUTES.get(kind, {}):
            return ATTRIBUTES[kind][name](value)
    if isinstance(value, Thing | type) or any(name in vars(k) for k in type(value).__mro__):
        raise NotUnderstood
    raise AttributeError(f"{type(value).__name__!r} object has no attribute {name!r}")


def pure(name: str, host: Callable[..., Value], *, deep: bool = True) -> None:
    """Enter a function of Python that only looks at its arguments; `deep` when at all of them."""

    async def act(session: Session, *given: Value, **named: Value) -> Value:
        if deep:
            session.guard(*given, *named.values())
        return session.made(host(*given, **named))

    FUNCTIONS[name] = Function(name, act)


pure("abs", abs)
pure("ascii", ascii)
pure("bin", bin)
pure("chr", chr)
pure("divmod", divmod)
pure("hex", hex)
pure("oct", oct)
pure("ord", ord)
pure("repr", show)
pure("isinstance", isinstance, deep=False)
pure("issubclass", issubclass, deep=False)
pure("len", len, deep=False)


@function("print")
async def _print(
    session: Session,
    *values: Value,
    sep: Value = " ",
    end: Value = "\n",
    file: Value = None,
    flush: Value = False,
) -> None:
    for name, value in (("sep", sep), ("end", end)):
        if value is not None and not isinstance(value, str):
            kind = type(value).__name__
            raise TypeError(f"{name} must be None or a string, not {kind}")
    session.guard(list(values))
    between: str = " " if sep is None else sep
    session.need(len(between) * len(values))
    said = between.join(map(text, values)) + ("\n" if end is None else end)
    stream = CONSTANTS["sys.stdout"] if file is None else file
    try:
        write = attribute(stream, "write")
    except AttributeError as exc:
        raise Raised(exc) from None
    await call(session, write, [said], {})


@function("input")
async def _input(session: Session, prompt: Value = "") -> str:
    await _print(session, prompt, end="")
    raise EOFError("EOF when reading a line")


@function("exit", "quit", "sys.exit")
async def _exit(session: Session, code: Value = None) -> None:
    raise Raised(SystemExit(code) if code is not None else SystemExit())


@function("sum")
async def _sum(session: Session, items: Value, start: Value = 0) -> Value:
    if isinstance(items, range) and isinstance(start, int):
        return session.made(start + _series(items))
    found = await session.items(items)
    if isinstance(start, int | float) and all(isinstance(item, int | float) for item in found):
        session.guard(found)
        return session.made(sum(found, start))
    if isinstance(start, str | bytes):
        raise TypeError("sum() can't sum strings [use ''.join(seq) instead]")
    return _folded(session, found, start)


def _series(items: range) -> int:
    return len(items) * (items[0] + items[-1]) // 2 if items else 0


def _folded(session: Session, items: list[Value], total: Value) -> Value:
    for item in items:
        if type(total) in (list, tuple):
            session.need(ITEM * len(total))
        total = session.made(total + item)
    return total


@function("any")
async def _any(session: Session, items: Value) -> bool:
    return await _found(session, items, wanted=True)


@function("all")
async def _all(session: Session, items: Value) -> bool:
    return not await _found(session, items, wanted=False)


async def _found(session: Session, items: Value, *, wanted: bool) -> bool:
    """Say whether there is a true, or a false, item; what comes after it is not computed."""
    found: list[Value] = []

    async def look(item: Value) -> bool:
        if bool(item) is wanted:
            found.append(item)
        return bool(found)

    if isinstance(items, Generator):
        await items.drain(look)
    else:
        for item in session.each(await session.iterable(items)):
            await session.round()
            if await look(item):
                break
    return bool(found)


async def _keys(session: Session, items: list[Value], key: Value) -> list[Value]:
    keys = items if key is None else [await call(session, key, [item], {}) for item in items]
    session.guard(keys)
    return keys


async def _sort(session: Session, items: list[Value], key: Value, reverse: Value) -> list[Value]:
    keys = await _keys(session, items, key)
    order = sorted(range(len(items)), key=keys.__getitem__, reverse=bool(reverse))
    return [items[index] for index in order]


@function("sorted")
async def _sorted(
    session: Session, items: Value, *, key: Value = None, reverse: Value = False
) -> list[Value]:
    return await _sort(session, await session.items(items), key, reverse)


@method(list, "sort")
async def _sort_list(
    session: Session, items: list[Value], *, key: Value = None, reverse: Value = False
) -> None:
    items[:] = await _sort(session, items, key, reverse)


@function("min")
async def _min(session: Session, *given: Value, **named: Value) -> Value:
    return await _extreme(session, min, given, named)


@function("max")
async def _max(session: Session, *given: Value, **named: Value) -> Value:
    return await _extreme(session, max, given, named)


async def _extreme(
    session: Session,
    host: Callable[..., int],
    given: tuple[Value, ...],
    named: dict[str, Value],
) -> Value:
    if set(named) - {"key", "default"} or not given:
        raise NotUnderstood
    items = await session.items(given[0]) if len(given) == 1 else list(given)
    if not items and "default" in named:
        return named["default"]
    if not items:
        raise ValueError(f"{host.__name__}() arg is an empty sequence")
    keys = await _keys(session, items, named.get("key"))
    return items[host(range(len(items)), key=keys.__getitem__)]


@function("round")
async def _round(session: Session, number: Value, digits: Value = None) -> Value:
    if isinstance(digits, int) and abs(digits) > FINEST:
        raise MemoryError
    return round(number) if digits is None else round(number, digits)


@function("enumerate")
async def _enumerate(session: Session, items: Value, start: int = 0) -> Once:
    return Once(enumerate(await session.iterable(items), start))


@function("zip")
async def _zip(session: Session, *several: Value, strict: Value = False) -> Once:
    return Once(zip(*[await session.iterable(one) for one in several], strict=bool(strict)))


@function("reversed")
async def _reversed(session: Session, items: Value) -> Once:
    if type(items) not in (str, bytes, list, tuple, dict, range):
        raise NotUnderstood
    return Once(iter(reversed(items)))


@function("map")
async def _map(session: Session, target: Value, *several: Value) -> Once:
    """Compute at once what Python computes when asked, which only types do unseen."""
    if not isinstance(target, type) and target not in _UNSEEN:
        raise NotUnderstood
    rows = zip(*[await session.items(one) for one in several], strict=False)
    return Once(iter([await call(session, target, row, {}) for row in rows]))


_UNSEEN = tuple(FUNCTIONS[name] for name in ("abs", "bin", "chr", "hex", "len", "ord", "repr"))


@function("format")
async def _format(session: Session, value: Value, spec: str = "") -> str:
    return formatted(session, value, None, spec)
