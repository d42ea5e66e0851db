"""Deadlines of calls: what is raised, what is ended, and what is removed."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from sandboxio import ConnectError, ExecutionTimeout, OrphanedSandboxWarning, PartialOutput
from sandboxio.core.driver import KillReport
from tests.conftest import SECRET
from tests.doubles import Play, err, out

if TYPE_CHECKING:
    from sandboxio.core.sandbox import Sandbox
    from tests.doubles import DoubleDriver

pytestmark = pytest.mark.anyio

SOON = 0.1


@pytest.mark.parametrize("step", ["receive", "wait"])
async def test_a_call_out_of_time_is_ended(
    sandbox: Sandbox, driver: DoubleDriver, step: str
) -> None:
    """Wherever it hangs, the call is killed, the error says the time, the sandbox stays."""
    driver.steps.hang.add(step)
    with pytest.raises(ExecutionTimeout, match=r"within 0\.1 s") as caught:
        await sandbox.run(["sleep", "60"], timeout=SOON)
    assert driver.log[-2:] == ["kill", "aclose"]
    assert (caught.value.outcome, caught.value.collateral) == ("unknown", False)
    driver.steps.hang.clear()
    assert (await sandbox.run(["true"])).ok


async def test_a_start_out_of_time_is_a_timeout_too(sandbox: Sandbox, driver: DoubleDriver) -> None:
    """The deadline counts from the call, its start included; there is nothing to kill yet."""
    driver.steps.hang.add("start")
    with pytest.raises(ExecutionTimeout):
        await sandbox.run_code("pass", timeout=SOON)
    assert "start" not in driver.steps.done
    assert "kill" not in driver.log


async def test_the_partial_output_is_bounded_and_redacted(
    sandbox: Sandbox, driver: DoubleDriver
) -> None:
    """What had been written is on the error, masked, and never a result."""
    driver.play = Play(output=(out(f"one {SECRET}\n"), err("0123456789" * 10)))
    driver.steps.hang.add("receive")
    with pytest.raises(ExecutionTimeout) as caught:
        await sandbox.run(["x"], timeout=SOON, max_output_bytes=40)
    assert caught.value.partial == PartialOutput(
        stdout="one ***\n", stderr="0123456789" * 4, stderr_truncated=True
    )


async def test_a_secret_cut_by_truncation_does_not_show(
    sandbox: Sandbox, driver: DoubleDriver
) -> None:
    """Dropping the middle of the output leaves no readable half of a secret."""
    driver.play = Play(output=(out(f"{'a' * 20}{SECRET}{'b' * 200}"),))
    driver.steps.hang.add("receive")
    with pytest.raises(ExecutionTimeout) as caught:
        await sandbox.run(["x"], timeout=SOON, max_output_bytes=60)
    assert SECRET[:8] not in caught.value.partial.stdout


async def test_a_stream_out_of_time_raises_from_its_iteration(
    sandbox: Sandbox, driver: DoubleDriver
) -> None:
    """Chunks come first, then the timeout, then the same one from wait()."""
    driver.play = Play(output=(out("one\n"),))
    driver.steps.hang.add("receive")
    seen: list[bytes] = []
    async with sandbox.stream(["x"], timeout=SOON) as process:
        with pytest.raises(ExecutionTimeout) as caught:
            seen.extend([chunk.data async for chunk in process])
        with pytest.raises(ExecutionTimeout) as again:
            await process.wait()
    assert again.value is caught.value
    assert caught.value.partial == PartialOutput()
    assert driver.log.count("kill") == 1


async def test_collateral_is_told(sandbox: Sandbox, driver: DoubleDriver) -> None:
    """When other calls had to be ended too, the error says so."""
    driver.play = Play(report=KillReport(complete=True, collateral=True))
    driver.steps.hang.add("receive")
    with pytest.raises(ExecutionTimeout) as caught:
        await sandbox.run(["x"], timeout=SOON)
    assert caught.value.collateral
    assert "remove" not in driver.log


async def test_what_cannot_be_ended_takes_the_sandbox_with_it(
    sandbox: Sandbox, driver: DoubleDriver
) -> None:
    """An incomplete kill removes the sandbox, and later calls know it."""
    driver.play = Play(report=KillReport(complete=False))
    driver.steps.hang.add("receive")
    with pytest.raises(ExecutionTimeout):
        await sandbox.run(["x"], timeout=SOON)
    assert driver.steps.done.count("remove") == 1
    assert "gone" in repr(sandbox)


async def test_a_kill_that_fails_takes_the_sandbox_with_it(
    sandbox: Sandbox, driver: DoubleDriver
) -> None:
    """An error while killing counts as not ended; the caller still gets the timeout."""
    driver.steps.fail["kill"] = ConnectError("no engine")
    driver.steps.hang.add("receive")
    with pytest.raises(ExecutionTimeout):
        await sandbox.run(["x"], timeout=SOON)
    assert "remove" in driver.steps.done


async def test_a_kill_that_hangs_takes_the_sandbox_with_it(
    sandbox: Sandbox, driver: DoubleDriver, short_grace: None
) -> None:
    """After the grace the sandbox is removed instead, and the call returns."""
    driver.steps.hang |= {"receive", "kill"}
    with pytest.raises(ExecutionTimeout):
        await sandbox.run(["x"], timeout=SOON)
    assert "kill" not in driver.steps.done
    assert "remove" in driver.steps.done


async def test_a_removal_that_hangs_as_well_is_warned_of(
    sandbox: Sandbox, driver: DoubleDriver, short_grace: None
) -> None:
    """When neither kill nor removal ends in time, the caller is told and goes on."""
    driver.steps.hang |= {"receive", "kill", "remove"}
    with pytest.warns(OrphanedSandboxWarning, match="made-1"), pytest.raises(ExecutionTimeout):
        await sandbox.run(["x"], timeout=SOON)


async def test_a_removal_that_fails_does_not_hide_the_timeout(
    sandbox: Sandbox, driver: DoubleDriver
) -> None:
    """The timeout is raised whatever happens while cleaning up; the orphan is warned of."""
    driver.steps.fail = {"kill": ConnectError("no engine"), "remove": ConnectError("no engine")}
    driver.steps.hang.add("receive")
    with pytest.warns(OrphanedSandboxWarning), pytest.raises(ExecutionTimeout):
        await sandbox.run(["x"], timeout=SOON)


async def test_the_wall_clock_does_not_matter(
    sandbox: Sandbox, driver: DoubleDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clock that stands still or jumps back changes neither deadline nor duration."""
    backwards = iter(range(10**9, 0, -3600))
    monkeypatch.setattr(time, "time", lambda: float(next(backwards)))
    assert (await sandbox.run(["true"])).duration_ms >= 0
    driver.steps.hang.add("receive")
    with pytest.raises(ExecutionTimeout):
        await sandbox.run(["x"], timeout=SOON)


