"""Files: moving and copying, and the rights of what is there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from sandboxio.core.errors import (
    ConfigurationError,
    FileSystemError,
    IsADirectory,
    NotADirectory,
    PathExists,
    PathNotFound,
    PermissionDenied,
)
from sandboxio.core.models import Capability
from sandboxio.testing.suite._case import case
from sandboxio.testing.suite._files_names import AWKWARD, CODE, PATTERNS
from sandboxio.testing.suite.fixtures import SuiteFixtures

if TYPE_CHECKING:
    from sandboxio.core.protocols import AsyncSandbox

FILES = Capability.FILESYSTEM
BOTH = Capability.FILESYSTEM | Capability.RUN_COMMAND
ENTRIES = 1000
FORM = ("utf-8", "surrogateescape")


class FileMoving(SuiteFixtures):
    """Cases of `files`, as far as something gets another path, a double, or other rights."""

    @case("FS-076", needs=BOTH, area="files")
    async def test_files_move(self, sandbox: AsyncSandbox) -> None:
        """`move()` gives a file another path: it is the same file, and its old path is free."""
        await self.sh(sandbox, "printf content >old; chmod 640 old; ln old other; mkdir d")
        before = await self.sh(sandbox, "stat -c '%i %a %Y' old")
        await sandbox.files.move("old", "d/new")
        assert await self.sh(sandbox, "stat -c '%i %a %Y' d/new") == before
        assert await self.sh(sandbox, "cat d/new; [ ! -e old ]") == "content"

    @case("FS-077", needs=BOTH, area="files")
    async def test_files_move_replaces(self, sandbox: AsyncSandbox) -> None:
        """A file at the target is replaced; a link there is replaced itself, wherever it leads."""
        await self.sh(sandbox, "mkdir d; echo kept >kept; echo gone >file")
        await self.sh(sandbox, "ln -s kept to-file; ln -s d to-dir; ln -s none dangling")
        for target in ("file", "to-file", "to-dir", "dangling"):
            await sandbox.files.write("new", target)
            await sandbox.files.move("new", target)
            assert (await sandbox.files.stat(target)).kind == "file"
            assert await sandbox.files.read(target) == target.encode()
        assert await self.sh(sandbox, "cat kept; echo d/*; [ ! -e none ]") == "kept\nd/*\n"

    @case("FS-078", needs=BOTH, area="files")
    async def test_files_move_and_copy_take_links_as_links(self, sandbox: AsyncSandbox) -> None:
        """A link is moved and copied itself, dangling or not, and what it leads to stays."""
        await self.sh(sandbox, "echo x >f; mkdir d; ln -s f a; ln -s d b; ln -s none c")
        for name, leads in {"a": "f", "b": "d", "c": "none"}.items():
            await sandbox.files.copy(name, f"{name}2")
            await sandbox.files.move(name, f"{name}3")
            for made in (f"{name}2", f"{name}3"):
                assert (await sandbox.files.stat(made)).target == leads
        assert await self.sh(sandbox, "cat f; [ -d d ]; echo ?") == "x\nd f\n"

    @case("FS-079", needs=BOTH, area="files")
    async def test_files_move_of_a_directory(self, sandbox: AsyncSandbox) -> None:
        """A directory moves with all that is in it, and a slash behind its new path is nothing."""
        await self.sh(sandbox, "mkdir -p d/sub e; echo 1 >d/.f; echo 2 >d/sub/g; ln -s g d/sub/l")
        await sandbox.files.move("d", "e/new/")
        script = "cat e/new/.f e/new/sub/l; readlink e/new/sub/l; [ ! -e d ]"
        assert await self.sh(sandbox, script) == "1\n2\ng\n"

    @case("FS-080", needs=BOTH, area="files")
    async def test_files_a_directory_is_no_target(self, sandbox: AsyncSandbox) -> None:
        """A directory at the target is never entered and never replaced: `PathExists` for
        a directory, even where it is empty, and `IsADirectory` for all else.
        """
        await self.sh(sandbox, "mkdir d e full; echo 1 >f; echo 2 >full/f; ln -s f l")
        for act in (sandbox.files.move, sandbox.files.copy):
            for target in ("e", "full", ".", "/"):
                with pytest.raises(PathExists):
                    await act("d", target)
                for source in ("f", "l"):
                    with pytest.raises(IsADirectory):
                        await act(source, target)
        assert await self.sh(sandbox, "echo * e/* d/*; cat full/f") == "d e f full l e/* d/*\n2\n"

    @case("FS-081", needs=BOTH, area="files")
    async def test_files_places_that_are_not_there(self, sandbox: AsyncSandbox) -> None:
        """A missing source, or directory above the target, is `PathNotFound`; a file in place of
        a directory `NotADirectory`.
        """
        await self.sh(sandbox, "mkdir d; echo 1 >f; echo 2 >g")
        for act in (sandbox.files.move, sandbox.files.copy):
            for source, target in (("none", "x"), ("none/x", "x"), ("f", "none/x"), ("d", "no/x")):
                with pytest.raises(PathNotFound):
                    await act(source, target)
            for source, target in (("f/x", "x"), ("f", "g/x"), ("d", "g"), ("f", "new/")):
                with pytest.raises(NotADirectory):
                    await act(source, target)
        assert await self.sh(sandbox, "echo *; cat f g") == "d f g\n1\n2\n"

    @case("FS-082", needs=BOTH, area="files")
    async def test_files_no_directory_goes_into_itself(self, sandbox: AsyncSandbox) -> None:
        """A directory moved or copied into itself, also by way of a link, is an error; soon."""
        await self.sh(sandbox, "mkdir -p d/sub; echo x >d/f; ln -s d/sub in")
        for act in (sandbox.files.move, sandbox.files.copy):
            for target in ("d/new", "d/sub/new", "in/new", "d/../d/new"):
                with pytest.raises(FileSystemError) as caught:
                    await act("d", target)
                assert type(caught.value) is FileSystemError
        assert await self.sh(sandbox, "cd d; echo * .[!.]* sub/*") == "f sub .[!.]* sub/*\n"

    @case("FS-083", needs=BOTH, area="files")
    async def test_files_copy(self, sandbox: AsyncSandbox) -> None:
        """`copy()` makes another file with content, mode and date; a change of it is its own."""
        await self.sh(sandbox, "printf content >f; chmod 750 f; touch -d @1000000000 f")
        await sandbox.files.copy("f", "g")
        assert await self.sh(sandbox, "stat -c '%a %Y' f g") == "750 1000000000\n" * 2
        await self.sh(sandbox, "echo more >>g")
        assert await self.sh(sandbox, "cat f; echo; cat g") == "content\ncontentmore\n"

    @case("FS-084", needs=BOTH, area="files")
    async def test_files_copy_of_a_tree(self, sandbox: AsyncSandbox) -> None:
        """A directory is copied whole: hidden entries, modes, links as links, empty directories."""
        await self.sh(
            sandbox, "mkdir -p d/sub/empty out; echo 1 >d/.f; echo 2 >d/sub/g; mkfifo d/p"
        )
        await self.sh(
            sandbox, "chmod 700 d/sub; chmod 600 d/.f; ln -s ../out d/l; ln -s no d/sub/m"
        )
        await sandbox.files.copy("d", "e")
        ours, theirs = [await sandbox.files.ls(top, recursive=True) for top in ("d", "e")]
        assert [_shape(info) for info in theirs] == [_shape(info) for info in ours]
        assert await self.sh(sandbox, "cat e/.f e/sub/g; stat -c %a e") == "1\n2\n755\n"

    @case("FS-085", needs=BOTH, area="files")
    async def test_files_copy_writes_through_no_link(self, sandbox: AsyncSandbox) -> None:
        """A file or link at the target is replaced by a copy; where a link led to stays."""
        await self.sh(sandbox, "echo new >f; echo old >kept; mkdir d; echo old >other")
        await self.sh(sandbox, "ln -s kept to-file; ln -s d to-dir; ln -s none dangling")
        for target in ("to-file", "to-dir", "dangling", "other"):
            await sandbox.files.copy("f", target)
            assert (await sandbox.files.stat(target)).kind == "file"
        script = "cat f to-file to-dir dangling other kept; echo d/*; [ ! -e none ]"
        assert await self.sh(sandbox, script) == "new\n" * 5 + "old\nd/*\n"

    @case("FS-086", needs=BOTH, area="files")
    async def test_files_a_copy_that_fails_leaves_nothing(self, sandbox: AsyncSandbox) -> None:
        """Where a part cannot be read the copy is `PermissionDenied`, and there is none."""
        await self.skip_root(sandbox)
        await self.sh(sandbox, "mkdir -p d/a d/z; echo x >d/a/f; echo x >d/z/f; chmod 0 d/z/f")
        await self.sh(sandbox, "chmod 500 d/a; echo old >there")
        for source, target in (("d", "e"), ("d/z/f", "there"), ("d/z/f", "new")):
            with pytest.raises(PermissionDenied):
                await sandbox.files.copy(source, target)
        assert await self.sh(sandbox, "echo * .[!.]*; cat there") == "d there .[!.]*\nold\n"

    @case("FS-087", needs=BOTH, area="files")
    async def test_files_moving_with_the_rights_of_the_user(self, sandbox: AsyncSandbox) -> None:
        """Without the right to change a directory nothing goes into or out of it."""
        await self.skip_root(sandbox)
        await self.sh(sandbox, "echo x >f; mkdir d closed; echo x >closed/f; chmod 555 closed")
        for act in (sandbox.files.move, sandbox.files.copy):
            for source, target in (("f", "/etc/x"), ("d", "/etc/x"), ("f", "closed/x")):
                with pytest.raises(PermissionDenied):
                    await act(source, target)
        for source in ("/etc/passwd", "closed/f"):
            with pytest.raises(PermissionDenied):
                await sandbox.files.move(source, "mine")
        await sandbox.files.copy("/etc/passwd", "mine")
        assert await self.sh(sandbox, "cmp /etc/passwd mine; cat closed/f; echo *") == (
            "x\nclosed d f mine\n"
        )

    @case("FS-088", needs=BOTH, area="files", patience=300)
    async def test_files_moving_awkward_names(self, sandbox: AsyncSandbox) -> None:
        """Any name can be the source and the target of each operation, and means itself."""
        names = (*AWKWARD, *CODE, *PATTERNS, "bad\udcff\udce9name")
        await sandbox.files.mkdir("d")
        await sandbox.files.write("at", "content")
        before = "at"
        for name in names:
            await sandbox.files.move(before, name)
            await sandbox.files.copy(name, f"d/{name}")
            before = name
        assert [info.path for info in await sandbox.files.ls()] == sorted(["d", before])
        for name in (*CODE, *PATTERNS, "-rf", "a\nb", before):
            await sandbox.files.chmod(f"d/{name}", 0o600)
            assert await sandbox.files.edit(f"d/{name}", "content", name.encode(*FORM)) == 1
        copies = await sandbox.files.ls("d")
        assert [info.path for info in copies] == sorted(f"d/{name}" for name in names)
        assert sum(info.mode == 0o600 for info in copies) == len(CODE) + len(PATTERNS) + 3

    @case("FS-089", needs=BOTH, area="files")
    async def test_files_moving_onto_itself(self, sandbox: AsyncSandbox) -> None:
        """A file moved or copied onto itself is there as it was; of two names of one file the
        first is gone when it was moved onto the second.
        """
        await self.sh(sandbox, "echo x >f; ln f g; ln -s f l")
        for act in (sandbox.files.move, sandbox.files.copy):
            await act("f", "./f")
            await act("l", "l")
        assert await self.sh(sandbox, "cat f g; readlink l") == "x\nx\nf\n"
        await self.sh(sandbox, "ln -f g f")
        await sandbox.files.move("f", "g")
        assert await self.sh(sandbox, "echo *; cat g") == "g l\nx\n"

    @case("FS-090", needs=BOTH, area="files")
    async def test_files_moving_between_mounts(self, sandbox: AsyncSandbox) -> None:
        """Trees, links and files move to other mounts and back, and replace a file there."""
        for place in ("/tmp", "/dev/shm"):  # noqa: S108  # of the sandbox
            if not (await sandbox.run(f"[ -d {place} ] && [ -w {place} ]")).ok:
                continue
            await self.sh(
                sandbox,
                f"mkdir -p d/sub; echo 1 >d/sub/f; ln -s sub d/l; echo 2 >f; echo 3 >{place}/f",
            )
            await sandbox.files.move("d", f"{place}/moved")
            await sandbox.files.move("f", f"{place}/f")
            assert await self.sh(sandbox, f"cat {place}/moved/l/f {place}/f; echo *") == "1\n2\n*\n"
            await sandbox.files.move(f"{place}/moved", "back")
            assert (
                await self.sh(sandbox, f"cat back/l/f; [ ! -e {place}/moved ]; rm -r back") == "1\n"
            )

    @case("FS-091", needs=BOTH, area="files")
    async def test_files_chmod(self, sandbox: AsyncSandbox) -> None:
        """`chmod()` sets the permission bits of a file or directory, through a link too."""
        await self.sh(sandbox, "echo x >f; mkdir d; chmod 2755 d; ln -s f l")
        for path, mode in (("f", 0o755), ("f", 0), ("d", 0o700), ("l", 0o640)):
            await sandbox.files.chmod(path, mode)
            real = "f" if path == "l" else path
            assert (await sandbox.files.stat(real)).mode == mode
        assert (await sandbox.files.stat("l")).kind == "link"

    @case("FS-092", needs=BOTH, area="files")
    async def test_files_chmod_of_what_cannot_be(self, sandbox: AsyncSandbox) -> None:
        """What is not there is `PathNotFound`, and of another user `PermissionDenied`."""
        await self.sh(sandbox, "echo x >f; ln -s none dangling")
        for path in ("none", "none/x", "dangling"):
            with pytest.raises(PathNotFound):
                await sandbox.files.chmod(path, 0o600)
        with pytest.raises(NotADirectory):
            await sandbox.files.chmod("f/x", 0o600)
        await self.skip_root(sandbox)
        with pytest.raises(PermissionDenied):
            await sandbox.files.chmod("/etc/passwd", 0o777)

    @case("FS-093", needs=FILES, area="files")
    async def test_files_values_that_move_nothing(self, sandbox: AsyncSandbox) -> None:
        """What can be no path or mode is refused, and nothing is done."""
        files: Any = sandbox.files
        await files.write("f", "x")
        before = await files.ls()
        for bad in ("", "a\0b", None, 7, b"bytes"):
            for act in (files.move, files.copy):
                for pair in ((bad, "x"), ("f", bad)):
                    with pytest.raises(ConfigurationError):
                        await act(*pair)
            with pytest.raises(ConfigurationError):
                await files.chmod(bad, 0o600)
        for mode in (0o1000, -1, None, True, "644"):
            with pytest.raises(ConfigurationError, match="mode"):
                await files.chmod("f", mode)
        assert await files.ls() == before

    @case("FS-094", needs=BOTH, area="files", patience=300)
    async def test_files_a_large_tree(self, sandbox: AsyncSandbox) -> None:
        """A tree of 1,000 entries is copied, moved, listed and found whole."""
        await self.sh(
            sandbox, f"mkdir -p d/e; for i in $(seq {ENTRIES}); do echo $i >d/e/f$i; done"
        )
        await sandbox.files.copy("d", "copied")
        await sandbox.files.move("d", "moved")
        for top in ("copied", "moved"):
            names = sorted([f"{top}/e", *(f"{top}/e/f{i}" for i in range(1, ENTRIES + 1))])
            assert [info.path for info in await sandbox.files.ls(top, recursive=True)] == names
            assert [info.path for info in await sandbox.files.glob(f"{top}/**")] == names
        assert await self.sh(sandbox, "cat copied/e/f1000 moved/e/f7; echo *") == (
            "1000\n7\ncopied moved\n"
        )


def _shape(info: Any) -> tuple[object, ...]:
    """What a copy has in common with its original."""
    return (
        info.path[2:],
        info.kind,
        info.mode,
        info.target,
        info.size if info.kind == "file" else 0,
    )
