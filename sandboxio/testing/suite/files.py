"""Files: what the API and the commands of a sandbox see is one and the same."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from sandboxio.core.errors import (
    CapabilityNotSupported,
    ConfigurationError,
    ExecutionTimeout,
    FileSystemError,
    PathNotFound,
    SandboxGone,
)
from sandboxio.core.models import Capability
from sandboxio.testing.suite._case import case
from sandboxio.testing.suite._files_edit import FileEdits
from sandboxio.testing.suite._files_glob import FileSearch
from sandboxio.testing.suite._files_links import FileLinks
from sandboxio.testing.suite._files_moving import FileMoving
from sandboxio.testing.suite._files_names import FileNames, octal
from sandboxio.testing.suite._files_streams import FileStreams
from sandboxio.testing.suite._files_tree import FileTree

if TYPE_CHECKING:
    from sandboxio.core.protocols import AsyncSandbox

FILES = Capability.FILESYSTEM
BOTH = Capability.FILESYSTEM | Capability.RUN_COMMAND
EVERY_BYTE = bytes(range(256))
LINES = 740_000
"""So many numbered lines are 5 MB."""


class FilesSuite(FileTree, FileLinks, FileNames, FileMoving, FileEdits, FileSearch, FileStreams):
    """Cases of `files`: content, places, refusals; what goes further is inherited."""

    @case("FS-001", needs=BOTH)
    async def test_files_written_text_is_utf8(self, sandbox: AsyncSandbox) -> None:
        """Text is written as UTF-8, with its line ends as they are and nothing added."""
        await sandbox.files.write("text", "é€🎉\r\nend")
        same = r"""[ "$(cat text)" = "$(printf '\303\251\342\202\254\360\237\216\211\r\nend')" ]"""
        assert (await self.sh(sandbox, f"{same} && wc -c <text")).split() == ["14"]

    @case("FS-002", needs=BOTH)
    async def test_files_read_gives_the_bytes(self, sandbox: AsyncSandbox) -> None:
        """What a command wrote is read as its exact bytes, not as text."""
        await self.sh(sandbox, r"printf '\303\251\r\n\377\376 \n' >made")
        assert await sandbox.files.read("made") == b"\xc3\xa9\r\n\xff\xfe \n"

    @case("FS-003", needs=BOTH)
    async def test_files_every_byte_value_is_read(self, sandbox: AsyncSandbox) -> None:
        """Each of the 256 byte values is read unchanged."""
        await self.sh(sandbox, f"printf '{octal(EVERY_BYTE)}' >bytes")
        assert await sandbox.files.read("bytes") == EVERY_BYTE

    @case("FS-004", needs=BOTH)
    async def test_files_every_byte_value_is_written(self, sandbox: AsyncSandbox) -> None:
        """Each of the 256 byte values is written unchanged, in its place."""
        await sandbox.files.write("bytes", EVERY_BYTE)
        script = (
            "wc -c <bytes; head -c 1 bytes | tr -d '\\000' | wc -c; "
            f"""[ "$(tail -c 255 bytes)" = "$(printf '{octal(EVERY_BYTE[1:])}')" ]"""
        )
        assert (await self.sh(sandbox, script)).split() == ["256", "0"]

    @case("FS-005", needs=BOTH)
    async def test_files_an_empty_file(self, sandbox: AsyncSandbox) -> None:
        """An empty file is read as no bytes, and writing no bytes makes an empty file."""
        await self.sh(sandbox, ": >theirs")
        assert await sandbox.files.read("theirs") == b""
        await sandbox.files.write("ours", b"")
        await self.sh(sandbox, "[ -f ours ] && [ ! -s ours ]")

    @case("FS-006", needs=BOTH)
    async def test_files_a_large_file_is_read_whole(self, sandbox: AsyncSandbox) -> None:
        """A file of 5 MB is read whole and in order."""
        await self.sh(sandbox, f"seq {LINES} >large")
        assert await sandbox.files.read("large") == numbered_lines()

    @case("FS-007", needs=BOTH)
    async def test_files_a_large_file_is_written_whole(self, sandbox: AsyncSandbox) -> None:
        """5 MB are written whole and in order."""
        data = numbered_lines()
        await sandbox.files.write("large", data)
        same = f'[ "$(cat large)" = "$(seq {LINES})" ]'
        assert (await self.sh(sandbox, f"{same} && wc -c <large")).split() == [str(len(data))]

    @case("FS-008", needs=BOTH)
    async def test_files_ranges(self, sandbox: AsyncSandbox) -> None:
        """`offset` and `length` count bytes; a range beyond the end is cut there, not refused."""
        await self.sh(sandbox, r"printf '\000\303\251defghi\n' >made")
        whole = b"\x00\xc3\xa9defghi\n"
        for offset in (0, 1, 2, 9, 10, 11, 5000):
            assert await sandbox.files.read("made", offset=offset) == whole[offset:]
            for length in (0, 1, 3, 10, 5000):
                got = await sandbox.files.read("made", offset=offset, length=length)
                assert got == whole[offset : offset + length], (offset, length)

    @case("FS-009", needs=BOTH)
    async def test_files_a_range_of_a_large_file(self, sandbox: AsyncSandbox) -> None:
        """A range far into a large file is that range."""
        await self.sh(sandbox, f"seq {LINES} >large")
        part = numbered_lines()[4_000_001:4_300_001]
        assert await sandbox.files.read("large", offset=4_000_001, length=300_000) == part

    @case("FS-010", needs=BOTH)
    async def test_files_overwriting(self, sandbox: AsyncSandbox) -> None:
        """A file that is overwritten holds the new content only, whether longer or shorter."""
        for content in ("first", "x" * 70_000, "short", "", "last\n"):
            await sandbox.files.write("same", content)
            assert (await sandbox.run(["cat", "same"])).stdout == content

    @case("FS-011", needs=BOTH)
    async def test_files_overwriting_keeps_the_file(self, sandbox: AsyncSandbox) -> None:
        """An existing file is overwritten in place: its other name leads to the new content."""
        await self.sh(sandbox, "echo old >name; ln name other")
        await sandbox.files.write("name", "new")
        assert await self.sh(sandbox, "cat other") == "new"

    @case("FS-012", needs=BOTH)
    async def test_files_a_write_is_seen_at_once(self, sandbox: AsyncSandbox) -> None:
        """The next command sees what was written, and `read()` what the last command wrote."""
        for i in range(20):
            await sandbox.files.write(f"f{i}", f"content {i}")
            assert (await sandbox.run(["cat", f"f{i}"])).stdout == f"content {i}"
            await self.sh(sandbox, f"echo {i} >g{i}")
            assert await sandbox.files.read(f"g{i}") == b"%d\n" % i

    @case("FS-013", needs=BOTH)
    async def test_files_writes_at_the_same_time(self, sandbox: AsyncSandbox) -> None:
        """Files written and read at the same time do not mix."""
        names = [f"file{i}" for i in range(8)]

        async def there_and_back(name: str) -> None:
            await sandbox.files.write(name, name * 5000)
            assert await sandbox.files.read(name) == name.encode() * 5000

        async with anyio.create_task_group() as tasks:
            for name in names:
                tasks.start_soon(there_and_back, name)
        sizes = await self.sh(sandbox, "for f in file*; do wc -c <$f; done")
        assert sizes.split() == ["25000"] * 8

    @case("FS-014", needs=BOTH)
    async def test_files_outlive_a_timeout(self, sandbox: AsyncSandbox, marker: int) -> None:
        """A call that ran out of time takes no file with it, not even what it wrote itself."""
        await sandbox.files.write("before", "kept")
        with pytest.raises(ExecutionTimeout):
            await sandbox.run(f"echo its own >during; {self.hang(marker)}", timeout=2)
        assert await sandbox.files.read("before") == b"kept"
        assert await sandbox.files.read("during") == b"its own\n"

    @case("FS-015", needs=BOTH)
    async def test_files_every_mount_is_one_place(self, sandbox: AsyncSandbox) -> None:
        """In other mounts API and commands see the same files, or the API refuses; never less."""
        for place in ("/tmp", "/dev/shm"):  # noqa: S108  # of the sandbox
            if not (await sandbox.run(f"[ -d {place} ] && [ -w {place} ]")).ok:
                continue
            await self.sh(sandbox, f"echo theirs >{place}/theirs")
            try:
                await sandbox.files.write(f"{place}/ours", "ours")
            except FileSystemError:
                assert not await sandbox.files.exists(f"{place}/ours")
                continue
            assert await self.sh(sandbox, f"cat {place}/ours") == "ours"
            assert await sandbox.files.read(f"{place}/theirs") == b"theirs\n"
            listed = {info.path for info in await sandbox.files.ls(place)}
            assert {f"{place}/ours", f"{place}/theirs"} <= listed

    @case("FS-016", needs=BOTH)
    async def test_files_where_nothing_can_be_written(self, sandbox: AsyncSandbox) -> None:
        """A write where no file can come to be raises; it never succeeds unseen."""
        for path in ("/proc/x", "/sys/x"):
            with pytest.raises(FileSystemError):
                await sandbox.files.write(path, "x")
            assert not (await sandbox.run(["test", "-e", path])).ok
            assert not await sandbox.files.exists(path)

    @case("FS-017", needs=BOTH)
    async def test_files_a_file_of_unknown_size(self, sandbox: AsyncSandbox) -> None:
        """A file whose size reads 0 although it has content, as in /proc, is read whole."""
        made = await sandbox.run("tr '\\000' ':' </proc/1/cmdline")
        if not made.stdout:
            pytest.skip(reason="/proc/1/cmdline is not readable in this sandbox")
        said = await sandbox.files.read("/proc/1/cmdline")
        assert said.replace(b"\0", b":").decode() == made.stdout

    @case("FS-018", needs=BOTH)
    async def test_files_paths_start_where_commands_do(self, sandbox: AsyncSandbox) -> None:
        """A relative path starts at the working directory of commands; an absolute one at `/`."""
        here = (await self.sh(sandbox, "pwd")).strip()
        await sandbox.files.mkdir("d")
        await sandbox.files.write("rel", "relative")
        await sandbox.files.write(f"{here}/d/abs", "absolute")
        assert await self.sh(sandbox, f"cat {here}/rel d/abs") == "relativeabsolute"
        assert await sandbox.files.read("./d/../rel") == b"relative"
        assert await sandbox.files.read("d/abs") == b"absolute"

    @case("FS-019", needs=BOTH)
    async def test_files_no_path_leads_out(self, sandbox: AsyncSandbox) -> None:
        """However many `..` a path has, it stays in the sandbox, and so does what is written."""
        name = f"sandboxio-{secrets.token_hex(8)}"
        await sandbox.files.write(f"{'../' * 12}tmp/{name}", "inside")
        assert await self.sh(sandbox, f"cat /tmp/{name}") == "inside"
        assert not Path("/tmp", name).exists()  # noqa: ASYNC240, S108  # the host's

    @case("FS-020", needs=FILES)
    async def test_files_no_file_of_the_host_is_seen(
        self, sandbox: AsyncSandbox, tmp_path: Path
    ) -> None:
        """A path is never one of the host: its files do not exist for `read`, `ls` or `stat`."""
        secret = tmp_path / "secret"
        secret.write_text("the host's")
        for act in (sandbox.files.read, sandbox.files.stat, sandbox.files.remove):
            with pytest.raises(PathNotFound):
                await act(str(secret))
        with pytest.raises(PathNotFound):
            await sandbox.files.ls(str(tmp_path))
        assert not await sandbox.files.exists(str(secret))
        assert secret.read_text() == "the host's"

    @case("FS-021", needs=FILES)
    async def test_files_no_file_of_the_host_is_touched(
        self, sandbox: AsyncSandbox, tmp_path: Path
    ) -> None:
        """A path that exists on the host as well is the sandbox's, for every change."""
        kept = tmp_path / "kept"
        kept.write_text("the host's")
        await sandbox.files.mkdir(str(tmp_path), parents=True)
        await sandbox.files.write(str(kept), "the sandbox's")
        assert await sandbox.files.read(str(kept)) == b"the sandbox's"
        await sandbox.files.remove(str(tmp_path), recursive=True)
        assert kept.read_text() == "the host's"

    @case("FS-022", needs=BOTH)
    async def test_files_nothing_else_is_left(self, sandbox: AsyncSandbox) -> None:
        """A write leaves the file and nothing besides, whether it succeeds or fails."""
        await sandbox.files.mkdir("d")
        await sandbox.files.mkdir("d/sub")
        before = await self.sh(sandbox, "echo /tmp/* /tmp/.*")
        await sandbox.files.write("d/new", "x" * 100_000)
        await sandbox.files.write("d/new", "y")
        for path in ("d/sub", "d/none/x", "d/new/x"):
            with pytest.raises(FileSystemError):
                await sandbox.files.write(path, "x" * 100_000)
        assert await self.sh(sandbox, "cd d && echo * .[!.]*") == "new sub .[!.]*\n"
        assert await self.sh(sandbox, "echo /tmp/* /tmp/.*") == before

    @case("FS-023", needs=BOTH)
    async def test_files_stat(self, sandbox: AsyncSandbox) -> None:
        """`stat()` tells path, size, kind and permission bits of one entry."""
        await self.sh(sandbox, "printf 12345 >f; chmod 640 f; mkdir d; chmod 750 d; mkfifo p")
        file, folder, pipe = [await sandbox.files.stat(path) for path in ("f", "d", "p")]
        assert (file.path, file.size, file.is_dir, file.kind) == ("f", 5, False, "file")
        assert (file.mode, file.target) == (0o640, None)
        assert (folder.path, folder.is_dir, folder.kind) == ("d", True, "directory")
        assert (folder.mode, folder.target) == (0o750, None)
        assert (pipe.path, pipe.is_dir, pipe.kind, pipe.target) == ("p", False, "other", None)

    @case("FS-024", needs=BOTH)
    async def test_files_time_stamps(self, sandbox: AsyncSandbox) -> None:
        """A written file is dated by the sandbox's clock; `mtime` is that date, with its zone."""
        await sandbox.files.write("f", "x")
        changed = (await sandbox.files.stat("f")).mtime
        assert changed is not None
        assert changed.tzinfo is not None
        inside, now = (await self.sh(sandbox, "stat -c %Y f; date +%s")).split()
        assert abs((changed - datetime.fromtimestamp(int(inside), UTC)).total_seconds()) < 1
        assert abs(int(now) - int(inside)) < 300

    @case("FS-025", needs=BOTH)
    async def test_files_exists(self, sandbox: AsyncSandbox) -> None:
        """`exists()` is whether the path leads to something, whatever that is."""
        await self.sh(sandbox, "echo x >f; mkdir d; mkfifo p; ln -s f to-f; ln -s none dangling")
        for path in ("f", "d", "d/", ".", "/", "p", "to-f", "./d/../f"):
            assert await sandbox.files.exists(path), path
        for path in ("none", "d/none", "f/x", "none/x", "dangling", "/none"):
            assert not await sandbox.files.exists(path), path

    @case("FS-026", needs=FILES)
    async def test_files_of_a_removed_sandbox(self, sandbox: AsyncSandbox) -> None:
        """Once the sandbox is removed every operation raises `SandboxGone`."""
        files = sandbox.files
        await sandbox.kill()
        for act in (files.read, files.stat, files.exists, files.ls, files.mkdir, files.remove):
            with pytest.raises(SandboxGone):
                await act("x")
        with pytest.raises(SandboxGone):
            await files.write("x", "x")

    @case("FS-027", needs=FILES)
    async def test_files_paths_that_are_none(self, sandbox: AsyncSandbox) -> None:
        """What can be no path is refused by every operation before anything is done."""
        files = sandbox.files
        for bad in ("", "a\0b", None, 7, b"bytes"):
            path: Any = bad
            for act in (files.read, files.stat, files.exists, files.ls, files.mkdir, files.remove):
                with pytest.raises(ConfigurationError):
                    await act(path)
            with pytest.raises(ConfigurationError):
                await files.write(path, "x")
        assert await files.ls() == []

    @case("FS-028", needs=FILES)
    async def test_files_values_that_are_none(self, sandbox: AsyncSandbox) -> None:
        """Bad data, modes and ranges are refused, and nothing is written."""
        write: Any = sandbox.files.write
        read: Any = sandbox.files.read
        for data in (None, 7, ["x"], "lone \ud800 surrogate"):
            with pytest.raises(ConfigurationError):
                await write("f", data)
        for mode in (0o10000, -1, True, "644", 6.44):
            with pytest.raises(ConfigurationError):
                await write("f", "x", mode=mode)
        for wrong in ({"offset": -1}, {"offset": "1"}, {"length": -1}, {"length": True}):
            with pytest.raises(ConfigurationError):
                await read("f", **wrong)
        assert await sandbox.files.ls() == []

    @case("FS-029", lacks=FILES)
    async def test_files_without_files(self, sandbox: AsyncSandbox) -> None:
        """A sandbox without a file system says so at once; no operation pretends."""
        with pytest.raises(CapabilityNotSupported) as caught:
            await sandbox.files.write("f", "x")
        assert caught.value.outcome == "not_started"
        with pytest.raises(CapabilityNotSupported):
            await sandbox.files.ls()


def numbered_lines() -> bytes:
    """Return what `seq` writes for so many lines."""
    return ("\n".join(map(str, range(1, LINES + 1))) + "\n").encode()
