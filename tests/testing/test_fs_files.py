"""The fake's file API: the same answers, and the same errors, as by shell in a real sandbox."""

from __future__ import annotations

from contextlib import aclosing
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel
import pytest

from sandboxio.core.errors import (
    FileSystemError,
    IsADirectory,
    LinkLost,
    NotADirectory,
    PathExists,
    PathNotFound,
    PermissionDenied,
)
from sandboxio.testing._disk.fs import ROOT, FileSystem, Link, Special, VirtualFile, Who
from sandboxio.testing._files import FakeFiles

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from sandboxio.core.driver import DriverFiles

pytestmark = pytest.mark.anyio

once = pytest.mark.parametrize("anyio_backend", ["asyncio"])
"""For tables about the file system, which is the same under either event loop."""
USER = Who(10001, 10001)
NAMES = ["a b", "a\nb", "newline\n", "$(touch pwned)", "-rf", "\\n", "*", "é", "\udcff\udcfe"]


@pytest.fixture
def fs() -> FileSystem:
    """A disk of a million bytes with a place for the user to work in."""
    made = FileSystem(now=lambda: 1_700_000_000.75, capacity=1_000_000)
    made.populate("/work", mode=0o755, uid=10001, gid=10001)
    made.populate("/tmp", mode=0o1777)
    made.attach("/dev/null", Special(mode=0o666, device="null"))
    made.attach("/dev/zero", Special(mode=0o666, device="zero"))
    return made


@pytest.fixture
def files(fs: FileSystem) -> DriverFiles:
    return FakeFiles(fs, who=USER)


@pytest.fixture
def scenery(fs: FileSystem) -> None:
    """Files, links and obstacles of every kind, owned by the user."""
    fs.populate("/work/file", b"content", mode=0o644, uid=10001, gid=10001)
    fs.populate("/work/locked", b"secret", mode=0, uid=10001, gid=10001)
    for folder, mode in (("directory", 0o755), ("closed", 0), ("read-only", 0o555)):
        fs.populate(f"/work/{folder}", mode=mode, uid=10001, gid=10001)
        fs.populate(f"/work/{folder}/inner", b"inner", mode=0o644, uid=10001, gid=10001)
    for link, to in [
        ("dangling", "nowhere"),
        ("loop", "loop"),
        ("link", "file"),
        ("link-to-directory", "directory"),
        ("astray", "missing/deep"),
    ]:
        fs.symlink(to, f"/work/{link}", who=USER)
    fs.mkfifo("/work/fifo", who=USER)


def listing(fs: FileSystem, path: str = "/work") -> list[str]:
    return fs.listdir(path, who=ROOT)


