"""Calls that are cancelled at each of their awaits: no orphan, nothing swallowed, no noise."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import pytest

import sandboxio
from tests.docker.outside import METADATA, TARGET, Outside, eventually, unique_seconds
from tests.stepwise import cancel_at_each_await

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from sandboxio.protocols import AsyncSandbox

pytestmark = [
    pytest.mark.docker,
    pytest.mark.anyio,
    pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"], scope="module"),
]

scopes = pytest.mark.parametrize("scopes", [1, 2], ids=["once", "twice"])


@scopes
async def test_create(outside: Outside, scopes: int) -> None:
    """`create()`, and the end of its block, leave no container, wherever they are cancelled."""
    mark = unique_seconds()

    async def live() -> None:
        metadata = {**METADATA, "step": mark}
        async with await sandboxio.create(TARGET, timeout=100, metadata=metadata):
            await anyio.lowlevel.checkpoint()

    assert await cancel_at_each_await(live, stride=3, scopes=scopes) > 5
    await eventually(lambda: outside.containers(step=mark) == [], within=20)


@scopes
@pytest.mark.parametrize("kind", ["run", "run_with_input", "run_code", "stream"])
async def test_a_call(sb: AsyncSandbox, outside: Outside, kind: str, scopes: int) -> None:
    """A call leaves no process in the sandbox, which works on."""
    act = {
        "run": lambda: sb.run("echo ok; sleep 0.05"),
        "run_with_input": lambda: sb.run(["cat"], stdin="x" * 100_000),
        "run_code": lambda: sb.run_code("print(1)"),
        "stream": lambda: _stream(sb),
    }[kind]
    assert await cancel_at_each_await(act, stride=2, scopes=scopes) > 3
    await eventually(lambda: outside.calls(sb) == [], within=20)
    assert (await sb.run(["echo", "ok"])).stdout == "ok\n"


@pytest.mark.parametrize("kind", ["write", "read", "upload", "download", "ls"])
async def test_a_file_operation(
    sb: AsyncSandbox, outside: Outside, tmp_path: Path, kind: str
) -> None:
    """A file operation leaves no process, no helper file, and nothing half made on the host."""
    (tmp_path / "in").write_bytes(b"x" * 100_000)
    await sb.files.write("d", b"y" * 100_000)
    acts: dict[str, Callable[[], Awaitable[object]]] = {
        "write": lambda: sb.files.write("w", b"x" * 100_000),
        "read": lambda: sb.files.read("d"),
        "upload": lambda: sb.files.upload(tmp_path / "in", "u"),
        "download": lambda: sb.files.download("d", tmp_path / "out"),
        "ls": lambda: sb.files.ls(),
    }
    assert await cancel_at_each_await(acts[kind], stride=2) > 3
    await eventually(lambda: outside.calls(sb) == [], within=20)
    assert {entry.path for entry in await sb.files.ls()} <= {"d", "w", "u"}
    assert {path.name for path in tmp_path.iterdir()} <= {"in", "out"}


async def _stream(sandbox: AsyncSandbox) -> None:
    async with sandbox.stream("echo one; sleep 0.05; echo two", stdin=True) as process:
        await process.write("x")
        await process.close_stdin()
        async for _ in process:
            pass
        await process.wait()
