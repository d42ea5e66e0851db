"""Many wait, one works for all: without a task in the background somebody who waits has to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from collections.abc import Callable


class Waiter:
    """Somebody who waits for something to hold."""

    __slots__ = ("event", "ready")

    def __init__(self, ready: Callable[[], bool]) -> None:
        self.ready = ready
        self.event = anyio.Event()


class Turns:
    """Who works, and who waits for it.

    Whoever leaves calls `pass_on()`, however it leaves: then there is never work to be done while
    all wait. Somebody who was woken and has not come to it yet will pass on in its turn.
    """

    def __init__(self) -> None:
        self.busy = False
        self._waiting: dict[Waiter, None] = {}
        self._woken = 0

    async def wait(self, ready: Callable[[], bool], among: list[Waiter] | None = None) -> None:
        """Wait to be woken: because something holds, or because it is one's turn to work.

        `among` is where the waiter is noted meanwhile for whoever wakes it.
        """
        waiter = Waiter(ready)
        self._waiting[waiter] = None
        if among is not None:
            among.append(waiter)
        try:
            await waiter.event.wait()
        finally:
            if among is not None:
                among.remove(waiter)
            if waiter in self._waiting:
                del self._waiting[waiter]
            else:
                self._woken -= 1

    def wake(self, waiter: Waiter) -> None:
        if waiter in self._waiting:
            del self._waiting[waiter]
            self._woken += 1
            waiter.event.set()

    def wake_ready(self) -> None:
        """Wake those whose time has come."""
        for waiter in [waiter for waiter in self._waiting if waiter.ready()]:
            self.wake(waiter)

    def wake_all(self) -> None:
        for waiter in list(self._waiting):
            self.wake(waiter)

    def pass_on(self) -> None:
        """Have one of those who wait take over, where nobody works, nor will."""
        if not self.busy and not self._woken and self._waiting:
            self.wake(next(iter(self._waiting)))
