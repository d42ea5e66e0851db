"""Calls in a sandbox that is there: commands, code, output, and what they cost this process."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

import anyio

from benchmarks.figures import Bar
from benchmarks.growth import growth, growth_async
from benchmarks.rows import MEGABYTE, Row, expect, timed, timed_async

if TYPE_CHECKING:
    from benchmarks.rows import Stage

TRUE = ["true"]
CODE = "print(1)"
PYTHON = ["python3", "-c", CODE]
CAPTURED, STREAMED = 10 * MEGABYTE, 100 * MEGABYTE
# The command goes on after its first words, so that they are seen to come before its end.
FIRST = ["sh", "-c", "echo first; exec sleep 0.05"]
CPU_CALLS = 100
MANY, CLIENTS = 200, 8


def _zeros(size: int) -> list[str]:
    return ["head", "-c", str(size), "/dev/zero"]


def _raw_run(stage: Stage, cmd: list[str], stdout: bytes) -> float:
    started = time.perf_counter()
    ran = stage.raw.run(stage.container, cmd)
    took = time.perf_counter() - started
    expect(ran, (0, stdout, b""))
    return took


def _raw_true(stage: Stage) -> float:
    return _raw_run(stage, TRUE, b"")


async def _our_true(stage: Stage) -> float:
    started = time.perf_counter()
    result = await stage.sandbox.run(TRUE)
    took = time.perf_counter() - started
    expect((result.exit_code, result.stdout, result.stderr), (0, "", ""))
    return took


def _raw_python(stage: Stage) -> float:
    return _raw_run(stage, PYTHON, b"1\n")


async def _our_python(stage: Stage) -> float:
    started = time.perf_counter()
    result = await stage.sandbox.run(PYTHON)
    took = time.perf_counter() - started
    expect((result.exit_code, result.stdout), (0, "1\n"))
    return took


async def _our_code(stage: Stage) -> float:
    started = time.perf_counter()
    result = await stage.sandbox.run_code(CODE)
    took = time.perf_counter() - started
    expect((result.exit_code, result.stdout), (0, "1\n"))
    return took


def _raw_first(stage: Stage) -> float:
    started = time.perf_counter()
    output = stage.raw.stream(stage.container, FIRST)
    first = next(output)
    took = time.perf_counter() - started
    expect(first + b"".join(output), b"first\n")
    return took


async def _our_first(stage: Stage) -> float:
    started = time.perf_counter()
    async with stage.sandbox.stream(FIRST) as process:
        first = await anext(aiter(process))
        took = time.perf_counter() - started
        expect(first.data, b"first\n")
        expect((await process.wait()).exit_code, 0)
    return took


def _raw_output(stage: Stage) -> float:
    started = time.perf_counter()
    ran = stage.raw.run(stage.container, _zeros(CAPTURED))
    took = time.perf_counter() - started
    expect((ran.exit_code, len(ran.stdout)), (0, CAPTURED))
    return took


async def _our_output(stage: Stage) -> float:
    started = time.perf_counter()
    result = await stage.sandbox.run(_zeros(CAPTURED))
    took = time.perf_counter() - started
    expect((result.exit_code, len(result.stdout)), (0, CAPTURED))
    return took


def _raw_drain(stage: Stage) -> None:
    output = stage.raw.stream(stage.container, _zeros(STREAMED))
    expect(sum(len(chunk) for chunk in output), STREAMED)


async def _our_drain(stage: Stage) -> None:
    size = 0
    async with stage.sandbox.stream(_zeros(STREAMED)) as process:
        async for chunk in process:
            size += len(chunk.data)
    expect((process.returncode, size), (0, STREAMED))


def _raw_stream(stage: Stage) -> float:
    return timed(lambda: _raw_drain(stage))


async def _our_stream(stage: Stage) -> float:
    return await timed_async(lambda: _our_drain(stage))


def _raw_stream_growth(stage: Stage) -> float:
    return growth(lambda: _raw_drain(stage))


async def _our_stream_growth(stage: Stage) -> float:
    return await growth_async(lambda: _our_drain(stage))


def _raw_cpu(stage: Stage) -> float:
    before = time.process_time()
    for _ in range(CPU_CALLS):
        stage.raw.run(stage.container, TRUE)
    return (time.process_time() - before) / CPU_CALLS


async def _our_cpu(stage: Stage) -> float:
    before = time.process_time()
    for _ in range(CPU_CALLS):
        await stage.sandbox.run(TRUE)
    return (time.process_time() - before) / CPU_CALLS


def _raw_many(stage: Stage) -> float:
    return timed(lambda: _raw_share_out(stage))


def _raw_share_out(stage: Stage) -> None:
    with ThreadPoolExecutor(CLIENTS) as pool:
        for ended in [pool.submit(_raw_some, stage, first) for first in range(CLIENTS)]:
            ended.result()


def _raw_some(stage: Stage, first: int) -> None:
    raw = stage.raw.another()
    for number in range(first, MANY, CLIENTS):
        expect(raw.run(stage.container, ["echo", str(number)]), (0, b"%d\n" % number, b""))
    raw.close()


async def _our_many(stage: Stage) -> float:
    started = time.perf_counter()
    async with anyio.create_task_group() as tasks:
        for number in range(MANY):
            tasks.start_soon(partial(_our_one, stage, number))
    return time.perf_counter() - started


async def _our_one(stage: Stage, number: int) -> None:
    result = await stage.sandbox.run(["echo", str(number)])
    expect((result.exit_code, result.stdout), (0, f"{number}\n"))


ROWS = [
    Row("true", 'run(["true"])', "ms", Bar("at most", 0.05), _raw_true, _our_true),
    Row(
        "python",
        'run(["python3", "-c", "print(1)"])',
        "ms",
        Bar("at most", 0.25),
        _raw_python,
        _our_python,
    ),
    Row("code", 'run_code("print(1)")', "ms", Bar("at most", 0.08), _raw_python, _our_code),
    Row("first", "first streamed chunk", "ms", Bar("at most", 0.08), _raw_first, _our_first),
    Row(
        "output",
        "10 MB output captured",
        "MB/s",
        Bar("at least", 1.5),
        _raw_output,
        _our_output,
        megabytes=CAPTURED / MEGABYTE,
    ),
    Row(
        "stream",
        "100 MB output streamed",
        "MB/s",
        Bar("at least", 1.0),
        _raw_stream,
        _our_stream,
        megabytes=STREAMED / MEGABYTE,
    ),
    Row(
        "stream-memory",
        "100 MB output streamed, memory",
        "MB",
        Bar("below", 10),
        _raw_stream_growth,
        _our_stream_growth,
        every=3,
    ),
    Row(
        "many",
        f"{MANY} runs in one sandbox at once",
        "ms",
        Bar("at most", 0.03),
        _raw_many,
        _our_many,
        every=5,
    ),
    Row("cpu", "client CPU per call", "ms", Bar("at most", 1.0), _raw_cpu, _our_cpu, every=5),
]
