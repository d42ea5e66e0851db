"""What deadlines and durations are measured with: the event loop's time, or a fake's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import anyio

if TYPE_CHECKING:
    from contextlib import AbstractContextManager


class Clock(Protocol):
    """A clock that no change of the wall clock moves; seconds, from a start of its own."""

    def time(self) -> float: ...

    def limit(
        self, at: float, *, shield: bool = False
    ) -> AbstractContextManager[anyio.CancelScope]:
        """Return a scope that is cancelled when `time()` reaches `at`."""
        ...

    async def sleep(self, seconds: float) -> None: ...


class LoopClock:
    """The clock of the running event loop."""

    def time(self) -> float:
        return anyio.current_time()

    def limit(
        self, at: float, *, shield: bool = False
    ) -> AbstractContextManager[anyio.CancelScope]:
        return anyio.CancelScope(deadline=at, shield=shield)

    async def sleep(self, seconds: float) -> None:
        await anyio.sleep(seconds)


LOOP = LoopClock()
