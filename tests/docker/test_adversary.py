"""Code that fights its own ending, and calls that must not suffer from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import pytest

from sandboxio import (
    ConfigurationError,
    ExecutionTimeout,
    IsADirectory,
    PathNotFound,
    PermissionDenied,
    SandboxError,
    SandboxGone,
)
from tests.docker.outside import METADATA, Outside, eventually, unique_seconds

if TYPE_CHECKING:
    from pathlib import Path

    from sandboxio.protocols import AsyncSandbox
    from tests.docker.conftest import Make

pytestmark = [pytest.mark.docker, pytest.mark.anyio]

_COMMON = """\
import os, signal, sys, time
wrapper = os.getppid()
mark = sys.argv[1]

def state(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return ["X", "-1"]

def scripts():
    pids = [int(p) for p in os.listdir("/proc") if p.isdigit()]
    return [p for p in pids if p not in (1, wrapper) and state(p)[1] == "0"]

def command(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read()
    except OSError:
        return b""

def survive():
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execve("/usr/bin/env", ["env", "-i", "sleep", mark], {})
        os._exit(0)

def spawn(watch):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            watch()
        os._exit(0)
    while True:
        time.sleep(1)
"""
KILLS_ITS_WRAPPER = """\
def watch():
    while state(wrapper)[0] != "T":
        pass
    os.kill(wrapper, signal.SIGKILL)
    survive()
survive()
spawn(watch)
"""
KILLS_THE_SCRIPT = """\
known = scripts()
survive()
while True:
    for pid in scripts():
        if pid not in known:
            os.kill(pid, signal.SIGKILL)
            os.kill(wrapper, signal.SIGCONT)
            os._exit(0)
"""
FORGES_THE_ANSWER = """\
known = scripts()
survive()
def watch():
    while True:
        for pid in scripts():
            if pid in known or b"marker=" not in command(pid):
                continue
            try:
                os.kill(pid, signal.SIGSTOP)
                with open(f"/proc/{pid}/fd/1", "wb", 0) as answer:
                    answer.write(b"ended\\n")
                os.kill(wrapper, signal.SIGKILL)
                os.kill(pid, signal.SIGKILL)
                os._exit(0)
            except OSError:
                pass
spawn(watch)
"""
ATTEMPTS = {
    "kills its wrapper": KILLS_ITS_WRAPPER,
    "kills the script": KILLS_THE_SCRIPT,
    "forges the answer": FORGES_THE_ANSWER,
}
BOMBS = {
    "forks": "python3 -c 'import os, time\nwhile True:\n try:\n  os.fork() or time.sleep(999)\n"
    " except OSError: time.sleep(.1)'",
    "shell": "f() { f | f & }; f; sleep 100",
}


def _alive(outside: Outside, sandbox: AsyncSandbox, mark: str) -> bool:
    return any(mark in s.args and "Z" not in s.state for s in outside.processes(sandbox))


@pytest.mark.parametrize("how", ATTEMPTS)
async def test_a_call_cannot_outlive_its_timeout(make: Make, outside: Outside, how: str) -> None:
    """TIME-1: whatever it does to those who end it, nothing lives on, and others do."""
    sb = await make()
    mark = unique_seconds()
    command = ["python3", "-c", _COMMON + ATTEMPTS[how], mark]
    outcomes: list[int] = []

    async def innocent() -> None:
        outcomes.append((await sb.run("sleep 6; exit 3", timeout=60)).exit_code)

    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(innocent)
            with pytest.raises(ExecutionTimeout):
                await sb.run(command, timeout=2)
            await eventually(lambda: not _alive(outside, sb, mark), within=5)
    except* SandboxError:  # the sandbox was removed, which is an end as well
        name = f"sandboxio-{sb.id}"
        await eventually(lambda: name not in outside.containers(**METADATA))
    else:
        assert outcomes == [3]


@pytest.mark.parametrize("style", BOMBS)
async def test_a_fork_bomb_ends_and_what_it_cost_is_said(make: Make, style: str) -> None:
    """RES-2: it ends alone, or, where it outruns its ending, with its sandbox; the error tells."""
    sb = await make()
    with pytest.raises(ExecutionTimeout) as caught:
        await sb.run(BOMBS[style], timeout=3)
    if "the sandbox was removed" in caught.value.message:
        assert caught.value.collateral
        with pytest.raises(SandboxGone):
            await sb.run(["true"])
    else:
        assert (await sb.run(["echo", "on"], timeout=20)).stdout == "on\n"


async def test_a_killed_stream_left_undrained_hurts_nobody(fresh: AsyncSandbox) -> None:
    """A command that SIGKILL ended by itself is no sign of tampering."""

    async def other() -> None:
        assert (await fresh.run("sleep 2; echo fine", timeout=60)).stdout == "fine\n"

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(other)
        await anyio.sleep(0.5)
        async with fresh.stream("kill -9 $$") as proc:
            await anyio.sleep(0.5)
        assert proc.returncode == 137


async def test_a_stream_nobody_reads_holds_up_no_other_call(fresh: AsyncSandbox) -> None:
    """One slow reader costs the other calls of its sandbox nothing, nor its removal."""
    async with fresh.stream("head -c 1350000 /dev/zero") as proc:
        await anext(aiter(proc))
        for _ in range(3):
            assert (await fresh.run(["echo", "on"], timeout=20)).stdout == "on\n"
        with anyio.fail_after(4):
            await fresh.kill()


@pytest.mark.parametrize(
    ("path", "error"),
    [("/work", IsADirectory), ("none/x", PathNotFound), ("/root/x", PermissionDenied)],
)
async def test_a_large_write_to_a_wrong_place_says_why(
    sb: AsyncSandbox, path: str, error: type[SandboxError]
) -> None:
    """The place is checked before any data is sent, so the reason is not lost with the link."""
    with pytest.raises(error):
        await sb.files.write(path, b"x" * 2_000_000)


async def test_what_no_program_can_get_is_refused(sb: AsyncSandbox) -> None:
    """Arguments and users beyond the kernel's limits do not come back as results."""
    with pytest.raises(ConfigurationError, match="longer"):
        await sb.run(["echo", "x" * 200_000])
    with pytest.raises(ConfigurationError, match="user"):
        await sb.run(["id"], user="99999999999")


async def test_a_guest_does_not_choose_who_may_write_on_the_host(
    sb: AsyncSandbox, tmp_path: Path
) -> None:
    """FS-2: of a mode inside only what harms nobody reaches the host."""
    await sb.run("echo hi >open; chmod 4777 open")
    await sb.files.download("open", tmp_path / "copy")
    assert (tmp_path / "copy").stat().st_mode & 0o7777 == 0o755
