"""`python -m benchmarks [rounds]`: prints the table and keeps the raw samples."""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread

import sandboxio
from benchmarks.raw import Raw

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sandboxio.protocols import AsyncSandbox

SOCKET = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock").removeprefix("unix://")
IMAGE = os.environ.get("SANDBOXIO_TEST_IMAGE", "sandboxio-test/python")
SAMPLES = Path("benchmarks/samples.json")
TEN_MB = ["head", "-c", "10000000", "/dev/zero"]
KILOBYTE = b"x" * 1024

Samples = dict[str, list[tuple[float, float]]]


class Bench:
    """Interleaves each work with its raw twin and notes both times, in milliseconds."""

    def __init__(self) -> None:
        self.raw = Raw(SOCKET, IMAGE)
        self.samples: Samples = defaultdict(list)

    async def row(
        self, name: str, raw: Callable[[], object], ours: Callable[[], Awaitable[object]]
    ) -> None:
        started = time.perf_counter()
        await anyio.to_thread.run_sync(raw)
        between = time.perf_counter()
        await ours()
        ended = time.perf_counter()
        self.samples[name].append(((between - started) * 1000, (ended - between) * 1000))

    async def life(self) -> None:
        """Create, run `true`, be gone."""
        await self.row("create, true, gone", self._raw_life, self._our_life)

    async def calls(self, container: str, sb: AsyncSandbox) -> None:
        raw, row = self.raw, self.row
        python = ["python3", "-c", "print(1)"]
        await row("run true", lambda: raw.run(container, ["true"]), lambda: sb.run(["true"]))
        await row("run python3 -c", lambda: raw.run(container, python), lambda: sb.run(python))
        await row("run_code", lambda: raw.run(container, python), lambda: sb.run_code("print(1)"))
        await row("10 MB output", lambda: raw.run(container, TEN_MB), lambda: sb.run(TEN_MB))
        await row(
            "write 1 KB",
            lambda: raw.write(container, "f", KILOBYTE),
            lambda: sb.files.write("f", KILOBYTE),
        )
        await row("read 1 KB", lambda: raw.read(container, "f"), lambda: sb.files.read("f"))

    def _raw_life(self) -> None:
        container = self.raw.create()
        self.raw.run(container, ["true"])
        self.raw.remove(container)

    async def _our_life(self) -> None:
        async with await sandboxio.create(f"docker://{IMAGE}") as sb:
            await sb.run(["true"])


async def main(rounds: int) -> None:
    bench = Bench()
    container = bench.raw.create()
    try:
        async with await sandboxio.create(f"docker://{IMAGE}", timeout=600) as sb:
            for _ in range(rounds):
                await bench.calls(container, sb)
        for _ in range(rounds):
            await bench.life()
    finally:
        bench.raw.remove(container)
    _report(bench.samples)


def _report(samples: Samples) -> None:
    SAMPLES.write_text(json.dumps(samples, indent=1) + "\n", encoding="utf-8")
    print(f"{'work':<20} {'raw ms':>8} {'ours ms':>8} {'ratio':>6}")
    for name, pairs in samples.items():
        columns = zip(*_without_first(pairs), strict=True)
        raw, ours = (statistics.median(column) for column in columns)
        print(f"{name:<20} {raw:8.1f} {ours:8.1f} {ours / raw:6.2f}")


def _without_first(pairs: list[Any]) -> list[Any]:
    return pairs[1:] if len(pairs) > 1 else pairs


if __name__ == "__main__":
    anyio.run(main, int(sys.argv[1]) if len(sys.argv) > 1 else 15)