async def pieces(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        await anyio.lowlevel.checkpoint()
        yield part


async def write(files: DriverFiles, path: str, data: bytes, mode: int | None = None) -> None:
    await files.write(path, pieces(data), size=len(data), mode=mode)


async def read(files: DriverFiles, path: str, offset: int = 0, length: int | None = None) -> bytes:
    parts: list[bytes] = []

    async def sink(piece: bytes) -> None:
        await anyio.lowlevel.checkpoint()
        parts.append(piece)

    await files.read(path, offset=offset, length=length, sink=sink)
    return b"".join(parts)


@pytest.mark.parametrize("name", NAMES, ids=ascii)
@pytest.mark.parametrize("form", ["{}", "./{}", "/work/{}"])
@once
async def test_any_name_makes_a_round_trip(
    files: DriverFiles, fs: FileSystem, name: str, form: str
) -> None:
    """Written, listed, described, read and removed under exactly its name, relative or not."""
    path = form.format(name)
    await write(files, path, b"content")
    assert [info.path for info in await files.ls(".", recursive=False)] == [name]
    assert (await files.stat(path, follow=False)).size == 7
    assert await files.exists(path)
    assert await read(files, path) == b"content"
    await files.remove(path, recursive=False)
    assert listing(fs) == []
    assert not await files.exists(path)


@pytest.mark.parametrize(
    ("offset", "length", "expected"),
    [
        (0, None, b"0123456789"),
        (4, 3, b"456"),
        (4, 100, b"456789"),
        (99, 5, b""),
        (99, None, b""),
        (3, 0, b""),
    ],
)
async def test_ranges(files: DriverFiles, offset: int, length: int | None, expected: bytes) -> None:
    """Ranges are cut inside, at and beyond the end included."""
    await write(files, "f", b"0123456789")
    assert await read(files, "f", offset, length) == expected


async def test_content_comes_in_pieces(files: DriverFiles, fs: FileSystem) -> None:
    """No piece is larger than 256 KiB, and together they are the file."""
    data = bytes(range(256)) * 3000
    fs.populate("/work/f", data, mode=0o644)
    parts: list[bytes] = []

    async def sink(piece: bytes) -> None:
        parts.append(piece)

    await files.read("f", offset=0, length=None, sink=sink)
    assert [len(part) for part in parts] == [262_144, 262_144, 243_712]
    assert b"".join(parts) == data


async def test_reading_lets_others_run(files: DriverFiles, fs: FileSystem) -> None:
    """Between pieces a read can be cancelled, also one of an almost endless file."""
    with fs.open("/work/huge", who=USER, write=True, create=True) as handle:
        handle.truncate(10**15)
    seen: list[int] = []
    with anyio.CancelScope() as scope:

        async def sink(piece: bytes) -> None:
            seen.append(len(piece))
            if len(seen) == 3:
                scope.cancel()

        await files.read("huge", offset=0, length=None, sink=sink)
    assert len(seen) == 3


async def test_a_file_removed_while_it_is_read(files: DriverFiles, fs: FileSystem) -> None:
    """A read that has begun comes to its end, and the room is given back after it."""
    fs.populate("/work/f", b"x" * 600_000, mode=0o644)
    parts: list[bytes] = []

    async def sink(piece: bytes) -> None:
        if not parts:
            await files.remove("f", recursive=False)
        parts.append(piece)

    await files.read("f", offset=0, length=None, sink=sink)
    assert (len(b"".join(parts)), fs.used) == (600_000, 0)


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("missing", PathNotFound),
        ("missing/deep", PathNotFound),
        ("dangling", PathNotFound),
        ("astray", PathNotFound),
        ("loop/below", PathNotFound),
        ("n" * 256, PathNotFound),
        ("file/below", NotADirectory),
        ("file/", NotADirectory),
        ("directory", IsADirectory),
        ("link-to-directory", IsADirectory),
        ("loop", FileSystemError),
        ("fifo", FileSystemError),
        ("/dev/null", FileSystemError),
        ("/dev/zero", FileSystemError),
        ("locked", PermissionDenied),
        ("closed/inner", PermissionDenied),
    ],
)
@once
async def test_what_cannot_be_read(
    files: DriverFiles, scenery: None, path: str, error: type[FileSystemError]
) -> None:
    """Each obstacle has its own error, which names the path; nothing hangs."""
    with pytest.raises(FileSystemError) as caught:
        await read(files, path)
    assert type(caught.value) is error
    assert repr(path) in caught.value.message
    assert caught.value.outcome == "done"


async def test_errors_keep_their_cause(files: DriverFiles, scenery: None) -> None:
    """What the file system said is behind what the API says."""
    with pytest.raises(PathNotFound) as caught:
        await read(files, "missing")
    assert isinstance(caught.value.__cause__, FileNotFoundError)
    with pytest.raises(IsADirectory) as refused:
        await files.remove("directory", recursive=False)
    assert "Directory not empty" in str(refused.value.__cause__)


async def test_computed_files_are_read(files: DriverFiles, fs: FileSystem) -> None:
    """A file of `/proc` has no size, and its content can be read all the same."""
    fs.attach("/proc/uptime", VirtualFile(content=lambda: b"5.0 5.0\n"))
    assert await read(files, "/proc/uptime") == b"5.0 5.0\n"
    assert (await files.stat("/proc/uptime", follow=False)).size == 0
    with pytest.raises(PermissionDenied):
        await write(files, "/proc/uptime", b"x")


async def test_modes_of_new_and_old_files(files: DriverFiles, fs: FileSystem) -> None:
    """A new file is 0644; an existing one keeps its mode and owner unless a mode is given."""
    await write(files, "new", b"1")
    await write(files, "script", b"1", 0o755)
    fs.populate("/work/common", b"old", mode=0o666)
    await write(files, "script", b"2")
    await write(files, "common", b"2")
    nodes = [fs.stat(f"/work/{name}", who=ROOT) for name in ("new", "script", "common")]
    assert [(node.mode, node.uid) for node in nodes] == [(0o644, 10001), (0o755, 10001), (0o666, 0)]
    await write(files, "script", b"3", 0o600)
    assert nodes[1].mode == 0o600


