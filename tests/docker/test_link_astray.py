"""File operations that code inside leads astray: nothing else is read, changed or waited for."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import anyio
import pytest

from sandboxio import (
    FileSystemError,
    PermissionDenied,
    SandboxError,
)
from tests.docker.hostile import (
    assert_works,
    refusal,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from sandboxio.protocols import AsyncSandbox
    from tests.docker.conftest import Make

pytestmark = [pytest.mark.docker, pytest.mark.anyio]

anybody = pytest.mark.parametrize("user", [None, "root"], ids=["user", "root"])


@pytest.fixture(scope="module")
async def box(sb: AsyncSandbox) -> AsyncIterator[AsyncSandbox]:
    """A sandbox that calls leave as they found it, and the proof."""
    yield sb
    await assert_works(sb)


# A name that is now a directory, now a link.

SWAPS = """\
import ctypes, os
libc = ctypes.CDLL(None)
os.makedirs("precious/in", exist_ok=True)
open("precious/in/kept", "w").close()
os.symlink(os.sys.argv[1], "link")
print("up", flush=True)
while True:
    os.makedirs("real/in/deep", exist_ok=True)
    try:
        open("real/in/f", "w").close()
    except OSError:
        pass
    for _ in range(20):
        libc.renameat2(-100, b"real", -100, b"link", 2)
"""


async def _meanwhile(sb: AsyncSandbox, target: str, acts: list[str], rounds: int) -> set[str]:
    """Do things to `real` while it is now a directory, now a link; returns what was read."""
    read: set[str] = set()
    files, number = sb.files, 0

    async def look() -> None:
        read.update(info.path for info in await files.ls(".", recursive=True))

    async def secret() -> None:
        read.add((await files.read("real/secret")).decode())

    ways: dict[str, Callable[[], Awaitable[object]]] = {
        "ls": look,
        "read": secret,
        "remove": lambda: files.remove("real", recursive=True),
        "copy": lambda: files.copy("real", f"copy{number}"),
        "move": lambda: files.move("real", f"moved{number}"),
        "write": lambda: files.write("real/planted", b"x"),
        "mkdir": lambda: files.mkdir("real/planted-too"),
        "chmod": lambda: files.chmod("real/secret", 0o777),
    }
    async with sb.stream(["python3", "-c", SWAPS, target]) as proc:
        await anext(aiter(proc))
        for number in range(rounds):  # noqa: B007  # the ways use it
            for act in acts:
                with contextlib.suppress(FileSystemError):
                    await ways[act]()
    return read


@anybody
async def test_a_tree_that_becomes_a_link_while_it_is_removed(make: Make, user: str | None) -> None:
    """What goes through a tree never goes through a link, whenever that took a name's place."""
    sb = await make(**({} if user is None else {"user": user}))
    seen = await _meanwhile(sb, "precious", ["remove", "copy", "ls", "move"], 60)
    assert await sb.files.exists("precious/in/kept")
    assert not any(path.endswith(("real/in/kept", "link/in/kept")) for path in seen)
    assert (await sb.run("find . -path './copy*' -name kept")).stdout == ""


async def test_a_path_that_becomes_a_link_to_what_is_roots(fresh: AsyncSandbox) -> None:
    """Whatever a path leads to in the end is opened with the rights of the sandbox's user."""
    script = "mkdir /opt/vault; echo hidden >/opt/vault/secret; chmod 600 /opt/vault/secret"
    assert (await fresh.run(script, user="root")).ok
    acts = ["read", "write", "mkdir", "chmod", "remove"]
    assert "hidden\n" not in await _meanwhile(fresh, "/opt/vault", acts, 60)
    found = await fresh.run("ls /opt/vault; stat -c %a /opt/vault/secret", user="root")
    assert found.stdout == "secret\n600\n"


MAGIC = [
    "/proc/self/root/etc/passwd",
    "/proc/self/root",
    "/proc/self/cwd/x",
    "/proc/self/fd/0",
    "/proc/self/fd/3",
    "/proc/thread-self/root/etc/passwd",
    "/proc/1/root/etc/passwd",
    "/proc/1/cwd/etc/passwd",
    "/proc/self/../1/root/etc",
    "/dev/fd/3",
    "/dev/stdin",
    "/work/short/etc/passwd",
    "/work/around/../root/etc/passwd",
]


