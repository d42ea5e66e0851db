"""An event loop of our own for blocking code."""

from __future__ import annotations

import threading
from concurrent.futures import CancelledError, Future
from typing import TYPE_CHECKING, Generic, TypeVar

import anyio
from anyio.from_thread import BlockingPortal

from sandboxio.core.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from contextlib import AbstractAsyncContextManager, AbstractContextManager

T = TypeVar("T")
EXIT_PATIENCE = 15.0
"""Seconds an interrupted caller waits for the end of a call: its kill and a removal, bounded."""


class Portal:
    """An event loop in a daemon thread, and the way into it."""

    def __init__(self) -> None:
        started: Future[BlockingPortal] = Future()
        self._thread = threading.Thread(
            target=_serve, args=(started,), daemon=True, name="sandboxio-portal"
        )
        self._thread.start()
        self._portal = started.result()

    def call(self, action: Callable[[], Awaitable[T]]) -> T:
        """Await an action in the portal's loop; an interrupt here cancels it there."""
        self._require_usable()
        call = _Call(action)
        future = self._portal.start_task_soon(call.run)
        try:
            return future.result()
        except CancelledError as exc:
            raise ConfigurationError(
                "The sync sandbox was closed while the call was running.",
                hint="Let its calls end before it is closed.",
            ) from exc
        except BaseException:
            if not call.ended.is_set():
                future.cancel()
                call.ended.wait(EXIT_PATIENCE)
            raise

    def entered(self, block: AbstractAsyncContextManager[T]) -> AbstractContextManager[T]:
        """Return an `async with` block for `with`: one task of the loop enters and leaves it."""
        self._require_usable()
        return self._portal.wrap_async_context_manager(block)

    def _require_usable(self) -> None:
        if threading.current_thread() is self._thread:
            raise ConfigurationError(
                "A sync sandbox cannot be used on the thread of its own event loop.",
                hint="Use the async API there: await sandboxio.create(...).",
            )
        if not self._thread.is_alive():
            raise ConfigurationError(
                "The sync sandbox is closed.", hint="Create a new one with create_sync()."
            )

    @property
    def closed(self) -> bool:
        return not self._thread.is_alive()

    def close(self) -> None:
        """Stop the loop and wait for its thread; safe to call again."""
        if not self._thread.is_alive():
            return
        try:
            self._portal.call(self._portal.stop, True)
        except RuntimeError:  # stopped by another thread in the meantime
            return
        self._thread.join(EXIT_PATIENCE)


class _Call(Generic[T]):
    """One awaited action; says when it has really ended, cancellation included."""

    def __init__(self, action: Callable[[], Awaitable[T]]) -> None:
        self._action = action
        self.ended = threading.Event()

    async def run(self) -> T:
        try:
            return await self._action()
        finally:
            self.ended.set()


def _serve(started: Future[BlockingPortal]) -> None:
    async def serve() -> None:
        async with BlockingPortal() as portal:
            started.set_result(portal)
            await portal.sleep_until_stopped()

    try:
        anyio.run(serve)
    except BaseException as exc:
        if started.done():
            raise
        started.set_exception(exc)
