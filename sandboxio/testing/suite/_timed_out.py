"""What a timeout ends, what it leaves alone, and which clock it goes by."""

from __future__ import annotations

import itertools
import shlex
import time
from functools import partial
from typing import TYPE_CHECKING

import anyio
import pytest

from sandboxio.core.errors import ExecutionTimeout, SandboxTimeout
from sandboxio.core.models import Capability
from sandboxio.testing.suite._case import case
from sandboxio.testing.suite.fixtures import SuiteFixtures

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sandboxio.core.protocols import AsyncSandbox
    from sandboxio.testing.suite.fixtures import Create

COMMANDS = Capability.RUN_COMMAND
AREA = "timeouts"
LATE = 25.0
"""Seconds after its timeout in which a call must be over, the end of its processes included."""


class EndedCases(SuiteFixtures):
    """Cases of the processes of a call that timed out."""

    @case("TIME-023", needs=COMMANDS, area=AREA)
    async def test_the_whole_tree_is_ended(self, sandbox: AsyncSandbox, marker: int) -> None:
        """A timeout ends all that the command started, in the background and in the foreground."""
        hang = self.hang(marker)
        await self._tree_times_out(
            sandbox, f"{hang} & ({hang}) & sh -c {shlex.quote(hang)}", marker, 3
        )

    @case("TIME-024", needs=COMMANDS, area=AREA)
    async def test_another_session_is_ended(self, sandbox: AsyncSandbox, marker: int) -> None:
        """A timeout ends what the command moved into a session of its own."""
        hang = self.hang(marker)
        await self._tree_times_out(sandbox, f"(setsid {hang} &); {hang}", marker, 2)

    @case("TIME-025", needs=COMMANDS, area=AREA)
    async def test_a_daemon_is_ended(self, sandbox: AsyncSandbox, marker: int) -> None:
        """A timeout ends a process that forked twice, in a session of its own, its parents gone,
        its environment cleared.
        """
        daemon = shlex.quote(f"({self.hang(marker)}) & exit")
        script = f"(env -i setsid sh -c {daemon} >/dev/null 2>&1 &); sleep 600"
        await self._tree_times_out(sandbox, script, marker, 1)

    @case("TIME-026", needs=COMMANDS, area=AREA)
    async def test_the_deaf_are_ended(self, sandbox: AsyncSandbox, marker: int) -> None:
        """A timeout ends processes that ignore every signal they can."""
        deaf = shlex.quote(f"trap '' TERM INT HUP QUIT; {self.hang(marker)}; exit")
        await self._tree_times_out(sandbox, f"sh -c {deaf} & sh -c {deaf}", marker, 2)

    @case("TIME-027", needs=COMMANDS, area=AREA)
    async def test_restarting_is_no_escape(self, sandbox: AsyncSandbox, marker: int) -> None:
        """A timeout ends a command that starts what was ended again and again."""
        script = f"(trap '' TERM; while true; do {self.hang(marker)}; done) & wait"
        await self._tree_times_out(sandbox, script, marker, 1)
        await self.clock.sleep(1)
        assert await self.alive(sandbox, marker) == 0

    @case("TIME-028", needs=COMMANDS, area=AREA)
    async def test_a_timeout_leaves_its_neighbour(self, sandbox: AsyncSandbox, marker: int) -> None:
        """A timeout ends its own call alone: one that runs beside it goes on to its own end."""
        codes: list[int] = []

        async def beside() -> None:
            script = "echo x >up; until [ -e go ]; do sleep 0.1; done; exit 5"
            codes.append((await sandbox.run(script)).exit_code)

        async def up() -> bool:
            return (await sandbox.run("test -s up")).ok

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(beside)
            await self.eventually(up)
            error = await self._tree_times_out(sandbox, self.hang(marker), marker, 1)
            assert not error.collateral
            await self.sh(sandbox, "touch go")
        assert codes == [5]

    @case("TIME-029", needs=COMMANDS, area=AREA)
    async def test_earlier_calls_go_on(self, sandbox: AsyncSandbox, marker: int) -> None:
        """A timeout leaves alone what an earlier call left running in the background."""
        hang = self.hang(marker)
        await self.sh(sandbox, f"(setsid {hang} >/dev/null 2>&1 </dev/null &)")
        await self.until_alive(sandbox, marker)
        other = marker + 1
        error = await self._tree_times_out(sandbox, self.hang(other), other, 1)
        assert not error.collateral
        assert await self.alive(sandbox, marker) == 1

    @case("TIME-030", needs=COMMANDS, area=AREA)
    async def test_files_and_sandbox_survive(self, sandbox: AsyncSandbox, marker: int) -> None:
        """After a timeout the files are there, and the next call has all of its own time."""
        before = await self.sh(sandbox, "touch file; ls -A . /tmp")
        run = partial(sandbox.run, f"echo kept >file; {self.hang(marker)}", timeout=2)
        await timed_out(self, run, 2)
        after = await self.sh(sandbox, "sleep 1; cat file; ls -A . /tmp", timeout=30)
        assert after == f"kept\n{before}"

    @case("TIME-031", needs=COMMANDS, area=AREA)
    async def test_one_timeout_after_another(self, sandbox: AsyncSandbox, marker: int) -> None:
        """Any number of timeouts one after another leave nothing behind and are all exact."""
        for _ in range(4):
            run = partial(sandbox.run, f"({self.hang(marker)}) & wait", timeout=1)
            assert not (await timed_out(self, run, 1)).collateral
        await self.until_dead(sandbox, marker)

    @case("TIME-032", needs=COMMANDS, area=AREA)
    async def test_many_timeouts_at_once(self, sandbox: AsyncSandbox, marker: int) -> None:
        """Calls whose time is over at the same moment are all ended, and all say so."""
        run = partial(sandbox.run, self.hang(marker), timeout=3)
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(timed_out, self, run, 3)
        await self.until_dead(sandbox, marker)
        assert await self.sh(sandbox, "echo ok") == "ok\n"

    @case("TIME-033", needs=COMMANDS, area=AREA)
    async def test_hardly_any_time(self, sandbox: AsyncSandbox, marker: int) -> None:
        """A timeout that is over while the command is being started leaves nothing of it."""
        for seconds in (0.001, 0.01, 0.03, 0.06, 0.1):
            await timed_out(self, partial(sandbox.run, self.hang(marker), timeout=seconds), seconds)
        await self.until_dead(sandbox, marker)
        await self.clock.sleep(1)
        assert await self.alive(sandbox, marker) == 0

    @case("TIME-034", needs=COMMANDS | Capability.STDIN, area=AREA)
    async def test_with_input_pending(self, sandbox: AsyncSandbox, marker: int) -> None:
        """The timeout of a command that does not read its input holds, however much waits."""
        data = b"x" * (8 * 1024 * 1024)
        run = partial(sandbox.run, self.hang(marker), stdin=data, timeout=2)
        await timed_out(self, run, 2)
        await self.until_dead(sandbox, marker)
        assert await self.sh(sandbox, "cat", stdin="ok") == "ok"

    @case("TIME-035", needs=COMMANDS, area=AREA)
    async def test_with_output_without_end(self, sandbox: AsyncSandbox) -> None:
        """The timeout of a command that never stops writing holds."""
        script = "while true; do seq 100; sleep 0.01; done"
        error = await timed_out(
            self, partial(sandbox.run, script, timeout=2, max_output_bytes=1000), 2
        )
        assert error.partial.stdout_truncated
        assert await self.sh(sandbox, "echo ok") == "ok\n"

    @pytest.mark.parametrize("jump", [-3600.0, 86_400.0])
    @case("TIME-036", needs=COMMANDS, area=AREA)
    async def test_jumps_of_the_wall_clock(
        self, sandbox: AsyncSandbox, marker: int, monkeypatch: pytest.MonkeyPatch, jump: float
    ) -> None:
        """No jump of the host's wall clock moves a timeout."""
        _jumping(monkeypatch, jump)
        await timed_out(self, partial(sandbox.run, self.hang(marker), timeout=3), 3)
        assert await self.sh(sandbox, "sleep 1; echo ok", timeout=20) == "ok\n"

    @pytest.mark.parametrize("jump", [-3600.0, 86_400.0])
    @case("TIME-037", needs=COMMANDS, area=AREA)
    async def test_durations_and_the_wall_clock(
        self, sandbox: AsyncSandbox, monkeypatch: pytest.MonkeyPatch, jump: float
    ) -> None:
        """No jump of the host's wall clock shows in `duration_ms`, which is never negative."""
        _jumping(monkeypatch, jump)
        for _ in range(2):
            assert 900 <= (await sandbox.run("sleep 1")).duration_ms < 30_000

    @pytest.mark.parametrize("jump", [-3600.0, 86_400.0])
    @case("TIME-038", needs=COMMANDS, area=AREA)
    async def test_creation_and_the_wall_clock(
        self, create: Create, monkeypatch: pytest.MonkeyPatch, jump: float
    ) -> None:
        """No jump of the host's wall clock during `create()` keeps a sandbox from being made, nor
        ends its life.
        """
        _jumping(monkeypatch, jump)
        assert await self.sh(await create(), "sleep 2; echo ok") == "ok\n"

    async def _tree_times_out(
        self, sandbox: AsyncSandbox, script: str, marker: int, count: int
    ) -> ExecutionTimeout:
        """Let a script time out after that many of its processes were seen; none may be left."""
        errors: list[ExecutionTimeout] = []

        async def call() -> None:
            run = partial(sandbox.run, script, timeout=3)
            errors.append(await timed_out(self, run, 3))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await self.until_alive(sandbox, marker, count)
        await self.until_dead(sandbox, marker)
        assert await self.sh(sandbox, "echo ok") == "ok\n"
        return errors[0]


async def timed_out(
    suite: SuiteFixtures, call: Callable[[], Awaitable[object]], seconds: float
) -> ExecutionTimeout:
    """Await a call that must time out: by our own error, not before its time, nor much after."""
    begin = suite.clock.time()
    with pytest.raises(SandboxTimeout) as caught:
        await call()
    took = suite.clock.time() - begin
    error = caught.value
    assert isinstance(error, ExecutionTimeout)
    assert not isinstance(error, TimeoutError)
    assert seconds * 0.95 <= took < seconds + LATE
    return error


def _jumping(monkeypatch: pytest.MonkeyPatch, jump: float) -> None:
    """Let the wall clock jump there and back each time it is looked at."""
    real, offsets = time.time, itertools.cycle((0.0, jump))
    monkeypatch.setattr(time, "time", lambda: real() + next(offsets))
