"""Cancellation at the beginning and the end of a sandbox, and a removal that hangs."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import pytest

from sandboxio.core.errors import OrphanedSandboxWarning
from sandboxio.core.models import Capability
from sandboxio.testing.suite._case import case
from sandboxio.testing.suite._probes import assert_gone
from sandboxio.testing.suite.fixtures import SuiteFixtures

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sandboxio.core.protocols import AsyncSandbox, Backend

AREA = "cancellation"
GRACE = "SBX_TEARDOWN_GRACE"
MOMENTS = (0.0, 0.01, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0)
"""Seconds after which a creation is still under way, or just over."""


class LifeCases(SuiteFixtures):
    """Cases of a cancelled `create()`, a cancelled `kill()`, and the grace."""

    @case("CANCEL-026", area=AREA)
    async def test_create_cancelled(
        self, backend: Backend, options: dict[str, Any], run_id: str
    ) -> None:
        """Whenever `create()` or the block after it is cancelled, no sandbox is left in any
        state, also none that the provider finishes late.
        """
        self.require("count")
        for delay in MOMENTS:
            with self.clock.limit(self.clock.time() + delay) as scope:
                async with await backend.create(**options):
                    await self.clock.sleep(3600)
            assert scope.cancelled_caught
        await self.eventually(partial(self._none_left, run_id))
        await self.clock.sleep(1)
        assert await self.count(run_id) == 0

    @case("CANCEL-027", area=AREA)
    async def test_create_cancelled_beforehand(
        self, backend: Backend, options: dict[str, Any], run_id: str
    ) -> None:
        """`create()` of somebody who is cancelled already leaves nothing."""
        with anyio.CancelScope() as scope:
            scope.cancel()
            async with await backend.create(**options):
                await self.clock.sleep(3600)
        assert scope.cancelled_caught
        await self.eventually(partial(self._none_left, run_id))

    @case("CANCEL-028", area=AREA)
    async def test_a_slow_create_is_cancelled_at_once(
        self, backend: Backend, options: dict[str, Any], run_id: str
    ) -> None:
        """`create()` surfaces its cancellation as such, without waiting for a slow provider, and
        leaves nothing.
        """
        with self.slow_create():
            begin = self.clock.time()
            await cancel_midway(partial(backend.create, **options), partial(self.clock.sleep, 1))
            assert self.clock.time() - begin < 40
        await self.eventually(partial(self._none_left, run_id))

    @case("CANCEL-029", area=AREA)
    async def test_several_creations_cancelled_at_once(
        self, backend: Backend, options: dict[str, Any], run_id: str
    ) -> None:
        """Creations that are cancelled together leave nothing, any of them."""
        self.require("count")
        for delay in (0.05, 0.2, 0.5):
            with self.clock.limit(self.clock.time() + delay):
                async with anyio.create_task_group() as tasks:
                    for _ in range(4):
                        tasks.start_soon(self._live, backend, options)
        await self.eventually(partial(self._none_left, run_id))

    @case("CANCEL-030", area=AREA)
    async def test_kill_by_whoever_is_cancelled(
        self, backend: Backend, sandbox: AsyncSandbox, run_id: str
    ) -> None:
        """`kill()` removes the sandbox although whoever calls it is cancelled already."""
        with anyio.CancelScope() as scope:
            scope.cancel()
            await sandbox.kill()
        await assert_gone(backend, sandbox.id)
        assert await self.count(run_id) == 0

    @case("CANCEL-031", area=AREA)
    async def test_kill_in_a_shielded_scope(
        self, backend: Backend, sandbox: AsyncSandbox, run_id: str
    ) -> None:
        """`kill()` works inside a shielded scope of a caller that is cancelled."""
        with anyio.CancelScope() as outer:
            outer.cancel()
            with anyio.CancelScope(shield=True):
                await sandbox.kill()
                await assert_gone(backend, sandbox.id)
        assert await self.count(run_id) == 0

    @pytest.mark.parametrize("delay", [0.0, 0.01, 0.05, 0.2])
    @case("CANCEL-032", area=AREA)
    async def test_kill_cancelled_midway(
        self, backend: Backend, sandbox: AsyncSandbox, delay: float
    ) -> None:
        """Whenever `kill()` is cancelled, the removal goes on to its end."""
        with self.clock.limit(self.clock.time() + delay):
            await sandbox.kill()
        await assert_gone(backend, sandbox.id)

    @case("CANCEL-033", needs=Capability.RUN_COMMAND, area=AREA)
    async def test_a_block_cancelled_in_mid_call(
        self, backend: Backend, sandbox: AsyncSandbox, marker: int, run_id: str
    ) -> None:
        """A block that is cancelled while a command runs in it removes the sandbox, and no error
        of ours takes the place of the cancellation.
        """

        async def live() -> None:
            async with sandbox:
                await sandbox.run(self.hang(marker))

        await cancel_midway(live, partial(self.until_alive, sandbox, marker))
        await assert_gone(backend, sandbox.id)
        assert await self.count(run_id) == 0

    @case("CANCEL-034", area=AREA)
    async def test_kill_task_cancelled_twice(
        self, anyio_backend: str, backend: Backend, sandbox: AsyncSandbox
    ) -> None:
        """asyncio's `task.cancel()`, also twice, does not stop a removal that has begun."""
        if anyio_backend != "asyncio":
            pytest.skip(reason=f"this is about tasks of asyncio, and the loop is {anyio_backend}")
        import asyncio

        task = asyncio.ensure_future(sandbox.kill())
        for _ in range(2):
            await anyio.lowlevel.checkpoint()
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await assert_gone(backend, sandbox.id)

    @case("CANCEL-035", area=AREA)
    async def test_a_removal_that_hangs(
        self, backend: Backend, sandbox: AsyncSandbox, run_id: str
    ) -> None:
        """A removal that hangs ends with the grace, with `OrphanedSandboxWarning`, which names
        the sandbox, the backend and the metadata; a later `kill()` removes it.
        """
        text = await self._hangs(sandbox.kill)
        assert all(part in text for part in (sandbox.id, backend.name, "contract_run", run_id))
        await sandbox.kill()
        await assert_gone(backend, sandbox.id)

    @case("CANCEL-036", area=AREA)
    async def test_a_block_whose_removal_hangs(self, sandbox: AsyncSandbox) -> None:
        """Where the removal hangs, the block still ends with its own exception, and warns."""
        error = ZeroDivisionError("the caller's own")

        async def live() -> None:
            with pytest.raises(ZeroDivisionError) as caught:
                async with sandbox:
                    raise error
            assert caught.value is error

        assert sandbox.id in await self._hangs(live)

    @case("CANCEL-037", area=AREA)
    async def test_a_cancelled_block_whose_removal_hangs(self, sandbox: AsyncSandbox) -> None:
        """Where the removal hangs, a cancelled block warns, is over with the grace, and what
        surfaces is the cancellation.
        """

        async def live() -> None:
            with anyio.CancelScope() as scope:
                async with sandbox:
                    scope.cancel()
                    await anyio.lowlevel.checkpoint()
            assert scope.cancelled_caught

        assert sandbox.id in await self._hangs(live)

    async def _hangs(self, end: Callable[[], Awaitable[object]]) -> str:
        """Let removals hang while a sandbox ends, and give the text of the warning."""
        begin = self.clock.time()
        with pytest.MonkeyPatch.context() as patch, self.hanging_removal():
            patch.setenv(GRACE, "1")
            with pytest.warns(OrphanedSandboxWarning) as caught:
                await end()
        assert 0.5 < self.clock.time() - begin < 15
        return str(caught[0].message)

    async def _none_left(self, run_id: str) -> bool:
        return await self.count(run_id) == 0

    async def _live(self, backend: Backend, options: dict[str, Any]) -> None:
        async with await backend.create(**options):
            await self.clock.sleep(3600)


async def cancel_midway(
    call: Callable[[], Awaitable[object]], ready: Callable[[], Awaitable[object]]
) -> None:
    """Start a call, cancel it once it is under way, and fail unless that is what surfaces."""
    seen: list[BaseException] = []

    async def watched() -> None:
        try:
            await call()
        except BaseException as exc:
            seen.append(exc)
            raise

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watched)
        await ready()
        tasks.cancel_scope.cancel()
    assert [isinstance(exc, anyio.get_cancelled_exc_class()) for exc in seen] == [True], seen
