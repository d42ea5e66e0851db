"""Steps of a life that must come to their end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NoReturn

import anyio
import pytest

from sandboxio import LinkLost
from sandboxio.core.lifecycle import GRACE_VARIABLE, to_its_end

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

pytestmark = pytest.mark.anyio


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """A grace that a test can wait for."""
    monkeypatch.setenv(GRACE_VARIABLE, "0.05")


class Step:
    """Waits until it is released, and notes how it ended."""

    def __init__(self) -> None:
        self.begun, self.released = anyio.Event(), anyio.Event()
        self.ended = ""

    async def __call__(self) -> None:
        self.begun.set()
        try:
            await self.released.wait()
        except BaseException:
            self.ended = "cut off"
            raise
        self.ended = "whole"


async def test_a_step_may_take_longer_than_the_grace(short: None) -> None:
    """Nobody cancels it, and nothing else ends it."""
    del short
    step = Step()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(to_its_end, step)
        await step.begun.wait()
        await anyio.sleep(0.2)  # four times the grace
        assert step.ended == ""
        step.released.set()
    assert step.ended == "whole"


async def test_a_step_that_is_cancelled_ends_within_the_grace() -> None:
    """What finishes then is whole; the cancellation is not lost."""
    step = Step()
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(to_its_end, step)
            await step.begun.wait()
            scope.cancel()
            with anyio.CancelScope(shield=True):
                await anyio.wait_all_tasks_blocked()
                step.released.set()
    assert scope.cancelled_caught
    assert step.ended == "whole"


async def test_a_step_that_does_not_end(short: None) -> None:
    """After the grace it is cut off."""
    del short
    step = Step()
    with anyio.move_on_after(0.01) as scope:
        await to_its_end(step)
    assert scope.cancelled_caught
    assert step.ended == "cut off"


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_task_that_is_cancelled_twice() -> None:
    """`task.cancel()`, which knows of no shield, does not cut it off either."""
    step = Step()
    task = asyncio.ensure_future(_as_coroutine(to_its_end, step))
    await step.begun.wait()
    for _ in range(2):
        task.cancel()
        await anyio.wait_all_tasks_blocked()
    step.released.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert step.ended == "whole"


async def test_its_error_is_the_callers() -> None:
    """It comes through as it is, in no group."""

    async def fail() -> NoReturn:
        raise LinkLost("cut")

    with pytest.raises(LinkLost, match="cut"):
        await to_its_end(fail)


async def _as_coroutine(
    call: Callable[[Callable[[], Awaitable[object]]], Awaitable[None]], step: Step
) -> None:
    await call(step)
