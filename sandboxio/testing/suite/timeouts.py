"""Timeouts of calls and of creation, and what they leave alone."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from sandboxio.core.errors import (
    ConfigurationError,
    CreateTimeout,
    CreationError,
    ExecutionTimeout,
    SandboxGone,
    SandboxTimeout,
)
from sandboxio.core.models import Capability
from sandboxio.testing.suite._case import case
from sandboxio.testing.suite._probes import BEAT, until_still
from sandboxio.testing.suite._timed_out import EndedCases, timed_out

if TYPE_CHECKING:
    from sandboxio.core.protocols import AsyncSandbox, Backend
    from sandboxio.testing.suite.fixtures import Create

COMMANDS = Capability.RUN_COMMAND
STREAMS = Capability.RUN_COMMAND | Capability.STREAMING
CODE = Capability.RUN_COMMAND | Capability.RUN_CODE
TOKEN = "hunter2-and-more"  # noqa: S105  # it is what must not show
ODD = [0, -1, math.nan, math.inf, -math.inf, True, "5", 10**400, b"5"]


class TimeoutsSuite(EndedCases):
    """Cases of deadlines; what a timeout ends, and what it leaves, is in the base."""

    @case("TIME-001", needs=COMMANDS)
    async def test_a_command_in_time_is_a_result(self, sandbox: AsyncSandbox) -> None:
        """A command that ends before its timeout gives its own result, whatever that is."""
        done = await sandbox.run("sleep 1; echo late; exit 3", timeout=30)
        assert (done.exit_code, done.stdout) == (3, "late\n")

    @case("TIME-002", needs=COMMANDS)
    async def test_a_command_that_hangs(self, sandbox: AsyncSandbox, marker: int) -> None:
        """`run()` raises `ExecutionTimeout` at its timeout, and the command is ended."""
        await timed_out(self, partial(sandbox.run, self.hang(marker), timeout=2), 2)
        await self.until_dead(sandbox, marker)

    @case("TIME-003", needs=CODE)
    async def test_code_that_waits(self, sandbox: AsyncSandbox) -> None:
        """`run_code()` raises `ExecutionTimeout` at its timeout, and the code runs no more."""
        await timed_out(self, partial(sandbox.run_code, BEAT, timeout=3), 3)
        await until_still(self, sandbox)
        assert (await sandbox.run_code("print(6 * 7)")).stdout == "42\n"

    @case("TIME-004", needs=Capability.RUN_CODE)
    async def test_code_that_never_waits(self, sandbox: AsyncSandbox) -> None:
        """Code that only computes is ended at its timeout as well."""
        code = "while True:\n    pass"
        await timed_out(self, partial(sandbox.run_code, code, timeout=2), 2)
        assert (await sandbox.run_code("print(6 * 7)", timeout=30)).stdout == "42\n"

    @case("TIME-005", needs=STREAMS)
    async def test_a_stream_that_is_read(self, sandbox: AsyncSandbox, marker: int) -> None:
        """Output arrives before the timeout; then the iteration raises `ExecutionTimeout`."""
        begin = self.clock.time()
        said: dict[float, bytes] = {}

        async def read() -> None:
            async with sandbox.stream(f"echo one; {self.hang(marker)}", timeout=3) as proc:
                async for chunk in proc:
                    said[self.clock.time() - begin] = chunk.data

        await timed_out(self, read, 3)
        assert b"".join(said.values()) == b"one\n"
        assert min(said) < 2.5
        await self.until_dead(sandbox, marker)

    @case("TIME-006", needs=STREAMS)
    async def test_a_stream_that_is_waited_for(self, sandbox: AsyncSandbox, marker: int) -> None:
        """`wait()` raises `ExecutionTimeout` at the timeout, and again whenever it is called; the
        command is no longer running then.
        """

        async def stream() -> None:
            async with sandbox.stream(self.hang(marker), timeout=2) as proc:
                with pytest.raises(ExecutionTimeout):
                    await proc.wait()
                assert proc.returncode is not None
                await self.until_dead(sandbox, marker)
                await proc.wait()

        await timed_out(self, stream, 2)

    @case("TIME-007", needs=STREAMS)
    async def test_the_readers_own_time(self, sandbox: AsyncSandbox, marker: int) -> None:
        """The timeout of a stream includes the time that its reader takes."""

        async def read_slowly() -> None:
            async with sandbox.stream(f"echo one; {self.hang(marker)}", timeout=2) as proc:
                async for _ in proc:
                    await self.clock.sleep(4)

        error = await timed_out(self, read_slowly, 4)
        assert not error.collateral
        await self.until_dead(sandbox, marker)

    @case("TIME-008")
    async def test_a_slow_creation(
        self, backend: Backend, options: dict[str, Any], run_id: str
    ) -> None:
        """`create()` raises `CreateTimeout` at its timeout, which is a `CreationError` and a
        `SandboxTimeout`, and leaves nothing.
        """
        options["timeout"] = 2
        begin = self.clock.time()
        with self.slow_create(), pytest.raises(CreateTimeout) as caught:
            await backend.create(**options)
        assert 1.9 < self.clock.time() - begin < 40
        assert isinstance(caught.value, CreationError)
        assert isinstance(caught.value, SandboxTimeout)
        assert not isinstance(caught.value, TimeoutError)
        assert await self.count(run_id) == 0

    @case("TIME-009", needs=COMMANDS)
    async def test_none_inherits(self, create: Create, marker: int) -> None:
        """A call without timeout has that of the sandbox: no call is without a bound."""
        sandbox = await create(timeout=6)
        begin = self.clock.time()
        with pytest.raises((ExecutionTimeout, SandboxGone)):
            await sandbox.run(self.hang(marker), timeout=None)
        assert 2 < self.clock.time() - begin < 40

    @case("TIME-010", needs=COMMANDS)
    async def test_more_time_than_the_sandbox_has(self, create: Create) -> None:
        """A call may be given more time than the sandbox has, and is neither refused nor cut."""
        sandbox = await create(timeout=20)
        assert (await sandbox.run("sleep 2; echo done", timeout=3600)).stdout == "done\n"

    @case("TIME-011", needs=COMMANDS)
    async def test_a_quiet_command(self, sandbox: AsyncSandbox) -> None:
        """A command that says nothing for a while is waited for: only its own timeout ends it."""
        assert await self.sh(sandbox, "sleep 7; echo done", timeout=60) == "done\n"

    @case("TIME-012", needs=STREAMS)
    async def test_a_quiet_stream(self, sandbox: AsyncSandbox) -> None:
        """A stream that says nothing for a while is waited for: only its own timeout ends it."""
        async with sandbox.stream("sleep 7; echo done; exit 3", timeout=60) as proc:
            assert b"".join([chunk.data async for chunk in proc]) == b"done\n"
            assert (await proc.wait()).exit_code == 3

    @pytest.mark.parametrize("odd", ODD, ids=lambda odd: str(odd)[:10])
    @case("TIME-013", needs=COMMANDS)
    async def test_odd_timeouts_of_commands(self, sandbox: AsyncSandbox, odd: Any) -> None:
        """A timeout that is no number of seconds above 0 is refused by name; nothing runs."""
        with pytest.raises(ConfigurationError, match="timeout"):
            await sandbox.run(["touch", "ran"], timeout=odd)
        await self.sh(sandbox, "test ! -e ran")

    @pytest.mark.parametrize("odd", ODD, ids=lambda odd: str(odd)[:10])
    @case("TIME-014", needs=CODE)
    async def test_odd_timeouts_of_code(self, sandbox: AsyncSandbox, odd: Any) -> None:
        """`run_code()` refuses a timeout that is no number of seconds above 0; nothing runs."""
        with pytest.raises(ConfigurationError, match="timeout"):
            await sandbox.run_code("open('ran', 'w').write('x')", timeout=odd)
        await self.sh(sandbox, "test ! -e ran")

    @pytest.mark.parametrize("odd", ODD, ids=lambda odd: str(odd)[:10])
    @case("TIME-015", needs=STREAMS)
    async def test_odd_timeouts_of_streams(self, sandbox: AsyncSandbox, odd: Any) -> None:
        """`stream()` itself refuses a timeout that is no number of seconds above 0."""
        with pytest.raises(ConfigurationError, match="timeout"):
            sandbox.stream(["touch", "ran"], timeout=odd)
        await self.sh(sandbox, "test ! -e ran")

    @case("TIME-016", needs=COMMANDS)
    async def test_partial_output(self, sandbox: AsyncSandbox, marker: int) -> None:
        """What a command had written is on the exception, streams apart, and is no result."""
        script = rf"printf '\303\251\n'; echo two >&2; {self.hang(marker)}"
        error = await timed_out(self, partial(sandbox.run, script, timeout=2), 2)
        assert (error.partial.stdout, error.partial.stderr) == ("é\n", "two\n")
        cut = (error.partial.stdout_truncated, error.partial.stderr_truncated)
        assert cut == (False, False)

    @case("TIME-017", needs=COMMANDS)
    async def test_partial_output_is_bounded(self, sandbox: AsyncSandbox, marker: int) -> None:
        """Partial output is bounded by `max_output_bytes` and says what was cut."""
        script = f"seq 100000; {self.hang(marker)}"
        run = partial(sandbox.run, script, timeout=4, max_output_bytes=1000)
        partial_output = (await timed_out(self, run, 4)).partial
        assert 500 < len(partial_output.stdout) <= 1000
        assert partial_output.stdout.startswith("1\n2\n")
        assert partial_output.stdout.endswith("\n100000\n")
        assert (partial_output.stdout_truncated, partial_output.stderr_truncated) == (True, False)

    @case("TIME-018", needs=COMMANDS)
    async def test_partial_output_shows_no_secret(self, create: Create, marker: int) -> None:
        """Secrets are masked in partial output, and in what the exception prints."""
        sandbox = await create(secrets={"TOKEN": TOKEN})
        script = f'echo "<$TOKEN>"; {self.hang(marker)}'
        error = await timed_out(self, partial(sandbox.run, script, timeout=2), 2)
        assert error.partial.stdout.startswith("<")
        assert TOKEN not in f"{error.partial!r} {error!r} {error}"

    @case("TIME-019", needs=Capability.RUN_CODE)
    async def test_partial_output_of_code(self, sandbox: AsyncSandbox) -> None:
        """What code had written and flushed is on the exception."""
        code = (
            "import sys, time\nprint('one', flush=True)\n"
            "print('two', file=sys.stderr, flush=True)\ntime.sleep(600)"
        )
        error = await timed_out(self, partial(sandbox.run_code, code, timeout=3), 3)
        assert (error.partial.stdout, error.partial.stderr) == ("one\n", "two\n")

    @case("TIME-020", needs=COMMANDS)
    async def test_no_output_is_no_partial(self, sandbox: AsyncSandbox, marker: int) -> None:
        """The exception of a command that wrote nothing carries empty text, not `None`."""
        error = await timed_out(self, partial(sandbox.run, self.hang(marker), timeout=2), 2)
        assert (error.partial.stdout, error.partial.stderr) == ("", "")

    @case("TIME-021", needs=COMMANDS)
    async def test_durations(self, sandbox: AsyncSandbox) -> None:
        """`duration_ms` of a result is the time that the command took, in milliseconds."""
        assert 1900 <= (await sandbox.run("sleep 2")).duration_ms < 30_000
        assert 0 <= (await sandbox.run(["true"])).duration_ms < 20_000

    @case("TIME-022", needs=STREAMS)
    async def test_durations_of_streams(self, sandbox: AsyncSandbox) -> None:
        """`duration_ms` of a stream reaches from its start to the end of its output."""
        async with sandbox.stream("sleep 2") as proc:
            end = await proc.wait()
            await self.clock.sleep(3)
            assert await proc.wait() == end
        assert 1900 <= end.duration_ms < 30_000
