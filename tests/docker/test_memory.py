"""What a call beyond the memory cap ends with."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import pytest

from sandboxio import ResourceLimitExceeded, Resources

if TYPE_CHECKING:
    from sandboxio.protocols import AsyncSandbox
    from tests.docker.conftest import Make

pytestmark = [pytest.mark.anyio, pytest.mark.docker]

HUNGRY = "print(1, flush=True)\nx = bytearray(400 * 1024 * 1024)"


@pytest.fixture
async def small(make: Make) -> AsyncSandbox:
    """A sandbox that may hold 128 MiB."""
    return await make(resources=Resources(memory_mb=128))


@pytest.mark.parametrize("kind", ["argv", "shell", "code"])
async def test_a_call_beyond_the_cap(small: AsyncSandbox, kind: str) -> None:
    """RES-1: it raises `ResourceLimitExceeded`, which names the cap and has the output."""
    argv = ["python3", "-c", HUNGRY]
    calls = {
        "argv": lambda: small.run(argv),
        "shell": lambda: small.run(shlex.join(argv)),
        "code": lambda: small.run_code(HUNGRY),
    }
    with pytest.raises(ResourceLimitExceeded, match="memory limit of 128 MiB") as caught:
        await calls[kind]()
    assert caught.value.partial.stdout == "1\n"
    assert caught.value.outcome == "done"
    assert "memory_mb=256" in caught.value.hint
    assert (await small.run("echo ok")).stdout == "ok\n"


async def test_a_stream_beyond_the_cap(small: AsyncSandbox) -> None:
    """The output comes first, then the error, which `wait()` raises too."""
    async with small.stream(["python3", "-c", HUNGRY]) as proc:
        async for chunk in proc:
            assert chunk.data == b"1\n"
            break
        for _ in range(2):
            with pytest.raises(ResourceLimitExceeded):
                await proc.wait()
    assert proc.returncode == 137


async def test_a_kill_is_no_lack_of_memory(small: AsyncSandbox) -> None:
    """A plain SIGKILL stays 137, also after a call that was killed for memory."""
    with pytest.raises(ResourceLimitExceeded):
        await small.run_code(HUNGRY)
    assert (await small.run("kill -9 $$")).exit_code == 137
    assert (await small.run("exit 137")).exit_code == 137
