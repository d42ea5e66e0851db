"""Files: changes of a part of their content."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from sandboxio.core.errors import (
    ConfigurationError,
    FileSystemError,
    IsADirectory,
    PathNotFound,
    PermissionDenied,
)
from sandboxio.core.models import Capability
from sandboxio.testing.suite._case import case
from sandboxio.testing.suite.fixtures import SuiteFixtures

if TYPE_CHECKING:
    from sandboxio.core.protocols import AsyncSandbox

FILES = Capability.FILESYSTEM
BOTH = Capability.FILESYSTEM | Capability.RUN_COMMAND


class FileEdits(SuiteFixtures):
    """Cases of `files`, as far as they are about `edit()`."""

    @case("FS-095", needs=BOTH, area="files")
    async def test_files_edit(self, sandbox: AsyncSandbox) -> None:
        """`edit()` replaces the one occurrence of a text and leaves every other byte alone."""
        await self.sh(sandbox, r"printf 'a = 1\nb = 1\n' >f")
        assert await sandbox.files.edit("f", "b = 1", "b = 22") == 1
        assert await self.sh(sandbox, "cat f") == "a = 1\nb = 22\n"
        assert await sandbox.files.edit("f", "a = 1\n", "") == 1
        assert await self.sh(sandbox, "cat f") == "b = 22\n"

    @case("FS-096", needs=BOTH, area="files")
    async def test_files_edit_counts(self, sandbox: AsyncSandbox) -> None:
        """Another number of occurrences than `count` is refused, with the number that there is,
        and nothing is changed.
        """
        await self.sh(sandbox, "printf xyxyx >f")
        for old, count, found in (("x", 1, 3), ("x", 2, 3), ("x", 4, 3), ("z", 1, 0)):
            with pytest.raises(FileSystemError, match=rf"\b{found}\b"):
                await sandbox.files.edit("f", old, "new", count=count)
        assert await self.sh(sandbox, "cat f") == "xyxyx"
        assert await sandbox.files.edit("f", "x", "-", count=3) == 3
        assert await self.sh(sandbox, "cat f") == "-y-y-"

    @case("FS-097", needs=BOTH, area="files")
    async def test_files_edit_of_all(self, sandbox: AsyncSandbox) -> None:
        """`count=None` replaces all there are, without overlaps, and refuses none."""
        await self.sh(sandbox, "printf aaaaa >f")
        assert await sandbox.files.edit("f", "aa", "aaa", count=None) == 2
        assert await self.sh(sandbox, "cat f") == "aaaaaaa"
        with pytest.raises(FileSystemError, match=r"\b0\b"):
            await sandbox.files.edit("f", "b", "c", count=None)

    @case("FS-098", needs=BOTH, area="files")
    async def test_files_edit_keeps_the_file(self, sandbox: AsyncSandbox) -> None:
        """The file keeps its mode, its other names, and the links that lead to it."""
        await self.sh(sandbox, "echo old >f; chmod 750 f; ln f other; ln -s f l")
        await sandbox.files.edit("l", "old", "new")
        assert await self.sh(sandbox, "cat f other; readlink l; stat -c %a f") == (
            "new\nnew\nf\n750\n"
        )

    @case("FS-099", needs=BOTH, area="files")
    async def test_files_edit_of_bytes(self, sandbox: AsyncSandbox) -> None:
        """Bytes of any value are found and put, and text is found as UTF-8."""
        await self.sh(sandbox, r"printf 'a\000\377\r\n\303\251' >f")
        await sandbox.files.edit("f", b"\0\xff", b"\xfe\0")
        await sandbox.files.edit("f", "é", "€")
        assert await sandbox.files.read("f") == b"a\xfe\0\r\n\xe2\x82\xac"

    @case("FS-100", needs=BOTH, area="files")
    async def test_files_edit_of_a_large_file(self, sandbox: AsyncSandbox) -> None:
        """In a file of megabytes the change is where it should be, whether it grows or shrinks."""
        await self.sh(sandbox, "seq 300000 >f")
        expected = await sandbox.files.read("f")
        for old, new in ((b"\n150000\n", b"\nmuch longer than before\n"), (b"\n299999\n", b"\n")):
            await sandbox.files.edit("f", old, new)
            expected = expected.replace(old, new)
            assert await sandbox.files.read("f") == expected

    @case("FS-101", needs=BOTH, area="files")
    async def test_files_edit_of_what_cannot_be(self, sandbox: AsyncSandbox) -> None:
        """What cannot be read or written cannot be edited; errors are those of `read()` and
        `write()`.
        """
        await self.sh(sandbox, "mkdir d; mkfifo p")
        with pytest.raises(PathNotFound):
            await sandbox.files.edit("none", "x", "y")
        with pytest.raises(IsADirectory):
            await sandbox.files.edit("d", "x", "y")
        with pytest.raises(FileSystemError):
            await sandbox.files.edit("p", "x", "y")
        await self.skip_root(sandbox)
        with pytest.raises(PermissionDenied):
            await sandbox.files.edit("/etc/passwd", "root:", "toor:", count=None)

    @case("FS-102", needs=FILES, area="files")
    async def test_files_values_that_edit_nothing(self, sandbox: AsyncSandbox) -> None:
        """What can be no text, or no number of times, is refused, and nothing is changed."""
        await sandbox.files.write("f", "x")
        edit: Any = sandbox.files.edit
        for old, new in (("", "y"), (b"", "y"), (None, "y"), ("x", None), (7, "y"), ("x", ["y"])):
            with pytest.raises(ConfigurationError):
                await edit("f", old, new)
        for count in (0, -1, True, "1", 1.0):
            with pytest.raises(ConfigurationError, match="count"):
                await edit("f", "x", "y", count=count)
        assert await sandbox.files.read("f") == b"x"
