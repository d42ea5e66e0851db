"""Cancellation surfaces as cancellation, and nothing of the cancelled call is left."""

from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING

import anyio
import pytest

import sandboxio
from sandboxio.core.lifecycle import DEFAULT_GRACE
from tests.docker.outside import (
    RUN,
    TARGET,
    Outside,
    eventually,
    host_processes,
    unique_seconds,
)

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from pathlib import Path

    from sandboxio.protocols import AsyncSandbox

pytestmark = [pytest.mark.docker, pytest.mark.anyio]

both_loops = pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"], scope="module")


async def _usable_and_rid_of(sb: AsyncSandbox, mark: str) -> None:
    await eventually(lambda: not host_processes(mark), within=DEFAULT_GRACE)
    assert (await sb.run(["echo", "ok"], timeout=5)).stdout == "ok\n"


@both_loops
async def test_run_cancelled_midway(sb: AsyncSandbox) -> None:
    """TIME-3: `move_on_after` around `run()` ends the remote process, also in its own session."""
    mark = unique_seconds()
    with anyio.move_on_after(0.7) as scope:
        await sb.run(f"(setsid sleep {mark} &); sleep {mark}")
    assert scope.cancelled_caught
    await _usable_and_rid_of(sb, mark)


@both_loops
async def test_code_cancelled_midway(sb: AsyncSandbox, outside: Outside) -> None:
    """TIME-3: `move_on_after` around `run_code()` ends the interpreter and its children."""
    mark = unique_seconds()
    code = f"import subprocess; subprocess.run(['sleep', '{mark}'])"
    with anyio.move_on_after(0.7) as scope:
        await sb.run_code(code)
    assert scope.cancelled_caught
    await _usable_and_rid_of(sb, mark)
    assert outside.calls(sb) == []


@both_loops
async def test_a_stream_cancelled_while_it_is_read(sb: AsyncSandbox) -> None:
    """TIME-3: cancelling the reader of a stream ends the command."""
    mark = unique_seconds()
    with anyio.move_on_after(0.7) as scope:
        async with sb.stream(f"echo up; sleep {mark}") as proc:
            async for _ in proc:
                pass
    assert scope.cancelled_caught
    await _usable_and_rid_of(sb, mark)


@both_loops
async def test_an_upload_cancelled_midway(
    sb: AsyncSandbox, outside: Outside, tmp_path: Path
) -> None:
    """TIME-3: no partial file passes for a whole one, and nothing of the transfer is left."""
    large = tmp_path / "large"
    with large.open("wb") as file:
        file.truncate(2 * 1024**3)
    before = await sb.files.ls()
    with anyio.move_on_after(0.5) as scope:
        await sb.files.upload(large, "large")
    assert scope.cancelled_caught
    await eventually(lambda: outside.calls(sb) == [], within=DEFAULT_GRACE)
    assert await sb.files.ls() == before
    gc.collect()  # what was not closed warns now, not in some later test


@both_loops
async def test_a_stream_left_early(sb: AsyncSandbox) -> None:
    """TIME-3: leaving the block before the end ends the command."""
    mark = unique_seconds()
    async with sb.stream(f"echo up; (setsid sleep {mark} &); sleep {mark}") as proc:
        await anext(aiter(proc))
    assert not host_processes(mark)
    await _usable_and_rid_of(sb, mark)


@both_loops
async def test_a_stream_left_by_an_error(sb: AsyncSandbox) -> None:
    """TIME-3: the caller's own exception comes out as it is, and the command is ended."""
    mark = unique_seconds()

    async def fail_inside() -> None:
        async with sb.stream(f"echo up; sleep {mark}") as proc:
            await anext(aiter(proc))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail_inside()
    assert not host_processes(mark)


@both_loops
async def test_a_stream_left_with_much_unread(fresh: AsyncSandbox, outside: Outside) -> None:
    """TIME-3: output that nobody has read does not stand in the way of ending the command."""
    async with fresh.stream(["head", "-c", "300000000", "/dev/zero"]) as proc:
        await anext(aiter(proc))
        await anyio.sleep(0.5)
    assert outside.calls(fresh) == []
    assert (await fresh.run(["echo", "ok"])).stdout == "ok\n"


async def test_a_cancelled_task(sb: AsyncSandbox) -> None:
    """TIME-3: `task.cancel()` gives CancelledError."""
    mark = unique_seconds()
    task = asyncio.create_task(_as_coroutine(sb, mark))
    await asyncio.sleep(0.7)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await _usable_and_rid_of(sb, mark)


async def test_wait_for(sb: AsyncSandbox) -> None:
    """TIME-3: `asyncio.wait_for` gives its own TimeoutError, not one of ours."""
    mark = unique_seconds()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(_as_coroutine(sb, mark), 0.7)
    await _usable_and_rid_of(sb, mark)


@pytest.mark.parametrize("delay", [0.0, 0.005, 0.02, 0.04, 0.06, 0.1])
async def test_cancelled_at_the_very_start(
    sb: AsyncSandbox, outside: Outside, delay: float
) -> None:
    """TIME-3: also while the command is only being started nothing of it is left."""
    mark = unique_seconds()
    for _ in range(3):
        with anyio.move_on_after(delay) as scope:
            await sb.run(["sleep", mark])
        assert scope.cancelled_caught
    await _usable_and_rid_of(sb, mark)
    assert outside.calls(sb) == []


@both_loops
@pytest.mark.parametrize("delay", [0.0, 0.01, 0.05, 0.2, 0.5])
async def test_create_cancelled(outside: Outside, delay: float) -> None:
    """TIME-4: wherever `create()` is cancelled, no container is left in any state."""
    label = unique_seconds()
    for _ in range(3):
        with anyio.move_on_after(delay) as scope:
            async with await sandboxio.create(
                TARGET, timeout=60, metadata={"test_run": RUN, "cancel": label}
            ):
                await anyio.sleep(60)
        assert scope.cancelled_caught
    await eventually(lambda: outside.containers(cancel=label) == [], within=10)
    await anyio.sleep(0.5)
    assert outside.containers(cancel=label) == []


def _as_coroutine(sb: AsyncSandbox, mark: str) -> Coroutine[None, None, object]:
    return sb.run(["sleep", mark])
