"""File operations over a link: what is asked, what is believed of the answers, and cut shorts."""

from __future__ import annotations

import struct
from contextlib import aclosing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from sandboxio.core.errors import (
    FileSystemError,
    IsADirectory,
    LinkLost,
    NotADirectory,
    PathExists,
    PathNotFound,
    PermissionDenied,
    SandboxError,
    SandboxGone,
)
from sandboxio.core.models import FileInfo
from sandboxio.guest import frames
from tests.link.world import Request, World, answering, nothing, world
from tests.stepwise import cancel_at_each_await

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from sandboxio.guest.link_files import LinkFiles

pytestmark = pytest.mark.anyio

OK = (b"ok",)
FILE, FOLDER, LINK = 0o100644, 0o040755, 0o120777


def entry(
    path: bytes, mode: int = FILE, size: int = 3, seconds: int = 0, target: bytes = b""
) -> bytes:
    head = struct.pack("!IIQqI", len(path), mode, size, seconds, len(target))
    return head + path + target


def info(path: str, **values: Any) -> FileInfo:
    usual: dict[str, Any] = {
        "size": 3,
        "is_dir": False,
        "mode": 0o644,
        "mtime": datetime.fromtimestamp(0, UTC),
    }
    return FileInfo(path, **{**usual, **values})


def saying(*pieces: bytes, result: tuple[bytes, ...] = OK) -> Callable[[Request], Awaitable[None]]:
    """Answer an operation with data and a result."""

    async def answer(request: Request) -> None:
        for piece in pieces:
            await request.say(piece)
        await request.result(*result)

    return answer


async def pieces(*data: bytes) -> AsyncGenerator[bytes]:
    for piece in data:
        yield piece


async def drop(_: bytes) -> None:
    """Take a piece."""


async def write(files: LinkFiles, *data: bytes, size: int | None = None) -> None:
    async with aclosing(pieces(*data)) as source:
        await files.write("f", source, size=size, mode=None)


OPERATIONS: dict[str, tuple[Callable[[LinkFiles], Awaitable[Any]], list[bytes]]] = {
    "mkdir": (lambda files: files.mkdir("d", parents=True), [b"d", b"1"]),
    "remove": (lambda files: files.remove("d\udcff", recursive=False), [b"d\xff", b"0"]),
    "move": (lambda files: files.move("a", "b"), [b"a", b"b"]),
    "copy": (lambda files: files.copy("a", "b"), [b"a", b"b"]),
    "chmod": (lambda files: files.chmod("f", 0o750), [b"f", b"750"]),
}


@pytest.mark.parametrize("name", OPERATIONS)
async def test_operations_on_the_tree(name: str) -> None:
    """Each asks for what it is called, as the sandbox's user, below its directory, in its time."""
    act, arguments = OPERATIONS[name]
    async with world() as box:
        box.on_open = answering(file=OK)
        await act(box.calls.files)
        (request,) = box.asked
        assert request.fields == [
            *(name.encode(), b"1000:1000:7,8", b"/work/", b"310000"),
            *arguments,
        ]


async def test_read() -> None:
    """The range is asked for, and pieces come as they are."""
    async with world() as box:
        box.on_open = saying(b"ab", b"c")
        got = list[bytes]()

        async def keep(piece: bytes) -> None:
            got.append(piece)

        await box.calls.files.read("f", offset=5, length=3, sink=keep)
        await box.calls.files.read("f", offset=0, length=None, sink=keep)
        assert b"".join(got) == b"abcabc"
        assert [request.fields[-3:] for request in box.asked] == [
            [b"f", b"5", b"3"],
            [b"f", b"0", b""],
        ]


async def test_write() -> None:
    """All of the source is sent, and its end; size and mode are told beforehand."""
    async with world() as box:
        box.on_eof = answering(file=OK)
        data = b"x" * 300_000
        async with aclosing(pieces(data, data)) as source:
            await box.calls.files.write("f", source, size=600_000, mode=0o640)
        assert box.given[1] == 2 * data
        assert box.asked[0].fields[-3:] == [b"f", b"600000", b"640"]


async def test_write_that_is_refused() -> None:
    """The error comes as soon as the window is full, whatever the source has still to give."""
    async with world() as box:
        box.on_open = lambda request: request.fail(b"no-space")
        taken = 0

        async def endless() -> AsyncGenerator[bytes]:
            nonlocal taken
            while True:
                taken += 65536
                yield bytes(65536)

        async with aclosing(endless()) as source:
            with pytest.raises(FileSystemError, match="'f': in words"):
                await box.calls.files.write("f", source, size=None, mode=None)
        assert taken <= 2 * frames.WINDOW


async def test_a_source_that_fails() -> None:
    """Its error goes on as it is, and the agent is told that nothing is to come of it."""

    async def failing() -> AsyncGenerator[bytes]:
        yield b"half"
        raise ZeroDivisionError

    async with world() as box:
        async with aclosing(failing()) as source:
            with pytest.raises(ZeroDivisionError):
                await box.calls.files.write("f", source, size=None, mode=None)
        assert box.ended == [1]


