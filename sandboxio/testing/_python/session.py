"""One run of recognised code: what it holds, what it costs, and how its values are walked."""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, KeysView, Sized, ValuesView
from itertools import islice
from typing import TYPE_CHECKING

from sandboxio.testing._python.objects import Generator, Lines, Once, Raised, Value

if TYPE_CHECKING:
    from collections.abc import Iterator
    from weakref import finalize

    from sandboxio.testing._machine.process import Process

LARGEST = 64 * 1024 * 1024
"""Most characters of one value; the items of a container count as `ITEM` each."""
HEAVIEST = 2 * LARGEST
"""Most characters and items that are looked at, at once."""
MOST_BITS = 100_000
"""Most bits of an integer."""
ITEM = 64
DEEPEST = 100
"""Most containers within each other that are printed, compared or hashed."""
TOTAL = 256 * 1024 * 1024
"""Most characters of all values together."""
STEP = 64 * 1024
"""Characters that are worth one step of virtual time."""
STATEMENT, ROUND = STEP // 200, STEP // 25
"""What a statement and a turn of a loop cost."""
PATIENCE = 50_000
"""Turns after which each costs a step: that loop never ends."""

_VIEWS: tuple[type[Value], ...] = (KeysView, ValuesView, ItemsView)
_SETS: tuple[type[Value], ...] = (set, frozenset)
_DICTS: tuple[type[Value], ...] = (dict,)
PLAIN: tuple[type[Value], ...] = (str, bytes, list, tuple, range, *_DICTS, *_SETS, *_VIEWS)
"""What Python itself can iterate over."""


class Session:
    """A run of recognised code in a virtual process."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.environ: dict[str, Value] = dict(process.env)
        self.scopes: list[dict[str, Value]] = [{}]
        self.held: list[Value] = []
        """What loops iterate over, which no name may hold."""
        self.open_files: list[finalize[..., Value]] = []
        self._rounds = self._due = self._fresh = self._live = 0

    def end(self) -> None:
        """Close what the code left open."""
        for release in self.open_files:
            release()
        self.open_files.clear()

    async def statement(self) -> None:
        """Count one statement, and let the time pass that is due."""
        self._due += STATEMENT
        await self._pay()

    async def round(self) -> None:
        """Count one turn of a loop, and let the time pass that is due."""
        self._rounds += 1
        self._due += ROUND if self._rounds < PATIENCE else STEP
        await self._pay()

    async def _pay(self) -> None:
        if self._fresh > TOTAL // 4:
            self._live, self._fresh = _memory([*self.scopes, self.held]), 0
        while self._due >= STEP:
            self._due -= STEP
            await self.process.step()

    def guard(self, *values: Value) -> None:
        """Count the cost of a look at all of these values; raises for one without end."""
        for value in values:
            try:
                self._due += weight(value)
            except (MemoryError, RecursionError):
                self._due += HEAVIEST
                raise

    def need(self, size: int) -> None:
        """Make sure that a result of this size may be made."""
        if size > LARGEST or self._live + self._fresh + size > TOTAL:
            raise MemoryError
        self._due += size

    def made(self, value: Value) -> Value:
        """Count a new value, and return it."""
        if isinstance(value, int) and value.bit_length() > MOST_BITS:
            raise MemoryError
        if isinstance(value, PLAIN) and not isinstance(value, range):
            size = _size(value)
            self.need(size)
            self._fresh += size
        return value

    async def iterable(self, value: Value) -> Iterable[Value]:
        """Return what Python can iterate over; raises `TypeError` where nobody could."""
        if isinstance(value, _SETS):
            return ordered(value)
        if isinstance(value, PLAIN):
            found: Iterable[Value] = value
            return found
        if isinstance(value, Once):
            return value.items
        if isinstance(value, Generator):
            return await self._drained(value)
        if isinstance(value, Lines):
            return await value.lines(self)
        raise TypeError(f"{type(value).__name__!r} object is not iterable")

    async def items(self, value: Value) -> list[Value]:
        """Return all items, if they are not too many."""
        found = await self.iterable(value)
        if isinstance(found, Sized):
            self.need(ITEM * len(found))
        taken = list(islice(found, LARGEST // ITEM + 1))
        return list(self.made(taken))

    async def plain(self, value: Value) -> Value:
        """Return a value that Python's own methods can take; iterators become lists."""
        if isinstance(value, Once | Generator | Lines):
            return await self.items(value)
        return value

    def each(self, items: Iterable[Value]) -> Iterator[Value]:
        """Iterate, so that what changed meanwhile is an error of the code."""
        iterator = iter(items)
        while True:
            try:
                item = next(iterator)
            except StopIteration:
                return
            except RuntimeError as exc:
                raise Raised(exc) from None
            yield item

    async def _drained(self, generator: Generator) -> list[Value]:
        found: list[Value] = []

        async def take(item: Value) -> bool:
            found.append(item)
            if ITEM * len(found) > LARGEST:
                raise MemoryError
            return False

        await generator.drain(take)
        return found


def weight(value: Value) -> int:
    """Return how much there is to look at, the same thing twice where it is met twice.

    Lists within lists can stand for more than any computer holds; this stops in time.
    """
    total, depth, level = 0, 0, [value]
    while level:
        below: list[Value] = []
        for item in level:
            kind = item.__class__
            if kind is int:
                total += item.bit_length() // 3 + 1
            elif kind is str:
                total += len(item)
            else:
                total += _size(item)
                below.extend(_parts(item) if total <= HEAVIEST else ())
            if total > HEAVIEST:
                raise MemoryError
        level = below
        depth += 1
        if depth > DEEPEST:
            raise RecursionError("maximum recursion depth exceeded")
    return total


def ordered(values: set[Value] | frozenset[Value]) -> list[Value]:
    """Return the members of a set in an order that is the same in every run."""
    try:
        return sorted(values)
    except TypeError:
        return sorted(values, key=repr)


def show(value: Value) -> str:
    """Return what `repr()` does, with sets in order."""
    kind = value.__class__
    if kind is list:
        return f"[{', '.join(map(show, value))}]"
    if kind is tuple:
        return f"({', '.join(map(show, value))}{',' if len(value) == 1 else ''})"
    if kind is dict:
        return f"{{{', '.join(f'{show(k)}: {show(v)}' for k, v in value.items())}}}"
    if kind is set and value:
        return f"{{{', '.join(map(show, ordered(value)))}}}"
    if kind is frozenset and value:
        return f"frozenset({show(set(value))})"
    return repr(value)


def text(value: Value) -> str:
    """Return what `str()` does, with sets in order."""
    if isinstance(value, PLAIN) and not isinstance(value, str):
        return show(value)
    return str(value)


def _size(value: Value) -> int:
    if isinstance(value, str | bytes):
        return len(value)
    if isinstance(value, int):
        return value.bit_length() // 3 + 1
    if isinstance(value, PLAIN) and not isinstance(value, range):
        return ITEM * (len(value) + 1)
    return 8


def _parts(value: Value) -> Value:
    if isinstance(value, _DICTS):
        return [*value, *value.values()]
    if isinstance(value, PLAIN) and not isinstance(value, str | bytes | range):
        return value
    if isinstance(value, BaseException):
        return value.args
    return ()


def _memory(roots: list[Value]) -> int:
    """Return the size of everything that can be reached, each value once."""
    total, seen, pending = 0, set[int](), roots
    while pending:
        value = pending.pop()
        if id(value) not in seen:
            seen.add(id(value))
            total += _size(value)
            pending.extend(_parts(value))
    return total
