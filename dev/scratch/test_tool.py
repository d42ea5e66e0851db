"""Tests of a tool that runs code in a sandbox, as a project with nothing but the wheel has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import sandboxio

if TYPE_CHECKING:
    from sandboxio.testing import FakeBackend


async def lines(text: str) -> int:
    """The tool: count the lines of a text, in a sandbox."""
    async with await sandboxio.create("fake://", timeout=60) as sb:
        return int((await sb.run(["wc", "-l"], stdin=text)).stdout)


@pytest.mark.anyio
async def test_lines_are_counted(sbx_fake: FakeBackend) -> None:
    assert await lines("one\ntwo\n") == 2
    sbx_fake.assert_ran("wc -l")
    sbx_fake.assert_nothing_left()


def test_blocking_code(sbx_fake_sync: sandboxio.SyncSandbox) -> None:
    assert sbx_fake_sync.run("echo hello | tr a-z A-Z").stdout == "HELLO\n"
