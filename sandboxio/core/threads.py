"""Blocking calls of provider SDKs, in worker threads of our own budget.

The host program's default limiter is left alone. A caller that is cancelled or out of time
goes on at once; the thread finishes on its own, and `late` then receives what it made, so that
nothing an engine creates behind our back is lost.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from contextlib import suppress
from contextvars import ContextVar, copy_context
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

import anyio
from anyio.lowlevel import RunVar, current_token

from sandboxio.core.errors import ConfigurationError, ConnectError

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
Lane = Literal["call", "pull", "teardown"]

THREADS_VARIABLE = "SBX_DOCKER_THREADS"
DEFAULT_THREADS = 64
TEARDOWN_THREADS = 16
"""Threads that only teardown may use."""
PULL_THREADS = 16
"""Threads that only pulls may use, which can take minutes each."""
EXIT_WAIT = 5.0
"""Seconds the interpreter's exit waits for teardown that is still under way."""
_SIZES: dict[Lane, int] = {"teardown": TEARDOWN_THREADS, "pull": PULL_THREADS}
UNBOUNDED_CALL = 60.0
"""Seconds a call may take when nothing around it sets a deadline."""

remaining_time: ContextVar[float | None] = ContextVar("remaining_time", default=None)
"""Seconds the operation of the current worker thread has left, which transports read; `None`
outside of one."""

_limiters: RunVar[dict[Lane, anyio.CapacityLimiter]] = RunVar("sandboxio_threads")


_unfinished: set[_Job[Any]] = set()
_awaited: set[_Job[Any]] = set()


async def run(
    call: Callable[[], T],
    *,
    lane: Lane = "call",
    at_least: float = 0.0,
    late: Callable[[], None] | None = None,
) -> T:
    """Call a blocking function in a thread of its own and return what it returns.

    Lanes do not wait for each other: teardown always gets a thread, however many pulls or calls
    are under way, and the interpreter's exit waits for it. `at_least` is how many seconds the
    call's transport gets even if the operation has fewer left. `late` is called, in the same
    thread, when the call ends and nobody waits for it any more.
    """
    left = anyio.current_effective_deadline() - anyio.current_time()
    seconds = min(left, 86_400.0) if left != float("inf") else UNBOUNDED_CALL
    job = _Job(call, late, max(seconds, at_least, 0.1))
    _awaited.add(job)
    try:
        async with _limiter(lane):
            if lane == "teardown":
                _outlive(job)
            return await job.result()
    finally:
        _awaited.discard(job)


def awaited() -> bool:
    """Whether some task, on whichever loop, waits for a thread: time that is no idle time."""
    return bool(_awaited)


class _Job(Generic[T]):
    """One call in a daemon thread, and the agreement about who disposes of its result.

    The threads of anyio's pool are no daemons: the interpreter's exit would wait for a call that
    an engine never answers.
    """

    def __init__(
        self, call: Callable[[], T], late: Callable[[], None] | None, seconds: float
    ) -> None:
        self._call = call
        self._late = late
        self._seconds = seconds
        self._lock = threading.Lock()
        self._abandoned = self._over = False
        self._results: list[T] = []
        self._errors: list[BaseException] = []
        self.ended = threading.Event()

    async def result(self) -> T:
        """Start the thread and wait for it, or leave it to itself when cancelled."""
        heard = anyio.Event()
        loop: Any = current_token().native_token
        # Waiting for the loop to have heard would be waiting for ever, were it closed just now.
        soon = loop.call_soon_threadsafe if hasattr(loop, "stop") else loop.run_sync_soon

        def report() -> None:
            with suppress(RuntimeError):  # the event loop has ended meanwhile
                soon(heard.set)

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
        except RuntimeError as exc:
            if not _exiting(exc):
                raise ConnectError(
                    "This host starts no more threads.", hint="Raise its limit: ulimit -u"
                ) from exc
            context.run(self._work, report)

    def _work(self, report: Callable[[], None]) -> None:
        remaining_time.set(self._seconds)
        try:
            self._results.append(self._call())
        except BaseException as exc:  # noqa: BLE001  # it is raised where the call is awaited
            self._errors.append(exc)
        with self._lock:
            self._over = True
            abandoned = self._abandoned
        if abandoned and self._late is not None:
            self._late()
        _unfinished.discard(self)
        self.ended.set()
        report()

    def _abandon(self) -> None:
        with self._lock:
            self._abandoned = True
            over = self._over
        if self._late is None:
            return
        if over:
            threading.Thread(target=self._late, daemon=True).start()
        else:
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


def _exiting(error: RuntimeError) -> bool:
    return sys.is_finalizing() or "shutdown" in str(error)


def _limiter(lane: Lane) -> anyio.CapacityLimiter:
    try:
        limiters = _limiters.get()
    except LookupError:
        limiters = dict[Lane, anyio.CapacityLimiter]()
        _limiters.set(limiters)
    if lane not in limiters:
        limiters[lane] = anyio.CapacityLimiter(_SIZES.get(lane) or thread_budget())
    return limiters[lane]


def thread_budget() -> int:
    """Return the configured number of worker threads."""
    value = os.environ.get(THREADS_VARIABLE, str(DEFAULT_THREADS))
    if not value.isdecimal() or int(value) < 1:
        raise ConfigurationError(
            f"{THREADS_VARIABLE} must be a whole number above 0.",
            hint=f"export {THREADS_VARIABLE}={DEFAULT_THREADS}",
        )
    return int(value)