@pytest.mark.parametrize("attempt", range(5))
async def test_a_command_that_reads_and_writes_nothing_times_out(
    sandbox: Sandbox, driver: DoubleDriver, attempt: int
) -> None:
    """With input waiting and output awaited, the one deadline gives one timeout, never a 137."""
    driver.steps.hang |= {"send", "receive"}
    with pytest.raises(ExecutionTimeout):
        await sandbox.run(["x"], stdin=b"data", timeout=SOON)
    assert driver.log.count("kill") == 1


@pytest.mark.parametrize("anyio_backend", ["trio"])
async def test_collateral_is_told_with_input_too(sandbox: Sandbox, driver: DoubleDriver) -> None:
    """Whether writer or reader meets the deadline first (trio draws lots), the kill is told."""
    driver.play = Play(report=KillReport(complete=True, collateral=True))
    driver.steps.hang |= {"send", "receive"}
    for _ in range(20):
        with pytest.raises(ExecutionTimeout) as caught:
            await sandbox.run(["x"], stdin=b"data", timeout=SOON)
        assert caught.value.collateral


async def test_a_write_out_of_time_is_remembered_by_the_reader(
    sandbox: Sandbox, driver: DoubleDriver
) -> None:
    """When a write met the deadline, reading on does not look like a quiet end."""
    driver.steps.hang |= {"send"}
    async with sandbox.stream(["x"], stdin=True, timeout=SOON) as process:
        with pytest.raises(ExecutionTimeout):
            await process.write(b"x")
        with pytest.raises(ExecutionTimeout):
            await process.wait()
