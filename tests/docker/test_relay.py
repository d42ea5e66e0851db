"""Connections to the engine that are slow, late or cut: never a wrong result, nothing left."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import anyio
import pytest

import sandboxio
from sandboxio import (
    ConnectError,
    CreateTimeout,
    ExecutionTimeout,
    LinkLost,
    OrphanedSandboxWarning,
    SandboxError,
)
from sandboxio.adapters.docker import DockerConfig
from tests.docker.outside import IMAGE, METADATA, Outside, eventually, unique_seconds
from tests.docker.relay import Fault, Relay, relay_at

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from sandboxio.protocols import AsyncSandbox

pytestmark = [pytest.mark.docker, pytest.mark.anyio]

START = r"POST .*/exec/[0-9a-f]+/start"
INSPECT = r"GET .*/exec/[0-9a-f]+/json"
CREATE = r"POST .*/containers/create"
LATE = {
    "the start itself": Fault(START, hold=1, times=1),
    "its answer": Fault(START, delay=1, times=1),
}

late = pytest.mark.parametrize("fault", LATE.values(), ids=LATE)
cut = pytest.mark.parametrize("cut_after", [0, 40])


@pytest.fixture
def relay(tmp_path: Path) -> Iterator[Relay]:
    with relay_at(tmp_path / "relay.sock") as made:
        yield made


@pytest.fixture
def mark() -> str:
    """A text that only this test's processes and containers carry."""
    return unique_seconds()


@pytest.fixture
def config(relay: Relay, mark: str) -> DockerConfig:
    return DockerConfig(host=relay.url, template=IMAGE, metadata={**METADATA, "relay": mark})


@pytest.fixture
async def far(config: DockerConfig) -> AsyncIterator[AsyncSandbox]:
    """A sandbox reached through the relay, which has no faults yet."""
    async with await sandboxio.create(config, timeout=120) as sandbox:
        yield sandbox


async def test_slow_output_arrives_whole(far: AsyncSandbox, relay: Relay) -> None:
    """Output that is still under way when its command has long ended is not cut in silence."""
    relay.faults = [Fault(START, per_second=1_000_000)]
    result = await far.run("head -c 3000000 /dev/zero; printf end")
    assert result.stdout.endswith("end")
    assert (result.stdout_bytes, result.stdout_truncated) == (3_000_003, False)


@late
async def test_a_start_cancelled_by_its_task(
    far: AsyncSandbox, relay: Relay, outside: Outside, mark: str, fault: Fault
) -> None:
    """TIME-3: `task.cancel()` while the engine is starting the call leaves no process."""
    relay.faults = [fault]
    task = asyncio.ensure_future(far.run(["sleep", mark]))
    await eventually(lambda: relay.met[fault])
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await eventually(lambda: outside.calls(far) == [])
    assert (await far.run(["echo", "on"])).stdout == "on\n"


@late
async def test_a_start_cancelled_by_a_timeout_of_the_loop(
    far: AsyncSandbox, relay: Relay, outside: Outside, mark: str, fault: Fault
) -> None:
    """TIME-3: `asyncio.timeout` gives its own TimeoutError, and no process is left."""
    relay.faults = [fault]
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await far.run(["sleep", mark])
    assert relay.met[fault]
    await eventually(lambda: outside.calls(far) == [])


@late
async def test_a_start_that_takes_longer_than_its_call_may(
    far: AsyncSandbox, relay: Relay, outside: Outside, mark: str, fault: Fault
) -> None:
    """TIME-1: a call's own timeout during its start is a timeout, and no process is left."""
    relay.faults = [fault]
    with pytest.raises(ExecutionTimeout):
        await far.run(["sleep", mark], timeout=0.5)
    assert relay.met[fault]
    await eventually(lambda: outside.calls(far) == [])


@cut
async def test_a_start_whose_answer_is_lost(
    far: AsyncSandbox, relay: Relay, outside: Outside, mark: str, cut_after: int
) -> None:
    """When nobody learns whether the call began, the error says so and the call is ended."""
    relay.faults = [Fault(START, cut_after=cut_after, times=1)]
    with pytest.raises(ConnectError) as caught:
        await far.run(["sleep", mark])
    assert caught.value.outcome == "unknown"
    await eventually(lambda: outside.calls(far) == [])
    assert (await far.run(["echo", "on"])).stdout == "on\n"


async def test_an_engine_that_falls_silent(
    far: AsyncSandbox, relay: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call's own deadline holds, but for the grace, although its answer never comes."""
    monkeypatch.setenv("SBX_TEARDOWN_GRACE", "2")
    relay.faults = [Fault(START, delay=60, times=1)]
    with anyio.fail_after(25), pytest.raises(SandboxError) as caught:
        await far.run(["true"], timeout=1)
    assert isinstance(caught.value, ExecutionTimeout | LinkLost)


@pytest.mark.parametrize("cut_after", [1_000, 300_000])
async def test_a_connection_cut_in_the_midst_of_output(
    far: AsyncSandbox, relay: Relay, outside: Outside, mark: str, cut_after: int
) -> None:
    """A broken stream is an error, never a result, and its command is ended."""
    relay.faults = [Fault(START, cut_after=cut_after, times=1)]
    with pytest.raises(LinkLost):
        await far.run(f"head -c 3000000 /dev/zero; sleep {mark}")
    await eventually(lambda: outside.calls(far) == [])


@pytest.mark.parametrize("skip", range(6))
async def test_a_reset_during_an_ending_does_not_cost_the_sandbox(
    far: AsyncSandbox, relay: Relay, mark: str, skip: int
) -> None:
    """One lost answer about an exec, whichever, is asked for again."""
    async with far.stream("echo up; read line", stdin=True) as beside:
        await anext(aiter(beside))
        async with far.stream(["sleep", mark]) as proc:
            relay.faults = [Fault(INSPECT, cut_after=0, skip=skip, times=1)]
            await proc.kill()
        relay.faults = []
        await beside.close_stdin()
        assert (await beside.wait()).exit_code == 1
    assert (await far.run(["echo", "on"])).stdout == "on\n"


async def test_a_container_that_comes_late(
    config: DockerConfig, relay: Relay, outside: Outside, mark: str
) -> None:
    """TIME-4: a create answered after its deadline leaves nothing, not even Created."""
    relay.faults = [Fault(CREATE, delay=3)]
    with pytest.raises(CreateTimeout):
        await sandboxio.create(config, timeout=1)
    assert relay.met[relay.faults[0]] == 1
    await eventually(lambda: outside.containers(relay=mark) == [])


async def test_a_container_that_comes_after_the_grace(
    config: DockerConfig,
    relay: Relay,
    outside: Outside,
    mark: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """TIME-4: what comes when nobody waits for it any more is removed all the same."""
    monkeypatch.setenv("SBX_TEARDOWN_GRACE", "0.3")
    relay.faults = [Fault(CREATE, delay=3)]
    with pytest.warns(OrphanedSandboxWarning), pytest.raises(CreateTimeout):
        await sandboxio.create(config, timeout=1)
    assert len(outside.containers(relay=mark)) == 1
    await eventually(lambda: outside.containers(relay=mark) == [], within=10)


@cut
async def test_a_create_whose_answer_is_lost(
    config: DockerConfig, relay: Relay, outside: Outside, mark: str, cut_after: int
) -> None:
    """A container made without our learning of it is found by its name and removed."""
    relay.faults = [Fault(CREATE, cut_after=cut_after)]
    with pytest.raises(ConnectError):
        await sandboxio.create(config)
    assert relay.met[relay.faults[0]] == 1
    await eventually(lambda: outside.containers(relay=mark) == [])
