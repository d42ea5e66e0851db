"""What several areas look with: is it gone, does code still run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sandboxio.core.errors import ConnectError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sandboxio.core.errors import SandboxError
    from sandboxio.core.protocols import AsyncSandbox, Backend
    from sandboxio.testing.suite.fixtures import SuiteFixtures

BEAT = """\
import time
for beat in range(100000):
    open("beat", "w").write(str(beat))
    time.sleep(0.1)
"""
"""Code that shows from outside that it runs, until it is ended."""


async def until_beating(suite: SuiteFixtures, sandbox: AsyncSandbox) -> None:
    """Wait until code that began with `BEAT` runs."""

    async def beats() -> bool:
        return (await sandbox.run("test -s beat")).ok

    await suite.eventually(beats)


async def until_still(suite: SuiteFixtures, sandbox: AsyncSandbox) -> None:
    """Wait until that code runs no more."""

    async def still() -> bool:
        before = await suite.sh(sandbox, "cat beat")
        await suite.clock.sleep(1)
        return before != "" and before == await suite.sh(sandbox, "cat beat")

    await suite.eventually(still)


async def assert_gone(backend: Backend, sandbox_id: str) -> None:
    """Fail if a handle on the sandbox can still be had."""
    with pytest.raises(ConnectError):
        await backend.connect(sandbox_id)


async def collect(
    call: Callable[[], Awaitable[object]],
    expected: type[SandboxError],
    errors: list[SandboxError],
) -> None:
    """Await a call, beside others, that must raise; keep what it raises."""
    with pytest.raises(expected) as caught:
        await call()
    errors.append(caught.value)
