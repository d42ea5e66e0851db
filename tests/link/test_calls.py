"""Calls of a sandbox over a link: how they begin, and what their ends mean."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import pytest

from sandboxio.core.driver import ExitStatus, KillReport
from sandboxio.core.errors import (
    CapabilityNotSupported,
    ConnectError,
    ExecutionTimeout,
    LinkLost,
    NotADirectory,
    PathNotFound,
    PermissionDenied,
    ResourceLimitExceeded,
    SandboxError,
    SandboxGone,
)
from sandboxio.core.models import Metrics, OutputChunk
from sandboxio.guest import frames
from tests.link.peer import DONE
from tests.link.world import (
    answering,
    command,
    finished,
    killed,
    nothing,
    source,
    succeed,
    world,
)
from tests.stepwise import cancel_at_each_await

if TYPE_CHECKING:
    from collections.abc import Mapping

pytestmark = pytest.mark.anyio

OVERDUE = (b"ok", b"137", b"0", b"0", b"1", b"1", b"0", b"0", b"0")
STUCK = (b"ok", b"137", b"0", b"0", b"1", b"0", b"0", b"0", b"0")


def ended_with(code: bytes, *, cut: bytes = b"0", oom: bytes = b"0") -> tuple[bytes, ...]:
    return (b"ok", code, cut, oom, b"0", b"1", b"0", b"0", b"0")


async def test_a_command() -> None:
    """The agent gets it as asked, with everything that belongs to it; its output comes back."""
    async with world() as box:
        channel = await box.calls.start(
            command(("printf", "é", ""), timeout=2, env={"A": "b=c"}, cwd="d\udcff")
        )
        request = await box.until_asked()
        assert request.service == b"exec"
        assert request.fields == [
            *(b"1000:1000:7,8", b"/work/d\xff", b"12000", b""),
            *(b"3", b"printf", "é".encode(), b""),
            *(b"PATH=/usr/bin:/bin", b"HOME=/home/sandbox", b"A=b=c"),
        ]
        await request.say(b"out")
        await request.say(b"err", frames.ERROUT)
        await request.result(*ended_with(b"3", cut=b"1"))
        assert await channel.receive() == OutputChunk("stdout", b"out")
        assert await channel.receive() == OutputChunk("stderr", b"err")
        assert await channel.receive() is None
        assert await channel.wait() == ExitStatus(3, cut=True, released=True)


async def test_stdin() -> None:
    """Input is asked for by its flag, comes in order, and ends; without reader it is dropped."""
    async with world() as box:
        channel = await box.calls.start(command("cat", stdin=True))
        request = await box.until_asked()
        assert request.fields[3] == b"i"
        box.on_eof = succeed
        await channel.send(b"x" * 700_000)
        await channel.close_stdin()
        assert await finished(channel) == (b"", ExitStatus(0, released=True))
        assert len(box.given[1]) == 700_000
        await channel.send(b"more")
        await channel.close_stdin()


async def test_code_in_the_warm_interpreter() -> None:
    """Code of any size goes to the interpreter that has started already, while output is read."""
    async with world() as box:
        box.on_eof = succeed
        text = "print(1)" + "#" * 900_000
        channel = await box.calls.start_code(source(text, env={"A": "b"}))
        assert await finished(channel) == (b"", ExitStatus(0, released=True))
        request = await box.until_asked()
        assert request.service == b"code"
        assert request.fields[0:2] == [b"1000:1000:7,8", b"/work/"]
        assert request.fields[3:] == [b"PATH=/usr/bin:/bin", b"HOME=/home/sandbox", b"A=b"]
        assert box.given[1] == text.encode()


@pytest.mark.parametrize(
    ("language", "env", "facts"),
    [
        ("bash", {}, {}),
        ("python", {"PYTHONPATH": "/x"}, {}),
        ("python", {"LD_PRELOAD": "x.so"}, {}),
        ("python", {"LC_ALL": "C"}, {}),
        ("python", {"LANG": "C"}, {}),
        ("python", {"LANGUAGE": "de"}, {}),
        ("python", {"MALLOC_ARENA_MAX": "1"}, {}),
        ("python", {"GLIBC_TUNABLES": "x"}, {}),
        ("python", {"PATH": "/x"}, {}),
        ("python", {}, {"warm": "0"}),
    ],
)
async def test_code_in_an_interpreter_of_its_own(
    language: str, env: Mapping[str, str], facts: Mapping[str, str]
) -> None:
    """What an interpreter reads as it starts, or another language, takes a fresh one."""
    async with world() as box:
        box.facts = tuple(
            f"{name}={facts.get(name, value)}"
            for name, _, value in (fact.partition("=") for fact in box.facts)
        )
        box.on_eof = succeed
        channel = await box.calls.start_code(source("exit", language=language, env=env))
        await finished(channel)
        (request,) = box.asked
        assert (request.service, request.fields[3]) == (b"exec", b"i")
        assert request.fields[5] in (b"bash", b"python3")
        assert box.given[1] == b"exit"


async def test_no_warm_interpreter_after_all() -> None:
    """Where the agent has none at the moment, the code runs in a fresh one, and nobody notices."""
    async with world() as box:
        box.on_open = answering(code=(b"error", b"unsupported", b"not now"))
        box.on_eof = nothing
        channel = await box.calls.start_code(source())
        assert await finished(channel) == (b"", ExitStatus(0, released=True))
        assert [request.service for request in box.asked] == [b"code", b"exec"]


async def test_a_language_nobody_speaks() -> None:
    """It is refused by name, and the agent is not asked."""
    async with world() as box:
        with pytest.raises(CapabilityNotSupported, match="cobol"):
            await box.calls.start_code(source(language="cobol"))
        assert box.asked == []


async def test_root() -> None:
    """Root is refused, with the reason, where its calls would keep capabilities."""
    async with world() as box:
        await box.calls.start(command(user="root"))
        assert (await box.until_asked()).fields[0] == b"0:0:"
        await box.calls.aclose()
        box.facts = ("link=2.1", "root=0")
        with pytest.raises(CapabilityNotSupported, match="capabilities"):
            await box.calls.start(command(user="root"))
        assert len(box.asked) == 1


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        (b"not-found", PathNotFound, "working directory of the call is not in the sandbox"),
        (b"not-a-directory", NotADirectory, "working directory of the call is no directory"),
        (b"permission", PermissionDenied, "may not be entered"),
        (b"busy", ResourceLimitExceeded, "no room for another call: in words"),
        (b"unsupported", ConnectError, "did not start the call: in words"),
        (b"invalid", ConnectError, "in words"),
        (b"other", ConnectError, "in words"),
    ],
)
async def test_a_call_that_could_not_start(
    name: bytes, kind: type[SandboxError], words: str
) -> None:
    """Each reason is an error of its own; nothing ran."""
    async with world() as box:
        box.on_open = lambda request: request.fail(name)
        channel = await box.calls.start(command())
        assert await channel.receive() is None
        with pytest.raises(kind, match=words) as caught:
            await channel.wait()
        assert caught.value.outcome == "not_started"


async def test_words_of_the_agent() -> None:
    """They are bounded, printable and on one line."""
    async with world() as box:
        box.on_open = lambda request: request.fail(b"other", b"\x1b[2J\n" + b"w" * 60_000)
        channel = await box.calls.start(command())
        await channel.receive()
        with pytest.raises(ConnectError) as caught:
            await channel.wait()
        assert caught.value.message.isprintable()
        assert len(caught.value.message) < 2200


async def test_out_of_memory() -> None:
    """A call that the memory cap has killed is told by that, and by how to have more."""
    async with world() as box:
        box.on_open = answering(exec=ended_with(b"137", oom=b"1"))
        _, end = await finished(await box.calls.start(command()))
        assert isinstance(end.failure, ResourceLimitExceeded)
        assert end.failure.message == (
            "The call went beyond the memory limit of 512 MiB and was killed."
        )
        assert "memory_mb=1024" in end.failure.hint


async def test_killed_by_itself() -> None:
    """137 alone is an exit code like any other, as long as the sandbox is there."""
    async with world() as box:
        box.on_open = answering(exec=ended_with(b"137"))
        assert (await finished(await box.calls.start(command())))[1] == ExitStatus(
            137, released=True
        )
        box.remove()
        with pytest.raises(SandboxGone):
            await finished(await box.calls.start(command()))


async def test_ended_by_the_agent() -> None:
    """A call that the agent ended, nobody having asked it to, has had its time."""
    async with world() as box:
        box.on_open = answering(exec=OVERDUE)
        _, end = await finished(await box.calls.start(command(timeout=2)))
        assert isinstance(end.failure, ExecutionTimeout)
        assert "2 s" in end.failure.message


@pytest.mark.parametrize(
    "fields",
    [
        (b"ok",),
        (*DONE, b"more"),
        (b"ok", b"256", *DONE[2:]),
        (b"ok", b"-1", *DONE[2:]),
        (b"ok", b"0", b"yes", *DONE[3:]),
        (*DONE[:8], b"9" * 40),
    ],
)
async def test_an_end_that_cannot_be_read(fields: tuple[bytes, ...]) -> None:
    """A result that is none closes the link."""
    async with world() as box:
        box.on_open = lambda request: request.result(*fields)
        with pytest.raises(LinkLost):
            await finished(await box.calls.start(command()))
        assert box.agents[0].peer.other.closed


@pytest.mark.parametrize(("fields", "complete"), [(OVERDUE, True), (STUCK, False), (DONE, True)])
async def test_ending_a_call(fields: tuple[bytes, ...], complete: bool) -> None:
    """The agent is told to end it; what it says of its processes is what counts."""
    async with world() as box:
        box.on_end = lambda request: request.result(*fields)
        channel = await box.calls.start(command())
        assert await channel.kill() == KillReport(complete=complete)
        assert await channel.receive() is None
        assert (await channel.wait()).failure is None
        assert box.ended == [1]


async def test_ending_a_call_that_has_ended() -> None:
    """It is not told twice, and nothing is left."""
    async with world() as box:
        box.on_open = succeed
        channel = await box.calls.start(command())
        await finished(channel)
        assert await channel.kill() == KillReport(complete=True)
        assert box.ended == []


async def test_ending_what_never_began() -> None:
    """A call that could not start has no process."""
    async with world() as box:
        box.on_open = lambda request: request.fail(b"busy")
        channel = await box.calls.start(command())
        assert await channel.kill() == KillReport(complete=True)


async def test_ending_by_two_at_once() -> None:
    """Whoever ends a call that is being ended waits for the same end."""
    async with world() as box:
        box.on_end = nothing
        channel = await box.calls.start(command())
        reports = list[KillReport]()

        async def kill() -> None:
            reports.append(await channel.kill())

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(kill)
            tasks.start_soon(kill)
            await anyio.wait_all_tasks_blocked()
            await killed(box.asked[0])
        assert reports == 2 * [KillReport(complete=True)]
        assert box.ended == [1]


async def test_leaving_a_call() -> None:
    """A channel that is closed before its result is ended, and the link works on."""
    async with world() as box:
        channel = await box.calls.start(command())
        await box.until_asked()
        await channel.aclose()
        box.on_open = succeed
        await finished(await box.calls.start(command()))
        assert box.ended == [1]
        assert len(box.agents) == 1


async def test_starting_is_cancelled() -> None:
    """A start that is cancelled at any of its awaits leaves no call behind."""
    async with world() as box:

        async def start() -> None:
            channel = await box.calls.start(command())
            await channel.kill()

        assert await cancel_at_each_await(start) >= 2
        await box.calls.start(command("last"))
        last = await box.until_asked(1)
        while b"last" not in last.fields:
            last = await box.until_asked(len(box.asked) + 1)
        assert {request.channel for request in box.asked} - set(box.ended) == {last.channel}


async def test_metrics() -> None:
    """Numbers come as they are; no limit is `None`."""
    async with world() as box:
        box.on_open = answering(metrics=(b"ok", b"1.250000", b"7", b"", b"3"))
        assert await box.calls.metrics() == Metrics(1.25, 7, None, 3)
        box.on_open = answering(metrics=(b"ok", b"2", b"7", b"9", b"3"))
        assert await box.calls.metrics() == Metrics(2.0, 7, 9, 3)
        box.on_open = answering(metrics=(b"error", b"unsupported", b"no files"))
        with pytest.raises(CapabilityNotSupported, match="no files"):
            await box.calls.metrics()


@pytest.mark.parametrize(
    "fields",
    [
        (b"ok",),
        (b"ok", b"-1", b"1", b"1", b"1"),
        (b"ok", b"1.x", b"1", b"1", b"1"),
        (b"ok", b"1", b"1e9", b"1", b"1"),
        (b"ok", b"1", b"1", b"1", b"9" * 30),
    ],
)
async def test_metrics_that_are_none(fields: tuple[bytes, ...]) -> None:
    """What is no number closes the link."""
    async with world() as box:
        box.on_open = answering(metrics=fields)
        with pytest.raises(LinkLost):
            await box.calls.metrics()
