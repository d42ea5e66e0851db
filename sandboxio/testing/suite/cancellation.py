"""Cancellation: of calls, of transfers, and of the beginning and end of a sandbox."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import pytest

from sandboxio.core.errors import SandboxGone
from sandboxio.core.models import Capability
from sandboxio.testing.suite._cancelled_life import LifeCases, cancel_midway
from sandboxio.testing.suite._case import case
from sandboxio.testing.suite._probes import BEAT, until_beating, until_still

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from sandboxio.core.protocols import AsyncSandbox, Backend, Process

COMMANDS = Capability.RUN_COMMAND
STREAMS = Capability.RUN_COMMAND | Capability.STREAMING
FILES = Capability.RUN_COMMAND | Capability.FILESYSTEM
MEGABYTE = 1024 * 1024
LARGE = b"0123456789abcdef" * MEGABYTE
"""Bytes that take a real provider a moment."""
EARLY = (0.0, 0.003, 0.01, 0.02, 0.04, 0.06, 0.1)
"""Seconds after which a call is still being started."""
MOMENTS = (0.0, 0.02, 0.1, 0.3)


class CancellationSuite(LifeCases):
    """Cases of cancelled calls; those of `create()` and `kill()` are in the base."""

    @case("CANCEL-001", needs=COMMANDS)
    async def test_a_cancelled_command(self, sandbox: AsyncSandbox, marker: int) -> None:
        """A cancelled `run()` surfaces as cancellation and leaves no process of the command."""
        await self._cancel(sandbox, partial(sandbox.run, self.hang(marker)), marker)
        assert await self.sh(sandbox, "echo ok") == "ok\n"

    @case("CANCEL-002", needs=COMMANDS)
    async def test_a_cancelled_process_tree(self, sandbox: AsyncSandbox, marker: int) -> None:
        """A cancelled `run()` ends all that the command started: in the background, in a session
        of its own, deaf to SIGTERM.
        """
        hang = self.hang(marker)
        script = f"(setsid {hang} &); (trap '' TERM; {hang}) & {hang} & wait"
        await self._cancel(sandbox, partial(sandbox.run, script), marker, count=3)
        assert await self.sh(sandbox, "echo ok") == "ok\n"

    @case("CANCEL-003", needs=COMMANDS | Capability.RUN_CODE)
    async def test_cancelled_code(self, sandbox: AsyncSandbox) -> None:
        """A cancelled `run_code()` surfaces as cancellation and the interpreter is ended."""
        await cancel_midway(partial(sandbox.run_code, BEAT), partial(until_beating, self, sandbox))
        await until_still(self, sandbox)
        assert (await sandbox.run_code("print(6 * 7)")).stdout == "42\n"

    @case("CANCEL-004", needs=STREAMS)
    async def test_a_cancelled_reader(self, sandbox: AsyncSandbox, marker: int) -> None:
        """Cancelling whoever iterates a stream ends the command."""

        async def read(proc: Process) -> None:
            async for _ in proc:
                pass

        await self._cancel(sandbox, partial(_inside, sandbox, self.hang(marker), read), marker)

    @case("CANCEL-005", needs=STREAMS)
    async def test_a_cancelled_wait(self, sandbox: AsyncSandbox, marker: int) -> None:
        """Cancelling whoever waits for the end of a stream ends the command."""

        async def wait(proc: Process) -> None:
            await proc.wait()

        await self._cancel(sandbox, partial(_inside, sandbox, self.hang(marker), wait), marker)

    @case("CANCEL-006", needs=STREAMS)
    async def test_a_cancelled_body(self, sandbox: AsyncSandbox, marker: int) -> None:
        """Cancelling the body of a stream that does something else ends the command."""

        async def idle(_: Process) -> None:
            await self.clock.sleep(3600)

        await self._cancel(sandbox, partial(_inside, sandbox, self.hang(marker), idle), marker)

    @case("CANCEL-007", needs=STREAMS)
    async def test_a_cancelled_wait_of_one_task(self, sandbox: AsyncSandbox, marker: int) -> None:
        """Inside the block a cancelled wait is over, while the command goes on until it is left."""
        async with sandbox.stream(self.hang(marker)) as proc:
            await cancel_midway(proc.wait, partial(self.until_alive, sandbox, marker))
        await self.until_dead(sandbox, marker)
        assert await self.sh(sandbox, "echo ok") == "ok\n"

    @case("CANCEL-008", needs=STREAMS)
    async def test_a_cancelled_kill_of_a_process(self, sandbox: AsyncSandbox, marker: int) -> None:
        """`Process.kill()` ends the command although whoever calls it is cancelled."""
        async with sandbox.stream(self.hang(marker)) as proc:
            await self.until_alive(sandbox, marker)
            with anyio.CancelScope() as scope:
                scope.cancel()
                await proc.kill()
            await self.until_dead(sandbox, marker)

    @case("CANCEL-009", needs=COMMANDS)
    async def test_cancelled_beforehand(self, sandbox: AsyncSandbox) -> None:
        """A call made by somebody who is cancelled already runs nothing."""
        with anyio.CancelScope() as scope:
            scope.cancel()
            await sandbox.run(["touch", "ran"])
        assert scope.cancelled_caught
        await self.sh(sandbox, "test ! -e ran")

    @case("CANCEL-010", needs=COMMANDS)
    async def test_cancelled_while_starting(self, sandbox: AsyncSandbox, marker: int) -> None:
        """Whenever `run()` is cancelled, also while the command is being started, nothing of it
        is left.
        """
        for delay in EARLY:
            with self.clock.limit(self.clock.time() + delay) as scope:
                await sandbox.run(self.hang(marker))
            assert scope.cancelled_caught
        await self.until_dead(sandbox, marker)
        await self.clock.sleep(1)
        assert await self.alive(sandbox, marker) == 0

    @case("CANCEL-011", needs=COMMANDS)
    async def test_the_callers_own_deadline(self, sandbox: AsyncSandbox, marker: int) -> None:
        """A deadline of the caller's around a call is a cancellation, no timeout of the call."""
        with self.clock.limit(self.clock.time() + 2) as scope:
            await sandbox.run(self.hang(marker), timeout=60)
        assert scope.cancelled_caught
        await self.until_dead(sandbox, marker)

    @case("CANCEL-012", needs=COMMANDS | Capability.STDIN)
    async def test_cancelled_with_input_pending(self, sandbox: AsyncSandbox, marker: int) -> None:
        """A command that does not read its input can be cancelled all the same."""
        run = partial(sandbox.run, self.hang(marker), stdin=b"x" * 8 * MEGABYTE)
        await self._cancel(sandbox, run, marker)
        assert await self.sh(sandbox, "cat", stdin="ok") == "ok"

    @case("CANCEL-013", needs=COMMANDS)
    async def test_cancelled_with_output_pending(self, sandbox: AsyncSandbox, marker: int) -> None:
        """A command that has written much can be cancelled all the same."""
        run = partial(sandbox.run, f"seq 300000; {self.hang(marker)}")
        await self._cancel(sandbox, run, marker)
        assert await self.sh(sandbox, "echo ok") == "ok\n"

    @case("CANCEL-014", needs=COMMANDS)
    async def test_other_calls_go_on(self, sandbox: AsyncSandbox, marker: int) -> None:
        """A call that runs beside a cancelled one goes on to its own end."""
        codes: list[int] = []

        async def beside() -> None:
            script = "echo x >up; until [ -e go ]; do sleep 0.1; done; exit 5"
            codes.append((await sandbox.run(script)).exit_code)

        async def up() -> bool:
            return (await sandbox.run("test -s up")).ok

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(beside)
            await self.eventually(up)
            await self._cancel(sandbox, partial(sandbox.run, self.hang(marker)), marker)
            await self.sh(sandbox, "touch go")
        assert codes == [5]

    @case("CANCEL-015", needs=COMMANDS)
    async def test_many_cancelled_at_once(self, sandbox: AsyncSandbox, marker: int) -> None:
        """Calls that are cancelled together are all ended, and the sandbox stays of use."""
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(sandbox.run, self.hang(marker))
            await self.until_alive(sandbox, marker, 5)
            tasks.cancel_scope.cancel()
        await self.until_dead(sandbox, marker)
        assert await self.sh(sandbox, "echo ok") == "ok\n"

    @case("CANCEL-016", needs=COMMANDS)
    async def test_cancelled_again_and_again(self, sandbox: AsyncSandbox, marker: int) -> None:
        """A sandbox takes any number of cancelled calls, and its files stay as they are."""
        before = await self.sh(sandbox, "echo kept >file; ls -A . /tmp")
        for _ in range(5):
            await self._cancel(sandbox, partial(sandbox.run, self.hang(marker)), marker)
        assert await self.sh(sandbox, "cat file; ls -A . /tmp") == f"kept\n{before}"

    @case("CANCEL-017", needs=COMMANDS)
    async def test_cancelled_twice(self, sandbox: AsyncSandbox, marker: int) -> None:
        """A second cancellation, from further out, while the command is being ended changes
        nothing.
        """
        with anyio.CancelScope() as outer:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(sandbox.run, self.hang(marker))
                await self.until_alive(sandbox, marker)
                tasks.cancel_scope.cancel()
                with anyio.CancelScope(shield=True):
                    await anyio.lowlevel.checkpoint()
                outer.cancel()
        await self.until_dead(sandbox, marker)
        assert await self.sh(sandbox, "echo ok") == "ok\n"

    @case("CANCEL-018", needs=FILES)
    async def test_a_cancelled_write(self, sandbox: AsyncSandbox) -> None:
        """A cancelled `files.write()` of a new file leaves all of it or nothing, and nothing
        beside it.
        """
        await self.sh(sandbox, "mkdir w")
        for number, delay in enumerate(MOMENTS):
            with self.clock.limit(self.clock.time() + delay):
                await sandbox.files.write(f"w/file{number}", LARGE)
            await self._whole_or_absent(sandbox, f"file{number}")
        assert await self.sh(sandbox, "echo ok") == "ok\n"

    @case("CANCEL-019", needs=FILES | Capability.UPLOAD_DOWNLOAD)
    async def test_a_cancelled_upload(self, sandbox: AsyncSandbox, tmp_path: Path) -> None:
        """A cancelled `files.upload()` leaves all of the file or nothing."""
        local = tmp_path / "large"
        local.write_bytes(LARGE)
        await self.sh(sandbox, "mkdir w")
        for number, delay in enumerate(MOMENTS):
            with self.clock.limit(self.clock.time() + delay):
                await sandbox.files.upload(local, f"w/file{number}")
            await self._whole_or_absent(sandbox, f"file{number}")
        assert await self.sh(sandbox, "echo ok") == "ok\n"

    @case("CANCEL-020", needs=FILES | Capability.UPLOAD_DOWNLOAD)
    async def test_a_cancelled_download(self, sandbox: AsyncSandbox, tmp_path: Path) -> None:
        """A cancelled `files.download()` leaves all of the file on the host or nothing."""
        await sandbox.files.write("large", LARGE)
        for number, delay in enumerate(MOMENTS):
            folder = tmp_path / str(number)
            folder.mkdir()
            with self.clock.limit(self.clock.time() + delay):
                await sandbox.files.download("large", folder / "large")
            found = [(path.name, path.stat().st_size) for path in folder.iterdir()]
            assert found in ([], [("large", len(LARGE))])

    @case("CANCEL-021", needs=FILES)
    async def test_a_cancelled_read(self, sandbox: AsyncSandbox) -> None:
        """A cancelled `files.read()` leaves the sandbox of use, and the file as it is."""
        await sandbox.files.write("large", LARGE)
        for delay in MOMENTS:
            with self.clock.limit(self.clock.time() + delay):
                await sandbox.files.read("large")
        assert await sandbox.files.read("large") == LARGE

    @case("CANCEL-022", needs=COMMANDS)
    async def test_a_cancelled_connect(self, backend: Backend, sandbox: AsyncSandbox) -> None:
        """A cancelled `connect()` does no harm to the sandbox."""
        for delay in EARLY:
            with self.clock.limit(self.clock.time() + delay):
                await backend.connect(sandbox.id)
        assert await self.sh(sandbox, "echo ok") == "ok\n"
        assert await self.sh(await backend.connect(sandbox.id), "echo ok") == "ok\n"

    @case("CANCEL-023", needs=COMMANDS)
    async def test_task_cancel(
        self, anyio_backend: str, sandbox: AsyncSandbox, marker: int
    ) -> None:
        """asyncio's `task.cancel()` gives its `CancelledError`, and the command is ended."""
        asyncio = _asyncio(anyio_backend)
        task = asyncio.create_task(sandbox.run(self.hang(marker)))
        await self.until_alive(sandbox, marker)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await self.until_dead(sandbox, marker)

    @case("CANCEL-024", needs=COMMANDS)
    async def test_task_cancel_twice(
        self, anyio_backend: str, sandbox: AsyncSandbox, marker: int
    ) -> None:
        """A second `task.cancel()` while the command is being ended leaves nothing of it."""
        asyncio = _asyncio(anyio_backend)
        task = asyncio.create_task(sandbox.run(f"(setsid {self.hang(marker)} &); sleep 60"))
        await self.until_alive(sandbox, marker)
        task.cancel()
        for _ in range(3):
            await anyio.lowlevel.checkpoint()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with suppress(SandboxGone):  # what could not be ended for certain took the sandbox along
            await self.until_dead(sandbox, marker)

    @case("CANCEL-025", needs=COMMANDS)
    async def test_asyncio_timeout(
        self, anyio_backend: str, sandbox: AsyncSandbox, marker: int
    ) -> None:
        """A deadline of asyncio's gives Python's own `TimeoutError`, never one of ours."""
        asyncio = _asyncio(anyio_backend)
        limit = asyncio.timeout(None)
        errors: list[BaseException] = []

        async def call() -> None:
            with pytest.raises(TimeoutError) as caught:
                async with limit:
                    await sandbox.run(self.hang(marker))
            errors.append(caught.value)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await self.until_alive(sandbox, marker)
            limit.reschedule(asyncio.get_running_loop().time())
        assert [type(error) for error in errors] == [TimeoutError]
        await self.until_dead(sandbox, marker)

    async def _cancel(
        self, sandbox: AsyncSandbox, call: Any, marker: int, *, count: int = 1
    ) -> None:
        await cancel_midway(call, partial(self.until_alive, sandbox, marker, count))
        await self.until_dead(sandbox, marker)

    async def _whole_or_absent(self, sandbox: AsyncSandbox, name: str) -> None:
        size = await self.sh(sandbox, f"if [ -e w/{name} ]; then wc -c <w/{name}; fi")
        assert size.strip() in ("", str(len(LARGE)))
        assert set((await self.sh(sandbox, "ls -A w")).split()) <= {name}
        await self.sh(sandbox, f"rm -f w/{name}")


async def _inside(
    sandbox: AsyncSandbox, command: str, body: Callable[[Process], Awaitable[None]]
) -> None:
    async with sandbox.stream(command) as proc:
        await body(proc)


def _asyncio(loop: str) -> Any:
    """Return asyncio for cases that are about it alone."""
    if loop != "asyncio":
        pytest.skip(reason=f"this is about tasks of asyncio, and the loop is {loop}")
    import asyncio

    return asyncio
