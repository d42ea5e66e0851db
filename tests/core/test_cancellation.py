"""Cancellation: it surfaces as cancellation, and the call it hit is ended."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import anyio
import pytest

from sandboxio import ConnectError, ExecutionTimeout, LinkLost
from sandboxio.core.driver import KillReport
from tests.doubles import Play

if TYPE_CHECKING:
    from sandboxio.core.record import OperationRecord
    from sandboxio.core.sandbox import Sandbox
    from tests.doubles import DoubleDriver

pytestmark = pytest.mark.anyio

only_asyncio = pytest.mark.parametrize("anyio_backend", ["asyncio"])


@pytest.mark.parametrize("step", ["start", "receive", "wait"])
@pytest.mark.parametrize("stdin", [None, b"x"])
async def test_cancelling_a_call(
    sandbox: Sandbox,
    driver: DoubleDriver,
    records: list[OperationRecord],
    step: str,
    stdin: bytes | None,
) -> None:
    """In any step the cancellation stays one, what runs is killed, the record says it."""
    driver.steps.hang.add(step)
    with anyio.CancelScope() as scope:
        driver.steps.call[step] = scope.cancel
        await sandbox.run(["x"], stdin=stdin)
    assert scope.cancelled_caught
    assert ("kill" in driver.steps.done) is (step != "start")
    assert [record.outcome for record in records] == ["cancelled"]
    driver.steps.hang.clear()
    driver.steps.call.clear()
    assert (await sandbox.run(["true"])).ok


async def test_cancelling_while_letting_go(sandbox: Sandbox, driver: DoubleDriver) -> None:
    """Once the command has ended, cancellation does not keep its channel from being closed."""
    with anyio.CancelScope() as scope:
        driver.steps.call["aclose"] = scope.cancel
        await sandbox.run(["x"])
        await anyio.lowlevel.checkpoint()
    assert scope.cancelled_caught
    assert "aclose" in driver.steps.done


async def test_cancelling_during_the_kill(sandbox: Sandbox, driver: DoubleDriver) -> None:
    """A second cancellation, by an outer scope, does not stop the kill either."""
    driver.steps.hang.add("receive")
    with anyio.CancelScope() as outer, anyio.CancelScope() as inner:
        driver.steps.call = {"receive": inner.cancel, "kill": outer.cancel}
        await sandbox.run(["x"])
    assert outer.cancel_called
    assert driver.steps.done[-2:] == ["kill", "aclose"]


async def test_the_caller_s_own_deadline(sandbox: Sandbox, driver: DoubleDriver) -> None:
    """`move_on_after` around a call is the caller's, and no timeout of ours."""
    driver.steps.hang.add("receive")
    with anyio.move_on_after(0.01) as scope:
        await sandbox.run(["x"])
    assert scope.cancelled_caught
    assert driver.steps.done[-2:] == ["kill", "aclose"]


async def test_the_caller_s_fail_after(sandbox: Sandbox, driver: DoubleDriver) -> None:
    """`fail_after` raises Python's own `TimeoutError`."""
    driver.steps.hang.add("receive")
    with pytest.raises(TimeoutError), anyio.fail_after(0.01):
        await sandbox.run(["x"])
    assert "kill" in driver.steps.done


async def test_an_incomplete_kill_removes_the_sandbox(
    sandbox: Sandbox, driver: DoubleDriver
) -> None:
    """Cancellation leaves nothing running either: what cannot be ended is removed."""
    driver.play = Play(report=KillReport(complete=False))
    driver.steps.hang.add("receive")
    with anyio.CancelScope() as scope:
        driver.steps.call["receive"] = scope.cancel
        await sandbox.run(["x"])
    assert scope.cancelled_caught
    assert "remove" in driver.steps.done


@pytest.mark.filterwarnings("ignore::sandboxio.OrphanedSandboxWarning")
async def test_errors_of_the_clean_up_do_not_hide_the_cancellation(
    sandbox: Sandbox, driver: DoubleDriver
) -> None:
    """When kill and removal fail, the caller still sees its cancellation."""
    driver.steps.fail = {"kill": LinkLost("broken"), "remove": ConnectError("no engine")}
    driver.steps.hang.add("receive")
    with anyio.CancelScope() as scope:
        driver.steps.call["receive"] = scope.cancel
        await sandbox.run(["x"])
    assert scope.cancelled_caught


@only_asyncio
async def test_task_cancel(sandbox: Sandbox, driver: DoubleDriver) -> None:
    """`task.cancel()` raises `CancelledError` and the call is killed."""
    driver.steps.hang.add("receive")
    task = asyncio.create_task(sandbox.run(["x"]))
    await driver.steps.reached("receive")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert driver.steps.done[-2:] == ["kill", "aclose"]


@only_asyncio
async def test_wait_for(sandbox: Sandbox, driver: DoubleDriver) -> None:
    """`asyncio.wait_for` raises Python's `TimeoutError`, never ours, and the call is killed."""
    driver.steps.hang.add("receive")
    with pytest.raises(TimeoutError) as caught:
        await asyncio.wait_for(sandbox.run(["x"]), 0.01)
    assert not isinstance(caught.value, ExecutionTimeout)
    assert driver.steps.done[-2:] == ["kill", "aclose"]


@only_asyncio
async def test_a_second_task_cancel(
    sandbox: Sandbox, driver: DoubleDriver, records: list[OperationRecord]
) -> None:
    """An impatient caller cannot leave the process running: killed, or the sandbox removed."""
    driver.steps.hang |= {"receive", "kill"}
    task = asyncio.create_task(sandbox.run(["x"]))
    await driver.steps.reached("receive")
    task.cancel()
    await driver.steps.reached("kill")
    task.cancel()
    driver.steps.release("kill")
    with pytest.raises(asyncio.CancelledError):
        await task
    assert {"kill", "remove"} & set(driver.steps.done)
    assert [record.outcome for record in records] == ["cancelled"]


@only_asyncio
async def test_task_cancel_while_letting_go(
    sandbox: Sandbox, driver: DoubleDriver, records: list[OperationRecord]
) -> None:
    """A native cancellation in the last step still closes the operation's record."""
    driver.steps.hang.add("aclose")
    task = asyncio.create_task(sandbox.run(["x"]))
    await driver.steps.reached("aclose")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [record.event for record in records] == ["exec"]


async def test_a_file_operation(sandbox: Sandbox, driver: DoubleDriver) -> None:
    """Cancelling a transfer surfaces as cancellation."""
    driver.steps.hang.add("file_write")
    with anyio.CancelScope() as scope:
        driver.steps.call["file_write"] = scope.cancel
        await sandbox.files.write("f", b"x")
    assert scope.cancelled_caught
    assert driver.stored == {}


async def test_cancelled_before_it_began(sandbox: Sandbox, driver: DoubleDriver) -> None:
    """A call made in a cancelled scope starts nothing that stays."""
    with anyio.CancelScope() as scope:
        scope.cancel()
        await sandbox.run(["x"])
    assert scope.cancelled_caught
    assert "start" not in driver.steps.done
