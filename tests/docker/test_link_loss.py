"""Links that break, are many, or are all gone: what calls say, what goes on, what ends."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import threading
import warnings
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import pytest
from docker.errors import NotFound

import sandboxio
from sandboxio import LinkLost, Resources, SandboxError, SandboxGone
from sandboxio.adapters import _docker_link as links
from sandboxio.adapters.docker import DockerBackend, DockerConfig
from sandboxio.guest import _link_pool as pool
from tests.docker.hostile import assert_works, assert_works_elsewhere, callers
from tests.docker.outside import (
    IMAGE,
    METADATA,
    TARGET,
    Outside,
    eventually,
    host_processes,
    unique_seconds,
)
from tests.docker.programs import Programs, programs_in
from tests.docker.relay import Fault, Relay, relay_at

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
    from pathlib import Path

    from sandboxio.protocols import AsyncSandbox, Process
    from tests.docker.conftest import Make

pytestmark = pytest.mark.docker

looped = pytest.mark.anyio
ATTACH = r"POST .*/containers/[^/]+/attach"
START = r"POST .*/exec/[0-9a-f]+/start"
CUT = 100_003
"""Bytes after which a stream is cut: within a frame, and long after the greeting."""
FLOOD = "head -c 3000000 /dev/zero; sleep 60"


@pytest.fixture
def relay(tmp_path: Path) -> Iterator[Relay]:
    with relay_at(tmp_path / "relay.sock") as made:
        yield made


@pytest.fixture
def program(outside: Outside, tmp_path: Path) -> Iterator[Programs]:
    with programs_in(tmp_path, outside) as programs:
        yield programs


def _config(relay: Relay) -> DockerConfig:
    return DockerConfig(host=relay.url, template=IMAGE, metadata=METADATA)


async def _errors(*acts: Callable[[], Awaitable[object]]) -> list[SandboxError]:
    """Do things at once, all of which fail, and return how."""
    found: list[SandboxError] = []

    async def fail(act: Callable[[], Awaitable[object]]) -> None:
        with pytest.raises(SandboxError) as caught:
            await act()
        found.append(caught.value)

    async with anyio.create_task_group() as tasks:
        for act in acts:
            tasks.start_soon(fail, act)
    return found


async def _streamed(sb: AsyncSandbox, argv: list[str]) -> None:
    async with sb.stream(argv) as proc:
        await proc.wait()


def _is_running(outside: Outside, sb: AsyncSandbox) -> bool:
    with contextlib.suppress(NotFound):
        return bool(outside.container(sb).status == "running")
    return False


# A link that breaks.


@looped
async def test_a_link_cut_within_a_frame(relay: Relay, outside: Outside) -> None:
    """Every call under way ends with `LinkLost` and its processes; the next has another link."""
    relay.faults = [Fault(ATTACH, cut_after=CUT, times=1)]
    async with await sandboxio.create(_config(relay), timeout=120) as sb:
        found = await _errors(
            lambda: sb.run(["sleep", "60"]),
            lambda: sb.run_code("import time; time.sleep(60)"),
            lambda: _streamed(sb, ["sleep", "60"]),
            lambda: sb.run(FLOOD),
        )
        assert [(type(error), error.outcome) for error in found] == [(LinkLost, "unknown")] * 4
        await eventually(lambda: callers(outside, sb) == [])
        await assert_works(sb)
    assert relay.met[relay.faults[0]] == 1


@looped
async def test_a_later_link_that_is_cut(relay: Relay, outside: Outside) -> None:
    """A link by way of the agent's socket breaks as the first does, again and again."""
    relay.faults = [Fault(ATTACH, cut_after=CUT), Fault(START, cut_after=CUT, times=3)]
    async with await sandboxio.create(_config(relay), timeout=120) as sb:
        for _ in range(4):
            found = await _errors(lambda: sb.run(FLOOD), lambda: sb.run(["sleep", "60"]))
            assert [(type(e), e.outcome) for e in found] == [(LinkLost, "unknown")] * 2
            await eventually(lambda: callers(outside, sb) == [])
        await assert_works(sb)


