"""Programs that run inside and turn against what a sandbox stands on, and looks from outside."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread

from sandboxio import SandboxError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sandboxio.protocols import AsyncSandbox
    from tests.docker.outside import Outside

FIRST_GROUP = 1 << 30
"""Groups from here on mark the processes of calls."""

PRELUDE = '''\
import ctypes, errno, json, os, signal, socket, struct, sys, threading, time

libc = ctypes.CDLL(None, use_errno=True)

def content(path):
    """What is in a file; nothing where it is not there any more."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""

def groups(pid):
    lines = dict(line.split(b":", 1) for line in content(f"/proc/{pid}/status").splitlines())
    return list(map(int, lines.get(b"Groups", b"0").split()))

def keepers():
    """The agent, its file worker and its warm interpreter, by name."""
    found = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        arguments = content(f"/proc/{name}/cmdline").strip(b"\\0").split(b"\\0")
        if max(groups(name), default=0) < 1 << 30 and arguments[-1].startswith(b"sandboxio "):
            role = arguments[-1].decode().split()[1]
            found["worker" if role == "agent" and name != "1" else role] = int(name)
    assert sorted(found) == ["agent", "warm", "worker"], found
    return found

def attempt(act, *arguments):
    """Say how something ended: what it returned, or the name of its error."""
    try:
        return repr(act(*arguments))
    except OSError as error:
        return errno.errorcode[error.errno]

def checked(function, *arguments):
    """Call something of libc's."""
    if function(*arguments) == -1:
        raise OSError(ctypes.get_errno(), "refused")

def opened(path, flags=os.O_RDONLY):
    """Open a file, and read a byte where that is what it is opened for."""
    fd = os.open(path, flags | os.O_NONBLOCK)
    try:
        return os.read(fd, 1) if flags == os.O_RDONLY else "writable"
    finally:
        os.close(fd)

def apart(act):
    """Do something in a process that belongs to nobody."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            act()
        os._exit(0)

def tell(found):
    print(json.dumps(found), flush=True)

'''


async def told(sb: AsyncSandbox, program: str, *arguments: str, user: str | None = None) -> Any:
    """Run a program that follows the prelude, and return what it tells."""
    argv = ["python3", "-c", PRELUDE + program, *arguments]
    result = await sb.run(argv, user=user, timeout=60)
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


async def warmed(sb: AsyncSandbox) -> None:
    """Have the agent's helpers there."""
    assert (await sb.run_code("print('warm')")).stdout == "warm\n"
    await sb.files.write("/tmp/warmed", b"x")


async def assert_works(sb: AsyncSandbox) -> None:
    """A command, code and files: none of them has suffered."""
    assert (await sb.run(["echo", "on"], timeout=20)).stdout == "on\n"
    assert (await sb.run_code("print('on')", timeout=20)).stdout == "on\n"
    await sb.files.write("/tmp/works", b"on")
    assert await sb.files.read("/tmp/works") == b"on"


async def refusal(act: Callable[[], Awaitable[object]]) -> SandboxError:
    """Return the error of ours that something ends with."""
    try:
        await act()
    except SandboxError as exc:
        return exc
    raise AssertionError("it was not refused")


def status(pid: int) -> dict[str, str]:
    """The lines of a process's status, as this host sees it; empty when it is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return {}
    return {key: " ".join(value.split()) for key, _, value in (ln.partition(":") for ln in lines)}


def callers(outside: Outside, sb: AsyncSandbox) -> list[int]:
    """Pids on this host of what runs of a sandbox's calls."""
    return [seen.pid for seen in outside.processes(sb) if _is_caller(status(seen.pid))]


def _is_caller(found: dict[str, str]) -> bool:
    if not found or (found["State"][0] in "ZX" and found.get("Threads", "1") == "1"):
        return False
    marked = any(int(group) > FIRST_GROUP for group in found["Groups"].split())
    return marked or found["Uid"].split()[0] != "0"


async def assert_works_elsewhere(sb: AsyncSandbox) -> None:
    """Use a sandbox in another event loop, which takes another link."""

    async def use() -> None:
        assert (await sb.run(["echo", "there"], timeout=20)).stdout == "there\n"

    await anyio.to_thread.run_sync(lambda: anyio.run(use))