async def test_a_mode_that_may_not_be_set(files: DriverFiles, fs: FileSystem) -> None:
    """Of another's file the content is written, and the mode refused."""
    fs.populate("/work/common", b"old", mode=0o666)
    with pytest.raises(PermissionDenied):
        await write(files, "common", b"new", 0o600)
    assert await read(files, "common") == b"new"


async def test_writing_through_a_link(files: DriverFiles, fs: FileSystem) -> None:
    """A link is followed and stays one, a dangling one makes its target; hard links agree."""
    await write(files, "real", b"old and long")
    fs.symlink("real", "/work/link", who=USER)
    fs.symlink("made", "/work/dangling", who=USER)
    fs.link("/work/real", "/work/other", who=USER)
    await write(files, "link", b"new")
    await write(files, "dangling", b"x")
    assert await read(files, "other") == b"new"
    assert fs.stat("/work/made", who=USER).mode == 0o644
    assert listing(fs) == ["dangling", "link", "made", "other", "real"]


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("missing/new", PathNotFound),
        ("new/", PathNotFound),
        ("dangling/new", PathNotFound),
        ("file/new", NotADirectory),
        ("file/", NotADirectory),
        ("directory", IsADirectory),
        ("fifo", FileSystemError),
        ("/dev/null", FileSystemError),
        ("loop", FileSystemError),
        ("astray", FileSystemError),
        ("n" * 256, FileSystemError),
        ("locked", PermissionDenied),
        ("closed/new", PermissionDenied),
        ("closed/deep/new", PermissionDenied),
        ("read-only/new", PermissionDenied),
        ("/etc/new", PathNotFound),
        ("/new", PermissionDenied),
    ],
)
@once
async def test_what_cannot_be_written(
    files: DriverFiles, fs: FileSystem, scenery: None, path: str, error: type[FileSystemError]
) -> None:
    """Each obstacle has its own error and leaves no part of the data anywhere."""
    before = listing(fs)
    with pytest.raises(FileSystemError) as caught:
        await write(files, path, b"x")
    assert type(caught.value) is error
    assert caught.value.outcome == "done"
    assert listing(fs) == before


async def test_rights_to_the_file_suffice(files: DriverFiles, scenery: None) -> None:
    """An existing file is written where its directory is closed to changes."""
    await write(files, "read-only/inner", b"new")
    assert await read(files, "read-only/inner") == b"new"


async def test_a_read_only_place(files: DriverFiles, fs: FileSystem) -> None:
    """Nothing is written, made or removed below it, by nobody."""
    fs.populate("/ro/f", b"x", mode=0o666, uid=10001)
    fs.mount_read_only("/ro")
    for user in (files, FakeFiles(fs, who=ROOT)):
        with pytest.raises(PermissionDenied):
            await write(user, "/ro/f", b"y")
        with pytest.raises(PermissionDenied):
            await user.mkdir("/ro/d", parents=False)
        with pytest.raises(PermissionDenied):
            await user.remove("/ro", recursive=True)
    assert await read(files, "/ro/f") == b"x"


async def test_incomplete_data_leaves_the_file_alone(files: DriverFiles, fs: FileSystem) -> None:
    """Less than was promised is an error; more is not taken."""
    await write(files, "old", b"before")
    for name in ("old", "new"):
        with pytest.raises(FileSystemError, match="incomplete"):
            await files.write(name, pieces(b"123"), size=10, mode=None)
    assert (listing(fs), await read(files, "old")) == (["old"], b"before")
    await files.write("old", pieces(b"123", b"45"), size=4, mode=None)
    assert await read(files, "old") == b"1234"


async def test_a_full_disk_changes_nothing(files: DriverFiles, fs: FileSystem) -> None:
    """Data that does not fit makes no new file and leaves an old one as it was."""
    await write(files, "old", b"x" * 600_000)
    for name in ("old", "new"):
        with pytest.raises(FileSystemError) as caught:
            await write(files, name, b"y" * 500_000)
        assert type(caught.value) is FileSystemError
        assert "No space left on device" in str(caught.value.__cause__)
    assert (listing(fs), fs.used) == (["old"], 600_000)
    assert await read(files, "old", length=1) == b"x"


