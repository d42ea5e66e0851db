"""Bounded, shielded teardown, and the warning when it could not finish."""

from __future__ import annotations

import os
import sys
import warnings
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio

from sandboxio.core.clock import LOOP
from sandboxio.core.errors import ConfigurationError, OrphanedSandboxWarning

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping

    from sandboxio.core.clock import Clock

GRACE_VARIABLE = "SBX_TEARDOWN_GRACE"
DEFAULT_GRACE = 5.0
_GRACE_MAX = 3600.0


def teardown_grace() -> float:
    """Return the seconds a teardown may take (`SBX_TEARDOWN_GRACE`, default 5).

    Raises:
        ConfigurationError: the variable is no number of seconds between 0 and 3600.
    """
    grace = _configured_grace()
    if grace is None:
        raise ConfigurationError(
            f"{GRACE_VARIABLE} must be a number of seconds between 0 and {_GRACE_MAX:g}.",
            hint=f"export {GRACE_VARIABLE}={DEFAULT_GRACE:g}",
        )
    return grace


def _configured_grace() -> float | None:
    try:
        grace = float(os.environ.get(GRACE_VARIABLE, DEFAULT_GRACE))
    except ValueError:
        return None
    return grace if 0 < grace < _GRACE_MAX else None


async def within_grace(action: Callable[[], Awaitable[object]], clock: Clock = LOOP) -> bool:
    """Run a teardown step that no cancellation can reach; False when it did not finish.

    A bad grace was refused when the sandbox was made; here, where refusing would leak, the
    default stands in for it. Errors of the step are the caller's to handle.
    """
    grace = _configured_grace() or DEFAULT_GRACE
    if _on_asyncio():
        return await _apart(action, grace, clock)
    return await _shielded(action, grace, clock)


async def _shielded(action: Callable[[], Awaitable[object]], grace: float, clock: Clock) -> bool:
    with clock.limit(clock.time() + grace, shield=True) as scope:
        await action()
    return not scope.cancelled_caught


async def _apart(action: Callable[[], Awaitable[object]], grace: float, clock: Clock) -> bool:
    """Run the step in a task of its own: `task.cancel()` goes through any shield of ours."""
    import asyncio

    step = asyncio.ensure_future(_shielded(action, grace, clock))
    cancelled: asyncio.CancelledError | None = None
    with anyio.CancelScope(shield=True):
        while not step.done():
            try:
                await asyncio.wait([step])
            except asyncio.CancelledError as exc:
                cancelled = exc
    if cancelled is not None:
        if not step.cancelled():
            step.exception()  # the cancellation is what the caller gets to see
        raise cancelled
    return step.result()


async def to_its_end(action: Callable[[], Awaitable[object]]) -> None:
    """Run a step that must not be cut off; once it is cancelled it has the grace to finish.

    Whether it finished or not, the cancellation then goes on. Its errors are the caller's.
    """
    over, errors = anyio.Event(), list[Exception]()
    shield = anyio.CancelScope(shield=True)

    async def step() -> None:
        with shield:
            try:
                await action()
            except Exception as exc:  # noqa: BLE001  # so that no task group wraps it
                errors.append(exc)
        over.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(step)
        try:
            await over.wait()
        except anyio.get_cancelled_exc_class():
            shield.deadline = anyio.current_time() + (_configured_grace() or DEFAULT_GRACE)
            raise
    if errors:
        raise errors[0]


def _on_asyncio() -> bool:
    asyncio = sys.modules.get("asyncio")
    if asyncio is None:
        return False
    try:
        return asyncio.current_task() is not None
    except RuntimeError:
        return False


@asynccontextmanager
async def undone_on_failure(
    undo: Callable[[], Awaitable[object]],
    *,
    backend: str,
    name: str,
    labels: Mapping[str, str],
    clock: Clock = LOOP,
) -> AsyncGenerator[None]:
    """Undo a half-made sandbox when the block fails or is cancelled, then let that go on."""
    try:
        yield
    except BaseException:
        if not await undone(undo, clock):
            warn_orphaned(backend, name, labels)
        raise


async def undone(undo: Callable[[], Awaitable[object]], clock: Clock = LOOP) -> bool:
    """Run a removal within the grace; False when it failed or did not finish."""
    try:
        return await within_grace(undo, clock)
    except Exception:  # noqa: BLE001  # what fails here must not replace what led here
        return False


def warn_orphaned(backend: str, sandbox_id: str, labels: Mapping[str, str]) -> None:
    """Tell that a sandbox may still exist, and how to remove it.

    Where warnings are errors this raises, except in place of a cancellation on its way out.
    """
    shown = ", ".join(f"{key}={value}" for key, value in sorted(labels.items())) or "none"
    leaving = sys.exc_info()[1]
    try:
        warnings.warn(
            f"Teardown of {backend} sandbox {sandbox_id} did not finish (metadata: {shown}). "
            f"Its lifetime still bounds it; to remove it now: sandboxio reap --kill",
            OrphanedSandboxWarning,
            stacklevel=3,
        )
    except OrphanedSandboxWarning:
        if leaving is None or isinstance(leaving, Exception):
            raise
