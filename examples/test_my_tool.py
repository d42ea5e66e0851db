"""Tests of a small tool that runs code in a sandbox: no engine, no network, no waiting."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import sandboxio
from sandboxio import ExecResult, NetworkPolicy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sandboxio.testing import FakeBackend

pytestmark = pytest.mark.anyio


async def check(code: str) -> str:
    """The tool: run somebody's tests in a sandbox, and say in one line how it went."""
    try:
        async with await sandboxio.create("docker://python:3.12-slim", timeout=120) as sb:
            await sb.files.write("test_it.py", code)
            done = await sb.run(["pytest", "-q"], timeout=60)
    except sandboxio.ExecutionTimeout:
        return "too slow"
    except sandboxio.CreationError as exc:
        return f"no sandbox: {exc.code}"
    return "passed" if done.ok else f"failed: {done.stdout.splitlines()[-1]}"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def fake(sbx_fake: FakeBackend) -> Iterator[FakeBackend]:
    """`docker://` leads to the fake while a test runs, and afterwards nothing may be left."""
    with sbx_fake.serving("docker"):
        yield sbx_fake
    sbx_fake.assert_nothing_left()


async def test_a_failure_is_reported(fake: FakeBackend) -> None:
    fake.on_run("pytest", returns=ExecResult(1, "..F\n1 failed\n", ""))
    assert await check("def test(): assert 0") == "failed: 1 failed"
    assert fake.assert_ran("pytest").network == NetworkPolicy(egress="deny")


async def test_slow_code_is_given_up(fake: FakeBackend) -> None:
    fake.on_run("pytest", hangs=True)
    assert await check("while True: pass") == "too slow"  # a minute that takes no time
    assert fake.clock.time() == 60


async def test_a_provider_that_refuses(fake: FakeBackend) -> None:
    fake.simulate(create_fails=RuntimeError("quota"))
    assert await check("") == "no sandbox: SBX_E1201"
