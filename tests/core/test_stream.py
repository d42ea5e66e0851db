"""`stream()`: a running command as a context manager and an iterator."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

import anyio
import pytest

from sandboxio import (
    CapabilityNotSupported,
    ConfigurationError,
    LinkLost,
    ResourceLimitExceeded,
)
from sandboxio.core.clock import LOOP
from sandboxio.core.models import OutputChunk
from tests.doubles import Play, err, out

if TYPE_CHECKING:
    from sandboxio.core.sandbox import Sandbox
    from tests.doubles import DoubleDriver

pytestmark = pytest.mark.anyio

RAW = OutputChunk("stdout", b"a\xff\xfeb")


@pytest.fixture
def playing(driver: DoubleDriver) -> DoubleDriver:
    """A driver whose calls write three chunks and end with 7."""
    driver.play = Play(output=(RAW, err("e"), out("z")), exit_code=7)
    return driver


async def test_nothing_starts_before_the_block(sandbox: Sandbox, driver: DoubleDriver) -> None:
    """`stream()` returns an object that is not awaitable and has started nothing."""
    process = sandbox.stream(["x"])
    assert not inspect.isawaitable(process)
    assert driver.calls == []
    assert (process.returncode, repr(process)) == (None, "<Process not started>")


async def test_reading_to_the_end(sandbox: Sandbox, playing: DoubleDriver) -> None:
    """Chunks are the exact bytes; then the exit code is known and nothing is killed."""
    async with sandbox.stream(["x"]) as process:
        codes = [process.returncode]
        chunks = [chunk async for chunk in process]
        codes.append(process.returncode)
    assert codes == [None, 7]
    assert chunks == [RAW, err("e"), out("z")]
    assert playing.log[-3:] == ["receive", "wait", "aclose"]


async def test_leaving_early_ends_the_command(sandbox: Sandbox, playing: DoubleDriver) -> None:
    """`break` and the end of the block kill what still runs."""
    async with sandbox.stream(["x"]) as process:
        async for _ in process:
            break
    assert playing.log[-2:] == ["kill", "aclose"]
    assert process.returncode == 137


async def test_an_exception_in_the_block_ends_the_command(
    sandbox: Sandbox, playing: DoubleDriver
) -> None:
    """The caller's exception leaves as it is, after the kill."""
    with pytest.raises(ZeroDivisionError):
        async with sandbox.stream(["x"]):
            raise ZeroDivisionError
    assert playing.log[-2:] == ["kill", "aclose"]


async def test_cancelling_the_block_ends_the_command(
    sandbox: Sandbox, driver: DoubleDriver
) -> None:
    """Cancellation of a reader kills the command and stays cancellation."""
    driver.steps.hang.add("receive")
    with anyio.CancelScope() as scope:
        driver.steps.call["receive"] = scope.cancel
        async with sandbox.stream(["x"]) as process:
            await anext(process)
    assert scope.cancelled_caught
    assert driver.steps.done[-2:] == ["kill", "aclose"]


async def test_wait_drains_and_may_be_repeated(sandbox: Sandbox, playing: DoubleDriver) -> None:
    """`wait()` discards what is left, counts it, and says the same each time."""
    async with sandbox.stream(["x"]) as process:
        first = await process.wait()
        second = await process.wait()
    assert (first.exit_code, first.stdout, first.streamed) == (7, "", True)
    assert (first.stdout_bytes, first.stderr_bytes) == (5, 1)
    assert (second.exit_code, second.stdout_bytes) == (7, 5)
    assert playing.log.count("wait") == 1