@looped
async def test_a_transfer_that_is_cut(relay: Relay) -> None:
    """A read is not taken for shorter than it is, and a write leaves nothing of itself."""
    relay.faults = [Fault(ATTACH, cut_after=CUT, times=1)]
    async with await sandboxio.create(_config(relay), timeout=120) as sb:
        await sb.files.write("large", b"x" * 3_000_000)

        async def endless() -> AsyncIterator[bytes]:
            yield b"y" * 100_000
            with pytest.raises(LinkLost):
                await sb.run(FLOOD)
            yield b"y"

        found = await _errors(lambda: sb.files.write_from("new", endless()))
        assert isinstance(found[0], LinkLost)
        assert [info.path for info in await sb.files.ls()] == ["large"]
        assert len(await sb.files.read("large")) == 3_000_000


@looped
async def test_an_engine_that_is_away_for_a_while(tmp_path: Path) -> None:
    """An idle link that broke unnoticed costs no call; without an engine a call says so."""
    path = tmp_path / "relay.sock"
    with relay_at(path) as relay:
        sb = await sandboxio.create(_config(relay), timeout=120)
        await sb.files.write("kept", b"x")
    with pytest.raises(SandboxError) as caught:
        await sb.run(["touch", "ran"], timeout=20)
    assert not isinstance(caught.value, SandboxGone)
    with warnings.catch_warnings(action="ignore", category=ResourceWarning):
        del caught
        gc.collect()  # docker-py leaves open the socket of an attempt that failed
    path.unlink(missing_ok=True)
    with relay_at(path):
        assert [info.path for info in await sb.files.ls()] == ["kept"]
        await assert_works(sb)
        await sb.kill()