async def test_a_source_that_is_too_short() -> None:
    """It is not taken for the whole."""
    async with world() as box:
        with pytest.raises(FileSystemError, match="incomplete"):
            await write(box.calls.files, b"half", size=8)
        assert box.ended == [1]


async def test_edit() -> None:
    """Old and new are sent, with their lengths; how often it was replaced comes back."""
    async with world() as box:
        box.on_eof = answering(file=(b"ok", b"2"))
        assert await box.calls.files.edit("f", b"old", b"newer", count=2) == 2
        assert box.asked[0].fields[-4:] == [b"f", b"3", b"5", b"2"]
        assert box.given[1] == b"oldnewer"
        assert await box.calls.files.edit("f", b"old", b"", count=None) == 2
        assert box.asked[1].fields[-1] == b""


async def test_exists() -> None:
    """It is there or not."""
    async with world() as box:
        for answer in (b"0", b"1"):
            box.on_open = answering(file=(b"ok", answer))
            assert await box.calls.files.exists("f") is (answer == b"1")


async def test_stat() -> None:
    """One entry is described under the path that was asked for."""
    async with world() as box:
        box.on_open = saying(entry(b"d/l\xff", LINK, target=b"to\xfe"))
        found = await box.calls.files.stat("d/l\udcff", follow=False)
        assert found == info("d/l\udcff", kind="link", mode=0o777, target="to\udcfe")
        assert box.asked[0].fields[-1] == b"0"


async def test_what_a_datetime_cannot_hold() -> None:
    """A file may carry any time; one that is beyond the year 9999 is `None`."""
    async with world() as box:
        box.on_open = saying(entry(b"f", seconds=2**62))
        assert (await box.calls.files.stat("f", follow=True)).mtime is None


@pytest.mark.parametrize(
    ("path", "names"),
    [(".", ["a", "d"]), ("p", ["p/a", "p/d"]), ("/p/", ["/p/a", "/p/d"]), ("/", ["/a", "/d"])],
)
async def test_ls(path: str, names: list[str]) -> None:
    """Entries come sorted, below the path as the caller wrote it, in whatever pieces."""
    async with world() as box:
        said = entry(b"d", FOLDER) + entry(b"a")
        box.on_open = saying(said[:13], said[13:50], said[50:])
        found = await box.calls.files.ls(path, recursive=False)
        assert [one.path for one in found] == names
        assert [one.kind for one in found] == ["file", "directory"]


async def test_ls_recursive() -> None:
    """What is deeper has its whole path below the one asked for."""
    async with world() as box:
        box.on_open = saying(entry(b"d", FOLDER) + entry(b"d/e/f") + entry(b"b"))
        found = await box.calls.files.ls("p", recursive=True)
        assert [one.path for one in found] == ["p/b", "p/d", "p/d/e/f"]


@pytest.mark.parametrize(
    ("pattern", "said", "names"),
    [
        ("*.py", [b"b.py", b"a.py", b"c.txt"], ["a.py", "b.py"]),
        ("p/**/*.py", [b"p/a.py", b"p/d/e.py"], ["p/a.py", "p/d/e.py"]),
        ("/p/*", [b"/p/a"], ["/p/a"]),
        ("p/f", [b"p/f"], ["p/f"]),
        ("../*", [b"../a"], ["../a"]),
    ],
)
async def test_glob(pattern: str, said: list[bytes], names: list[str]) -> None:
    """Paths are as the pattern has them; what does not match is left out."""
    async with world() as box:
        box.on_open = saying(*map(entry, said))
        assert [one.path for one in await box.calls.files.glob(pattern)] == names


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (b"not-found", PathNotFound),
        (b"permission", PermissionDenied),
        (b"not-a-directory", NotADirectory),
        (b"is-a-directory", IsADirectory),
        (b"exists", PathExists),
        *((other, FileSystemError) for other in (b"not-empty", b"no-space", b"busy", b"invalid")),
        *((other, FileSystemError) for other in (b"unsupported", b"ended", b"other")),
    ],
)
async def test_errors(name: bytes, kind: type[SandboxError]) -> None:
    """Each name is an error of its own, with the paths and the agent's words."""
    async with world() as box:
        box.on_open = lambda request: request.fail(name, b"\x1b[1m no\nway ")
        with pytest.raises(FileSystemError) as caught:
            await box.calls.files.copy("a", "b")
        assert type(caught.value) is kind
        assert caught.value.message == "'a' to 'b': ?[1m no way"
        assert caught.value.outcome == "done"


Lie = tuple["Callable[[LinkFiles], Awaitable[Any]]", "Callable[[Request], Awaitable[None]]"]


def stat(files: LinkFiles) -> Awaitable[Any]:
    return files.stat("f", follow=False)


def ls(files: LinkFiles) -> Awaitable[Any]:
    return files.ls("p", recursive=False)


def tree(files: LinkFiles) -> Awaitable[Any]:
    return files.ls("p", recursive=True)


def glob(files: LinkFiles) -> Awaitable[Any]:
    return files.glob("p/*")