async def test_a_write_cut_short_leaves_nothing(files: DriverFiles, fs: FileSystem) -> None:
    """Neither a source that fails nor a cancellation half-way makes a file."""

    async def broken() -> AsyncIterator[bytes]:
        yield b"half"
        raise LinkLost("the source is gone")

    async def endless() -> AsyncGenerator[bytes]:
        while True:
            yield b"half"
            scope.cancel()

    with pytest.raises(LinkLost):
        await files.write("new", broken(), size=8, mode=None)
    with anyio.CancelScope() as scope:
        async with aclosing(endless()) as source:
            await files.write("new", source, size=8, mode=None)
    assert scope.cancelled_caught
    assert listing(fs) == []


async def test_a_file_that_appears_meanwhile_is_overwritten(
    files: DriverFiles, fs: FileSystem
) -> None:
    """What is true when the data has come counts."""

    async def source() -> AsyncIterator[bytes]:
        fs.populate("/work/f", b"longer than that", mode=0o600, uid=10001, gid=10001)
        yield b"data"

    await files.write("f", source(), size=4, mode=None)
    assert await read(files, "f") == b"data"
    assert fs.stat("/work/f", who=USER).mode == 0o600


@pytest.mark.parametrize(
    ("path", "kind", "target"),
    [
        ("file", "file", None),
        ("directory/", "directory", None),
        ("link", "link", "file"),
        ("dangling", "link", "nowhere"),
        ("loop", "link", "loop"),
        ("link-to-directory/", "directory", None),
        ("fifo", "other", None),
        ("/dev/null", "other", None),
        (".", "directory", None),
    ],
)
@once
async def test_what_an_entry_is(
    files: DriverFiles, scenery: None, path: str, kind: str, target: str | None
) -> None:
    """A link is described itself; the path is the one given."""
    info = await files.stat(path, follow=False)
    assert (info.path, info.kind, info.target) == (path, kind, target)
    assert info.is_dir is (kind == "directory")


async def test_stat_gives_size_mode_and_time(files: DriverFiles, fs: FileSystem) -> None:
    """Times are whole seconds with their zone; modes are all twelve permission bits."""
    await write(files, "f", b"12345")
    fs.chmod("/work/f", 0o4755, who=USER)
    info = await files.stat("f", follow=False)
    assert (info.size, info.mode) == (5, 0o4755)
    assert info.mtime == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)


async def test_stat_can_follow(files: DriverFiles, scenery: None) -> None:
    """Followed, a link is its target, and one that leads nowhere is an error."""
    info = await files.stat("link", follow=True)
    assert (info.kind, info.size, info.target) == ("file", 7, None)
    for path in ("dangling", "astray", "missing"):
        with pytest.raises(PathNotFound):
            await files.stat(path, follow=True)
    with pytest.raises(FileSystemError) as caught:
        await files.stat("loop", follow=True)
    assert type(caught.value) is FileSystemError


async def test_a_listing(files: DriverFiles, scenery: None, fs: FileSystem) -> None:
    """Hidden entries and links are listed, sorted, each described itself."""
    fs.populate("/work/.hidden", b"", mode=0o644)
    listed = {info.path: (info.kind, info.target) for info in await files.ls(".", recursive=False)}
    assert list(listed) == sorted(listing(fs))
    assert listed[".hidden"] == ("file", None)
    assert listed["dangling"] == ("link", "nowhere")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("directory", "directory/inner"),
        ("directory/", "directory/inner"),
        ("./directory", "./directory/inner"),
        ("link-to-directory", "link-to-directory/inner"),
        ("/work/directory", "/work/directory/inner"),
    ],
)
@once
async def test_paths_of_a_listing_can_be_used(
    files: DriverFiles, scenery: None, path: str, expected: str
) -> None:
    """Entries are named below what was asked for."""
    (found,) = await files.ls(path, recursive=False)
    assert found.path == expected
    assert await read(files, found.path) == b"inner"


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("missing", PathNotFound),
        ("file", NotADirectory),
        ("dangling", NotADirectory),
        ("loop", NotADirectory),
        ("file/below", NotADirectory),
        ("closed", PermissionDenied),
    ],
)
@once
async def test_what_cannot_be_listed(
    files: DriverFiles, scenery: None, path: str, error: type[FileSystemError]
) -> None:
    """Each obstacle has its own error."""
    with pytest.raises(error):
        await files.ls(path, recursive=False)


