"""Worker threads of our own: budget, late results, and teardown that always gets a thread."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import anyio
import anyio.from_thread
import anyio.to_thread
import pytest
from anyio.lowlevel import current_token

from sandboxio import ConfigurationError
from sandboxio.core import threads

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

pytestmark = pytest.mark.anyio


class Blocker:
    """A blocking call that says when it began and ends when it is told to."""

    def __init__(self, then: Callable[[], str] = lambda: "made") -> None:
        self.begun = anyio.Event()
        self._token = current_token()
        self.go = threading.Event()
        self._then = then

    def __call__(self) -> str:
        anyio.from_thread.run_sync(self.begun.set, token=self._token)
        self.go.wait()
        return self._then()


@pytest.fixture
async def blocker() -> AsyncIterator[Blocker]:
    made = Blocker()
    yield made
    made.go.set()


async def test_a_call_returns_what_it_returned() -> None:
    """The function runs in another thread, its value or exception comes back as it is."""
    here = threading.get_ident()
    assert await threads.run(threading.get_ident) != here
    with pytest.raises(ZeroDivisionError):
        await threads.run(lambda: 1 // 0)


async def test_a_runtime_error_of_the_call_is_its_own() -> None:
    """`RuntimeError` raised by the function is not taken for a missing thread."""
    calls: list[int] = []

    def fail() -> None:
        calls.append(1)
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        await threads.run(fail)
    assert calls == [1]


async def test_a_cancelled_caller_goes_on_at_once(blocker: Blocker) -> None:
    """Nobody waits for a thread once the call is cancelled."""
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(threads.run, blocker)
            await blocker.begun.wait()
            scope.cancel()
    assert scope.cancelled_caught
    assert not blocker.go.is_set()


async def test_a_late_result_is_disposed_of(blocker: Blocker) -> None:
    """What a call makes after its caller was cancelled is handed to `late`."""
    disposed: list[str] = []
    done = threading.Event()

    def late() -> None:
        disposed.append("made")
        done.set()

    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: threads.run(blocker, late=late))
            await blocker.begun.wait()
            scope.cancel()
    assert disposed == []
    blocker.go.set()
    assert await anyio.to_thread.run_sync(done.wait, 30)
    assert disposed == ["made"]


async def test_a_result_that_arrived_is_not_disposed_of() -> None:
    """`late` is for results nobody has."""
    disposed: list[str] = []
    assert await threads.run(lambda: "made", late=lambda: disposed.append("made")) == "made"
    assert disposed == []


async def test_the_program_s_own_threads_are_left_alone(blocker: Blocker) -> None:
    """Our calls take nothing from anyio's default limiter."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(threads.run, blocker)
        await blocker.begun.wait()
        assert anyio.to_thread.current_default_thread_limiter().borrowed_tokens == 0
        blocker.go.set()


async def test_teardown_gets_a_thread_when_there_is_none_left(
    blocker: Blocker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the budget used up an ordinary call waits and an urgent one does not."""
    monkeypatch.setenv("SBX_DOCKER_THREADS", "1")
    ordinary: list[str] = []

    async def queued() -> None:
        ordinary.append(await threads.run(lambda: "ordinary"))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(threads.run, blocker)
        await blocker.begun.wait()
        tasks.start_soon(queued)
        assert await threads.run(lambda: "urgent", lane="teardown") == "urgent"
        assert ordinary == []
        blocker.go.set()
    assert ordinary == ["ordinary"]


async def test_waiting_for_a_thread_can_be_cancelled(
    blocker: Blocker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that never got a thread never runs."""
    monkeypatch.setenv("SBX_DOCKER_THREADS", "1")
    ran: list[int] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(threads.run, blocker)
        await blocker.begun.wait()
        with anyio.move_on_after(0.01) as scope:
            await threads.run(lambda: ran.append(1))
        assert scope.cancelled_caught
        blocker.go.set()
    assert await threads.run(lambda: "next") == "next"
    assert ran == []


async def test_the_time_left_is_told_to_the_thread() -> None:
    """Transports read how long their operation may still take."""
    assert await threads.run(threads.remaining_time.get) == threads.UNBOUNDED_CALL
    with anyio.fail_after(1000):
        assert 900 < (await threads.run(threads.remaining_time.get) or 0) <= 1000
        assert await threads.run(threads.remaining_time.get, at_least=2000) == 2000
    assert threads.remaining_time.get() is None


@pytest.mark.parametrize("value", ["", "0", "-1", "1.5", "many", " 8"])
async def test_an_odd_budget_is_refused(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    """The variable holds a whole number above 0; teardown works all the same."""
    monkeypatch.setenv("SBX_DOCKER_THREADS", value)
    with pytest.raises(ConfigurationError, match="SBX_DOCKER_THREADS"):
        await threads.run(lambda: "ordinary")
    assert await threads.run(lambda: "urgent", lane="teardown") == "urgent"


def test_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """The default is 64 threads; the variable overrides it."""
    monkeypatch.delenv("SBX_DOCKER_THREADS", raising=False)
    assert threads.thread_budget() == 64
    monkeypatch.setenv("SBX_DOCKER_THREADS", "8")
    assert threads.thread_budget() == 8


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_thread_outlives_its_loop(backend: str) -> None:
    """A call that ends when its event loop is closed already ends all the same."""
    go, over = threading.Event(), threading.Event()

    async def abandon() -> None:
        with anyio.move_on_after(0.01):
            await threads.run(lambda: go.wait(20), late=over.set)

    before = {*threading.enumerate()}
    anyio.run(abandon, backend=backend)
    (left,) = {*threading.enumerate()} - before
    go.set()
    assert over.wait(5)
    left.join(5)
    assert not left.is_alive()
