"""Descriptors of virtual processes: files, copies of them, and nothing."""

from __future__ import annotations

import errno

import pytest

from sandboxio.testing._disk.fs import ROOT, File
from sandboxio.testing._machine.fds import ClosedFd, NullFd, TextFd, open_fd
from tests.testing.world import World

pytestmark = pytest.mark.anyio


@pytest.fixture
def world() -> World:
    return World()


async def test_copies_share_the_position_of_a_file(world: World) -> None:
    """What one copy has written or read, the other goes on behind; the last one closes."""
    process = world.start("sleep", "1")
    first = open_fd(process, "f", write=True, create=True)
    second = first.dup()
    await first.write(b"a")
    first.close()
    first.close()
    await second.write(b"b")
    node = world.fs.resolve("/work/f", who=ROOT)
    assert isinstance(node, File)
    assert (bytes(node.data), node.opened) == (b"ab", 1)
    second.close()
    assert node.opened == 0


async def test_full_device(world: World) -> None:
    """Writing to a full disk is the error of Linux."""
    process = world.start("sleep", "1")
    with pytest.raises(OSError, match="No space left on device") as caught:
        await open_fd(process, "/dev/full", write=True).write(b"x")
    assert caught.value.errno == errno.ENOSPC


async def test_own_descriptors_by_path(world: World) -> None:
    """`/dev/stdout` and `/dev/fd/N` are the process's own descriptors."""
    process = world.start("sleep", "1")
    await open_fd(process, "/dev/stdout", write=True).write(b"x")
    await open_fd(process, "/dev/fd/2", write=True).write(b"y")
    assert (world.out.text, world.err.text) == ("x", "y")
    with pytest.raises(FileNotFoundError):
        open_fd(process, "/proc/self/fd/9", read=True)


async def test_nothing_and_text() -> None:
    """The null device is empty, text ends, and what is closed is an error."""
    assert await NullFd().read(5) == b""
    text = TextFd(b"abc")
    assert (await text.read(2), await text.dup().read(2), await text.read(2)) == (b"ab", b"c", b"")
    with pytest.raises(OSError, match="Bad file descriptor"):
        await ClosedFd().write(b"x")
