"""A timeout ends one call, all of it, and nothing else."""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING

import pytest

import sandboxio
from sandboxio import ConfigurationError, ExecutionTimeout, SandboxError, SandboxGone
from tests.docker.outside import (
    METADATA,
    TARGET,
    Outside,
    eventually,
    host_processes,
    unique_seconds,
)

if TYPE_CHECKING:
    from sandboxio.protocols import AsyncSandbox
    from tests.docker.conftest import Make

pytestmark = [pytest.mark.docker, pytest.mark.anyio]

both_loops = pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"], scope="module")


async def _times_out(sb: AsyncSandbox, command: str, timeout: float = 1.5) -> ExecutionTimeout:
    with pytest.raises(ExecutionTimeout) as caught:
        await sb.run(command, timeout=timeout)
    return caught.value


@both_loops
@pytest.mark.parametrize("_round", range(3))
async def test_a_timeout_ends_the_whole_process_tree(
    sb: AsyncSandbox, outside: Outside, _round: int
) -> None:
    """TIME-1: own session, background, deaf to SIGTERM: all end; PID 1 and files survive."""
    first, second, third = (unique_seconds() for _ in range(3))
    await sb.files.write("kept", "content")
    error = await _times_out(
        sb,
        f"(setsid sleep {first} &); sleep {second} & sh -c 'trap \"\" TERM; sleep {third}' & wait",
    )
    assert not error.collateral
    await eventually(lambda: not any(map(host_processes, (first, second, third))))
    assert await sb.files.read("kept") == b"content"
    assert outside.inspect(sb)["State"]["Running"]


async def test_a_timeout_ends_a_daemon_that_cleared_its_environment(sb: AsyncSandbox) -> None:
    """TIME-1: forked twice, in a session of its own, reparented, with no environment left."""
    mark = unique_seconds()
    await _times_out(sb, f"(env -i setsid sh -c '(exec sleep {mark}) & exit' &); sleep 60")
    await eventually(lambda: not host_processes(mark))


async def test_a_timeout_ends_processes_that_go_on_forking(sb: AsyncSandbox) -> None:
    """TIME-1: processes that replace themselves all the time cannot run ahead of the kill."""
    mark = unique_seconds()
    hop = "import os\nwhile True:\n    if os.fork(): os._exit(0)\n    os.setsid()"
    await _times_out(sb, f'python3 -c "{hop}" {mark} & sleep 60')
    await eventually(lambda: not host_processes(mark))


async def test_a_timeout_leaves_earlier_and_concurrent_calls_alone(sb: AsyncSandbox) -> None:
    """TIME-1: an earlier call's background process and a call beside it live on."""
    earlier, beside = unique_seconds(), unique_seconds()
    pid = (await sb.run(f"setsid sleep {earlier} >/dev/null 2>&1 & echo $!")).stdout.strip()
    async with sb.stream(f"echo up; sleep {beside}") as proc:
        await anext(aiter(proc))
        error = await _times_out(sb, "sleep 60 & sleep 60")
        assert not error.collateral
        assert host_processes(earlier)
        assert proc.returncode is None
        assert host_processes(beside)
    assert (await sb.run(["sh", "-c", f"kill {pid}"])).ok
    await eventually(lambda: not host_processes(beside) and not host_processes(earlier))


async def test_a_fork_bomb_is_ended_by_its_timeout(fresh: AsyncSandbox, outside: Outside) -> None:
    """RES-2: with every process of the limit in use the timeout still works; so does `run()`."""
    bomb = (
        "import os, time\n"
        "while True:\n"
        "    try: pid = os.fork()\n"
        "    except OSError: break\n"
        "    if pid == 0: time.sleep(600)\n"
        "time.sleep(600)\n"
    )
    with pytest.raises(ExecutionTimeout):
        await fresh.run_code(bomb, timeout=3)
    await eventually(lambda: outside.calls(fresh) == [])
    assert (await fresh.run(["echo", "ok"], timeout=10)).stdout == "ok\n"
    assert outside.inspect(fresh)["HostConfig"]["PidsLimit"] == 512


