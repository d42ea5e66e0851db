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
from tests.docker.outside import METADATA, Outside, Seen, eventually, unique_seconds

if TYPE_CHECKING:
    from pathlib import Path

    from sandboxio.protocols import AsyncSandbox, Process

pytestmark = [pytest.mark.docker, pytest.mark.anyio]

_COMMON = """\
import os, signal, sys, time

wrapper, mark = os.getppid(), sys.argv[1]

def read(pid, name):
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return file.read()
    except OSError:
        return b""

def stat(pid):
    return read(pid, "stat").rpartition(b")")[2].split() or [b"X", b"-1"]

def scripts():
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    from_outside = [pid for pid in pids if pid not in (1, wrapper) and stat(pid)[1] == b"0"]
    return [pid for pid in from_outside if b"marker=" in read(pid, "cmdline")]

def survive():
    apart(lambda: os.execve("/usr/bin/env", ["env", "-i", "sleep", mark], {}))

def apart(act):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            act()
        os._exit(0)

def fight(watch):
    survive()
    apart(watch)
    print("fighting", flush=True)
    time.sleep(600)
"""
KILLS_ITS_WRAPPER = """\
def watch():
    while stat(wrapper)[0] != b"T":
        pass
    os.kill(wrapper, signal.SIGKILL)
    survive()
fight(watch)
"""
KILLS_THE_SCRIPT = """\
def watch():
    while not (found := scripts()):
        pass
    os.kill(found[0], signal.SIGKILL)
    os.kill(wrapper, signal.SIGCONT)
    os.kill(wrapper, signal.SIGKILL)
fight(watch)
"""
FORGES_THE_ANSWER = """\
def watch():
    while not (found := scripts()):
        pass
    os.kill(found[0], signal.SIGSTOP)
    with open(f"/proc/{found[0]}/fd/1", "wb", 0) as answer:
        answer.write(b"ended\\n")
    os.kill(wrapper, signal.SIGKILL)
    os.kill(found[0], signal.SIGKILL)
fight(watch)
"""
ATTEMPTS = {
    "kills its wrapper": KILLS_ITS_WRAPPER,
    "kills the script": KILLS_THE_SCRIPT,
    "forges the answer": FORGES_THE_ANSWER,
}
_SLEEPERS = """\
import os, time
while True:
    try:
        os.fork() or time.sleep(999)
    except OSError:
        at_the_limit
"""
BOMBS = {
    "one that settles": ["python3", "-c", _SLEEPERS.replace("at_the_limit", "time.sleep(999)")],
    "one that tries again": ["python3", "-c", _SLEEPERS.replace("at_the_limit", "pass")],
    "one that doubles": ["/bin/sh", "-c", "f() { f | f & }; f; sleep 999"],
}
WAITS = "echo up; read line; exit 3"
"""An innocent command: it runs until it is told to end."""


async def _ends_normally(innocent: Process) -> None:
    await innocent.write("go\n")
    assert (await innocent.wait()).exit_code == 3


async def _fights(sb: AsyncSandbox, how: str, mark: str) -> ExecutionTimeout:
    with pytest.raises(ExecutionTimeout) as caught:
        await sb.run(["python3", "-c", _COMMON + ATTEMPTS[how], mark], timeout=1.5)
    assert caught.value.partial.stdout == "fighting\n"
    return caught.value


def _calls(outside: Outside, sb: AsyncSandbox) -> list[Seen]:
    """What lives of the calls of a sandbox; nothing does in one that was removed."""
    if f"sandboxio-{sb.id}" not in outside.containers(**METADATA):
        return []
    return [seen for seen in outside.calls(sb) if "Z" not in seen.state]


def _alive(outside: Outside, sb: AsyncSandbox, mark: str) -> bool:
    return any(mark in seen.args for seen in _calls(outside, sb))


@pytest.mark.parametrize("how", ATTEMPTS)
async def test_a_call_cannot_outlive_its_timeout(
    fresh: AsyncSandbox, outside: Outside, how: str
) -> None:
    """TIME-1: whatever it does to those who end it, nothing of it lives on, and others do."""
    mark = unique_seconds()
    async with fresh.stream(WAITS, stdin=True) as innocent:
        await anext(aiter(innocent))
        error = await _fights(fresh, how, mark)
        await eventually(lambda: not _alive(outside, fresh, mark))
        assert error.collateral or how == "kills its wrapper"
        await _ends_normally(innocent)
    assert (await fresh.run(["echo", "on"])).stdout == "on\n"


async def test_a_fork_bomb_ends_alone(fresh: AsyncSandbox, outside: Outside) -> None:
    """RES-2: it is stopped before it is killed, so that it cannot outrun its ending."""
    with pytest.raises(ExecutionTimeout) as caught:
        await fresh.run(BOMBS["one that settles"], timeout=2)
    assert not caught.value.collateral
    await eventually(lambda: outside.calls(fresh) == [])
    assert (await fresh.run(["echo", "on"], timeout=20)).stdout == "on\n"


