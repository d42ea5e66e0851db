"""Engines that go away for a while, and proxies that answer in their place."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
import pytest

from sandboxio import ConnectError, LinkLost, OrphanedSandboxWarning, SandboxError
from sandboxio.adapters.docker import DockerBackend
from tests.stub.faults import Answer, Fault
from tests.stub.world import Program

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sandboxio.adapters.docker import DockerConfig
    from sandboxio.protocols import AsyncSandbox
    from tests.stub.conftest import Create
    from tests.stub.engine import StubEngine

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings(  # docker-py drops a unix socket that cannot connect, unclosed
        "ignore::pytest.PytestUnraisableExceptionWarning"
    ),
]

MAKE = "POST /containers/create"
START = "POST /exec/.*/start"
PAGE = Answer(504, b"<html>Gateway Time-out</html>", "text/html")


@pytest.fixture(autouse=True)
def sockets_of_failed_attempts() -> Iterator[None]:
    """Found here, where they are expected, and not in another test."""
    yield
    gc.collect()


async def test_calls_while_the_engine_is_away(sb: AsyncSandbox, stub: StubEngine) -> None:
    """Each is an error at once, and the sandbox works again when the engine does."""
    assert (await sb.run(["true"])).exit_code == 0
    await anyio.to_thread.run_sync(stub.down)
    with anyio.fail_after(5), pytest.raises(ConnectError) as caught:
        await sb.run(["true"], timeout=30)
    stub.up()
    assert str(stub.url) in caught.value.hint
    assert caught.value.outcome in ("not_started", "unknown")
    assert (await sb.run(["true"])).exit_code == 0


async def test_an_engine_that_leaves_in_mid_call(sb: AsyncSandbox, stub: StubEngine) -> None:
    """A call under way when the engine goes is lost, and never a result."""
    stub.world.programs["forever"] = Program(out=b"up\n", lasts=True)
    async with sb.stream(["forever"], timeout=30) as process:
        await anext(aiter(process))
        await anyio.to_thread.run_sync(stub.down)
        with anyio.fail_after(10), pytest.raises(ConnectError) as caught:
            await process.wait()
        stub.up()
    assert caught.value.outcome == "unknown"
    assert (await sb.run(["true"])).exit_code == 0


async def test_an_engine_that_leaves_while_a_call_starts(
    sb: AsyncSandbox, stub: StubEngine
) -> None:
    """Whether the command began is not known, and told so."""
    stub.faults.set(Fault(START, delay=60))
    errors: list[SandboxError] = []

    async def call() -> None:
        with pytest.raises(SandboxError) as caught:
            await sb.run(["true"], timeout=30)
        errors.append(caught.value)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call)
        assert await anyio.to_thread.run_sync(stub.heard, START)
        await anyio.to_thread.run_sync(stub.down)
    stub.up()
    assert isinstance(errors[0], ConnectError | LinkLost)
    assert errors[0].outcome == "unknown"


async def test_an_engine_that_leaves_in_mid_creation(
    create: Create, config: DockerConfig, stub: StubEngine
) -> None:
    """What cannot be removed is warned of, and is there to be removed later."""
    route = "POST /containers/.*/start"
    stub.faults.set(Fault(route, delay=60))

    async def fail() -> None:
        with pytest.warns(OrphanedSandboxWarning), pytest.raises(ConnectError):
            await create()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(fail)
        assert await anyio.to_thread.run_sync(stub.heard, route)
        await anyio.to_thread.run_sync(stub.down)
    stub.up()
    backend = DockerBackend(config=config)
    left = await backend.list_managed()
    assert [await backend.kill_managed(found.sandbox_id) for found in left] == [True]
    assert stub.world.boxes == []


async def test_an_engine_that_comes_back(create: Create, stub: StubEngine) -> None:
    """The same backend that met nobody works when somebody is there."""
    await anyio.to_thread.run_sync(stub.down)
    with anyio.fail_after(5), pytest.raises(ConnectError):
        await create()
    stub.up()
    async with await create() as sandbox:
        assert (await sandbox.run(["true"])).exit_code == 0


async def test_a_proxy_that_gives_up_on_a_creation(create: Create, stub: StubEngine) -> None:
    """Its page says nothing of what the engine does: a container made after all is removed."""
    late = Fault(MAKE, hold=0.3, first=PAGE)
    stub.faults.set(late)
    with anyio.fail_after(5), pytest.raises(SandboxError):
        await create()
    assert await anyio.to_thread.run_sync(stub.heard, "DELETE .*", 2)
    assert stub.world.boxes == []
