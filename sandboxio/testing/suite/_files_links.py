"""Files: symbolic links, followed where a command would and nowhere else."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from sandboxio.core.errors import FileSystemError, IsADirectory, PathExists, PathNotFound
from sandboxio.core.models import Capability
from sandboxio.testing.suite._case import case
from sandboxio.testing.suite.fixtures import SuiteFixtures

if TYPE_CHECKING:
    from sandboxio.core.protocols import AsyncSandbox

BOTH = Capability.FILESYSTEM | Capability.RUN_COMMAND
LINKS = (
    "echo target >file; mkdir dir; echo inner >dir/inner; ln -s file good; ln -s good twice; "
    "ln -s none dangling; ln -s loop loop; ln -s dir to-dir"
)


class FileLinks(SuiteFixtures):
    """Cases of `files`, as far as they are about links."""

    @case("FS-053", needs=BOTH, area="files")
    async def test_files_read_follows_links(self, sandbox: AsyncSandbox) -> None:
        """A link is read as `cat` would: through any number of links, also to directories."""
        await self.sh(sandbox, LINKS)
        for path, content in {
            "good": b"target\n",
            "twice": b"target\n",
            "to-dir/inner": b"inner\n",
        }.items():
            assert await sandbox.files.read(path) == content, path
        assert await sandbox.files.read("good", offset=2, length=3) == b"rge"

    @case("FS-054", needs=BOTH, area="files")
    async def test_files_links_that_lead_to_no_file(self, sandbox: AsyncSandbox) -> None:
        """A dangling link is `PathNotFound`, one to a directory `IsADirectory`; a loop neither."""
        await self.sh(sandbox, LINKS)
        with pytest.raises(PathNotFound):
            await sandbox.files.read("dangling")
        with pytest.raises(IsADirectory):
            await sandbox.files.read("to-dir")
        with pytest.raises(FileSystemError) as caught:
            await sandbox.files.read("loop")
        assert not isinstance(caught.value, PathNotFound)

    @case("FS-055", needs=BOTH, area="files")
    async def test_files_ls_describes_links(self, sandbox: AsyncSandbox) -> None:
        """`ls()` lists links as links, with where each points, dangling ones and loops included."""
        await self.sh(sandbox, LINKS)
        listed = {info.path: (info.kind, info.target) for info in await sandbox.files.ls()}
        assert listed == {
            "dangling": ("link", "none"),
            "dir": ("directory", None),
            "file": ("file", None),
            "good": ("link", "file"),
            "loop": ("link", "loop"),
            "to-dir": ("link", "dir"),
            "twice": ("link", "good"),
        }

    @case("FS-056", needs=BOTH, area="files")
    async def test_files_stat_describes_the_link(self, sandbox: AsyncSandbox) -> None:
        """`stat()` describes a link itself, with its target as it is written in the link."""
        await self.sh(sandbox, f"{LINKS}; ln -s '../a b/./c' odd")
        targets = {"good": "file", "dangling": "none", "loop": "loop", "odd": "../a b/./c"}
        for path, target in targets.items():
            info = await sandbox.files.stat(path)
            assert (info.path, info.kind, info.target) == (path, "link", target)
            assert not info.is_dir
        to_dir = await sandbox.files.stat("to-dir")
        assert (to_dir.kind, to_dir.is_dir, to_dir.target) == ("link", False, "dir")

    @case("FS-057", needs=BOTH, area="files")
    async def test_files_ls_follows_a_link_to_a_directory(self, sandbox: AsyncSandbox) -> None:
        """A link to a directory is listed as the directory, under the name that was given."""
        await self.sh(sandbox, LINKS)
        assert [info.path for info in await sandbox.files.ls("to-dir")] == ["to-dir/inner"]

    @case("FS-058", needs=BOTH, area="files")
    async def test_files_ls_of_links_that_lead_to_no_directory(self, sandbox: AsyncSandbox) -> None:
        """A dangling link, a loop or a link to a file is no directory to list."""
        await self.sh(sandbox, LINKS)
        for path in ("dangling", "loop", "good"):
            with pytest.raises(FileSystemError):
                await sandbox.files.ls(path)

    @case("FS-059", needs=BOTH, area="files")
    async def test_files_write_follows_links(self, sandbox: AsyncSandbox) -> None:
        """A write through a link changes its target, keeps the target's mode, and stays a link."""
        await self.sh(sandbox, f"{LINKS}; chmod 600 file")
        await sandbox.files.write("twice", "changed")
        await sandbox.files.write("to-dir/inner", "changed too")
        assert await self.sh(sandbox, "cat file dir/inner") == "changedchanged too"
        assert (
            await self.sh(sandbox, "readlink good; readlink twice; stat -c %a file")
            == "file\ngood\n600\n"
        )

    @case("FS-060", needs=BOTH, area="files")
    async def test_files_write_through_a_dangling_link(self, sandbox: AsyncSandbox) -> None:
        """A write through a dangling link makes the file it points to, as a shell would."""
        await self.sh(sandbox, LINKS)
        await sandbox.files.write("dangling", "made")
        assert await self.sh(sandbox, "cat none; readlink dangling; stat -c %a none") == (
            "madenone\n644\n"
        )

    @case("FS-061", needs=BOTH, area="files")
    async def test_files_write_through_links_that_lead_nowhere(self, sandbox: AsyncSandbox) -> None:
        """A loop, a link to a directory, or one into nothing cannot be written through."""
        await self.sh(sandbox, f"{LINKS}; ln -s nodir/x into-nothing")
        for path in ("loop", "to-dir", "into-nothing"):
            with pytest.raises(FileSystemError):
                await sandbox.files.write(path, "x")
        script = "readlink loop; readlink to-dir; readlink into-nothing; cat dir/inner"
        assert await self.sh(sandbox, script) == "loop\ndir\nnodir/x\ninner\n"

    @case("FS-062", needs=BOTH, area="files")
    async def test_files_remove_takes_the_link_only(self, sandbox: AsyncSandbox) -> None:
        """`remove()` of a link removes the link; what it points to stays as it is."""
        await self.sh(sandbox, LINKS)
        for path in ("good", "dangling", "loop"):
            await sandbox.files.remove(path)
        await sandbox.files.remove("to-dir")
        await sandbox.files.remove("twice", recursive=True)
        assert await self.sh(sandbox, "echo *; cat file dir/inner") == "dir file\ntarget\ninner\n"

    @case("FS-063", needs=BOTH, area="files")
    async def test_files_recursive_remove_follows_no_link(self, sandbox: AsyncSandbox) -> None:
        """`recursive=True` never leaves the tree: not at its top, not anywhere in it."""
        await self.sh(sandbox, f"{LINKS}; mkdir -p tree/sub; ln -s ../../dir tree/sub/out")
        await self.sh(sandbox, 'ln -s "$(pwd)/file" tree/out; ln -s .. tree/up')
        with suppress(FileSystemError):
            await sandbox.files.remove("to-dir/", recursive=True)
        assert await self.sh(sandbox, "cat dir/inner") == "inner\n"
        await self.sh(sandbox, "rm -f to-dir; ln -s dir to-dir")
        await sandbox.files.remove("to-dir", recursive=True)
        await sandbox.files.remove("tree", recursive=True)
        script = "cat file dir/inner; [ ! -e tree ] && [ ! -L to-dir ]"
        assert await self.sh(sandbox, script) == "target\ninner\n"

    @case("FS-064", needs=BOTH, area="files")
    async def test_files_mkdir_at_a_link(self, sandbox: AsyncSandbox) -> None:
        """A link is something that exists; with `parents`, one to a directory will do."""
        await self.sh(sandbox, LINKS)
        for path in ("good", "to-dir", "dangling"):
            with pytest.raises(PathExists):
                await sandbox.files.mkdir(path)
        await sandbox.files.mkdir("to-dir", parents=True)
        await sandbox.files.mkdir("to-dir/sub/more", parents=True)
        assert await self.sh(sandbox, "[ -d dir/sub/more ] && readlink to-dir") == "dir\n"
