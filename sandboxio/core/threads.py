"""Blocking calls of provider SDKs, in worker threads of our own budget.

The host program's default limiter is left alone. A caller that is cancelled or out of time
goes on at once; the thread finishes on its own, and `late` then receives what it made, so that
nothing an engine creates behind our back is lost.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import anyio
import anyio.to_thread
from anyio.lowlevel import RunVar

from sandboxio.core.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

THREADS_VARIABLE = "SBX_DOCKER_THREADS"
DEFAULT_THREADS = 64
URGENT_THREADS = 8
"""Threads that only teardown may use, so that it never waits for ordinary calls."""
EXIT_WAIT = 5.0
"""Seconds the interpreter's exit waits for teardown that is still under way."""
UNBOUNDED_CALL = 60.0
"""Seconds a call may take when nothing around it sets a deadline."""

remaining_time: ContextVar[float] = ContextVar("remaining_time", default=UNBOUNDED_CALL)
"""Seconds the operation of the current worker thread has left; transports read it."""

_ordinary: RunVar[anyio.CapacityLimiter] = RunVar("sandboxio_threads")
_urgent: RunVar[anyio.CapacityLimiter] = RunVar("sandboxio_urgent_threads")


_unfinished: set[_Job[Any]] = set()


async def run(
    call: Callable[[], T], *, urgent: bool = False, late: Callable[[T], None] | None = None
) -> T:
    """Call a blocking function in a worker thread and return what it returns.

    `late` is called, in the thread that made it, with a result nobody waits for any more.
    An `urgent` call always gets a thread, and the interpreter's exit waits for it.
    """
    left = anyio.current_effective_deadline() - anyio.current_time()
    job = _Job(call, late, min(left, 86_400.0) if left != float("inf") else UNBOUNDED_CALL)
    if urgent:
        _outlive(job)
    try:
        return await anyio.to_thread.run_sync(
            job, abandon_on_cancel=True, limiter=_limiter(urgent=urgent)
        )
    except anyio.get_cancelled_exc_class():
        job.abandon()
        raise
    except RuntimeError:
        if job.begun:
            raise
        return job()  # the interpreter is shutting down and starts no more threads


class _Job(Generic[T]):
    """One call, and the agreement about who disposes of its result."""

    def __init__(
        self, call: Callable[[], T], late: Callable[[T], None] | None, seconds: float
    ) -> None:
        self._call = call
        self._late = late
        self._seconds = seconds
        self._lock = threading.Lock()
        self._abandoned = False
        self._results: list[T] = []
        self.begun = False
        self.ended = threading.Event()

    def __call__(self) -> T:
        self.begun = True
        remaining_time.set(max(0.1, self._seconds))
        try:
            return self._run()
        finally:
            _unfinished.discard(self)
            self.ended.set()

    def _run(self) -> T:
        result = self._call()
        with self._lock:
            self._results.append(result)
            dispose = self._abandoned
        if dispose:
            self._dispose()
        return result

    def abandon(self) -> None:
        with self._lock:
            self._abandoned = True
            finished = bool(self._results)
        if finished:
            threading.Thread(target=self._dispose, daemon=True, name="sandboxio-late").start()
        if not self.begun:
            _unfinished.discard(self)
        elif self._late is not None and not self.ended.is_set():
            _outlive(self)

    def _dispose(self) -> None:
        if self._late is not None:
            self._late(self._results[0])


def _outlive(job: _Job[Any]) -> None:
    if not _unfinished:
        atexit.unregister(_finish)
        atexit.register(_finish)
    _unfinished.add(job)


def _finish() -> None:
    """Let teardown that an interrupt left behind come to its end."""
    until = time.monotonic() + EXIT_WAIT
    for job in tuple(_unfinished):
        job.ended.wait(max(0.0, until - time.monotonic()))


def _limiter(*, urgent: bool) -> anyio.CapacityLimiter:
    variable = _urgent if urgent else _ordinary
    try:
        return variable.get()
    except LookupError:
        limiter = anyio.CapacityLimiter(URGENT_THREADS if urgent else thread_budget())
        variable.set(limiter)
        return limiter


def thread_budget() -> int:
    """Return the configured number of worker threads."""
    value = os.environ.get(THREADS_VARIABLE, str(DEFAULT_THREADS))
    if not value.isdecimal() or int(value) < 1:
        raise ConfigurationError(
            f"{THREADS_VARIABLE} must be a whole number above 0.",
            hint=f"export {THREADS_VARIABLE}={DEFAULT_THREADS}",
        )
    return int(value)