async def test_the_process_limit_holds_during_a_fork_bomb(
    fresh: AsyncSandbox, outside: Outside
) -> None:
    """RES-2: the count never passes the ceiling, another call fails in time, `kill()` works."""
    bomb = "for i in $(seq 5000); do sleep 600 & done; echo done; wait"
    async with fresh.stream(bomb, timeout=20) as proc:
        await eventually(lambda: len(outside.processes(fresh)) > 500, within=10)
        assert len(outside.processes(fresh)) <= 512
        with contextlib.suppress(SandboxError):
            await fresh.run(["echo", "ok"], timeout=5)
        await fresh.kill()
        with pytest.raises(SandboxGone):
            await proc.wait()
    assert f"sandboxio-{fresh.id}" not in outside.containers(**METADATA)


async def test_a_call_that_kills_its_own_wrapper(fresh: AsyncSandbox) -> None:
    """TIME-1: a call that ends what holds it together still leaves nothing behind."""
    mark = unique_seconds()
    script = f"(setsid sleep {mark} &); sleep {mark} & kill -9 $PPID; sleep {mark}"
    with contextlib.suppress(SandboxError):
        await fresh.run(script, timeout=2)
    await eventually(lambda: not host_processes(mark), within=3)


async def test_a_call_that_stops_its_own_wrapper(fresh: AsyncSandbox) -> None:
    """TIME-1: stopping the wrapper does not save what it holds."""
    mark = unique_seconds()
    await _times_out(fresh, f"(setsid sleep {mark} &); kill -STOP $PPID; sleep {mark}")
    await eventually(lambda: not host_processes(mark))
    assert (await fresh.run(["echo", "ok"])).stdout == "ok\n"


async def test_a_call_cannot_end_the_keepers_of_the_lifetime(
    fresh: AsyncSandbox, outside: Outside
) -> None:
    """TIME-1: neither PID 1 nor the lifetime's sleeper takes a signal from a call."""
    await eventually(lambda: len(outside.keepers(fresh)) == 2)  # the sleeper starts by itself
    keepers = outside.keepers(fresh)
    await fresh.run("kill -STOP 1; kill -9 1; kill -9 -1; kill -STOP -1")
    assert [(k.pid, k.state[0]) for k in outside.keepers(fresh)] == [(k.pid, "S") for k in keepers]


@pytest.mark.parametrize("_round", range(3))
async def test_orphans_are_reaped(sb: AsyncSandbox, outside: Outside, _round: int) -> None:
    """TIME-2: three hundred orphans leave no zombie."""
    await sb.run("for i in $(seq 300); do (true &); done; sleep 1")
    await eventually(lambda: not [p for p in outside.processes(sb) if "Z" in p.state], within=2)


@pytest.mark.parametrize("bad", [0, -1, float("nan"), float("inf"), True, "5"])
async def test_odd_timeouts_are_refused(sb: AsyncSandbox, outside: Outside, bad: float) -> None:
    """TIME-6: refused by name, before anything is provisioned or run."""
    before = outside.containers(**METADATA)
    calls = (
        functools.partial(sandboxio.create, TARGET, timeout=bad, metadata=METADATA),
        functools.partial(sb.run, ["touch", "ran"], timeout=bad),
        functools.partial(sb.run_code, "open('ran', 'w')", timeout=bad),
    )
    for call in calls:
        with pytest.raises(ConfigurationError, match="timeout"):
            await call()
    with pytest.raises(ConfigurationError, match="timeout"):
        sb.stream(["touch", "ran"], timeout=bad)
    assert outside.containers(**METADATA) == before
    assert not await sb.files.exists("ran")


async def test_create_needs_a_timeout(outside: Outside) -> None:
    """TIME-6: `create(timeout=None)` is refused; there is no unbounded sandbox."""
    before = outside.containers(**METADATA)
    with pytest.raises(ConfigurationError, match="timeout"):
        await sandboxio.create(TARGET, timeout=None, metadata=METADATA)  # type: ignore[arg-type]
    assert outside.containers(**METADATA) == before


async def test_a_call_may_have_more_time_than_it_needs(make: Make) -> None:
    """TIME-6: a call's own timeout is honoured, also above the sandbox's default."""
    sb = await make(timeout=4)
    async with sb.stream(["sleep", "1"], timeout=90) as proc:
        assert (await proc.wait()).exit_code == 0


async def test_exit_code_137_of_the_commands_own_making(sb: AsyncSandbox) -> None:
    """A command that ends itself by SIGKILL is a result, no timeout and no error of ours."""
    assert (await sb.run("kill -9 $$")).exit_code == 137
