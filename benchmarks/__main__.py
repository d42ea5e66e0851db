"""`python -m benchmarks`: measures, prints the table and keeps the samples."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from benchmarks import document, rows_calls, rows_files, rows_life, table
from benchmarks.machine import describe
from benchmarks.measure import measure
from benchmarks.raw import Raw
from benchmarks.rows import stage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarks.measure import Measured
    from benchmarks.rows import Row

ROOT = Path(__file__).resolve().parents[1]
SAMPLES = ROOT / "benchmarks/samples.json"
PAGE = ROOT / "docs/reference/performance.md"
IMAGE = os.environ.get("SANDBOXIO_TEST_IMAGE", "sandboxio-test/python")
HOST = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
ROWS = [*rows_calls.ROWS, *rows_files.ROWS, *rows_life.ROWS]
ROUNDS = 15


def arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--rounds", type=_rounds, default=ROUNDS, help="how often (%(default)s)")
    parser.add_argument("--rows", type=chosen, default=ROWS, help="NAME,… of the works")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the lines as JSON")
    parser.add_argument("--write-docs", action="store_true", help=f"write {PAGE.relative_to(ROOT)}")
    parser.add_argument("--strict", action="store_true", help="exit with 1 where a bar is missed")
    given = parser.parse_args(words)
    if given.write_docs and len(given.rows) < len(ROWS):
        parser.error("--write-docs writes the whole table: leave --rows out")
    if not HOST.startswith("unix://"):
        parser.error("the raw client speaks to a unix socket only: set DOCKER_HOST to one")
    return given


def chosen(names: str) -> list[Row]:
    """Return the rows of some names, in the order of the table."""
    wanted = set(names.split(","))
    if unknown := wanted - {row.name for row in ROWS}:
        known = ", ".join(row.name for row in ROWS)
        raise argparse.ArgumentTypeError(
            f"no row is called {', '.join(unknown)}: there are {known}"
        )
    return [row for row in ROWS if row.name in wanted]


def _rounds(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError("rounds are a number of at least 1")
    return int(text)


async def run(rows: Sequence[Row], rounds: int) -> tuple[list[Measured], Mapping[str, str]]:
    """Measure; whatever happens, no raw container is left."""
    raw = Raw(HOST.removeprefix("unix://"), IMAGE)
    try:
        async with stage(raw, IMAGE) as where:
            machine = await anyio.to_thread.run_sync(describe, where, IMAGE)
            return await measure(where, rows, rounds, _tell), machine.facts()
    finally:
        raw.another().remove_all()


def main(words: Sequence[str]) -> int:
    given = arguments(words)
    # What ends this process in an orderly way takes the containers along, as Ctrl-C does.
    signal.signal(signal.SIGTERM, _interrupt)
    measured, facts = anyio.run(run, given.rows, given.rounds)
    lines = [one.line() for one in measured]
    _tell("")
    print(table.text(lines))
    for one in measured:
        for failure in one.failures:
            print(f"{one.row.name} failed: {failure}")
    _keep(measured, facts)
    if given.json is not None:
        _write(given.json, {"machine": facts, "rows": table.as_json(lines)})
    if given.write_docs:
        PAGE.write_text(document.page(lines, facts), encoding="utf-8")
    return int(given.strict and not all(line.met for line in lines))


def _interrupt(_number: int, _frame: object) -> None:
    signal.raise_signal(signal.SIGINT)


def _keep(measured: Sequence[Measured], facts: Mapping[str, str]) -> None:
    samples = {one.row.name: one.samples for one in measured}
    _write(SAMPLES, {"machine": facts, "samples": samples})


def _write(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def _tell(what: str) -> None:
    """Show what goes on, on one line, where somebody watches."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{what}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
