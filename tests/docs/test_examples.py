"""Every Python block of the documentation runs exactly as written."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from .blocks import Block, blocks, run

if TYPE_CHECKING:
    from pathlib import Path

    from .double import HostBackend

PYTHON = blocks("python")
RUN = [block for block in PYTHON if block.mark != "not run"]
OFFLINE = [block for block in RUN if block.mark != "engine only"]
NOT_RUN_LIMIT = 2
_TEST = re.compile(r"^(async )?def test_", re.MULTILINE)


@pytest.mark.parametrize("block", OFFLINE, ids=str)
def test_block_runs_offline(block: Block, double: HostBackend) -> None:
    """A reader without an engine is shown nothing that would fail with one."""
    run(block)


def test_blocks_of_tests_pass(tmp_path: Path) -> None:
    """What is shown as a test is one: it passes where the plugin is, and anyio's is told a loop."""
    shown = [block for block in OFFLINE if _TEST.search(block.text)]
    assert len(shown) >= 3
    for number, block in enumerate(shown):
        (tmp_path / f"test_{number}.py").write_text(block.text, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:asyncio", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, tmp_path], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.docker
@pytest.mark.parametrize("block", RUN, ids=str)
@pytest.mark.usefixtures("engine")
def test_block_runs_on_a_real_engine(block: Block) -> None:
    """A copied example works."""
    run(block)


def test_blocks_are_found() -> None:
    """The tests above look at something: most blocks need no engine."""
    assert len(OFFLINE) > len(PYTHON) / 2 > 5


def test_blocks_not_run_are_few_and_say_why() -> None:
    """Not running is an exception with a reason."""
    left_out = {str(block): block.reason for block in PYTHON if block.mark == "not run"}
    assert len(left_out) <= NOT_RUN_LIMIT, left_out
