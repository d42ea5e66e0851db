"""TIME-4: whoever gives up on `create()`, a container that comes late is found and removed."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
import pytest

from sandboxio import CreateTimeout, OrphanedSandboxWarning
from tests.stub.faults import Fault, lost

if TYPE_CHECKING:
    from tests.stub.conftest import Create
    from tests.stub.engine import StubEngine

pytestmark = pytest.mark.anyio

MAKE = "POST /containers/create"
DELETE = "DELETE /containers/.*"


async def nothing_left(stub: StubEngine) -> bool:
    """Wait for the removal of what was asked for; say whether nothing is there in the end."""
    if MAKE in stub.asked:
        assert await anyio.to_thread.run_sync(stub.heard, DELETE)
    return await anyio.to_thread.run_sync(stub.emptied)


@pytest.fixture
def gate(stub: StubEngine) -> threading.Event:
    """Set when the engine may come to make the container it was asked for."""
    gate = threading.Event()
    stub.faults.set(Fault(MAKE, gate=gate))
    return gate


@pytest.mark.parametrize("seconds", [0, 0.01, 0.05, 0.2, 1])
async def test_cancelled_before_the_engine_answers(
    create: Create,
    stub: StubEngine,
    gate: threading.Event,
    monkeypatch: pytest.MonkeyPatch,
    seconds: float,
) -> None:
    """The cancellation goes through, and what comes when the grace is over is removed."""
    monkeypatch.setenv("SBX_TEARDOWN_GRACE", "0.2")
    with anyio.fail_after(10), anyio.move_on_after(seconds) as scope:
        await create()
    assert scope.cancelled_caught
    gate.set()
    assert await nothing_left(stub)


async def test_out_of_time_before_the_engine_answers(
    create: Create, stub: StubEngine, gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deadline is kept in the same way, and a warning names what may come yet."""
    monkeypatch.setenv("SBX_TEARDOWN_GRACE", "0.2")
    with (
        anyio.fail_after(10),
        pytest.warns(OrphanedSandboxWarning),
        pytest.raises(CreateTimeout) as caught,
    ):
        await create(timeout=0.3)
    gate.set()
    assert caught.value.outcome == "not_started"
    assert await nothing_left(stub)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_container_three_seconds_late(create: Create, stub: StubEngine) -> None:
    """The engine answers after 3 s, a second after the grace has ended."""
    stub.faults.set(Fault(MAKE, hold=3))
    with anyio.move_on_after(1) as scope:
        await create()
    assert scope.cancelled_caught
    assert stub.world.boxes == []
    assert await nothing_left(stub)


async def test_a_container_that_comes_within_the_grace(
    create: Create, stub: StubEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is awaited and removed before the cancellation is passed on."""
    monkeypatch.setenv("SBX_TEARDOWN_GRACE", "10")
    stub.faults.set(Fault(MAKE, hold=0.3))
    with anyio.move_on_after(0.2) as scope:
        await create()
    assert scope.cancelled_caught
    assert (stub.asked[-1].split()[0], stub.world.boxes) == ("DELETE", [])


@pytest.mark.parametrize(
    "route",
    [
        "HEAD /containers/.*/archive",
        "GET /containers/.*/archive",
        "PUT /containers/.*/archive",
        "POST /containers/.*/attach",
        "POST /containers/.*/start",
        "GET /containers/.*/json",
        "GET /info",
    ],
)
async def test_cancelled_at_every_later_step(create: Create, stub: StubEngine, route: str) -> None:
    """Wherever `create()` is when it is cancelled, the container is gone when it returns."""
    gate = threading.Event()
    stub.faults.set(Fault(route, gate=gate))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(create)
        assert await anyio.to_thread.run_sync(stub.heard, route)
        assert len(stub.world.boxes) == 1
        tasks.cancel_scope.cancel()
    assert stub.world.boxes == []
    gate.set()


async def test_an_answer_that_is_lost(create: Create, stub: StubEngine) -> None:
    """A container made without our learning of it is found by its name."""
    stub.faults.set(lost(MAKE))
    with pytest.raises(Exception, match="does not answer"):
        await create()
    assert stub.world.boxes == []
