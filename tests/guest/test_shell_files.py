"""File operations by shell, run with this host's own `/bin/sh` as an unprivileged user."""

from __future__ import annotations

import os
import shutil
import stat
import sys
import tempfile
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, cast

import anyio
import anyio.lowlevel
import pytest

from sandboxio import (
    FileSystemError,
    IsADirectory,
    LinkLost,
    NotADirectory,
    PathExists,
    PathNotFound,
    PermissionDenied,
)
from sandboxio.core.driver import ExitStatus, KillReport
from sandboxio.core.models import OutputChunk
from sandboxio.guest.shell_files import ShellFiles

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from anyio.abc import Process

    from sandboxio.core.models import StreamName
    from sandboxio.core.requests import ExecRequest

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform != "linux", reason="the scripts use stat(1) of Linux"),
]

NOBODY = 65534
once = pytest.mark.parametrize("anyio_backend", ["asyncio"])
"""For tables about the shell, which is the same under either event loop."""
NAMES = [
    "plain",
    "a b",
    " lead",
    "trail ",
    "a\nb",
    "newline\n",
    "tab\t",
    "quote'\"",
    "$HOME",
    "$(touch pwned)",
    "`touch pwned`",
    "a'; touch pwned; '",
    "back\\slash",
    "\\n",
    "%s%d",
    "-n",
    "-rf",
    "--",
    "*",
    "[a]",
    "~",
    "#",
    "ünï",
    "\u00e9",
    "e\u0301",
    "\udcff\udcfe",
    "x" * 255,
]


class HostChannel:
    """An `ExecChannel` that runs a command on this host: stdout first, then stderr."""

    def __init__(self, process: Process, log: list[str]) -> None:
        self._process = process
        self._log = log
        self._status: ExitStatus | None = None

    async def receive(self) -> OutputChunk | None:
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        for name, pipe in (("stdout", self._process.stdout), ("stderr", self._process.stderr)):
            with suppress(anyio.EndOfStream):
                return OutputChunk(cast("StreamName", name), await pipe.receive())
        self._status = ExitStatus(await self._process.wait())
        return None

    async def send(self, data: bytes) -> None:
        assert self._process.stdin is not None
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            await self._process.stdin.send(data)

    async def close_stdin(self) -> None: ...

    async def wait(self) -> ExitStatus:
        await anyio.lowlevel.checkpoint()
        return self._status or ExitStatus(137)

    async def kill(self) -> KillReport:
        self._log.append("kill")
        with suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()
        return KillReport(complete=True)

    async def aclose(self) -> None:
        self._log.append("aclose")
        await self._process.aclose()


