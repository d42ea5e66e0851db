"""From samples to a line of the table: medians, a ratio, and whether it reaches its bar."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

Unit = Literal["ms", "MB/s", "MB"]
Samples = list[tuple[float, float]]
"""Of each round what the raw side and ours took, in seconds or bytes."""
MILLISECONDS, MEGABYTE = 1000, 1_000_000


@dataclass(frozen=True)
class Bar:
    """What a row has to reach: a ratio to the raw side, or an amount of ours alone."""

    kind: Literal["at most", "at least", "below"]
    limit: float

    def __str__(self) -> str:
        sign = {"at most": "≤", "at least": "≥", "below": "<"}[self.kind]
        return f"{sign} {self.limit:g}" + (" MB" if self.kind == "below" else "")

    def met(self, line_ratio: float, ours: float) -> bool:
        if self.kind == "below":
            return ours < self.limit
        return line_ratio <= self.limit if self.kind == "at most" else line_ratio >= self.limit


@dataclass(frozen=True)
class Line:
    """A row with its figures; `ours` and `raw` are in `unit`."""

    name: str
    work: str
    unit: Unit
    bar: Bar
    raw: float | None
    ours: float | None
    counted: int
    failures: int = 0

    @property
    def ratio(self) -> float | None:
        """Ours to raw; nothing where there is nothing to divide, and for amounts of memory."""
        if not self.raw or self.ours is None or self.unit == "MB":
            return None
        return self.ours / self.raw

    @property
    def met(self) -> bool:
        """Whether the bar is reached; a work that failed once reaches none."""
        if self.failures or self.ours is None:
            return False
        if self.bar.kind == "below":
            return self.bar.met(0.0, self.ours)
        return self.ratio is not None and self.bar.met(self.ratio, self.ours)


def counted(samples: Samples) -> Samples:
    """Leave out the first round, which warms both sides up, unless it is the only one."""
    return samples[1:] if len(samples) > 1 else samples


def figure(unit: Unit, megabytes: float, sample: float) -> float:
    """Turn one sample into the unit of its row."""
    if unit == "ms":
        return sample * MILLISECONDS
    return sample / MEGABYTE if unit == "MB" else megabytes / sample


def summary(unit: Unit, figures: Sequence[float]) -> float:
    """Return the median; of memory the most there was, since a limit has to hold every time."""
    return max(figures) if unit == "MB" else statistics.median(figures)


def columns(unit: Unit, megabytes: float, samples: Samples) -> tuple[float, float] | None:
    """Return the figures of raw and ours; nothing without samples."""
    if not samples:
        return None
    raw, ours = (
        summary(unit, [figure(unit, megabytes, sample) for sample in side])
        for side in zip(*counted(samples), strict=True)
    )
    return raw, ours
