"""Part of the agent: one thread that waits for everything."""

from __future__ import annotations

import select
import time

from sandboxio.guest._agent_wire import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from heapq import heappop, heappush
    from typing import Callable
else:  # what it wraps is there already, and it takes long to import
    from _heapq import heappop, heappush


class Loop:
    """Descriptors and moments to wait for, and what each is for."""

    def __init__(self) -> None:
        self.poll = select.epoll()
        self.handlers: dict[int, Callable[[int, int], None]] = {}
        self.masks: dict[int, int] = {}
        self.timers: list[tuple[float, int, Callable[[], None]]] = []
        self.order = 0

    def watch(self, fd: int, events: int, handler: Callable[[int, int], None]) -> None:
        self.handlers[fd] = handler
        self.masks[fd] = events
        self.poll.register(fd, events)

    def change(self, fd: int, events: int) -> None:
        if fd in self.masks and self.masks[fd] != events:
            self.masks[fd] = events
            self.poll.modify(fd, events)

    def forget(self, fd: int) -> None:
        if self.handlers.pop(fd, None) is not None:
            self.masks.pop(fd, None)
            with suppress(OSError):
                self.poll.unregister(fd)

    def later(self, seconds: float, act: Callable[[], None]) -> None:
        self.order += 1
        heappush(self.timers, (time.monotonic() + seconds, self.order, act))

    def run(self) -> None:
        before = time.monotonic()
        while True:
            self.before_waiting()
            wait = 1.0
            if self.timers:
                wait = min(wait, max(0.0, self.timers[0][0] - time.monotonic()))
            for fd, events in self.poll.poll(wait, 64):
                handler = self.handlers.get(fd)
                if handler is not None:
                    if not self.masks.get(fd) and events & (select.EPOLLHUP | select.EPOLLERR):
                        self.idle_hangup(fd)
                    handler(fd, events)
            now = time.monotonic()
            while self.timers and self.timers[0][0] <= now:
                heappop(self.timers)[2]()
            self.bound(now, min(now - before, 2.0))
            before = now

    def idle_hangup(self, fd: int) -> None:
        """A descriptor that nobody wants to read has been hung up: it is not to wake us again."""
        with suppress(OSError):
            self.poll.modify(fd, select.EPOLLIN | select.EPOLLET)

    def before_waiting(self) -> None:
        """Send what has gathered during a turn."""

    def bound(self, now: float, passed: float) -> None:
        """Keep what is limited in time; `passed` leaves out time in which nothing ran."""
