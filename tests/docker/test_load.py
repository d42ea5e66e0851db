"""Many calls at once, few threads, and what is held afterwards."""

from __future__ import annotations

import gc
import os
import threading
import time
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
import pytest

import sandboxio
from sandboxio import SandboxError
from sandboxio.adapters.docker import DockerBackend
from sandboxio.core import threads
from tests.docker.outside import IMAGE, METADATA, TARGET, eventually

if TYPE_CHECKING:
    from sandboxio.protocols import AsyncSandbox, Process
    from tests.docker.conftest import Make

pytestmark = [pytest.mark.docker, pytest.mark.anyio]


async def test_many_creations_at_once(caplog: pytest.LogCaptureFixture) -> None:
    """30 sandboxes made at the same time are 30, each with files of its own; nothing is logged."""
    seen: dict[str, str] = {}

    async def live(number: int) -> None:
        async with await sandboxio.create(TARGET, timeout=120, metadata=METADATA) as sandbox:
            await sandbox.files.write("mine", str(number))
            seen[sandbox.id] = (await sandbox.run(["cat", "mine"])).stdout

    async with anyio.create_task_group() as tasks:
        for number in range(30):
            tasks.start_soon(live, number)
    assert sorted(map(int, seen.values())) == list(range(30))
    assert caplog.records == []


async def test_many_calls_at_once(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    """200 commands in four sandboxes at the same time each have their own output and exit code."""
    sandboxes = [await make() for _ in range(4)]
    found: dict[int, tuple[int, str]] = {}

    async def run(number: int) -> None:
        script = f"echo {number}; exit {number % 100}"
        done = await sandboxes[number % 4].run(script, timeout=110)
        found[number] = (done.exit_code, done.stdout)

    async with anyio.create_task_group() as tasks:
        for number in range(200):
            tasks.start_soon(run, number)
    assert found == {number: (number % 100, f"{number}\n") for number in range(200)}
    assert caplog.records == []


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight threads for calls, and a program that uses up its own."""
    monkeypatch.setenv("SBX_DOCKER_THREADS", "8")


async def test_idle_streams_keep_no_thread(make: Make, few: None) -> None:
    """PY-2: with more open streams than threads, other calls, kills and cancellation work."""
    del few
    backend = DockerBackend()
    async with await backend.create(template=IMAGE, timeout=120, metadata=METADATA) as busy:
        other, third = await make(), await make()
        async with anyio.create_task_group() as tasks:
            for _ in range(12):
                await tasks.start(_idle, busy)
            for _ in range(40):
                tasks.start_soon(anyio.to_thread.run_sync, _rest)
            assert (await other.run(["echo", "ok"], timeout=20)).stdout == "ok\n"
            with anyio.move_on_after(0.5) as scope:
                await other.run(["sleep", "60"])
            assert scope.cancelled_caught
            await third.kill()
            tasks.cancel_scope.cancel()
        assert (await busy.run(["echo", "ok"])).stdout == "ok\n"


async def _idle(sandbox: AsyncSandbox, *, task_status: anyio.abc.TaskStatus[Process]) -> None:
    async with sandbox.stream(["sleep", "100"]) as process:
        task_status.started(process)
        await process.wait()


def _rest() -> None:
    time.sleep(0.5)


async def test_waiting_for_a_thread_counts(make: Make, few: None) -> None:
    """With every thread taken, a call ends by its own timeout, as an error of ours."""
    del few
    sandbox = await make()
    blocked = threading.Event()
    async with anyio.create_task_group() as tasks:
        for _ in range(8):
            tasks.start_soon(threads.run, lambda: blocked.wait(20))
        await anyio.wait_all_tasks_blocked()
        begin = anyio.current_time()
        with pytest.raises(SandboxError):
            await sandbox.run(["true"], timeout=1)
        assert anyio.current_time() - begin < 15
        blocked.set()
    assert (await sandbox.run(["echo", "ok"])).stdout == "ok\n"


async def test_nothing_is_held_afterwards(make: Make) -> None:
    """PY-3: descriptors and threads are back to where they were, however calls ended."""
    await _much(await make())
    before = _held()
    for _ in range(2):
        sandbox = await make()
        await _much(sandbox)
        await sandbox.kill()

    def is_back() -> bool:
        gc.collect()
        now = _held()
        return now[0] <= before[0] + 5 and now[1] <= before[1] + 2

    await eventually(is_back, within=20)


async def _much(sandbox: AsyncSandbox) -> None:
    for _ in range(20):
        await sandbox.run(["true"])
    for _ in range(10):
        async with sandbox.stream("yes") as process:
            async for _chunk in process:
                break
    with anyio.move_on_after(0.1):
        await sandbox.run(["sleep", "60"])
    await sandbox.files.write("f", b"x" * 100_000)


def _held() -> tuple[int, int]:
    return len(os.listdir("/proc/self/fd")), threading.active_count()