@pytest.mark.parametrize(
    ("path", "parents", "error"),
    [
        ("file", False, PathExists),
        ("file", True, PathExists),
        ("directory", False, PathExists),
        ("dangling", False, PathExists),
        ("file/", False, PathExists),
        ("dangling/new", True, PathExists),
        ("missing/new", False, PathNotFound),
        ("file/new", False, NotADirectory),
        ("file/new", True, NotADirectory),
        ("closed/new", False, PermissionDenied),
        ("read-only/new/er", True, PermissionDenied),
        ("loop/new", True, FileSystemError),
        ("n" * 256, False, FileSystemError),
    ],
)
@once
async def test_what_cannot_be_made(
    files: DriverFiles, scenery: None, path: str, parents: bool, error: type[FileSystemError]
) -> None:
    """Each obstacle to a directory has its own error."""
    with pytest.raises(FileSystemError) as caught:
        await files.mkdir(path, parents=parents)
    assert type(caught.value) is error
    assert caught.value.outcome == "done"


async def test_making_what_exists(files: DriverFiles, fs: FileSystem, scenery: None) -> None:
    """`parents=True` accepts a directory that is there, through a link too; new ones are 0755."""
    await files.mkdir("directory", parents=True)
    await files.mkdir("link-to-directory", parents=True)
    await files.mkdir("a/b", parents=True)
    nodes = [fs.stat(path, who=USER) for path in ("/work/a", "/work/a/b")]
    assert [(node.mode, node.uid) for node in nodes] == [(0o755, 10001)] * 2


@pytest.mark.parametrize(
    ("path", "recursive", "error"),
    [
        ("missing", False, PathNotFound),
        ("missing", True, PathNotFound),
        ("directory", False, IsADirectory),
        ("directory/..", False, IsADirectory),
        ("file/below", False, NotADirectory),
        ("file/", True, NotADirectory),
        ("read-only/inner", False, PermissionDenied),
        ("read-only/inner", True, PermissionDenied),
        ("closed", True, PermissionDenied),
        ("/tmp", True, PermissionDenied),
        (".", False, FileSystemError),
        (".", True, FileSystemError),
        ("..", True, FileSystemError),
        ("directory/.", True, FileSystemError),
        ("/", False, FileSystemError),
        ("/", True, FileSystemError),
        ("link-to-directory/", False, FileSystemError),
        ("link-to-directory/", True, FileSystemError),
    ],
)
@once
async def test_what_cannot_be_removed(
    files: DriverFiles, scenery: None, path: str, recursive: bool, error: type[FileSystemError]
) -> None:
    """Each obstacle has its own error; the root and dots are always refused."""
    with pytest.raises(FileSystemError) as caught:
        await files.remove(path, recursive=recursive)
    assert type(caught.value) is error
    assert await read(files, "directory/inner") == b"inner"


async def test_removing_links_leaves_their_targets(
    files: DriverFiles, fs: FileSystem, scenery: None
) -> None:
    """A link is removed itself, also recursively and inside a tree, and a dangling one too."""
    fs.attach("/work/tree/below/link", Link(target="/work/directory"))
    fs.chown("/work/tree", 10001, 10001, who=ROOT)
    fs.chown("/work/tree/below", 10001, 10001, who=ROOT)
    for link in ("link", "dangling", "loop", "fifo"):
        await files.remove(link, recursive=False)
    for path in ("link-to-directory", "tree/"):
        await files.remove(path, recursive=True)
    assert await files.exists("file")
    assert await files.exists("directory/inner")
    assert not await files.exists("tree")


async def test_existence(files: DriverFiles, scenery: None) -> None:
    """What leads to nothing does not exist: dangling, a loop, below a file, out of reach."""
    for name in ("file", "directory", "link", "fifo", "locked", "."):
        assert await files.exists(name)
    for name in ("missing", "dangling", "loop", "file/below", "closed/inner"):
        assert not await files.exists(name)


async def test_the_user_may_change(fs: FileSystem, scenery: None) -> None:
    """A function is asked whose rights count, at every operation."""
    users = [USER, ROOT]
    files = FakeFiles(fs, who=lambda: users[-1], cwd="/work/directory")
    assert await read(files, "../locked") == b"secret"
    users.pop()
    with pytest.raises(PermissionDenied):
        await read(files, "../locked")
    assert [info.path for info in await files.ls(".", recursive=False)] == ["inner"]


async def test_a_cancelled_operation_does_nothing(files: DriverFiles, fs: FileSystem) -> None:
    """Cancelled before it began, it leaves all as it was."""
    with anyio.CancelScope() as scope:
        scope.cancel()
        await files.mkdir("d", parents=False)
    assert listing(fs) == []