async def test_the_duration_ends_with_the_command(
    sandbox: Sandbox, playing: DoubleDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asking again later gives an equal result."""
    async with sandbox.stream(["x"]) as process:
        first = await process.wait()
        monkeypatch.setattr(LOOP, "time", lambda: anyio.current_time() + 30)
        assert await process.wait() == first


async def test_wait_after_the_block(sandbox: Sandbox, playing: DoubleDriver) -> None:
    """The end stays known when the block has been left."""
    async with sandbox.stream(["x"]) as process:
        await process.wait()
    assert (await process.wait()).exit_code == 7
    assert process.returncode == 7


async def test_a_process_that_ended_says_so(sandbox: Sandbox, playing: DoubleDriver) -> None:
    """After its block a process prints its exit code, not that it never started."""
    async with sandbox.stream(["x"]) as process:
        await process.wait()
        assert repr(process) == "<Process ended with 7>"
    assert repr(process) == "<Process ended with 7>"


async def test_a_process_is_entered_once(sandbox: Sandbox, driver: DoubleDriver) -> None:
    """A second `async with` on the same process is refused, and starts nothing."""
    process = sandbox.stream(["x"])
    async with process:
        pass
    with pytest.raises(ConfigurationError, match="entered once"):
        await process.__aenter__()
    assert len(driver.calls) == 1


async def test_a_process_is_used_inside_its_block(sandbox: Sandbox, driver: DoubleDriver) -> None:
    """Before it is entered nothing can be read, written or closed; kill() is silent."""
    process = sandbox.stream(["x"], stdin=True)
    for use in (process.wait, process.close_stdin, lambda: anext(process)):
        with pytest.raises(ConfigurationError, match="not running"):
            await use()
    await process.kill()
    assert driver.calls == []


async def test_writing_needs_stdin(sandbox: Sandbox, driver: DoubleDriver) -> None:
    """Without `stdin=True` the command's stdin is at end of file, and write() says so."""
    async with sandbox.stream(["x"]) as process:
        with pytest.raises(CapabilityNotSupported, match="end of file"):
            await process.write(b"x")
    assert driver.calls[0].sent == b""


async def test_a_conversation(sandbox: Sandbox, driver: DoubleDriver) -> None:
    """What is written is answered; text goes as UTF-8; closing stdin ends the command."""
    driver.play = Play(echo=True)
    async with sandbox.stream(["cat"], stdin=True) as process, anyio.create_task_group() as tasks:
        tasks.start_soon(process.write, "é")
        assert (await anext(process)).data == "é".encode()
        await process.close_stdin()
        assert [chunk async for chunk in process] == []
    assert process.returncode == 0


async def test_a_killed_process_reads_as_ended(sandbox: Sandbox, driver: DoubleDriver) -> None:
    """After kill() iteration stops, the exit code is that of SIGKILL, and once is enough."""
    driver.steps.hang.add("receive")
    async with sandbox.stream(["sleep", "60"]) as process:
        await process.kill()
        await process.kill()
        assert [chunk async for chunk in process] == []
        assert (await process.wait()).exit_code == 137
    assert driver.log.count("kill") == 1


async def test_a_failure_is_remembered(sandbox: Sandbox, driver: DoubleDriver) -> None:
    """Reading on, or waiting, after an error raises the same error again."""
    driver.steps.fail["receive"] = error = LinkLost("broken")
    async with sandbox.stream(["x"]) as process:
        for again in (lambda: anext(process), process.wait):
            with pytest.raises(LinkLost) as caught:
                await again()
            assert caught.value is error


async def test_a_command_that_cannot_start_raises_at_the_block(
    sandbox: Sandbox, driver: DoubleDriver
) -> None:
    """An error of the start leaves `async with` before its body."""
    driver.steps.fail["start"] = LinkLost("no engine")
    with pytest.raises(LinkLost):
        async with sandbox.stream(["x"]):
            pytest.fail("the body must not run")
    assert "kill" not in driver.log


async def test_a_slow_release_does_not_hold_the_caller(
    sandbox: Sandbox, playing: DoubleDriver, short_grace: None
) -> None:
    """Letting go of the channel is bounded by the grace."""
    playing.steps.hang.add("aclose")
    async with sandbox.stream(["x"]) as process:
        await process.wait()
    assert "aclose" in playing.log
    assert "aclose" not in playing.steps.done


async def test_a_write_ends_with_the_command(sandbox: Sandbox, playing: DoubleDriver) -> None:
    """A write that waits for its reader ends with the command; later ones send nothing."""
    playing.steps.hang.add("send")
    async with sandbox.stream(["x"], stdin=True) as process, anyio.create_task_group() as tasks:
        tasks.start_soon(process.write, "one")
        await playing.steps.reached("send")
        assert (await process.wait()).exit_code == 7
        await process.write("two")
    assert playing.log.count("send") == 1


async def test_a_write_after_a_failure_fails(sandbox: Sandbox, playing: DoubleDriver) -> None:
    """Once the call has failed, a write raises what the call failed with."""
    playing.steps.fail["receive"] = lost = LinkLost("cut")
    playing.play = Play()
    async with sandbox.stream(["x"], stdin=True) as process:
        with pytest.raises(LinkLost):
            await process.wait()
        with pytest.raises(LinkLost) as caught:
            await process.write("two")
    assert caught.value is lost


async def test_an_end_with_a_reason(sandbox: Sandbox, playing: DoubleDriver) -> None:
    """What the driver says of the end is raised once output is read; nothing is killed for it."""
    reason = ResourceLimitExceeded("beyond the cap", outcome="done")
    playing.play = Play(output=(out("z"),), exit_code=137, failure=reason)
    with pytest.raises(ResourceLimitExceeded) as caught:
        await sandbox.run(["x"])
    assert caught.value.partial.stdout == "z"
    assert "kill" not in playing.log
    async with sandbox.stream(["x"]) as process:
        for _ in range(2):
            with pytest.raises(ResourceLimitExceeded):
                await process.wait()
    assert process.returncode == 137
