"""Connections to the engine that are slow, late or cut: never a wrong result, nothing left."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest

import sandboxio
from sandboxio import CreateTimeout, ExecutionTimeout, LinkLost, SandboxError
from sandboxio.adapters.docker import DockerConfig
from tests.docker.outside import IMAGE, METADATA, Outside, eventually, unique_seconds
from tests.docker.relay import Fault, Relay, relay_at

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from sandboxio.protocols import AsyncSandbox

pytestmark = [pytest.mark.docker, pytest.mark.anyio]

START = r"/exec/[0-9a-f]+/start"
CREATE = r"/containers/create"


@pytest.fixture
def relay() -> Iterator[Relay]:
    with tempfile.TemporaryDirectory() as folder, relay_at(Path(folder) / "relay.sock") as made:
        yield made


@pytest.fixture
def config(relay: Relay) -> DockerConfig:
    return DockerConfig(host=relay.url, template=IMAGE, metadata=METADATA)


@pytest.fixture
async def far(config: DockerConfig) -> AsyncIterator[AsyncSandbox]:
    """A sandbox reached through the relay, which has no faults yet."""
    async with await sandboxio.create(config) as sandbox:
        yield sandbox


async def test_slow_output_arrives_whole(far: AsyncSandbox, relay: Relay) -> None:
    """Output that is still under way when its command has long ended is not cut in silence."""
    relay.faults = [Fault(START, per_second=1_000_000)]
    result = await far.run("head -c 3000000 /dev/zero; printf end", timeout=60)
    assert result.stdout.endswith("end")
    assert (result.stdout_bytes, result.stdout_truncated) == (3_000_003, False)


async def test_a_start_cancelled_by_asyncio(
    far: AsyncSandbox, relay: Relay, outside: Outside
) -> None:
    """`task.cancel()` while the engine is still starting the call leaves no process."""
    relay.faults = [Fault(START, delay=0.7, times=1)]
    mark = unique_seconds()
    task = asyncio.create_task(far.run(["sleep", mark]))
    await eventually(lambda: any(mark in seen.args for seen in outside.processes(far)))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await eventually(lambda: outside.calls(far) == [])


@pytest.mark.parametrize("cut_after", [0, 40])
async def test_a_start_whose_answer_is_lost(
    far: AsyncSandbox, relay: Relay, outside: Outside, cut_after: int
) -> None:
    """When nobody learns whether the call began, it is ended all the same."""
    relay.faults = [Fault(START, cut_after=cut_after, times=1)]
    with pytest.raises(SandboxError) as caught:
        await far.run(["sleep", unique_seconds()])
    assert caught.value.outcome != "done"
    await eventually(lambda: outside.calls(far) == [])


async def test_a_connection_cut_in_the_midst_of_output(far: AsyncSandbox, relay: Relay) -> None:
    """A broken stream is an error, never a result."""
    relay.faults = [Fault(START, cut_after=1000, times=1)]
    with pytest.raises(LinkLost):
        await far.run(["head", "-c", "3000000", "/dev/zero"])


async def test_a_reset_during_an_ending_does_not_cost_the_sandbox(
    far: AsyncSandbox, relay: Relay
) -> None:
    """One lost answer about an exec is asked for again."""

    async def spoil() -> None:
        relay.faults = [Fault(r"/exec/[0-9a-f]+/json", cut_after=0, times=1)]

    async with far.stream(["sleep", unique_seconds()], timeout=60) as proc:
        await spoil()
        await proc.kill()
    assert (await far.run(["echo", "on"])).stdout == "on\n"


async def test_a_container_that_comes_late(
    config: DockerConfig, relay: Relay, outside: Outside
) -> None:
    """TIME-4: a create that is answered after its deadline leaves nothing, not even Created."""
    await _warm(config)
    relay.faults = [Fault(CREATE, delay=3)]
    with pytest.raises(CreateTimeout):
        await sandboxio.create(config, timeout=1)
    await eventually(lambda: outside.containers(**METADATA) == [], within=10)


async def test_a_create_whose_answer_is_lost(
    config: DockerConfig, relay: Relay, outside: Outside
) -> None:
    """A container made without our learning of it is found by its name and removed."""
    await _warm(config)
    relay.faults = [Fault(CREATE, cut_after=0)]
    with pytest.raises(SandboxError):
        await sandboxio.create(config)
    await eventually(lambda: outside.containers(**METADATA) == [], within=10)


async def test_an_engine_that_falls_silent(far: AsyncSandbox, relay: Relay) -> None:
    """A call's own deadline holds although its answer never comes."""
    relay.faults = [Fault(START, delay=30, times=1)]
    with anyio.fail_after(25), pytest.raises(SandboxError) as caught:
        await far.run(["true"], timeout=1)
    assert isinstance(caught.value, ExecutionTimeout | LinkLost)


async def _warm(config: DockerConfig) -> None:
    """Have a first sandbox read what the image says, so that only the create call is slow."""
    async with await sandboxio.create(config):
        pass