@pytest.mark.parametrize("path", MAGIC)
async def test_links_of_procfs_lead_nowhere(box: AsyncSandbox, path: str) -> None:
    """A path through one is refused, whichever operation it is meant for."""
    await box.run("ln -sfn /proc/self/root short; ln -sfn /proc/self/fd around; echo x >f")
    files = box.files
    below = path + "/below"
    acts: dict[str, Callable[[], Awaitable[object]]] = {
        "read": lambda: files.read(path),
        "write": lambda: files.write(path, b"x"),
        "edit": lambda: files.edit(path, "a", "b"),
        "ls": lambda: files.ls(path),
        "stat below": lambda: files.stat(below),
        "mkdir": lambda: files.mkdir(below, parents=True),
        "remove": lambda: files.remove(below, recursive=True),
        "chmod": lambda: files.chmod(path, 0o777),
        "move from": lambda: files.move(below, "f2"),
        "move to": lambda: files.move("f", below),
        "copy to": lambda: files.copy("f", below),
    }
    found = {name: type(await refusal(act)) for name, act in acts.items()}
    assert {name: kind for name, kind in found.items() if kind is not PermissionDenied} == {}
    assert not await files.exists(path)
    assert await files.exists("f")


async def test_the_worker_itself_is_no_file(box: AsyncSandbox) -> None:
    """Of the process that works on files `/proc/self` gives away neither memory nor environment."""
    for name in ("environ", "mem", "fd/0", "stack", "auxv"):
        with pytest.raises(PermissionDenied):
            await box.files.read(f"/proc/self/{name}")
        with pytest.raises(PermissionDenied):
            await box.files.write(f"/proc/self/{name}", b"x")


# Things that are not files.

SPECIAL = """\
import fcntl, os, signal, socket, time
signal.signal(signal.SIGIO, signal.SIG_IGN)
os.mkfifo("fifo")
os.mkfifo("full"); end = os.open("full", os.O_RDWR); os.write(end, b"x" * 9)
socket.socket(socket.AF_UNIX).bind("sock")
leased = os.open("leased", os.O_RDWR | os.O_CREAT)
fcntl.fcntl(leased, fcntl.F_SETLEASE, fcntl.F_WRLCK)
locked = open("locked", "w"); fcntl.flock(locked, fcntl.LOCK_EX)
for name in ("null", "zero", "full", "tty", "ptmx", "random"):
    os.symlink("/dev/" + name, "to-" + name)
master, slave = os.openpty()
os.symlink(os.ttyname(slave), "to-pty")
print("up", flush=True)
time.sleep(200)
"""
ODD = [
    "fifo",
    "full",
    "sock",
    "leased",
    "to-null",
    "to-zero",
    "to-full",
    "to-tty",
    "to-ptmx",
    "to-random",
    "to-pty",
    "/dev/null",
    "/dev/zero",
    "/proc/kmsg",
    "/dev/mqueue",
    "/proc/1/mem",
]


async def _refusals(sb: AsyncSandbox, path: str) -> list[SandboxError]:
    files = sb.files
    acts: list[Callable[[], Awaitable[object]]] = [
        lambda: files.read(path),
        lambda: files.write(path, b"x"),
        lambda: files.edit(path, "a", "b"),
        lambda: files.ls(path + "/below"),
    ]
    with anyio.fail_after(5):
        return [await refusal(act) for act in acts]


async def test_what_is_no_file_holds_nothing_up(fresh: AsyncSandbox) -> None:
    """Pipes, sockets, devices and leased files are refused at once; nothing waits for them."""
    files = fresh.files
    async with fresh.stream(["python3", "-c", SPECIAL]) as proc:
        await anext(aiter(proc))
        for path in ODD:
            for error in await _refusals(fresh, path):
                assert isinstance(error, FileSystemError), path
        with anyio.fail_after(10):
            await files.write("locked", b"x")
            await files.ls(".", recursive=True)
            for path in ("fifo", "sock"):
                await files.copy(path, f"{path}2")
                await files.remove(f"{path}2")
    await assert_works(fresh)


async def test_a_tree_deeper_than_any_stack(fresh: AsyncSandbox) -> None:
    """It is refused, or worked on, and the next operation is as good as any."""
    script = "import os\nfor _ in range(3000): os.mkdir('d'); os.chdir('d')"
    assert (await fresh.run(["python3", "-c", script])).ok
    with anyio.fail_after(60):
        with contextlib.suppress(SandboxError):
            await fresh.files.ls(".", recursive=True)
        with contextlib.suppress(SandboxError):
            await fresh.files.copy("d", "e")
        with contextlib.suppress(SandboxError):
            await fresh.files.glob("**/x")
        with contextlib.suppress(SandboxError):
            await fresh.files.remove("d", recursive=True)
    await assert_works(fresh)
