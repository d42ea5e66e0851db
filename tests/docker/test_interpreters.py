"""Whole programs, under every check that Python has: no noise, nothing left, an exit in time."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.docker.outside import METADATA, TARGET, Outside, eventually, unique_seconds

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.docker

TOUR = """\
import gc, sys
import anyio, sandboxio

async def main(target, folder, metadata):
    async with await sandboxio.create(target, timeout=100, metadata=metadata) as sb:
        assert (await sb.run("echo out; echo err >&2; exit 3")).exit_code == 3
        assert (await sb.run_code("print(6 * 7)")).stdout == "42\\n"
        assert (await sb.run(["cat"], stdin="in")).stdout == "in"
        async with sb.stream("yes") as process:
            async for chunk in process:
                break
        try:
            await sb.run(["sleep", "60"], timeout=1)
        except sandboxio.ExecutionTimeout:
            pass
        with anyio.move_on_after(0.3):
            await sb.run(["sleep", "60"])
        await sb.files.write("f", b"x" * 1_000_000)
        await sb.files.download("f", folder + "/f")
        await sb.files.upload(folder + "/f", "g")
        assert await sb.files.read("g", length=3) == b"xxx"
    gc.collect()

options = {"uvloop": ("asyncio", {"use_uvloop": True})}.get(sys.argv[1], (sys.argv[1], {}))
metadata = dict(zip(sys.argv[4::2], sys.argv[5::2]))
anyio.run(main, *sys.argv[2:4], metadata, backend=options[0], backend_options=options[1])
"""
FORGETFUL = """\
import sys
import anyio, sandboxio

async def main(target, metadata):
    kept.append(await sandboxio.create(target, timeout=100, metadata=metadata))

kept = []
metadata = dict(zip(sys.argv[2::2], sys.argv[3::2]))
if sys.argv[1].startswith("sync"):
    kept.append(sandboxio.create_sync(sys.argv[1][5:], timeout=100, metadata=metadata))
else:
    anyio.run(main, sys.argv[1][6:], metadata)
"""


def program(code: str, *args: str, mark: str) -> subprocess.CompletedProcess[str]:
    """Run a program whose sandboxes carry a mark, with every warning an error."""
    metadata = [part for pair in {**METADATA, "program": mark}.items() for part in pair]
    command = [sys.executable, "-X", "dev", "-W", "error", "-c", code, *args, *metadata]
    return subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)


@pytest.mark.parametrize("loop", ["asyncio", "trio", "uvloop"])
def test_a_tour(tmp_path: Path, loop: str) -> None:
    """A program that uses everything ends with 0 and without a word, on every event loop."""
    if loop == "uvloop":
        pytest.importorskip("uvloop", reason="uvloop is not installed here")
    done = program(TOUR, loop, TARGET, str(tmp_path), mark=unique_seconds())
    slow_callbacks = [line for line in done.stderr.splitlines() if " took 0." not in line]
    assert (done.returncode, slow_callbacks, done.stdout) == (0, [], "")


@pytest.mark.anyio
@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_a_program_that_forgets_its_sandbox(outside: Outside, kind: str) -> None:
    """It ends at once, and the sandbox is gone soon after."""
    mark = unique_seconds()
    done = program(FORGETFUL, f"{kind}:{TARGET}", mark=mark)
    assert (done.returncode, done.stdout) == (0, "")
    await eventually(lambda: outside.containers(program=mark) == [], within=30)
