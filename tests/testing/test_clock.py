"""The virtual clock: it stands still while anything happens and jumps when everybody waits."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel
import pytest

from sandboxio.core import threads
from sandboxio.testing.clock import FakeClock

pytestmark = pytest.mark.anyio

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def manual() -> FakeClock:
    return FakeClock(autojump=False)


async def test_a_long_sleep_is_over_at_once(clock: FakeClock) -> None:
    """An hour passes on the clock, and next to nothing outside."""
    began = time.monotonic()
    await clock.sleep(3600)
    assert clock.time() == 3600
    assert time.monotonic() - began < 60


async def test_sleepers_wake_in_order(clock: FakeClock) -> None:
    """Who sleeps less wakes first, whoever began."""
    woken: list[float] = []

    async def nap(seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append(clock.time())

    async with anyio.create_task_group() as tasks:
        for seconds in (30, 10, 20):
            tasks.start_soon(nap, seconds)
    assert woken == [10, 20, 30]


async def test_a_limit_cancels_what_waits(clock: FakeClock) -> None:
    """What would wait for ever is cancelled when its time is over, and not before."""
    with clock.limit(clock.time() + 300) as scope:
        await anyio.sleep_forever()
    assert scope.cancelled_caught
    assert clock.time() == 300


async def test_time_stands_still_while_something_happens(clock: FakeClock) -> None:
    """A task that is not waiting is never overtaken by a deadline."""
    with clock.limit(clock.time() + 1) as scope:
        for _ in range(20):
            await anyio.lowlevel.checkpoint()
    assert not scope.cancel_called
    assert clock.time() == 0


async def test_time_stands_still_while_a_thread_works(clock: FakeClock) -> None:
    """A file of the host that is read slowly costs no virtual time."""
    with clock.limit(clock.time() + 1) as scope:
        await threads.run(lambda: time.sleep(0.05))
    assert not scope.cancel_called
    assert clock.time() == 0


async def test_the_earlier_of_two_limits_counts(clock: FakeClock) -> None:
    """An outer limit that comes first ends the inner block too."""
    inner: list[anyio.CancelScope] = []
    with clock.limit(10) as outer, clock.limit(20) as scope:
        inner.append(scope)
        await anyio.sleep_forever()
    assert outer.cancelled_caught
    assert not inner[0].cancelled_caught
    assert clock.time() == 10


async def test_a_shielded_limit_is_reached_in_spite_of_a_cancellation(clock: FakeClock) -> None:
    """Teardown has its own time."""
    with anyio.CancelScope() as outside:
        outside.cancel()
        with clock.limit(5, shield=True):
            await anyio.sleep_forever()
    assert clock.time() == 5


async def test_without_jumps_only_advance_moves_it(manual: FakeClock) -> None:
    """By hand, everything in between happens at its own time."""
    woken: list[float] = []

    async def nap(seconds: float) -> None:
        await manual.sleep(seconds)
        woken.append(manual.time())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(nap, 1)
        tasks.start_soon(nap, 2)
        tasks.start_soon(nap, 9)
        await manual.advance(5)
        assert (woken, manual.time()) == ([1, 2], 5)
        await manual.advance(5)
    assert (woken, manual.time()) == ([1, 2, 9], 10)


async def test_late_timers_come_last_of_their_instant(clock: FakeClock) -> None:
    """A deadline and the end of a lifetime at the same moment: the deadline comes first."""
    seen: list[str] = []
    clock.call_at(5, lambda: seen.append("lifetime"), late=True)
    clock.call_at(5, lambda: seen.append("deadline"))
    await clock.sleep(6)
    assert seen == ["deadline", "lifetime"]


async def test_a_cancelled_timer_does_nothing(clock: FakeClock) -> None:
    """What is called off neither happens nor holds anything up."""
    seen: list[str] = []
    clock.call_at(5, lambda: seen.append("x")).cancel()
    await clock.sleep(6)
    assert seen == []


def in_two_loops(clock: FakeClock, backend: str) -> Callable[[], None]:
    async def nap() -> None:
        await clock.sleep(10)

    return lambda: anyio.run(nap, backend=backend)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_clock_outlives_its_event_loop(clock: FakeClock, backend: str) -> None:
    """One clock serves loops one after another."""
    run = in_two_loops(clock, backend)
    run()
    run()
    assert clock.time() == 20
