"""The end of a sandbox: by its block, by `kill()`, from outside, by its lifetime."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel
import pytest

from sandboxio.core.errors import SandboxGone
from sandboxio.core.models import Capability
from sandboxio.testing.suite._case import case
from sandboxio.testing.suite._probes import assert_gone, collect
from sandboxio.testing.suite.fixtures import SuiteFixtures

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Any

    from sandboxio.core.errors import SandboxError
    from sandboxio.core.protocols import AsyncSandbox, Backend
    from sandboxio.testing.suite.fixtures import Create

COMMANDS = Capability.RUN_COMMAND
AREA = "lifecycle"


class EndCases(SuiteFixtures):
    """Cases of the end of a sandbox."""

    @case("LIFE-028", area=AREA)
    async def test_the_block_removes_it(
        self, backend: Backend, create: Create, run_id: str
    ) -> None:
        """Leaving the `async with` block removes the sandbox; the block holds the sandbox."""
        made = await create()
        async with made as sandbox:
            assert sandbox.id == made.id
            assert await self.count(run_id) == 1
        await assert_gone(backend, made.id)
        assert await self.count(run_id) == 0

    @case("LIFE-029", area=AREA)
    async def test_an_exception_in_the_block(
        self, backend: Backend, sandbox: AsyncSandbox, run_id: str
    ) -> None:
        """An exception in the block removes the sandbox, and comes out as it was raised."""
        error = ZeroDivisionError("the caller's own")
        with pytest.raises(ZeroDivisionError) as caught:
            async with sandbox:
                raise error
        assert caught.value is error
        await assert_gone(backend, sandbox.id)
        assert await self.count(run_id) == 0

    @case("LIFE-030", area=AREA)
    async def test_a_cancelled_block(
        self, backend: Backend, sandbox: AsyncSandbox, run_id: str
    ) -> None:
        """Cancellation in the block removes the sandbox, and stays a cancellation."""
        with anyio.CancelScope() as scope:
            async with sandbox:
                scope.cancel()
                await anyio.lowlevel.checkpoint()
        assert scope.cancelled_caught
        await assert_gone(backend, sandbox.id)
        assert await self.count(run_id) == 0

    @case("LIFE-031", area=AREA)
    async def test_a_block_of_what_is_gone(self, create: Create) -> None:
        """A block whose sandbox was killed inside it ends in silence, or with its exception."""
        async with await create() as sandbox:
            await sandbox.kill()
        error = ZeroDivisionError("the caller's own")
        with pytest.raises(ZeroDivisionError) as caught:
            async with await create() as sandbox:
                await sandbox.kill()
                raise error
        assert caught.value is error

    @case("LIFE-032", area=AREA)
    async def test_kill_removes_it(
        self, backend: Backend, sandbox: AsyncSandbox, run_id: str
    ) -> None:
        """When `kill()` returns the provider has the sandbox no more."""
        assert await self.count(run_id) == 1
        await sandbox.kill()
        assert await self.count(run_id) == 0
        await assert_gone(backend, sandbox.id)

    @case("LIFE-033", area=AREA)
    async def test_killing_a_sandbox_again(self, sandbox: AsyncSandbox) -> None:
        """A second `kill()` is silent, and so is leaving the block after it."""
        async with sandbox:
            await sandbox.kill()
            await sandbox.kill()

    @case("LIFE-034", area=AREA)
    async def test_ten_kills_at_once(self, sandbox: AsyncSandbox, run_id: str) -> None:
        """Ten `kill()` at once all succeed in silence."""
        async with anyio.create_task_group() as tasks:
            for _ in range(10):
                tasks.start_soon(sandbox.kill)
        assert await self.count(run_id) == 0

    @case("LIFE-035", area=AREA)
    async def test_kills_of_two_handles_at_once(
        self, backend: Backend, sandbox: AsyncSandbox, run_id: str
    ) -> None:
        """Several handles on one sandbox can kill it at once; all succeed in silence."""
        handles = [sandbox, *[await backend.connect(sandbox.id) for _ in range(3)]]
        async with anyio.create_task_group() as tasks:
            for handle in handles:
                tasks.start_soon(handle.kill)
        assert await self.count(run_id) == 0

    @case("LIFE-036", area=AREA)
    async def test_kills_racing_an_outside_removal(
        self, sandbox: AsyncSandbox, run_id: str
    ) -> None:
        """`kill()` is silent while somebody else removes the sandbox at the provider."""
        self.require("remove_behind")
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(sandbox.kill)
            tasks.start_soon(self.remove_behind, sandbox)
        assert await self.count(run_id) == 0

    @case("LIFE-037", area=AREA)
    async def test_kill_after_an_outside_removal(self, sandbox: AsyncSandbox) -> None:
        """`kill()` of a sandbox that somebody else removed is silent, also the second time."""
        await self.remove_behind(sandbox)
        await sandbox.kill()
        await sandbox.kill()

    @case("LIFE-038", needs=COMMANDS, area=AREA)
    async def test_calls_after_kill(self, sandbox: AsyncSandbox) -> None:
        """Every call after `kill()` raises `SandboxGone`, which says that nothing was started."""
        calls = _calls(sandbox)
        await sandbox.kill()
        for call in calls:
            with pytest.raises(SandboxGone) as caught:
                await call()
            assert caught.value.outcome == "not_started"

    @case("LIFE-039", needs=COMMANDS, area=AREA)
    async def test_connect_after_kill(self, backend: Backend, sandbox: AsyncSandbox) -> None:
        """`connect()` to a killed sandbox is `ConnectError` and does not bring it back."""
        await sandbox.kill()
        await assert_gone(backend, sandbox.id)
        with pytest.raises(SandboxGone):
            await sandbox.run(["true"])

    @case("LIFE-040", needs=COMMANDS, area=AREA)
    async def test_kill_during_a_command(self, sandbox: AsyncSandbox, marker: int) -> None:
        """A command under way when the sandbox is killed raises `SandboxGone`, soon."""
        await self._ends_in_mid_call(
            sandbox, partial(sandbox.run, self.hang(marker)), marker, sandbox.kill
        )

    @case("LIFE-041", needs=COMMANDS | Capability.STREAMING, area=AREA)
    async def test_kill_during_a_stream(self, sandbox: AsyncSandbox, marker: int) -> None:
        """A stream that is read when the sandbox is killed raises `SandboxGone`, soon."""
        await self._ends_in_mid_call(
            sandbox, partial(_read, sandbox, self.hang(marker)), marker, sandbox.kill
        )

    @case("LIFE-042", needs=COMMANDS, area=AREA)
    async def test_kill_through_another_handle(
        self, backend: Backend, sandbox: AsyncSandbox, marker: int
    ) -> None:
        """A command under way learns it when another handle removes the sandbox."""
        second = await backend.connect(sandbox.id)
        await self._ends_in_mid_call(
            sandbox, partial(sandbox.run, self.hang(marker)), marker, second.kill
        )
        await self.assert_ended(backend, sandbox)

    @case("LIFE-043", needs=COMMANDS, area=AREA)
    async def test_removed_during_a_command(self, sandbox: AsyncSandbox, marker: int) -> None:
        """A command under way when somebody else removes the sandbox raises `SandboxGone`."""
        self.require("remove_behind")
        remove = partial(self.remove_behind, sandbox)
        await self._ends_in_mid_call(
            sandbox, partial(sandbox.run, self.hang(marker)), marker, remove
        )
        for call in _calls(sandbox):
            with pytest.raises(SandboxGone):
                await call()
        await sandbox.kill()

    @case("LIFE-044", needs=COMMANDS | Capability.STREAMING, area=AREA)
    async def test_removed_during_a_stream(self, sandbox: AsyncSandbox, marker: int) -> None:
        """A stream that is read when somebody else removes the sandbox raises `SandboxGone`."""
        self.require("remove_behind")
        remove = partial(self.remove_behind, sandbox)
        await self._ends_in_mid_call(
            sandbox, partial(_read, sandbox, self.hang(marker)), marker, remove
        )

    @case("LIFE-045", needs=COMMANDS, area=AREA)
    async def test_a_command_learns_of_a_removal(self, sandbox: AsyncSandbox) -> None:
        """A command that comes first after an outside removal raises `SandboxGone`."""
        await self.remove_behind(sandbox)
        with pytest.raises(SandboxGone):
            await sandbox.run(["true"])

    @case("LIFE-046", needs=Capability.RUN_CODE, area=AREA)
    async def test_code_learns_of_a_removal(self, sandbox: AsyncSandbox) -> None:
        """Code that comes first after an outside removal raises `SandboxGone`."""
        await self.remove_behind(sandbox)
        with pytest.raises(SandboxGone):
            await sandbox.run_code("print(1)")

    @case("LIFE-047", needs=COMMANDS | Capability.STREAMING, area=AREA)
    async def test_a_stream_learns_of_a_removal(self, sandbox: AsyncSandbox) -> None:
        """A stream that comes first after an outside removal raises `SandboxGone`."""
        await self.remove_behind(sandbox)
        with pytest.raises(SandboxGone):
            await _read(sandbox, ["true"])

    @pytest.mark.parametrize("operation", ["read", "write", "ls", "stat", "exists"])
    @case("LIFE-048", needs=Capability.FILESYSTEM, area=AREA)
    async def test_files_learn_of_a_removal(self, sandbox: AsyncSandbox, operation: str) -> None:
        """A file operation that comes first after an outside removal raises `SandboxGone`."""
        act = getattr(sandbox.files, operation)
        await self.remove_behind(sandbox)
        with pytest.raises(SandboxGone):
            await (act("f", b"") if operation == "write" else act("f"))

    @case("LIFE-049", area=AREA)
    async def test_connect_after_an_outside_removal(
        self, backend: Backend, sandbox: AsyncSandbox
    ) -> None:
        """`connect()` to a sandbox that somebody else removed is `ConnectError`."""
        await self.remove_behind(sandbox)
        await assert_gone(backend, sandbox.id)

    @case("LIFE-050", needs=COMMANDS, area=AREA)
    async def test_the_lifetime_ends_a_sandbox(self, create: Create, marker: int) -> None:
        """`timeout` of `create()` ends the sandbox: the call under way and every later one raise
        `SandboxGone`, with a hint at `timeout=`, and no sooner than that.
        """
        sandbox = await create(timeout=6)
        begin = self.clock.time()
        for command in (self.hang(marker), "true"):
            with pytest.raises(SandboxGone) as caught:
                await sandbox.run(command, timeout=60)
            assert "timeout=" in caught.value.hint
            assert 2 < self.clock.time() - begin < 40
        await sandbox.kill()

    @case("LIFE-051", needs=COMMANDS, area=AREA)
    async def test_what_the_lifetime_ended_is_removed(
        self, backend: Backend, sandbox: AsyncSandbox, run_id: str
    ) -> None:
        """A sandbox whose lifetime is over cannot be connected to, and `kill()` removes it."""
        await self.expire(sandbox)
        with pytest.raises(SandboxGone):
            await sandbox.run(["true"])
        await assert_gone(backend, sandbox.id)
        await sandbox.kill()
        assert await self.count(run_id) == 0

    async def assert_ended(self, backend: Backend, sandbox: AsyncSandbox) -> None:
        """Fail unless the sandbox has ended, for its handle and for the backend."""
        await assert_gone(backend, sandbox.id)
        with pytest.raises(SandboxGone):
            await sandbox.run(["true"])

    async def _ends_in_mid_call(
        self,
        sandbox: AsyncSandbox,
        call: Callable[[], Awaitable[object]],
        marker: int,
        end: Callable[[], Awaitable[object]],
    ) -> None:
        errors: list[SandboxError] = []
        ended: list[float] = []
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(collect, call, SandboxGone, errors)
            await self.until_alive(sandbox, marker)
            await end()
            ended.append(self.clock.time())
        assert len(errors) == 1
        assert self.clock.time() - ended[0] < 20


async def _read(sandbox: AsyncSandbox, command: str | list[str]) -> None:
    async with sandbox.stream(command) as proc:
        async for _ in proc:
            pass


def _calls(sandbox: AsyncSandbox) -> list[Callable[[], Awaitable[Any]]]:
    """Every kind of call this sandbox has."""
    calls: list[Callable[[], Awaitable[Any]]] = [lambda: sandbox.run(["true"])]
    if Capability.RUN_CODE in sandbox.capabilities:
        calls.append(lambda: sandbox.run_code("print(1)"))
    if Capability.STREAMING in sandbox.capabilities:
        calls.append(lambda: _read(sandbox, ["true"]))
    if Capability.FILESYSTEM in sandbox.capabilities:
        calls.append(lambda: sandbox.files.read("f"))
        calls.append(lambda: sandbox.files.write("f", b""))
        calls.append(lambda: sandbox.files.ls())
    return calls
