"""One absolute deadline per operation, and the error it turns into."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from sandboxio.core.clock import LOOP

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sandboxio.core.clock import Clock

T = TypeVar("T")


class DeadlinePassed(Exception):
    """Internal: the operation's own time is over. Never leaves core."""


class Deadline:
    """A point on a clock that no change of the wall clock moves."""

    def __init__(self, seconds: float, clock: Clock = LOOP) -> None:
        self.seconds = seconds
        self._clock = clock
        self._at = clock.time() + seconds

    async def bound(self, action: Callable[[], Awaitable[T]]) -> T:
        """Await an action, or raise `DeadlinePassed`; a caller's cancellation stays that.

        A `TimeoutError` raised by the action itself is not mistaken for the deadline.
        """
        with self._clock.limit(self._at):
            return await action()
        raise DeadlinePassed
