"""Bounded, shielded teardown, and the warning when it could not finish."""

from __future__ import annotations

import os
import warnings
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio

from sandboxio.core.errors import ConfigurationError, OrphanedSandboxWarning, SandboxError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping

GRACE_VARIABLE = "SBX_TEARDOWN_GRACE"
DEFAULT_GRACE = 5.0


def teardown_grace() -> float:
    """Return the seconds a teardown may take (`SBX_TEARDOWN_GRACE`, default 5)."""
    raw = os.environ.get(GRACE_VARIABLE)
    if raw is None:
        return DEFAULT_GRACE
    try:
        grace = float(raw)
    except ValueError:
        grace = 0.0
    if not 0 < grace < 3600:
        raise ConfigurationError(
            f"{GRACE_VARIABLE} must be a number of seconds between 0 and 3600.",
            hint=f"export {GRACE_VARIABLE}=5",
        )
    return grace


async def within_grace(action: Callable[[], Awaitable[object]]) -> bool:
    """Run a teardown step that cancellation cannot reach; False when it did not finish.

    Errors of the step are the caller's to handle.
    """
    with anyio.move_on_after(teardown_grace(), shield=True) as scope:
        await action()
    return not scope.cancelled_caught


@asynccontextmanager
async def undone_on_failure(
    undo: Callable[[], Awaitable[object]], *, backend: str, name: str, labels: Mapping[str, str]
) -> AsyncGenerator[None]:
    """Undo a half-made sandbox when the block fails or is cancelled, then let that go on."""
    try:
        yield
    except BaseException:
        finished = False
        try:
            finished = await within_grace(undo)
        except SandboxError:
            finished = False
        if not finished:
            warn_orphaned(backend, name, labels)
        raise


def warn_orphaned(backend: str, sandbox_id: str, labels: Mapping[str, str]) -> None:
    """Tell that a sandbox may still exist, and how to remove it."""
    shown = ", ".join(f"{key}={value}" for key, value in sorted(labels.items())) or "none"
    warnings.warn(
        f"Teardown of {backend} sandbox {sandbox_id} did not finish (metadata: {shown}). "
        f"Its lifetime still bounds it; to remove it now: sandboxio reap --kill",
        OrphanedSandboxWarning,
        stacklevel=3,
    )