@looped
async def test_a_link_that_was_silent_for_long(
    fresh: AsyncSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is tried before it is used, and used on."""
    monkeypatch.setattr(pool, "_QUIET", 0.2)
    numbers: set[int] = set()
    for _ in range(3):
        await anyio.sleep(0.5)
        said = await fresh.run("ls /proc | grep -c '^[0-9]'; echo on")
        numbers.add(int(said.stdout.split()[0]))
        await assert_works(fresh)
    assert len(numbers) <= 2  # no relay was needed


# A sandbox that ends, or stands still.


@looped
@pytest.mark.parametrize("how", ["killed", "removed", "stopped"])
async def test_a_sandbox_ended_from_outside(
    fresh: AsyncSandbox, outside: Outside, how: str
) -> None:
    """Every call under way, and every later one, learns that it is gone."""
    mark = unique_seconds()
    found: list[SandboxError] = []

    async def end() -> None:
        await eventually(lambda: len(host_processes(mark)) >= 2)
        container = outside.container(fresh)
        acts: dict[str, Callable[[], None]] = {
            "killed": container.kill,
            "removed": lambda: container.remove(force=True),
            "stopped": lambda: container.stop(timeout=1),
        }
        await anyio.to_thread.run_sync(acts[how])

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(end)
        found += await _errors(
            lambda: fresh.run(["sleep", mark]),
            lambda: fresh.run_code("import time; time.sleep(60)"),
            lambda: _streamed(fresh, ["sleep", mark]),
        )
    assert {type(error) for error in found} == {SandboxGone}
    later = await _errors(lambda: fresh.run(["true"]), lambda: fresh.files.ls("."))
    assert {type(error) for error in later} == {SandboxGone}


@looped
async def test_a_sandbox_whose_time_is_over(make: Make) -> None:
    """The lifetime ends it whatever runs, and those who wait learn of it."""
    sb = await make(timeout=3)
    with anyio.fail_after(20):
        found = await _errors(
            lambda: sb.run(["sleep", "60"], timeout=60),
            lambda: sb.run("trap '' TERM INT HUP; sleep 60; sleep 60", timeout=60),
            lambda: sb.run_code("while True: pass", timeout=60),
        )
    assert {type(error) for error in found} == {SandboxGone}


@looped
async def test_a_call_goes_on_after_a_pause(fresh: AsyncSandbox, outside: Outside) -> None:
    """A sandbox that stands still loses no call and no link."""
    container = outside.container(fresh)
    async with (
        fresh.stream("echo up; read line; echo $line", stdin=True) as proc,
        anyio.create_task_group() as tasks,
    ):
        await anext(aiter(proc))
        await anyio.to_thread.run_sync(container.pause)
        tasks.start_soon(fresh.run, ["touch", "later"])
        await proc.write("meanwhile\n")
        await anyio.sleep(1)
        assert proc.returncode is None
        await anyio.to_thread.run_sync(container.unpause)
        assert (await anext(aiter(proc))).data == b"meanwhile\n"
        assert (await proc.wait()).exit_code == 0
    assert await fresh.files.exists("later")
    await assert_works(fresh)


# A sandbox to which no link leads.


@pytest.fixture
def grace(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    monkeypatch.setattr(links, "ORPHAN_GRACE", request.param)


async def _left_alone(tmp_path: Path) -> AsyncSandbox:
    """A sandbox whose only link has broken."""
    with relay_at(tmp_path / "relay.sock") as relay:
        sb = await sandboxio.create(_config(relay), timeout=120)
        await sb.run(["true"])
    return sb


@looped
@pytest.mark.parametrize("grace", [2], indirect=True)
async def test_a_sandbox_that_nobody_holds_ends(
    tmp_path: Path, outside: Outside, grace: None
) -> None:
    """Without any link for longer than the grace, it ends itself, whatever runs in it."""
    del grace
    sb = await _left_alone(tmp_path)
    try:
        assert _is_running(outside, sb)
        await eventually(lambda: not _is_running(outside, sb), within=15)
    finally:
        outside.discard(sb)


@looped
@pytest.mark.parametrize("grace", [2], indirect=True)
async def test_a_sandbox_that_is_held_does_not_end(make: Make, grace: None) -> None:
    """An idle link is a link."""
    del grace
    sb = await make()
    await anyio.sleep(5)
    await assert_works(sb)


@looped
@pytest.mark.parametrize("grace", [6], indirect=True)
async def test_a_pause_does_not_count(tmp_path: Path, outside: Outside, grace: None) -> None:
    """Time in which a sandbox stands still is no time in which nobody came."""
    del grace
    sb = await _left_alone(tmp_path)
    try:
        container = outside.container(sb)
        await anyio.to_thread.run_sync(container.pause)
        await anyio.sleep(8)
        await anyio.to_thread.run_sync(container.unpause)
        await anyio.sleep(1)
        assert _is_running(outside, sb)
        await eventually(lambda: not _is_running(outside, sb), within=15)
    finally:
        outside.discard(sb)


# Many links to one sandbox.

JOINS = """\
async def main():
    sb = await sandboxio.connect(os.environ["WANTED"], OPTIONS["target"])
    say((await sb.run(["cat", "mine"])).stdout.strip())
    await sb.run_code("open('theirs', 'w').write('x')")
    say()
    await sb.run(["sleep", os.environ["MARK"]])

anyio.run(main)
"""


@looped
async def test_another_program_joins(
    fresh: AsyncSandbox, program: Programs, outside: Outside
) -> None:
    """It has a link of its own; what it ran ends with it, and nothing else does."""
    await fresh.files.write("mine", b"first")
    mark = unique_seconds()
    async with fresh.stream("echo up; read line; exit 3", stdin=True) as proc:
        await anext(aiter(proc))
        other = program(JOINS, WANTED=fresh.id, MARK=mark)
        assert await anyio.to_thread.run_sync(other.told) == "first"
        await anyio.to_thread.run_sync(other.hear)
        assert await fresh.files.read("theirs") == b"x"
        await eventually(lambda: host_processes(mark))
        assert len(callers(outside, fresh)) == 2
        await anyio.to_thread.run_sync(other.killed)
        await eventually(lambda: not host_processes(mark))
        await proc.write("go\n")
        assert (await proc.wait()).exit_code == 3
    await assert_works(fresh)


FORKS = """\
import asyncio, os
loop = asyncio.new_event_loop()

async def use(sb, word):
    return (await sb.run(["echo", word])).stdout.strip()

sb = loop.run_until_complete(amake())
say(loop.run_until_complete(use(sb, "before")))
if os.fork() == 0:
    say(asyncio.run(use(sb, "child")))
    os._exit(0)
assert os.wait()[1] == 0
say(loop.run_until_complete(use(sb, "after")))
loop.run_until_complete(sb.kill())
say("gone")
"""


def test_a_fork_has_a_link_of_its_own(program: Programs) -> None:
    """Its parent's goes on, as if nothing had been."""
    forking = program(FORKS)
    said = [forking.told() for _ in range(5)]
    assert said == ["before", "child", "after", "gone", ""]


def test_one_event_loop_after_the_other() -> None:
    """Each has a link of its own; that of a loop that has ended is closed and forgotten."""

    async def make() -> AsyncSandbox:
        return await sandboxio.create(TARGET, timeout=120, metadata=METADATA)

    sb = asyncio.run(make())
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        asyncio.run(assert_works(sb))
    assert len(os.listdir("/proc/self/fd")) <= before + 1
    asyncio.run(sb.kill())


@looped
async def test_event_loops_at_the_same_time(fresh: AsyncSandbox) -> None:
    """Ten threads, each with a loop and a link, and calls of each."""
    async with anyio.create_task_group() as tasks:
        for _ in range(10):
            tasks.start_soon(assert_works_elsewhere, fresh)
    await assert_works(fresh)


# Many at once, and few threads.


async def _hold(
    sb: AsyncSandbox, number: int, *, task_status: anyio.abc.TaskStatus[Process]
) -> None:
    async with sb.stream(["cat"], stdin=True, timeout=250) as proc:
        await proc.write(f"{number}\n")
        assert (await anext(aiter(proc))).data == f"{number}\n".encode()
        task_status.started(proc)
        assert (await proc.wait()).exit_code == 0


@looped
async def test_five_hundred_streams_in_one_sandbox(make: Make) -> None:
    """All of them run at once, each hears its own words, and threads are few."""
    sb = await make(timeout=280, resources=Resources(memory_mb=1024, cpu=2))
    async with anyio.create_task_group() as tasks:
        held = [await tasks.start(_hold, sb, number) for number in range(500)]
        assert threading.active_count() < 20
        assert (await sb.metrics()).processes >= 500
        for proc in held:
            await proc.close_stdin()
    await assert_works(sb)


async def _many(count: int, at_once: int) -> None:
    few = anyio.CapacityLimiter(at_once)
    backend = DockerBackend()
    made: list[AsyncSandbox] = []

    async def make() -> None:
        async with few:
            options: dict[str, Any] = {"template": IMAGE, "timeout": 280, "metadata": METADATA}
            made.append(await backend.create(**options))

    try:
        async with anyio.create_task_group() as tasks:
            for _ in range(count):
                tasks.start_soon(make)
        async with anyio.create_task_group() as tasks:
            held = [await tasks.start(_hold, sb, number) for number, sb in enumerate(made)]
            assert threading.active_count() < 20
            for proc in held:
                await proc.close_stdin()
    finally:
        with anyio.CancelScope(shield=True):
            async with anyio.create_task_group() as tasks:
                for sb in made:
                    tasks.start_soon(sb.kill)
    assert len(made) == count


@looped
async def test_forty_sandboxes_in_one_process() -> None:
    """Each with a stream that is open, and threads are few."""
    await _many(40, at_once=8)


@looped
@pytest.mark.skipif(
    os.environ.get("SANDBOXIO_TEST_MANY") != "1",
    reason="200 sandboxes take minutes and gigabytes: SANDBOXIO_TEST_MANY=1 runs it",
)
async def test_two_hundred_sandboxes_in_one_process() -> None:
    """As with forty: threads do not grow with the sandboxes."""
    await _many(200, at_once=8)
