"""The life of a sandbox: until it is ready, until it is gone, and twenty of them."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import anyio

import sandboxio
from benchmarks.figures import Bar
from benchmarks.rows import Row, expect, timed, timed_async

if TYPE_CHECKING:
    from benchmarks.raw import Raw
    from benchmarks.rows import Stage

TRUE = ["true"]
AT_ONCE = 20


def _raw_ready(stage: Stage) -> float:
    started = time.perf_counter()
    container = stage.raw.create()
    took = time.perf_counter() - started
    stage.raw.remove(container)
    return took


async def _our_ready(stage: Stage) -> float:
    started = time.perf_counter()
    async with await sandboxio.create(stage.target):
        return time.perf_counter() - started


def _raw_whole(raw: Raw) -> None:
    container = raw.create()
    expect(raw.run(container, TRUE).exit_code, 0)
    raw.remove(container)


async def _our_whole(stage: Stage) -> None:
    async with await sandboxio.create(stage.target) as sandbox:
        expect((await sandbox.run(TRUE)).exit_code, 0)


def _raw_life(stage: Stage) -> float:
    return timed(lambda: _raw_whole(stage.raw))


async def _our_life(stage: Stage) -> float:
    return await timed_async(lambda: _our_whole(stage))


def _raw_twenty(stage: Stage) -> float:
    return timed(lambda: _raw_at_once(stage))


def _raw_at_once(stage: Stage) -> None:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for ended in [pool.submit(_raw_with_own_client, stage) for _ in range(AT_ONCE)]:
            ended.result()


def _raw_with_own_client(stage: Stage) -> None:
    raw = stage.raw.another()
    _raw_whole(raw)
    raw.close()


async def _our_twenty(stage: Stage) -> float:
    return await timed_async(lambda: _our_at_once(stage))


async def _our_at_once(stage: Stage) -> None:
    async with anyio.create_task_group() as tasks:
        for _ in range(AT_ONCE):
            tasks.start_soon(_our_whole, stage)


ROWS = [
    Row("ready", "create to ready", "ms", Bar("at most", 0.75), _raw_ready, _our_ready),
    Row("life", "create, run true, gone", "ms", Bar("at most", 0.75), _raw_life, _our_life),
    Row(
        "twenty",
        f"{AT_ONCE} sandboxes at once, create to gone",
        "ms",
        Bar("at most", 0.75),
        _raw_twenty,
        _our_twenty,
        every=5,
    ),
]
