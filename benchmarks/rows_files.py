"""Files: small ones, large ones from and to the host, and a list of many."""

from __future__ import annotations

import filecmp
import os
import time
from typing import TYPE_CHECKING

import anyio.to_thread

from benchmarks.figures import Bar
from benchmarks.growth import growth, growth_async
from benchmarks.raw import DIRECTORY
from benchmarks.rows import MEGABYTE, Row, expect, timed, timed_async

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.rows import Stage

KILOBYTE = os.urandom(1024)
LARGE = 100 * MEGABYTE
SMALL_NAME, UP_NAME, DOWN_NAME, MANY_NAME = "small", "up", "down", "many"
FILES = 1000
_MAKE_FILES = """\
import os
os.mkdir({0!r})
for number in range({1}):
    open(os.path.join({0!r}, str(number)), "w").close()
"""
_FORMAT = r"%f\t%y\t%s\t%m\t%T@\n"


def _raw_write(stage: Stage) -> float:
    return timed(lambda: stage.raw.write(stage.container, SMALL_NAME, KILOBYTE))


async def _our_write(stage: Stage) -> float:
    return await timed_async(lambda: stage.sandbox.files.write(SMALL_NAME, KILOBYTE))


async def _write_small(stage: Stage) -> None:
    await anyio.to_thread.run_sync(_raw_write, stage)
    await _our_write(stage)


def _raw_read(stage: Stage) -> float:
    started = time.perf_counter()
    content = stage.raw.read(stage.container, SMALL_NAME)
    took = time.perf_counter() - started
    expect(content, KILOBYTE)
    return took


async def _our_read(stage: Stage) -> float:
    started = time.perf_counter()
    content = await stage.sandbox.files.read(SMALL_NAME)
    took = time.perf_counter() - started
    expect(content, KILOBYTE)
    return took


async def _make_many(stage: Stage) -> None:
    ran = await anyio.to_thread.run_sync(
        stage.raw.run,
        stage.container,
        ["python3", "-c", _MAKE_FILES.format(f"{DIRECTORY}/{MANY_NAME}", FILES)],
    )
    expect(ran, (0, b"", b""))
    result = await stage.sandbox.run(["python3", "-c", _MAKE_FILES.format(MANY_NAME, FILES)])
    expect((result.exit_code, result.stderr), (0, ""))


def _raw_list(stage: Stage) -> float:
    place = f"{DIRECTORY}/{MANY_NAME}"
    started = time.perf_counter()
    ran = stage.raw.run(stage.container, ["find", place, "-mindepth", "1", "-printf", _FORMAT])
    entries = [line.split("\t") for line in ran.stdout.decode().splitlines()]
    took = time.perf_counter() - started
    expect((ran.exit_code, len(entries)), (0, FILES))
    return took


async def _our_list(stage: Stage) -> float:
    started = time.perf_counter()
    entries = await stage.sandbox.files.ls(MANY_NAME)
    took = time.perf_counter() - started
    expect(len(entries), FILES)
    return took


def _large(stage: Stage) -> Path:
    """Return the large file of the host; its content does not compress."""
    path = stage.host / "large"
    if not path.exists():
        with path.open("wb") as file:
            for _ in range(LARGE // MEGABYTE):
                file.write(os.urandom(MEGABYTE))
    return path


async def _make_large(stage: Stage) -> None:
    await anyio.to_thread.run_sync(_large, stage)


async def _place_large(stage: Stage) -> None:
    local = await anyio.to_thread.run_sync(_large, stage)
    await anyio.to_thread.run_sync(stage.raw.upload, stage.container, local, DOWN_NAME)
    await stage.sandbox.files.upload(local, DOWN_NAME)


def _raw_upload(stage: Stage) -> None:
    stage.raw.upload(stage.container, _large(stage), UP_NAME)


async def _our_upload(stage: Stage) -> None:
    await stage.sandbox.files.upload(_large(stage), UP_NAME)


def _raw_up(stage: Stage) -> float:
    return timed(lambda: _raw_upload(stage))


async def _our_up(stage: Stage) -> float:
    took = await timed_async(lambda: _our_upload(stage))
    expect((await stage.sandbox.files.stat(UP_NAME)).size, LARGE)
    return took


def _raw_up_growth(stage: Stage) -> float:
    return growth(lambda: _raw_upload(stage))


async def _our_up_growth(stage: Stage) -> float:
    return await growth_async(lambda: _our_upload(stage))


def _raw_download(stage: Stage) -> None:
    stage.raw.download(stage.container, DOWN_NAME, stage.host / "raw")


async def _our_download(stage: Stage) -> None:
    await stage.sandbox.files.download(DOWN_NAME, stage.host / "ours")


def _raw_down(stage: Stage) -> float:
    took = timed(lambda: _raw_download(stage))
    expect(_arrived(stage, "raw"), True)
    return took


async def _our_down(stage: Stage) -> float:
    took = await timed_async(lambda: _our_download(stage))
    expect(await anyio.to_thread.run_sync(_arrived, stage, "ours"), True)
    return took


def _raw_down_growth(stage: Stage) -> float:
    return growth(lambda: _raw_download(stage))


async def _our_down_growth(stage: Stage) -> float:
    return await growth_async(lambda: _our_download(stage))


def _arrived(stage: Stage, name: str) -> bool:
    """Compare what was downloaded, and remove it: each round writes a new file."""
    path = stage.host / name
    filecmp.clear_cache()
    same = filecmp.cmp(_large(stage), path, shallow=False)
    path.unlink()
    return same


ROWS = [
    Row("write", "write 1 KB", "ms", Bar("at most", 0.02), _raw_write, _our_write),
    Row("read", "read 1 KB", "ms", Bar("at most", 0.02), _raw_read, _our_read, _write_small),
    Row(
        "list",
        "list 1,000 files with metadata",
        "ms",
        Bar("at most", 0.12),
        _raw_list,
        _our_list,
        _make_many,
    ),
    Row(
        "up",
        "100 MB file up",
        "MB/s",
        Bar("at least", 0.75),
        _raw_up,
        _our_up,
        _make_large,
        megabytes=LARGE / MEGABYTE,
    ),
    Row(
        "up-memory",
        "100 MB file up, memory",
        "MB",
        Bar("below", 10),
        _raw_up_growth,
        _our_up_growth,
        _make_large,
        every=3,
    ),
    Row(
        "down",
        "100 MB file down",
        "MB/s",
        Bar("at least", 1.0),
        _raw_down,
        _our_down,
        _place_large,
        megabytes=LARGE / MEGABYTE,
    ),
    Row(
        "down-memory",
        "100 MB file down, memory",
        "MB",
        Bar("below", 10),
        _raw_down_growth,
        _our_down_growth,
        _place_large,
        every=3,
    ),
]
