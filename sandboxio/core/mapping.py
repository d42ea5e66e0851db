"""One absolute deadline per operation, and the error it turns into."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import anyio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")


class DeadlinePassed(Exception):
    """Internal: the operation's own time is over. Never leaves core."""


class Deadline:
    """A point on the event loop's clock, which no wall-clock jump moves."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._at = anyio.current_time() + seconds

    async def bound(self, action: Callable[[], Awaitable[T]]) -> T:
        """Await an action, or raise `DeadlinePassed`; a caller's cancellation stays that.

        A `TimeoutError` raised by the action itself is not mistaken for the deadline.
        """
        with anyio.CancelScope(deadline=self._at):
            return await action()
        raise DeadlinePassed