async def on_host(
    request: ExecRequest, cwd: Path, log: list[str], path: str = "/usr/bin:/bin"
) -> HostChannel:
    """Start a command on this host, as an unprivileged user where we are root."""
    user = NOBODY if os.getuid() == 0 else None
    process = await anyio.open_process(
        request.argv,
        cwd=cwd,
        env={"PATH": path, "LC_ALL": "C.UTF-8"},
        umask=0o077,
        user=user,
        group=user,
        extra_groups=None if user is None else [],
    )
    return HostChannel(process, log)


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that belongs to whoever runs the shell."""
    made = Path(tempfile.mkdtemp())
    if os.getuid() == 0:
        os.chown(made, NOBODY, NOBODY)
    yield made
    for folder in (entry for entry in made.rglob("*") if entry.is_dir()):
        folder.chmod(0o700)
    shutil.rmtree(made)


@pytest.fixture
def log() -> list[str]:
    return []


@pytest.fixture
def files(place: Path, log: list[str]) -> ShellFiles:
    async def start(request: ExecRequest) -> HostChannel:
        return await on_host(request, place, log)

    return ShellFiles(start, timeout=30, give_up=anyio.lowlevel.checkpoint)


async def pieces(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        await anyio.lowlevel.checkpoint()
        yield part


async def write(files: ShellFiles, path: str, data: bytes, mode: int | None = None) -> None:
    await files.write(path, pieces(data), size=len(data), mode=mode)


async def read(files: ShellFiles, path: str, offset: int = 0, length: int | None = None) -> bytes:
    parts: list[bytes] = []

    async def sink(piece: bytes) -> None:
        await anyio.lowlevel.checkpoint()
        parts.append(piece)

    await files.read(path, offset=offset, length=length, sink=sink)
    return b"".join(parts)


@once
@pytest.mark.parametrize("name", NAMES, ids=ascii)
@pytest.mark.parametrize("form", ["{}", "./{}", "{{place}}/{}"])
async def test_any_name_makes_a_round_trip(
    files: ShellFiles, place: Path, name: str, form: str
) -> None:
    """Written, listed, described, read and removed under exactly its name, relative or not."""
    path = form.format(name).replace("{place}", str(place))
    await write(files, path, b"content")
    assert os.listdir(place) == [name]
    assert [info.path for info in await files.ls(".", recursive=False)] == [name]
    assert (await files.stat(path, follow=False)).size == 7
    assert await files.exists(path)
    assert await read(files, path) == b"content"
    await files.remove(path, recursive=False)
    assert os.listdir(place) == []
    assert not await files.exists(path)


@once
@pytest.mark.parametrize("name", NAMES[:-1], ids=ascii)
async def test_directories_take_any_name(files: ShellFiles, place: Path, name: str) -> None:
    """Directories too are made, listed and removed under exactly their name."""
    await files.mkdir(name, parents=False)
    await files.mkdir(f"{name}/deep/er", parents=True)
    assert [(info.path, info.kind) for info in await files.ls(name, recursive=False)] == [
        (f"{name}/deep", "directory")
    ]
    await files.remove(name, recursive=True)
    assert os.listdir(place) == []


async def test_every_byte_survives(files: ShellFiles) -> None:
    """Content is exact, whatever it holds and in whatever pieces it comes."""
    data = bytes(range(256)) * 1000
    await files.write(
        "f", pieces(data[:1], data[1:70_000], data[70_000:]), size=len(data), mode=None
    )
    assert await read(files, "f") == data
    await write(files, "f", b"")
    assert await read(files, "f") == b""


@pytest.mark.parametrize(
    ("offset", "length", "expected"),
    [
        (0, None, b"0123456789"),
        (4, None, b"456789"),
        (0, 3, b"012"),
        (4, 3, b"456"),
        (4, 100, b"456789"),
        (10, None, b""),
        (99, 5, b""),
        (3, 0, b""),
        (0, 0, b""),
    ],
)
async def test_ranges(files: ShellFiles, offset: int, length: int | None, expected: bytes) -> None:
    """Ranges are cut inside, at and beyond the end included."""
    await write(files, "f", b"0123456789")
    assert await read(files, "f", offset, length) == expected


async def test_modes_of_new_and_old_files(files: ShellFiles, place: Path) -> None:
    """A new file is 0644 whatever the umask; an existing one keeps its mode unless one is given."""
    await write(files, "new", b"1")
    await write(files, "script", b"1", 0o755)
    assert stat.S_IMODE((place / "new").stat().st_mode) == 0o644
    assert stat.S_IMODE((place / "script").stat().st_mode) == 0o755
    await write(files, "script", b"2")
    assert stat.S_IMODE((place / "script").stat().st_mode) == 0o755
    await write(files, "script", b"3", 0o600)
    assert stat.S_IMODE((place / "script").stat().st_mode) == 0o600


async def test_writing_through_a_link(files: ShellFiles, place: Path) -> None:
    """A link is followed and stays one, a dangling one makes its target."""
    await write(files, "real", b"old and long")
    (place / "link").symlink_to("real")
    (place / "dangling").symlink_to("made")
    await write(files, "link", b"new")
    await write(files, "dangling", b"x")
    assert (place / "link").is_symlink()
    assert await read(files, "real") == b"new"
    assert await read(files, "made") == b"x"
    assert stat.S_IMODE((place / "made").stat().st_mode) == 0o644
    assert sorted(os.listdir(place)) == ["dangling", "link", "made", "real"]


async def test_a_hard_link_is_written_in_place(files: ShellFiles, place: Path) -> None:
    """Overwriting keeps the inode, so that both names see it."""
    await write(files, "a", b"old")
    os.link(place / "a", place / "b")
    await write(files, "a", b"new")
    assert await read(files, "b") == b"new"


async def test_incomplete_data_leaves_the_file_alone(files: ShellFiles, place: Path) -> None:
    """Less than was promised is an error, and neither file nor part appears."""
    await write(files, "old", b"before")
    for name in ("old", "new"):
        with pytest.raises(FileSystemError, match="incomplete"):
            await files.write(name, pieces(b"123"), size=10, mode=None)
    assert os.listdir(place) == ["old"]
    assert await read(files, "old") == b"before"


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("missing", PathNotFound),
        ("missing/deep", PathNotFound),
        ("dangling", PathNotFound),
        ("file/below", NotADirectory),
        ("directory", IsADirectory),
        ("link-to-directory", IsADirectory),
        ("loop", FileSystemError),
        ("fifo", FileSystemError),
        ("locked", PermissionDenied),
        ("closed/inner", PermissionDenied),
        ("/dev/null", FileSystemError),
    ],
)
async def test_what_cannot_be_read(
    files: ShellFiles, scenery: None, path: str, error: type[FileSystemError]
) -> None:
    """Each obstacle has its own error, which names the path; nothing hangs."""
    with pytest.raises(error) as caught:
        await read(files, path)
    assert type(caught.value) is error
    assert repr(path) in caught.value.message
    assert caught.value.outcome == "done"


@pytest.fixture
def scenery(place: Path) -> None:
    """Files, links and obstacles of every kind, owned by the user of the shell."""
    (place / "file").write_bytes(b"content")
    (place / "locked").write_bytes(b"secret")
    for folder in ("directory", "closed", "read-only"):
        (place / folder).mkdir()
        (place / folder / "inner").write_bytes(b"inner")
    for link, to in [
        ("dangling", "nowhere"),
        ("loop", "loop"),
        ("link", "file"),
        ("link-to-directory", "directory"),
    ]:
        (place / link).symlink_to(to)
    os.mkfifo(place / "fifo")
    if os.getuid() == 0:
        for entry in place.rglob("*"):
            os.chown(entry, NOBODY, NOBODY, follow_symlinks=False)
    (place / "locked").chmod(0)
    (place / "closed").chmod(0)
    (place / "read-only").chmod(0o555)


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("missing/new", PathNotFound),
        ("file/new", NotADirectory),
        ("new/", PathNotFound),
        ("directory", IsADirectory),
        ("fifo", FileSystemError),
        ("locked", PermissionDenied),
        ("closed/new", PermissionDenied),
        ("read-only/new", PermissionDenied),
        ("loop", FileSystemError),
    ],
)
async def test_what_cannot_be_written(
    files: ShellFiles, place: Path, scenery: None, path: str, error: type[FileSystemError]
) -> None:
    """Each obstacle has its own error and leaves no part of the data anywhere."""
    before = sorted(os.listdir(place))
    with pytest.raises(error) as caught:
        await write(files, path, b"x")
    assert type(caught.value) is error
    assert sorted(os.listdir(place)) == before


async def test_an_existing_file_of_a_read_only_directory_is_written(
    files: ShellFiles, place: Path, scenery: None
) -> None:
    """Rights to the file suffice where none to the directory are needed."""
    await write(files, "read-only/inner", b"new")
    assert (place / "read-only/inner").read_bytes() == b"new"


@pytest.mark.parametrize(
    ("path", "kind", "target"),
    [
        ("file", "file", None),
        ("directory", "directory", None),
        ("link", "link", "file"),
        ("dangling", "link", "nowhere"),
        ("loop", "link", "loop"),
        ("fifo", "other", None),
        ("/dev/null", "other", None),
        (".", "directory", None),
    ],
)
async def test_what_an_entry_is(
    files: ShellFiles, scenery: None, path: str, kind: str, target: str | None
) -> None:
    """A link is described itself; the target is what is written in it."""
    info = await files.stat(path, follow=False)
    assert (info.path, info.kind, info.target) == (path, kind, target)
    assert info.is_dir is (kind == "directory")


async def test_stat_gives_size_mode_and_time(files: ShellFiles, place: Path) -> None:
    """Times carry their zone; modes are permission bits."""
    await write(files, "f", b"12345", 0o640)
    info = await files.stat("f", follow=False)
    assert (info.size, info.mode) == (5, 0o640)
    assert info.mtime is not None
    assert abs(info.mtime - datetime.now(UTC)) < timedelta(minutes=5)


async def test_stat_can_follow(files: ShellFiles, scenery: None) -> None:
    """Followed, a link is its target, and a dangling one is missing."""
    info = await files.stat("link", follow=True)
    assert (info.kind, info.size, info.target) == ("file", 7, None)
    with pytest.raises(PathNotFound):
        await files.stat("dangling", follow=True)
    with pytest.raises(PathNotFound):
        await files.stat("missing", follow=False)
    with pytest.raises(PermissionDenied):
        await files.stat("closed/inner", follow=False)


async def test_a_target_with_a_line_end(files: ShellFiles, place: Path) -> None:
    """What a link holds is told exactly, line ends included."""
    (place / "l").symlink_to("a\nb\n")
    assert (await files.stat("l", follow=False)).target == "a\nb\n"
    assert [info.target for info in await files.ls(".", recursive=False)] == ["a\nb\n"]


async def test_a_listing(files: ShellFiles, scenery: None, place: Path) -> None:
    """Hidden entries and links are listed, sorted, each with its own kind."""
    (place / ".hidden").write_bytes(b"")
    listed = {info.path: info.kind for info in await files.ls(".", recursive=False)}
    assert list(listed) == sorted(os.listdir(place))
    assert (listed[".hidden"], listed["link"], listed["directory"]) == ("file", "link", "directory")
    targets = {info.path: info.target for info in await files.ls(str(place), recursive=False)}
    assert targets[f"{place}/dangling"] == "nowhere"


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("directory", ["directory/inner"]),
        ("directory/", ["directory/inner"]),
        ("./directory", ["./directory/inner"]),
        ("link-to-directory", ["link-to-directory/inner"]),
    ],
)
async def test_paths_of_a_listing_can_be_used(
    files: ShellFiles, scenery: None, path: str, names: list[str]
) -> None:
    """Entries are named below what was asked for, a link to a directory included."""
    found = await files.ls(path, recursive=False)
    assert [info.path for info in found] == names
    assert await read(files, found[0].path) == b"inner"


async def test_an_empty_directory(files: ShellFiles, place: Path) -> None:
    """Nothing in it is an empty list; `.` and the root are listed like any other."""
    assert await files.ls(".", recursive=False) == []
    assert await files.ls(f"{place}/", recursive=False) == []
    assert "/dev" in [info.path for info in await files.ls("/", recursive=False)]


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("missing", PathNotFound),
        ("file", NotADirectory),
        ("dangling", NotADirectory),
        ("closed", PermissionDenied),
        ("file/below", NotADirectory),
    ],
)
async def test_what_cannot_be_listed(
    files: ShellFiles, scenery: None, path: str, error: type[FileSystemError]
) -> None:
    """Each obstacle has its own error."""
    with pytest.raises(error):
        await files.ls(path, recursive=False)


@once
async def test_a_large_directory(files: ShellFiles, place: Path) -> None:
    """A listing of thousands of entries is complete."""
    for number in range(3000):
        (place / f"{number:0200d}").touch()
    assert len(await files.ls(".", recursive=False)) == 3000


@pytest.mark.parametrize(
    ("path", "parents", "error"),
    [
        ("file", False, PathExists),
        ("file", True, PathExists),
        ("directory", False, PathExists),
        ("dangling", False, PathExists),
        ("missing/new", False, PathNotFound),
        ("file/new", False, NotADirectory),
        ("file/new", True, NotADirectory),
        ("read-only/new", False, PermissionDenied),
        ("read-only/new/er", True, PermissionDenied),
    ],
)
async def test_what_cannot_be_made(
    files: ShellFiles, scenery: None, path: str, parents: bool, error: type[FileSystemError]
) -> None:
    """Each obstacle to a directory has its own error."""
    with pytest.raises(error):
        await files.mkdir(path, parents=parents)


async def test_making_what_exists(files: ShellFiles, scenery: None, place: Path) -> None:
    """`parents=True` accepts a directory that is there; new ones are 0755."""
    await files.mkdir("directory", parents=True)
    await files.mkdir("link-to-directory", parents=True)
    await files.mkdir("a/b", parents=True)
    assert stat.S_IMODE((place / "a").stat().st_mode) == 0o755


@pytest.mark.parametrize(
    ("path", "recursive", "error"),
    [
        ("missing", False, PathNotFound),
        ("missing", True, PathNotFound),
        ("directory", False, IsADirectory),
        ("read-only/inner", False, PermissionDenied),
        ("read-only/inner", True, PermissionDenied),
        ("file/below", False, NotADirectory),
    ],
)
async def test_what_cannot_be_removed(
    files: ShellFiles, scenery: None, path: str, recursive: bool, error: type[FileSystemError]
) -> None:
    """Each obstacle has its own error, a directory that is not empty included."""
    with pytest.raises(error):
        await files.remove(path, recursive=recursive)


@pytest.mark.parametrize("recursive", [False, True])
async def test_a_slash_does_not_lead_a_removal_through_a_link(
    files: ShellFiles, scenery: None, place: Path, recursive: bool
) -> None:
    """`link/` names what the link leads to; its content is not removed in the link's name."""
    before = sorted(path.name for path in (place / "link-to-directory").iterdir())
    with pytest.raises(FileSystemError):
        await files.remove("link-to-directory//", recursive=recursive)
    assert sorted(path.name for path in (place / "link-to-directory").iterdir()) == before != []


