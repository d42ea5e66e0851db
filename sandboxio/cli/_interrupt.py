"""Running a command's async work so that a signal ends it with its teardown done."""

from __future__ import annotations

import signal
import sys
import threading
from typing import TYPE_CHECKING, TypeVar

import anyio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")


def run(work: Callable[[], Awaitable[T]]) -> T:
    """Run `work` in an event loop; raises `KeyboardInterrupt` after SIGINT or SIGTERM.

    A signal cancels the work as a cancel scope does, which shielded teardown outlasts. An
    interrupt by Python's own handler would reach into the teardown too.
    """
    return anyio.run(_supervised, work)


async def _supervised(work: Callable[[], Awaitable[T]]) -> T:
    if sys.platform == "win32" or threading.current_thread() is not threading.main_thread():
        return await work()
    results: list[T] = []
    failures: list[Exception] = []
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with anyio.create_task_group() as tasks:

            async def watch() -> None:
                async for _ in signals:
                    tasks.cancel_scope.cancel()

            tasks.start_soon(watch)
            try:
                results.append(await work())
            except Exception as exc:  # noqa: BLE001  # raised below, so that no group wraps it
                failures.append(exc)
            tasks.cancel_scope.cancel()
    if failures:
        raise failures[0]
    if not results:
        raise KeyboardInterrupt
    return results[0]