def read(files: LinkFiles) -> Awaitable[Any]:
    return files.read("f", offset=0, length=2, sink=drop)


def edit(files: LinkFiles) -> Awaitable[Any]:
    return files.edit("f", b"a", b"b", count=1)


LIES: dict[str, Lie] = {
    "another path": (stat, saying(entry(b"g"))),
    "no entry": (stat, saying()),
    "two entries": (stat, saying(entry(b"f") + entry(b"f"))),
    "half an entry": (stat, saying(entry(b"f")[:-1])),
    "a long target": (stat, saying(entry(b"f", LINK, target=b"x" * 4097))),
    "a NUL in a target": (stat, saying(entry(b"f", LINK, target=b"a\0b"))),
    "a negative size": (stat, saying(entry(b"f", size=2**63))),
    "a huge length": (stat, saying(struct.pack("!IIQqI", 2**32 - 1, 0, 0, 0, 0))),
    "an empty name": (ls, saying(entry(b""))),
    "a NUL": (ls, saying(entry(b"a\0b"))),
    "itself": (ls, saying(entry(b"."))),
    "what is above": (ls, saying(entry(b".."))),
    "a path": (ls, saying(entry(b"a/b"))),
    "an absolute path": (tree, saying(entry(b"/etc"))),
    "a way out": (tree, saying(entry(b"a/../../b"))),
    "an empty component": (tree, saying(entry(b"a//b"))),
    "a slash at the end": (tree, saying(entry(b"a/"))),
    "a long name": (ls, saying(entry(b"x" * 256))),
    "a name twice": (ls, saying(entry(b"a") + entry(b"a"))),
    "beside the pattern": (glob, saying(entry(b"q/a"))),
    "above the pattern": (glob, saying(entry(b"p/../a"))),
    "the prefix itself": (glob, saying(entry(b"p"))),
    "a match twice": (glob, saying(entry(b"p/a") + entry(b"p/a"))),
    "more than asked for": (read, saying(b"abc")),
    "stderr": (read, lambda request: request.say(b"x", frames.ERROUT)),
    "too many replacements": (edit, answering(file=(b"ok", b"2"))),
    "no replacement": (edit, answering(file=(b"ok", b"0"))),
    "no number": (edit, answering(file=(b"ok", b"one"))),
    "no field": (edit, answering(file=OK)),
    "output of what has none": (lambda files: files.mkdir("d", parents=False), saying(b"x")),
    "neither 0 nor 1": (lambda files: files.exists("f"), answering(file=(b"ok", b"2"))),
}


@pytest.mark.parametrize("name", LIES)
async def test_lies(name: str) -> None:
    """An answer that no file could have, or nobody asked for, closes the link."""
    act, answer = LIES[name]
    async with world() as box:
        box.on_open = box.on_eof = answer
        box.on_end = nothing
        with pytest.raises(LinkLost, match="cannot be read") as caught:
            await act(box.calls.files)
        assert caught.value.outcome == "unknown"
        assert box.agents[0].peer.other.closed


async def test_an_endless_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A listing that does not end is ended, and the link works on."""
    monkeypatch.setattr("sandboxio.guest.link_files.ANSWER_LIMIT", 1000)
    async with world() as box:

        async def talk(request: Request) -> None:
            await request.say(entry(b"x" * 200) * 10)

        box.on_open = talk
        with pytest.raises(FileSystemError, match="too large"):
            await box.calls.files.ls(".", recursive=False)
        assert (box.ended, len(box.agents)) == ([1], 1)
        assert not box.agents[0].peer.other.closed


async def test_cut_short(short_grace: None) -> None:
    """An operation that is cancelled is ended by the agent."""
    async with world() as box:
        await _cancelled(box)
        assert box.ended == [1]
        assert not box.agents[0].peer.other.closed


async def test_cut_short_and_not_ended(short_grace: None) -> None:
    """Where the agent does not end it within the grace, the link is closed, not the sandbox."""
    async with world() as box:
        box.on_end = nothing
        await _cancelled(box)
        assert box.agents[0].peer.other.closed
        box.on_open = answering(file=OK)
        await box.calls.files.mkdir("d", parents=False)
        assert len(box.agents) == 2


async def _cancelled(box: World) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: box.calls.files.mkdir("d", parents=False))
        await box.until_asked()
        tasks.cancel_scope.cancel()


async def test_cancelled_at_each_await() -> None:
    """Wherever a write is cancelled it is ended, and the next operation finds a link in order."""
    async with world() as box:
        box.on_eof = answering(file=OK)

        async def act() -> None:
            await write(box.calls.files, b"x" * 300_000, b"y")

        assert await cancel_at_each_await(act) >= 3
        await act()
        assert len(box.agents) <= 3


async def test_the_sandbox_is_gone() -> None:
    """That is told where it is the truth."""
    async with world() as box, anyio.create_task_group() as tasks:

        async def end() -> None:
            await box.until_asked()
            box.remove()
            await box.break_link()

        tasks.start_soon(end)
        with pytest.raises(SandboxGone):
            await box.calls.files.mkdir("d", parents=False)