async def test_removing_links_leaves_their_targets(
    files: ShellFiles, scenery: None, place: Path
) -> None:
    """A link is removed itself, also recursively, and a dangling one too."""
    for link in ("link", "dangling", "loop"):
        await files.remove(link, recursive=False)
    await files.remove("link-to-directory", recursive=True)
    assert (place / "file").exists()
    assert (place / "directory/inner").exists()


async def test_existence(files: ShellFiles, scenery: None) -> None:
    """What leads to nothing does not exist: dangling, a loop, below a file."""
    present = [name for name in ("file", "directory", "link", "fifo") if await files.exists(name)]
    assert present == ["file", "directory", "link", "fifo"]
    for name in ("missing", "dangling", "loop", "file/below"):
        assert not await files.exists(name)


async def test_a_channel_is_always_let_go(files: ShellFiles, log: list[str]) -> None:
    """A complete operation closes its channel; one cut short is killed first."""
    await write(files, "f", b"x")
    assert log == ["aclose"]

    async def sink(piece: bytes) -> None:
        raise LinkLost("full")

    with pytest.raises(LinkLost):
        await files.read("f", offset=0, length=None, sink=sink)
    assert log == ["aclose", "kill", "aclose"]


async def test_a_write_cut_short_takes_its_part_away(
    files: ShellFiles, place: Path, log: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the source fails, the call is killed and what it may have left is removed."""

    def token(size: int) -> str:
        return "aa" * size

    monkeypatch.setattr("secrets.token_hex", token)
    (place / f".sandboxio-{'aa' * 8}").write_bytes(b"half")

    async def broken() -> AsyncIterator[bytes]:
        yield b"half"
        raise LinkLost("the source is gone")

    with pytest.raises(LinkLost):
        await files.write("new", broken(), size=8, mode=None)
    assert os.listdir(place) == []
    assert log == ["kill", "aclose", "aclose"]


async def test_the_systems_tools_come_first(place: Path) -> None:
    """A program that a user has put first on PATH does not decide what the file API says."""
    (place / "file").write_bytes(b"content")
    for name in ("sh", "stat", "cat", "find", "head", "wc", "rm"):
        (place / name).write_text("#!/bin/sh\necho a lie\n")
        (place / name).chmod(0o755)

    async def start(request: ExecRequest) -> HostChannel:
        return await on_host(request, place, [], path=f"{place}:/usr/bin:/bin")

    files = ShellFiles(start, timeout=30, give_up=anyio.lowlevel.checkpoint)
    await write(files, "new", b"written")
    assert await read(files, "file") + await read(files, "new") == b"contentwritten"
    assert len(await files.ls(".", recursive=False)) == 9
    await files.remove("new", recursive=True)
    assert not (place / "new").exists()
