"""Rounds: each work by one side and at once by the other, over and over."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from benchmarks.figures import Line, Samples, columns, counted
from benchmarks.rows import WrongAnswer
from benchmarks.wire import PATIENCE
from sandboxio.errors import SandboxError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.rows import Row, Stage


@dataclass
class Measured:
    """A row, its samples, and what went wrong on our side."""

    row: Row
    samples: Samples = field(default_factory=Samples)
    failures: list[str] = field(default_factory=list[str])

    def line(self) -> Line:
        row = self.row
        found = columns(row.unit, row.megabytes, self.samples)
        raw, ours = found or (None, None)
        count = len(counted(self.samples))
        return Line(row.name, row.work, row.unit, row.bar, raw, ours, count, len(self.failures))


async def measure(
    stage: Stage, rows: Sequence[Row], rounds: int, tell: Callable[[str], None]
) -> list[Measured]:
    """Measure rows in interleaved rounds, so that all of them see the same hours of a machine."""
    for prepare in dict.fromkeys(row.prepare for row in rows if row.prepare is not None):
        await prepare(stage)
    measured = [Measured(row) for row in rows]
    for number in range(rounds):
        for one in measured:
            if number % one.row.every == 0:
                tell(f"round {number + 1} of {rounds}: {one.row.work}")
                await _pair(stage, one, raw_first=len(one.samples) % 2 == 0)
    return measured


async def _pair(stage: Stage, one: Measured, *, raw_first: bool) -> None:
    """Note one sample of each side; who begins changes, since the second finds a warm machine."""
    if raw_first:
        raw = await _raw(stage, one.row)
        ours = await _ours(stage, one)
    else:
        ours = await _ours(stage, one)
        raw = await _raw(stage, one.row)
    if ours is not None:
        one.samples.append((raw, ours))


async def _ours(stage: Stage, one: Measured) -> float | None:
    """Return our sample, or note why there is none."""
    took: float | None = None
    try:
        with anyio.fail_after(PATIENCE):
            took = await one.row.ours(stage)
    except* (SandboxError, WrongAnswer, TimeoutError) as group:
        one.failures += [repr(error) for error in group.exceptions]
    return took


async def _raw(stage: Stage, row: Row) -> float:
    return await anyio.to_thread.run_sync(row.raw, stage)
