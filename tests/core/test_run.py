"""`run()` and `run_code()`: how a result is put together, and how a call is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest

from sandboxio import (
    Capability,
    CapabilityNotSupported,
    ConfigurationError,
    ExecResult,
    LinkLost,
    SandboxGone,
)
from sandboxio.core.models import OutputChunk
from tests.conftest import SECRET
from tests.doubles import Play, err, out

if TYPE_CHECKING:
    from sandboxio.core.backend import DriverBackend
    from sandboxio.core.sandbox import Sandbox
    from tests.doubles import DoubleDriver

pytestmark = pytest.mark.anyio


async def test_a_result_holds_what_the_command_wrote(
    sandbox: Sandbox, driver: DoubleDriver
) -> None:
    """Streams are apart, in order and decoded; sizes are told in bytes; the call is let go."""
    driver.play = Play(output=(out("a\r\n"), err("é"), out("b")), exit_code=3)
    result = await sandbox.run(["x"])
    assert (result.exit_code, result.stdout, result.stderr) == (3, "a\r\nb", "é")
    assert (result.stdout_bytes, result.stderr_bytes) == (4, 2)
    assert not result.ok
    assert not result.streamed
    assert driver.log[-4:] == ["start", "receive", "wait", "aclose"]


async def test_what_is_released_is_not_closed_again(sandbox: Sandbox, driver: DoubleDriver) -> None:
    """A channel that holds nothing after its end costs no task that would close it."""
    driver.play = Play(released=True)
    assert (await sandbox.run(["x"])).ok
    assert driver.log[-3:] == ["start", "receive", "wait"]


async def test_a_silent_success_is_two_empty_texts(sandbox: Sandbox) -> None:
    """Nothing written is empty text, never None."""
    result = await sandbox.run_code("pass")
    assert (result.ok, result.stdout, result.stderr) == (True, "", "")


async def test_characters_split_across_chunks_stay_whole(
    sandbox: Sandbox, driver: DoubleDriver
) -> None:
    """A character may arrive one byte at a time with the other stream in between."""
    pieces = [OutputChunk("stdout", bytes([byte])) for byte in "🚀é".encode()]
    driver.play = Play(output=tuple(chunk for piece in pieces for chunk in (piece, err("err"))))
    result = await sandbox.run(["x"])
    assert (result.stdout, result.stderr) == ("🚀é", "err" * 6)


@pytest.mark.parametrize(
    ("limit", "stdout", "cut"), [(1, "0", True), (3, "019", True), (9, "012346789", True)]
)
async def test_output_beyond_the_limit_loses_its_middle(
    sandbox: Sandbox, driver: DoubleDriver, limit: int, stdout: str, cut: bool
) -> None:
    """Truncation is marked for its own stream, and the true size is told."""
    driver.play = Play(output=(out("01234"), err("e"), out("56789")))
    result = await sandbox.run(["x"], max_output_bytes=limit)
    assert (result.stdout, result.stdout_truncated, result.stdout_bytes) == (stdout, cut, 10)
    assert (result.stderr, result.stderr_truncated) == ("e", False)


async def test_output_of_exactly_the_limit_is_whole(sandbox: Sandbox, driver: DoubleDriver) -> None:
    """The border itself is not truncated, for run_code either."""
    driver.play = Play(output=(out("0123456789"),))
    result = await sandbox.run_code("x", max_output_bytes=10)
    assert (result.stdout, result.stdout_truncated) == ("0123456789", False)


async def test_the_caller_s_own_output_is_not_masked(
    sandbox: Sandbox, driver: DoubleDriver
) -> None:
    """A result is what the command wrote; only what sandboxio itself shows is redacted."""
    driver.play = Play(output=(out(SECRET),))
    assert (await sandbox.run(["printenv", "TOKEN"])).stdout == SECRET


async def test_secrets_and_environment_reach_every_call(
    sandbox: Sandbox, driver: DoubleDriver
) -> None:
    """Commands, code and streams see both; nothing else does."""
    await sandbox.run(["x"])
    await sandbox.run_code("x")
    async with sandbox.stream(["x"]):
        pass
    expected = {"TOKEN": SECRET, "MODE": "env-value-1"}
    assert [{**call.request.env} for call in driver.calls] == [expected] * 3


async def test_stdin_is_closed_unless_given(sandbox: Sandbox, driver: DoubleDriver) -> None:
    """Without stdin= the command is started with none; empty bytes count as given."""
    await sandbox.run(["x"])
    driver.play = Play(echo=True)
    await sandbox.run(["x"], stdin=b"")
    await sandbox.run(["x"], stdin="é")
    assert [getattr(call.request, "stdin", None) for call in driver.calls] == [False, True, True]
    assert [call.sent for call in driver.calls] == [b"", b"", "é".encode()]


async def test_feeding_and_reading_do_not_wait_for_each_other(
    sandbox: Sandbox, driver: DoubleDriver
) -> None:
    """A command that answers as it reads gets all its input while its output is taken."""
    driver.play = Play(echo=True)
    data = bytes(range(256)) * 4096
    result = await sandbox.run(["cat"], stdin=data)
    assert result.stdout_bytes == len(data)
    assert driver.calls[0].sent == data


async def test_a_command_that_ends_without_reading_is_a_result(
    sandbox: Sandbox, driver: DoubleDriver
) -> None:
    """Input that nobody takes is given up when the command has ended."""
    driver.steps.hang.add("send")
    result = await sandbox.run(["true"], stdin=b"unread")
    assert result.ok
    assert "send" in driver.log
    assert "send" not in driver.steps.done


async def test_an_error_while_feeding_is_reported_once_and_bare(
    sandbox: Sandbox, driver: DoubleDriver
) -> None:
    """A broken link is one `LinkLost`, in no exception group."""
    driver.steps.fail = {"send": LinkLost("gone"), "receive": LinkLost("gone")}
    with pytest.raises(LinkLost):
        await sandbox.run(["cat"], stdin=b"x")


@pytest.mark.parametrize("step", ["start", "receive", "wait"])
@pytest.mark.parametrize("stdin", [None, b"x"])
async def test_an_error_of_the_driver_arrives_as_it_is(
    sandbox: Sandbox, driver: DoubleDriver, step: str, stdin: bytes | None
) -> None:
    """Class, cause and identity of an error survive, wherever in the call it is raised."""
    error = LinkLost("the link broke", outcome="unknown")
    error.__cause__ = OSError("pipe")
    driver.steps.fail[step] = error
    with pytest.raises(LinkLost) as caught:
        await sandbox.run(["x"], stdin=stdin)
    assert caught.value is error
    assert isinstance(error.__cause__, OSError)


async def test_a_call_whose_link_broke_is_ended(sandbox: Sandbox, driver: DoubleDriver) -> None:
    """What cannot be followed any more is not left running."""
    driver.steps.fail["receive"] = LinkLost("broken")
    with pytest.raises(LinkLost):
        await sandbox.run(["x"])
    assert driver.log[-2:] == ["kill", "aclose"]


async def test_a_sandbox_found_gone_refuses_what_follows(
    sandbox: Sandbox, driver: DoubleDriver
) -> None:
    """After `SandboxGone` no call is asked of the driver; kill() removes what is left, once."""
    driver.steps.fail["receive"] = SandboxGone("removed")
    with pytest.raises(SandboxGone):
        await sandbox.run(["x"])
    with pytest.raises(SandboxGone, match="has been removed"):
        await sandbox.run(["x"])
    assert len(driver.calls) == 1
    assert "gone" in repr(sandbox)
    await sandbox.kill()
    await sandbox.kill()
    assert driver.log.count("remove") == 1


async def test_a_call_found_gone_is_not_killed(sandbox: Sandbox, driver: DoubleDriver) -> None:
    """With the sandbox its processes went; the channel is let go."""
    driver.steps.fail["receive"] = SandboxGone("removed")
    with pytest.raises(SandboxGone):
        await sandbox.run(["x"])
    assert driver.log[-2:] == ["receive", "aclose"]


async def test_a_killed_sandbox_refuses_every_call(sandbox: Sandbox, driver: DoubleDriver) -> None:
    """Use after kill() is `SandboxGone` that says nothing was started."""
    await sandbox.kill()
    for call in (lambda: sandbox.run(["x"]), lambda: sandbox.files.ls()):
        with pytest.raises(SandboxGone) as caught:
            await call()
        assert caught.value.outcome == "not_started"
    with pytest.raises(SandboxGone):
        sandbox.stream(["x"])
    assert driver.calls == []


@pytest.mark.parametrize(
    ("missing", "call"),
    [
        (Capability.RUN_COMMAND, {"cmd": ["x"]}),
        (Capability.STDIN, {"cmd": ["x"], "stdin": b""}),
        (Capability.RUN_CODE, {"code": "x"}),
        (Capability.STATEFUL_CODE, {"code": "x", "context_id": "c"}),
    ],
)
async def test_what_is_not_declared_is_refused(
    backend: DriverBackend, driver: DoubleDriver, missing: Capability, call: dict[str, Any]
) -> None:
    """A capability the sandbox does not declare is refused by name before anything starts."""
    driver.capabilities &= ~missing
    made = await backend.create()
    with pytest.raises(CapabilityNotSupported, match=str(missing.name)):
        await (made.run_code(**call) if "code" in call else made.run(**call))
    assert driver.calls == []


async def test_a_refusal_gives_the_driver_s_reason(
    backend: DriverBackend, driver: DoubleDriver
) -> None:
    """Where the sandbox knows why it lacks a capability, the refusal says so."""
    driver.capabilities &= ~Capability.RUN_CODE
    driver.reasons[Capability.RUN_CODE] = "Its image has no interpreter."
    made = await backend.create()
    with pytest.raises(CapabilityNotSupported, match=r"RUN_CODE\. Its image has no"):
        await made.run_code("x")


async def test_streaming_and_files_are_refused_the_same_way(
    backend: DriverBackend, driver: DoubleDriver
) -> None:
    """`stream()` and `files` ask for their capabilities too."""
    driver.capabilities &= ~(Capability.STREAMING | Capability.FILESYSTEM)
    made = await backend.create()
    with pytest.raises(CapabilityNotSupported, match="STREAMING"):
        made.stream(["x"])
    with pytest.raises(CapabilityNotSupported, match="FILESYSTEM"):
        await made.files.ls()


async def test_a_driver_s_timeout_error_is_not_the_deadline(
    sandbox: Sandbox, driver: DoubleDriver
) -> None:
    """`TimeoutError` raised inside the driver is no `ExecutionTimeout`, and ends the call."""
    driver.steps.fail["receive"] = TimeoutError("the driver's own")
    with pytest.raises(TimeoutError, match="the driver's own"):
        await sandbox.run(["x"])
    assert "kill" in driver.log


async def test_calls_run_side_by_side(sandbox: Sandbox, driver: DoubleDriver) -> None:
    """One sandbox takes many calls at once, and each gets its own result."""
    results: list[ExecResult] = []

    async def one() -> None:
        results.append(await sandbox.run(["x"]))

    async with anyio.create_task_group() as tasks:
        for _ in range(10):
            tasks.start_soon(one)
    assert [result.ok for result in results] == [True] * 10
    assert len(driver.calls) == 10


async def test_a_handle_shows_no_value(sandbox: Sandbox) -> None:
    """The `repr` of a sandbox and of a process hold neither environment, secret nor command."""
    shown = f"{sandbox!r} {sandbox.stream(['echo', SECRET])!r} {sandbox.files!r}"
    assert SECRET not in shown
    assert "env-value-1" not in shown
    assert "double:made-1 container running" in shown


async def test_odd_stdin_starts_nothing(sandbox: Sandbox, driver: DoubleDriver) -> None:
    """Input is checked before the command is started."""
    odd: Any = ["a"]
    with pytest.raises(ConfigurationError, match="stdin must be bytes or text"):
        await sandbox.run(["x"], stdin=odd)
    assert driver.calls == []
