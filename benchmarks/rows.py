"""What a row of the table is, and what both of its sides work in."""

from __future__ import annotations

import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import anyio.to_thread

import sandboxio
from benchmarks.raw import LIFETIME, Raw

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from benchmarks.figures import Bar, Unit
    from sandboxio.protocols import AsyncSandbox

MEGABYTE = 1_000_000


class WrongAnswer(Exception):
    """A side returned something else than was asked of it: its time means nothing."""


@dataclass(frozen=True)
class Stage:
    """One container, one sandbox, and a directory of the host for both."""

    raw: Raw
    container: str
    target: str
    sandbox: AsyncSandbox
    host: Path


@dataclass(frozen=True)
class Row:
    """One work, done by the raw client and by us.

    A side returns its own sample, so that what it prepares and checks is not in it: seconds for
    the units `ms` and `MB/s`, bytes for `MB`.
    """

    name: str
    work: str
    unit: Unit
    bar: Bar
    raw: Callable[[Stage], float]
    ours: Callable[[Stage], Awaitable[float]]
    prepare: Callable[[Stage], Awaitable[object]] | None = None
    megabytes: float = 0
    """What the work moves, where its unit is MB/s."""
    every: int = 1
    """It is measured in one round of so many: some works take seconds."""


@asynccontextmanager
async def stage(raw: Raw, image: str) -> AsyncGenerator[Stage]:
    target = f"docker://{image}"
    container = await anyio.to_thread.run_sync(raw.create)
    with TemporaryDirectory(prefix="sandboxio-benchmarks-") as host:
        async with await sandboxio.create(target, timeout=LIFETIME) as sandbox:
            yield Stage(raw, container, target, sandbox, Path(host))


def timed(act: Callable[[], object]) -> float:
    """Return the seconds a call takes."""
    started = time.perf_counter()
    act()
    return time.perf_counter() - started


async def timed_async(act: Callable[[], Awaitable[object]]) -> float:
    started = time.perf_counter()
    await act()
    return time.perf_counter() - started


def expect(found: object, wanted: object) -> None:
    if found != wanted:
        raise WrongAnswer(f"{str(found)[:80]!r} instead of {str(wanted)[:80]!r}")
