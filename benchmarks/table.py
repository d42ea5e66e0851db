"""The lines as text, as Markdown and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.figures import Line

HEADINGS = ("Work", "Raw", "Ours", "Ratio", "Bar", "Met")


def text(lines: Sequence[Line]) -> str:
    """Return an aligned table for a terminal."""
    table = [HEADINGS, *(cells(line) for line in lines)]
    widths = [max(len(row[at]) for row in table) for at in range(len(HEADINGS))]
    return "\n".join(_aligned(row, widths) for row in table)


def markdown(lines: Sequence[Line]) -> str:
    """Return the same for a page; figures are set to the right."""
    table = [HEADINGS, ("---", "---:", "---:", "---:", "---:", "---")]
    table += [(f"`{line.name}`: {line.work}", *cells(line)[1:]) for line in lines]
    return "\n".join(f"| {' | '.join(row)} |" for row in table)


def cells(line: Line) -> tuple[str, str, str, str, str, str]:
    ratio = "" if line.ratio is None else f"{line.ratio:.3f}"
    return (
        line.work,
        _amount(line.raw, line.unit),
        _amount(line.ours, line.unit),
        ratio,
        str(line.bar),
        _verdict(line),
    )


def as_json(lines: Sequence[Line]) -> list[dict[str, object]]:
    return [
        {
            "name": line.name,
            "work": line.work,
            "unit": line.unit,
            "raw": line.raw,
            "ours": line.ours,
            "ratio": line.ratio,
            "bar": {"kind": line.bar.kind, "limit": line.bar.limit},
            "met": line.met,
            "counted": line.counted,
            "failures": line.failures,
        }
        for line in lines
    ]


def _verdict(line: Line) -> str:
    if line.failures:
        return f"failed {line.failures}x"
    return "yes" if line.met else "no"


def _amount(value: float | None, unit: str) -> str:
    """Write three digits that count, and the unit."""
    if value is None:
        return "none"
    digits = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:,.{digits}f} {unit}"


def _aligned(row: Sequence[str], widths: Sequence[int]) -> str:
    first, *middle, last = (
        cell.ljust(width) if at in (0, len(row) - 1) else cell.rjust(width)
        for at, (cell, width) in enumerate(zip(row, widths, strict=True))
    )
    return "  ".join((first, *middle, last)).rstrip()
