"""Cancelling a call at each of its awaits in turn."""

from __future__ import annotations

from functools import partial
from types import coroutine
from typing import TYPE_CHECKING, Any

import anyio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

MOST = 400
"""Awaits that a call may have."""


async def cancel_at_each_await(
    act: Callable[[], Awaitable[object]], *, stride: int = 1, scopes: int = 1
) -> int:
    """Call again and again, cancelled at its first await, its second and so on, to its last.

    `scopes` is how many scopes around it are cancelled, one after the other, with one await in
    between. Returns at how many awaits it was cancelled.
    """
    for step in range(1, MOST, stride):
        if not await _cancelled_at(step, act, scopes):
            return step // stride
    raise AssertionError(f"the call has more than {MOST} awaits")


async def _cancelled_at(step: int, act: Callable[[], Awaitable[object]], scopes: int) -> bool:
    with anyio.CancelScope() as outer, anyio.CancelScope() as inner:
        await _counted(act(), {step: inner, step + 1: outer} if scopes > 1 else {step: outer})
    return outer.cancelled_caught or inner.cancelled_caught


@coroutine
def _counted(
    call: Awaitable[object], moments: dict[int, anyio.CancelScope]
) -> Generator[Any, Any, object]:
    """Await something, and cancel scopes at numbered awaits of it."""
    steps: Generator[Any, Any, object] = call.__await__()
    number = 0
    proceed: Callable[[], Any] = partial(steps.send, None)
    while True:
        try:
            waiting = proceed()
        except StopIteration as end:
            return end.value
        number += 1
        if number in moments:
            moments[number].cancel()
        try:
            proceed = partial(steps.send, (yield waiting))
        except BaseException as exc:  # noqa: BLE001  # it goes on to the call
            proceed = partial(steps.throw, exc)
