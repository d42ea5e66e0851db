"""A virtual clock: it stands still while anything happens and jumps when everybody waits."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import sys
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel

from sandboxio.core import threads

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from sandboxio.core.clock import Clock

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
"""What the wall clock inside fake sandboxes shows when the virtual clock shows 0."""
QUIET_TURNS = 30
"""Turns of the event loop without any activity on the fake after which time jumps."""
_THREAD_PAUSE = 0.001


@dataclass(order=True)
class Timer:
    """Something that happens at a point of virtual time, unless it is cancelled."""

    at: float
    late: bool
    """Comes after everything else of the same instant."""
    order: int
    act: Callable[[], None] = field(compare=False)
    cancelled: bool = field(default=False, compare=False)

    def cancel(self) -> None:
        self.cancelled = True


class FakeClock:
    """The clock of a `FakeBackend`.

    Seconds pass when everybody who uses the fake waits for them: a command that sleeps, a call
    that hangs until its deadline, `clock.sleep()`. They pass at once, in order, and always the
    same. What else the program waits for (threads, sockets, `anyio.sleep()`) is not seen.

    With `autojump=False` only `advance()` moves it.

    Example:
        fake = FakeBackend()
        fake.on_run("make", takes=250)
        await fake.sandbox.run("make")
        assert fake.clock.time() == 250
    """

    def __init__(self, *, autojump: bool = True) -> None:
        self.autojump = autojump
        self._now = 0.0
        self._order = itertools.count()
        self._loops: dict[Any, _Loop] = {}
        self._firing: _Loop | None = None

    def __repr__(self) -> str:
        return f"<FakeClock at {self._now:g} s>"

    def time(self) -> float:
        """Return the virtual seconds that have passed."""
        return self._now

    def wall(self) -> datetime:
        """Return the date and time inside the sandboxes."""
        return EPOCH + timedelta(seconds=self._now)

    async def sleep(self, seconds: float) -> None:
        """Wait until that many virtual seconds have passed."""
        over = anyio.Event()
        timer = self.call_at(self._now + seconds, over.set)
        with self._here().used():
            try:
                await over.wait()
            finally:
                timer.cancel()

    @contextmanager
    def limit(self, at: float, *, shield: bool = False) -> Generator[anyio.CancelScope]:
        """Return a scope that is cancelled when `time()` reaches `at`."""
        scope = anyio.CancelScope(shield=shield)
        timer = self.call_at(at, scope.cancel)
        try:
            with self._here().used(), scope:
                yield scope
        finally:
            timer.cancel()

    async def advance(self, seconds: float) -> None:
        """Let that many virtual seconds pass, with all that happens meanwhile."""
        until = self._now + seconds
        here = self._here()
        await _settle()
        while here.next_at() <= until:
            here.fire()
            await _settle()
        self._now = max(self._now, until)
        await _settle()

    def call_at(self, at: float, act: Callable[[], None], *, late: bool = False) -> Timer:
        """Call something at a point of virtual time, on the event loop this is called on."""
        timer = Timer(at, late, next(self._order), act)
        self._here().add(timer)
        return timer

    def touch(self) -> None:
        """Tell that something happened, so that time stands still a little longer."""
        self._here().quiet = 0

    def reach(self, at: float) -> None:
        """Move on to a point of time; never back."""
        self._now = max(self._now, at)

    def firing(self, loop: _Loop | None) -> None:
        """Note whose timer acts now: outside of any task no library can tell the loop."""
        self._firing = loop

    def _here(self) -> _Loop:
        if self._firing is not None:
            return self._firing
        token = anyio.lowlevel.current_token().native_token
        if token not in self._loops:
            self._loops = {key: loop for key, loop in self._loops.items() if loop.users}
            self._loops[token] = _Loop(self)
        return self._loops[token]


class _Loop:
    """One event loop's part of the clock: its timers, and who waits on it."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self._timers: list[Timer] = []
        self._ticking = False
        self.users = 0
        self.quiet = 0

    @contextmanager
    def used(self) -> Generator[None]:
        """Let time pass while somebody is inside."""
        self.quiet = 0
        self.users += 1
        self._start()
        try:
            yield
        finally:
            self.users -= 1
            self.quiet = 0

    def add(self, timer: Timer) -> None:
        heapq.heappush(self._timers, timer)
        self.quiet = 0
        self._start()

    def next_at(self) -> float:
        while self._timers and self._timers[0].cancelled:
            heapq.heappop(self._timers)
        return self._timers[0].at if self._timers else float("inf")

    def fire(self) -> None:
        """Go to the earliest timer and do what it is for."""
        self._clock.reach(self.next_at())
        self.quiet = 0
        self._clock.firing(self)
        try:
            heapq.heappop(self._timers).act()
        finally:
            self._clock.firing(None)

    def _start(self) -> None:
        if not self._ticking and self.users and self._clock.autojump:
            self._ticking = True
            _soon(self._tick)

    def _tick(self) -> None:
        if not self.users or self.next_at() == float("inf"):
            self._ticking = False
            return
        if threads.awaited():
            self.quiet = 0
            _soon(self._tick, _THREAD_PAUSE)
            return
        self.quiet += 1
        if self.quiet > QUIET_TURNS:
            self.fire()
        _soon(self._tick)


def _soon(act: Callable[[], None], pause: float = 0.0) -> None:
    """Call something on this event loop, in its next turn or after a pause."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        trio: Any = sys.modules["trio"]
        if pause:
            trio.lowlevel.spawn_system_task(_later, act, pause)
        else:
            trio.lowlevel.current_trio_token().run_sync_soon(act)
        return
    if pause:
        loop.call_later(pause, act)
    else:
        loop.call_soon(act)


async def _later(act: Callable[[], None], pause: float) -> None:
    await anyio.sleep(pause)
    act()


async def _settle() -> None:
    for _ in range(QUIET_TURNS):
        await anyio.lowlevel.checkpoint()


if TYPE_CHECKING:
    _: Clock = FakeClock()
