"""Files: content that comes and goes in chunks."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import pytest

from sandboxio.core.errors import (
    CapabilityNotSupported,
    ConfigurationError,
    ExecutionTimeout,
    FileSystemError,
    IsADirectory,
    PathNotFound,
    PermissionDenied,
    SandboxGone,
)
from sandboxio.core.models import Capability
from sandboxio.testing.suite._case import case
from sandboxio.testing.suite.fixtures import SuiteFixtures

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from sandboxio.core.file_protocols import FileReader
    from sandboxio.core.protocols import AsyncSandbox
    from sandboxio.testing.suite.fixtures import Create

FILES = Capability.FILESYSTEM
BOTH = Capability.FILESYSTEM | Capability.RUN_COMMAND
MIB = 1024 * 1024
LINES = 740_000
"""So many numbered lines are 5 MB."""


class FileStreams(SuiteFixtures):
    """Cases of `files`, as far as they are about `open_read()` and `write_from()`."""

    @case("FS-115", needs=BOTH, area="files")
    async def test_files_open_read(self, sandbox: AsyncSandbox) -> None:
        """The chunks of a file are its bytes, in order, and none of them is empty."""
        size = int(await self.sh(sandbox, f"seq {LINES} >large; : >empty; wc -c <large"))
        async with sandbox.files.open_read("large") as chunks:
            found = [chunk async for chunk in chunks]
        assert all(found)
        assert len(b"".join(found)) == size
        assert b"".join(found) == await sandbox.files.read("large")
        async with sandbox.files.open_read("empty") as chunks:
            assert [chunk async for chunk in chunks] == []

    @case("FS-116", needs=BOTH, area="files")
    async def test_files_open_read_ranges(self, sandbox: AsyncSandbox) -> None:
        """A range is that of `read()`."""
        await self.sh(sandbox, "printf 0123456789 >f")
        for offset, length in ((0, None), (3, None), (0, 4), (2, 3), (2, 0), (8, 99), (99, 1)):
            async with sandbox.files.open_read("f", offset=offset, length=length) as chunks:
                got = await _joined(chunks)
            assert got == await sandbox.files.read("f", offset=offset, length=length)

    @case("FS-117", needs=BOTH, area="files")
    async def test_files_open_read_of_what_cannot_be(self, sandbox: AsyncSandbox) -> None:
        """What `read()` raises is raised on entering the block."""
        await self.sh(sandbox, "mkdir d; mkfifo p; ln -s loop loop")
        kinds = {"none": PathNotFound, "d": IsADirectory, "p": FileSystemError}
        for path, kind in {**kinds, "loop": FileSystemError}.items():
            with pytest.raises(kind):
                await sandbox.files.open_read(path).__aenter__()
        await self.skip_root(sandbox)
        await self.sh(sandbox, "echo x >f; chmod 0 f")
        with pytest.raises(PermissionDenied):
            await sandbox.files.open_read("f").__aenter__()

    @case("FS-118", needs=BOTH, area="files")
    async def test_files_open_read_left_early(self, sandbox: AsyncSandbox) -> None:
        """Leaving the block ends the reading; an exception in it comes out as it was raised."""
        await self.sh(sandbox, f"seq {LINES} >large")
        error = ZeroDivisionError("the reader's own")
        for _ in range(3):
            with pytest.raises(ZeroDivisionError) as caught:
                async with sandbox.files.open_read("large") as chunks:
                    assert await anext(aiter(chunks))
                    raise error
            assert caught.value is error
        assert (await sandbox.files.read("large", length=4)) == b"1\n2\n"

    @case("FS-119", needs=BOTH, area="files")
    async def test_files_open_read_waits_for_its_reader(self, sandbox: AsyncSandbox) -> None:
        """A reader that takes its time holds up nothing else, and gets every byte."""
        size = int(await self.sh(sandbox, f"seq {LINES} >large; wc -c <large"))
        async with sandbox.files.open_read("large") as chunks:
            begun = await anext(aiter(chunks))
            assert (await sandbox.run(["echo", "ok"])).stdout == "ok\n"
            await sandbox.files.write("small", "x")
            assert await sandbox.files.read("small") == b"x"
            assert len(begun + await _joined(chunks)) == size

    @case("FS-120", needs=BOTH, area="files")
    async def test_files_open_read_within_the_time(self, create: Create) -> None:
        """The sandbox's timeout bounds the whole of a reading, the reader's own time included."""
        sandbox = await create(timeout=6)
        await self.sh(sandbox, "head -c 30000000 /dev/zero >large")
        with pytest.raises((ExecutionTimeout, SandboxGone)):
            async with sandbox.files.open_read("large") as chunks:
                async for _ in chunks:
                    await self.clock.sleep(3)

    @case("FS-121", needs=FILES, area="files")
    async def test_files_open_read_once(self, sandbox: AsyncSandbox) -> None:
        """A reader is one block: outside of it, and a second time, it is refused."""
        await sandbox.files.write("f", "x")
        reader = sandbox.files.open_read("f")
        with pytest.raises(ConfigurationError):
            await anext(aiter(reader))
        async with reader:
            assert await _joined(reader) == b"x"
        for act in (reader.__aenter__, aiter(sandbox.files.open_read("f")).__anext__):
            with pytest.raises(ConfigurationError):
                await act()

    @case("FS-122", needs=BOTH, area="files")
    async def test_files_write_from(self, sandbox: AsyncSandbox) -> None:
        """What chunks of any size give is written in order, with its size known or not."""
        pieces = (b"a", b"", b"\0\xff\n", b"x" * 300_000, b"end")
        whole = b"".join(pieces)
        for size in (None, len(whole)):
            await sandbox.files.write_from("f", _chunks(*pieces), size=size, mode=0o640)
            assert await sandbox.files.read("f") == whole
            assert await self.sh(sandbox, "stat -c %a f; rm f") == "640\n"
        for size in (None, 0):
            await sandbox.files.write_from("empty", _chunks(), size=size)
            assert await self.sh(sandbox, "stat -c '%a %s' empty") == "644 0\n"

    @case("FS-123", needs=BOTH, area="files", patience=300)
    async def test_files_write_from_much(self, sandbox: AsyncSandbox) -> None:
        """20 MB are written whole, and in order, without their size being known."""
        pieces = [b"%07d\n" % number * (MIB // 8) for number in range(20)]
        await sandbox.files.write_from("f", _chunks(*pieces))
        assert await self.sh(sandbox, "wc -c <f; tail -c 8 f") == f"{20 * MIB}\n0000019\n"
        for number in range(20):
            edge = await sandbox.files.read("f", offset=number * MIB - 8 * (number > 0), length=16)
            assert edge.endswith(b"%07d\n" % number)
            assert edge.startswith(b"%07d\n" % max(0, number - 1))

    @case("FS-124", needs=BOTH, area="files")
    async def test_files_write_from_replaces_as_write_does(self, sandbox: AsyncSandbox) -> None:
        """An existing file is overwritten in place, through links, and keeps its mode."""
        await self.sh(sandbox, "echo longer than before >f; chmod 750 f; ln f other; ln -s f l")
        await sandbox.files.write_from("l", _chunks(b"new"))
        assert await self.sh(sandbox, "cat other; readlink l; stat -c %a f") == "newf\n750\n"

    @case("FS-125", needs=BOTH, area="files")
    async def test_files_a_source_that_breaks(self, sandbox: AsyncSandbox) -> None:
        """What chunks raise comes out as it is: no new file, an old one as it was, nothing else."""
        await sandbox.files.mkdir("d")
        await sandbox.files.write("d/old", "old")
        for after in (0, 1, 20):
            for path, size in (("d/new", None), ("d/new", 30 * MIB), ("d/old", None)):
                error = ZeroDivisionError("the source's own")
                with pytest.raises(ZeroDivisionError) as caught:
                    await sandbox.files.write_from(path, _breaking(after, error), size=size)
                assert caught.value is error
        assert await self.sh(sandbox, "cd d; echo * .[!.]*; cat old") == "old .[!.]*\nold"

    @case("FS-126", needs=BOTH, area="files")
    async def test_files_chunks_of_another_size(self, sandbox: AsyncSandbox) -> None:
        """Chunks that come to more or less than `size` are an error, and no file."""
        for size in (2, 4, 100_000):
            with pytest.raises(FileSystemError):
                await sandbox.files.write_from("f", _chunks(b"a", b"bc"), size=size)
        assert await self.sh(sandbox, "echo * .[!.]*") == "* .[!.]*\n"

    @case("FS-127", needs=FILES, area="files")
    async def test_files_chunks_that_are_none(self, sandbox: AsyncSandbox) -> None:
        """What gives no bytes, bad sizes, modes and ranges are refused, and nothing is written."""
        files: Any = sandbox.files
        for chunks in (None, b"bytes", "text", [b"x"], _chunks):
            with pytest.raises(ConfigurationError, match="chunks"):
                await files.write_from("f", chunks)
        bad: tuple[Any, ...] = ("text", None, 7, bytearray(b"x"))
        for chunk in bad:
            with pytest.raises(ConfigurationError, match="chunks"):
                await files.write_from("f", _chunks(chunk))
        for wrong in ({"size": -1}, {"size": "1"}, {"size": True}, {"mode": 0o1000}):
            with pytest.raises(ConfigurationError):
                await files.write_from("f", _chunks(b"x"), **wrong)
        for wrong in ({"offset": -1}, {"length": "1"}):
            with pytest.raises(ConfigurationError):
                files.open_read("f", **wrong)
        assert await files.ls() == []

    @case("FS-128", needs=BOTH, area="files")
    async def test_files_chunks_for_what_cannot_be(self, sandbox: AsyncSandbox) -> None:
        """Where `write()` is refused, `write_from()` is; its generator is closed all the same."""
        await self.sh(sandbox, "mkdir d; mkfifo p")
        kinds = {"d": IsADirectory, "none/x": PathNotFound, "p": FileSystemError}
        for path, kind in kinds.items():
            source = _chunks(b"x", b"y")
            with pytest.raises(kind):
                await sandbox.files.write_from(path, source)
            assert await anext(source, None) is None
        await self.skip_root(sandbox)
        with pytest.raises(PermissionDenied):
            await sandbox.files.write_from("/etc/x", _chunks(b"x"))

    @case("FS-129", needs=BOTH, area="files")
    async def test_files_a_write_that_is_cancelled(self, sandbox: AsyncSandbox) -> None:
        """Cancelled between its chunks a write leaves nothing, and the sandbox is as usable."""
        for size in (None, 30 * MIB):
            waiting = anyio.Event()
            async with anyio.create_task_group() as tasks:
                write = partial(sandbox.files.write_from, size=size)
                tasks.start_soon(write, "f", _stopping(waiting))
                await waiting.wait()
                tasks.cancel_scope.cancel()
            assert await self.sh(sandbox, "echo * .[!.]*") == "* .[!.]*\n"

    @case("FS-130", needs=FILES, area="files")
    async def test_files_more_of_a_removed_sandbox(self, sandbox: AsyncSandbox) -> None:
        """Once the sandbox is removed these operations raise `SandboxGone` as well."""
        files = sandbox.files
        await sandbox.kill()
        for both in (files.move, files.copy):
            with pytest.raises(SandboxGone):
                await both("a", "b")
        with pytest.raises(SandboxGone):
            await files.glob("*")
        with pytest.raises(SandboxGone):
            await files.chmod("a", 0o600)
        with pytest.raises(SandboxGone):
            await files.edit("a", "x", "y")
        with pytest.raises(SandboxGone):
            await files.write_from("a", _chunks(b"x"))
        with pytest.raises(SandboxGone):
            await files.open_read("a").__aenter__()

    @case("FS-131", lacks=FILES, area="files")
    async def test_files_nothing_more_without_files(self, sandbox: AsyncSandbox) -> None:
        """A sandbox without a file system refuses these operations as well."""
        files = sandbox.files
        for both in (files.move, files.copy):
            with pytest.raises(CapabilityNotSupported):
                await both("a", "b")
        with pytest.raises(CapabilityNotSupported):
            await files.glob("*")
        with pytest.raises(CapabilityNotSupported):
            files.open_read("a")


async def _joined(chunks: FileReader) -> bytes:
    return b"".join([chunk async for chunk in chunks])


async def _chunks(*pieces: bytes) -> AsyncGenerator[bytes]:
    for piece in pieces:
        await anyio.lowlevel.checkpoint()
        yield piece


async def _breaking(after: int, error: Exception) -> AsyncGenerator[bytes]:
    for _ in range(after):
        yield b"x" * MIB
    raise error


async def _stopping(waiting: anyio.Event) -> AsyncGenerator[bytes]:
    for _ in range(10):
        yield b"x" * MIB
    waiting.set()
    await anyio.sleep_forever()