@pytest.mark.parametrize("style", ["one that tries again", "one that doubles"])
async def test_a_fork_bomb_that_goes_on_ends_and_what_it_cost_is_said(
    fresh: AsyncSandbox, outside: Outside, style: str
) -> None:
    """RES-2: it ends alone, or, where it outruns its ending, with its sandbox; the error tells."""
    with pytest.raises(ExecutionTimeout) as caught:
        await fresh.run(BOMBS[style], timeout=1.5)
    await eventually(lambda: _calls(outside, fresh) == [], within=10)
    if "the sandbox was removed" in caught.value.message:
        assert caught.value.collateral
        with pytest.raises(SandboxGone):
            await fresh.run(["true"])
    else:
        assert (await fresh.run(["echo", "on"], timeout=20)).stdout == "on\n"


async def test_a_killed_stream_left_undrained_hurts_nobody(
    fresh: AsyncSandbox, outside: Outside
) -> None:
    """A command that SIGKILL ended by itself is no sign of tampering."""
    async with fresh.stream(WAITS, stdin=True) as innocent:
        await anext(aiter(innocent))
        alone = len(outside.calls(fresh))
        async with fresh.stream("echo doomed; kill -9 $$") as proc:
            await eventually(lambda: len(outside.calls(fresh)) == alone)
        assert proc.returncode == 137
        await _ends_normally(innocent)


@pytest.mark.parametrize("size", [1_150_000, 1_300_000, 1_450_000])
async def test_a_stream_nobody_reads_holds_up_no_other_call(fresh: AsyncSandbox, size: int) -> None:
    """One slow reader costs the other calls of its sandbox nothing, nor its removal."""
    async with fresh.stream(["head", "-c", str(size), "/dev/zero"]) as proc:
        await anext(aiter(proc))
        await anyio.sleep(0.5)  # its output goes as far as it will; nothing tells when
        for _ in range(2):
            assert (await fresh.run(["true"], timeout=10)).ok
        with anyio.fail_after(5):
            await fresh.kill()


async def test_a_stream_read_late_is_whole(fresh: AsyncSandbox) -> None:
    """What was taken from it for the sake of other calls is still its own."""
    async with fresh.stream("head -c 1300000 /dev/zero; exit 3") as proc:
        size = len((await anext(aiter(proc))).data)
        await anyio.sleep(0.5)
        assert (await fresh.run(["true"], timeout=10)).ok
        size += sum([len(chunk.data) async for chunk in proc])
        assert (size, (await proc.wait()).exit_code) == (1_300_000, 3)


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("/work", IsADirectory),
        ("none/x", PathNotFound),
        ("/root/x", PermissionDenied),
        ("/etc/x", PermissionDenied),
    ],
)
async def test_a_large_write_to_a_wrong_place_says_why(
    sb: AsyncSandbox, path: str, error: type[SandboxError]
) -> None:
    """The place is checked before any data is sent, so the reason is not lost with the link."""
    with pytest.raises(error):
        await sb.files.write(path, b"x" * 2_000_000)


@pytest.mark.parametrize(
    ("size", "refused"), [(128 * 1024 - 64, False), (128 * 1024, True), (1_000_000, True)]
)
async def test_an_argument_no_kernel_takes(sb: AsyncSandbox, size: int, refused: bool) -> None:
    """An argument beyond the limit does not come back as a result; one below it works."""
    if not refused:
        assert (await sb.run(["echo", "x" * size])).stdout_bytes == size + 1
        return
    with pytest.raises(ConfigurationError, match="longer") as caught:
        await sb.run(["touch", "ran", "x" * size])
    assert caught.value.outcome == "not_started"
    assert not await sb.files.exists("ran")


@pytest.mark.parametrize("user", ["99999999999", "4294967296", "4294967296:1", "1:99999999999"])
async def test_a_user_no_kernel_has(sb: AsyncSandbox, user: str) -> None:
    """Numbers that would wrap around to somebody else are refused by name."""
    with pytest.raises(ConfigurationError, match="user") as caught:
        await sb.run(["touch", "ran"], user=user)
    assert caught.value.outcome == "not_started"
    assert not await sb.files.exists("ran")


@pytest.mark.parametrize("mode", ["0666", "0777", "4777", "2775", "0622"])
async def test_a_guest_does_not_choose_who_may_write_on_the_host(
    sb: AsyncSandbox, tmp_path: Path, mode: str
) -> None:
    """FS-2: of a mode inside only what harms nobody reaches the host."""
    await sb.run(f"rm -f open; echo hi >open; chmod {mode} open")
    await sb.files.download("open", tmp_path / "copy")
    copied = (tmp_path / "copy").stat().st_mode & 0o7777
    assert copied == (int(mode, 8) & 0o755) | 0o600
