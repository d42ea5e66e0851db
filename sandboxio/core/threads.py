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
from contextlib import suppress
from contextvars import ContextVar, copy_context
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import anyio
import anyio.from_thread
from anyio.lowlevel import RunVar, current_token

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
    """Call a blocking function in a thread of its own and return what it returns.

    `late` is called, in the thread that made it, with a result nobody waits for any more.
    An `urgent` call always gets a thread, and the interpreter's exit waits for it.
    """
    left = anyio.current_effective_deadline() - anyio.current_time()
    job = _Job(call, late, min(left, 86_400.0) if left != float("inf") else UNBOUNDED_CALL)
    async with _limiter(urgent=urgent):
        if urgent:
            _outlive(job)
        return await job.result()


class _Job(Generic[T]):
    """One call in a daemon thread, and the agreement about who disposes of its result.

    The threads of anyio's pool are no daemons: the interpreter's exit would wait for a call that
    an engine never answers.
    """

    def __init__(
        self, call: Callable[[], T], late: Callable[[T], None] | None, seconds: float
    ) -> None:
        self._call = call
        self._late = late
        self._seconds = seconds
        self._lock = threading.Lock()
        self._abandoned = False
        self._results: list[T] = []
        self._errors: list[BaseException] = []
        self.ended = threading.Event()

    async def result(self) -> T:
        """Start the thread and wait for it, or leave it to itself when cancelled."""
        heard, token = anyio.Event(), current_token()

        def report() -> None:
            with suppress(RuntimeError):  # the event loop has ended meanwhile
                anyio.from_thread.run_sync(heard.set, token=token)

        self._start(report)
        try:
            await heard.wait()
        except anyio.get_cancelled_exc_class():
            self._abandon()
            raise
        if self._errors:
            raise self._errors[0]
        return self._results[0]

    def _start(self, report: Callable[[], None]) -> None:
        context = copy_context()
        thread = threading.Thread(
            target=context.run, args=(self._work, report), daemon=True, name="sandboxio-call"
        )
        try:
            thread.start()
        except RuntimeError:  # the interpreter is shutting down and starts no more threads
            context.run(self._work, lambda: None)
            report()

    def _work(self, report: Callable[[], None]) -> None:
        remaining_time.set(max(0.1, self._seconds))
        try:
            result = self._call()
        except BaseException as exc:  # noqa: BLE001  # it is raised where the call is awaited
            self._errors.append(exc)
        else:
            self._keep(result)
        finally:
            _unfinished.discard(self)
            self.ended.set()
        report()

    def _keep(self, result: T) -> None:
        with self._lock:
            self._results.append(result)
            dispose = self._abandoned
        if dispose and self._late is not None:
            self._late(result)

    def _abandon(self) -> None:
        with self._lock:
            self._abandoned = True
            finished = bool(self._results)
        if self._late is None:
            return
        if finished:
            late, result = self._late, self._results[0]
            threading.Thread(target=late, args=(result,), daemon=True).start()
        elif not self.ended.is_set():
            _outlive(self)


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
