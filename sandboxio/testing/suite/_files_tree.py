"""Files: directories, obstacles, rights, owners and modes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sandboxio.core.errors import (
    CapabilityNotSupported,
    FileSystemError,
    IsADirectory,
    NotADirectory,
    PathExists,
    PathNotFound,
    PermissionDenied,
)
from sandboxio.core.models import Capability
from sandboxio.testing.suite._case import case
from sandboxio.testing.suite.fixtures import SuiteFixtures

if TYPE_CHECKING:
    from sandboxio.core.protocols import AsyncSandbox
    from sandboxio.testing.suite.fixtures import Create

FILES = Capability.FILESYSTEM
BOTH = Capability.FILESYSTEM | Capability.RUN_COMMAND
SOON = 15.0
"""Seconds within which what cannot be read has to be given up."""


class FileTree(SuiteFixtures):
    """Cases of `files`, as far as they are about directories, rights and obstacles."""

    @case("FS-030", needs=BOTH, area="files")
    async def test_files_ls_is_sorted_and_complete(self, sandbox: AsyncSandbox) -> None:
        """`ls()` lists every entry, hidden ones included, sorted by path, and not `.` or `..`."""
        await self.sh(
            sandbox, "echo x >b; mkdir a; echo x >.hidden; echo x >B; mkdir .d; echo x >c"
        )
        listed = [info.path for info in await sandbox.files.ls()]
        assert listed == [".d", ".hidden", "B", "a", "b", "c"]

    @case("FS-031", needs=BOTH, area="files")
    async def test_files_ls_describes_as_stat_does(self, sandbox: AsyncSandbox) -> None:
        """Each entry of `ls()` is what `stat()` says of it."""
        await self.sh(sandbox, "printf 123 >f; chmod 600 f; mkdir d; ln -s f to-f; mkfifo p")
        listed = await sandbox.files.ls()
        assert [info.path for info in listed] == ["d", "f", "p", "to-f"]
        assert listed == [await sandbox.files.stat(info.path) for info in listed]

    @case("FS-032", needs=BOTH, area="files")
    async def test_files_ls_paths_begin_as_asked(self, sandbox: AsyncSandbox) -> None:
        """Paths begin with the path that was listed, as it was given, and nothing for `"."`."""
        here = (await self.sh(sandbox, "pwd")).strip()
        await self.sh(sandbox, "mkdir d; echo x >d/f")
        for path in ("d", "./d", "d/../d", f"{here}/d"):
            for given in (path, f"{path}/"):
                assert [info.path for info in await sandbox.files.ls(given)] == [f"{path}/f"]
        assert [info.path for info in await sandbox.files.ls(".")] == ["d"]
        top = [info.path for info in await sandbox.files.ls("/")]
        assert "/dev" in top
        assert not [path for path in top if path.startswith("//")]

    @case("FS-033", needs=BOTH, area="files")
    async def test_files_ls_paths_can_be_passed_on(self, sandbox: AsyncSandbox) -> None:
        """The paths that `ls()` gives are paths that `read`, `ls` and `remove` take."""
        await self.sh(sandbox, "mkdir -p d/sub; echo 1 >d/one; echo 2 >d/sub/two")
        one, sub = await sandbox.files.ls("d")
        assert await sandbox.files.read(one.path) == b"1\n"
        (two,) = await sandbox.files.ls(sub.path)
        assert await sandbox.files.read(two.path) == b"2\n"
        await sandbox.files.remove(two.path)
        assert await sandbox.files.ls(sub.path) == []

    @case("FS-034", needs=BOTH, area="files")
    async def test_files_ls_of_many_entries(self, sandbox: AsyncSandbox) -> None:
        """A directory of 1,500 entries with long names is listed whole."""
        name = "n" * 100
        await self.sh(sandbox, f"mkdir d; cd d; for i in $(seq 1500); do : >{name}$i; done")
        listed = await sandbox.files.ls("d")
        assert [info.path for info in listed] == sorted(f"d/{name}{i}" for i in range(1, 1501))

    @case("FS-035", needs=BOTH, area="files")
    async def test_files_mkdir(self, sandbox: AsyncSandbox) -> None:
        """`mkdir()` makes one directory, for its user alone to write."""
        await sandbox.files.mkdir("d")
        assert await self.sh(sandbox, "stat -c %F:%a d; echo x >d/f") == "directory:755\n"
        assert await sandbox.files.ls("d") == [await sandbox.files.stat("d/f")]

    @case("FS-036", needs=BOTH, area="files")
    async def test_files_mkdir_of_what_exists(self, sandbox: AsyncSandbox) -> None:
        """`mkdir()` where something is raises `PathExists` and leaves it as it is."""
        await self.sh(sandbox, "mkdir d; echo 1 >d/f; echo 2 >f; ln -s none dangling")
        for path in ("d", "f", "dangling"):
            with pytest.raises(PathExists):
                await sandbox.files.mkdir(path)
        assert await self.sh(sandbox, "cat d/f f; readlink dangling") == "1\n2\nnone\n"

    @case("FS-037", needs=BOTH, area="files")
    async def test_files_mkdir_with_parents(self, sandbox: AsyncSandbox) -> None:
        """`parents=True` makes the directories above, and accepts all that exist."""
        await sandbox.files.mkdir("a/b/c", parents=True)
        await self.sh(sandbox, "echo x >a/b/c/f")
        await sandbox.files.mkdir("a/b/c", parents=True)
        await sandbox.files.mkdir("a/b/d/e", parents=True)
        assert await self.sh(sandbox, "cat a/b/c/f; [ -d a/b/d/e ]") == "x\n"

    @case("FS-038", needs=BOTH, area="files")
    async def test_files_mkdir_where_it_cannot_be(self, sandbox: AsyncSandbox) -> None:
        """Without `parents` the directory above must exist; a file on the way is no directory."""
        await self.sh(sandbox, "echo x >f")
        with pytest.raises(PathNotFound):
            await sandbox.files.mkdir("none/d")
        for parents in (False, True):
            with pytest.raises(NotADirectory):
                await sandbox.files.mkdir("f/d", parents=parents)
        with pytest.raises(PathExists):
            await sandbox.files.mkdir("f", parents=True)
        assert await self.sh(sandbox, "echo *; cat f") == "f\nx\n"

    @case("FS-039", needs=BOTH, area="files")
    async def test_files_remove(self, sandbox: AsyncSandbox) -> None:
        """`remove()` removes a file, a FIFO or an empty directory, and nothing besides."""
        await self.sh(sandbox, "echo x >f; echo x >keep; mkdir d; mkfifo p; mkdir full; >full/f")
        for path in ("f", "d", "p", "full/f"):
            await sandbox.files.remove(path)
        assert await self.sh(sandbox, "echo *; echo full/*") == "full keep\nfull/*\n"

    @case("FS-040", needs=BOTH, area="files")
    async def test_files_remove_of_a_full_directory(self, sandbox: AsyncSandbox) -> None:
        """A directory with entries is refused, whole, unless `recursive=True`."""
        await self.sh(sandbox, "mkdir -p d/sub; echo 1 >d/f; echo 2 >d/sub/f; echo 3 >keep")
        with pytest.raises(FileSystemError):
            await sandbox.files.remove("d")
        assert await self.sh(sandbox, "cat d/f d/sub/f") == "1\n2\n"
        await sandbox.files.remove("d", recursive=True)
        await sandbox.files.remove("keep", recursive=True)
        assert await self.sh(sandbox, "echo *") == "*\n"

    @case("FS-041", needs=FILES, area="files")
    async def test_files_a_missing_path(self, sandbox: AsyncSandbox) -> None:
        """What does not exist is `PathNotFound`, for every operation; never empty, never silent."""
        files = sandbox.files
        for path in ("none", "none/x", "/none", "./none"):
            for act in (files.read, files.stat, files.ls, files.remove):
                with pytest.raises(PathNotFound) as caught:
                    await act(path)
                assert path in caught.value.message
            with pytest.raises(PathNotFound):
                await files.remove(path, recursive=True)
            with pytest.raises(PathNotFound):
                await files.read(path, offset=1, length=0)

    @case("FS-042", needs=FILES, area="files")
    async def test_files_a_missing_directory_is_not_made(self, sandbox: AsyncSandbox) -> None:
        """A write into a directory that does not exist is `PathNotFound`, and makes none."""
        for content in ("", "x", "x" * 2_000_000):
            with pytest.raises(PathNotFound):
                await sandbox.files.write("none/x", content)
        assert await sandbox.files.ls() == []

    @case("FS-043", needs=BOTH, area="files")
    async def test_files_a_directory_is_no_file(self, sandbox: AsyncSandbox) -> None:
        """A directory where a file is needed is `IsADirectory`."""
        await self.sh(sandbox, "mkdir d; echo x >d/f")
        for path in ("d", "d/", ".", "/"):
            with pytest.raises(IsADirectory):
                await sandbox.files.read(path)
        for content in ("", "x", "x" * 2_000_000):
            with pytest.raises(IsADirectory):
                await sandbox.files.write("d", content)
        assert await self.sh(sandbox, "cat d/f") == "x\n"

    @case("FS-044", needs=BOTH, area="files")
    async def test_files_a_file_is_no_directory(self, sandbox: AsyncSandbox) -> None:
        """A file where a directory is needed is `NotADirectory`, also on the way."""
        await self.sh(sandbox, "echo x >f")
        files = sandbox.files
        with pytest.raises(NotADirectory):
            await files.ls("f")
        for act in (files.read, files.stat, files.ls, files.remove):
            with pytest.raises(NotADirectory):
                await act("f/x")
        with pytest.raises(NotADirectory):
            await files.write("f/x", "x")
        assert await self.sh(sandbox, "cat f") == "x\n"

    @case("FS-045", needs=BOTH, area="files")
    async def test_files_no_read_waits_for_ever(self, sandbox: AsyncSandbox) -> None:
        """A FIFO or a device is no file to read or write: `FileSystemError`, and soon."""
        await self.sh(sandbox, "mkfifo pipe")
        started = self.clock.time()
        for path in ("pipe", "/dev/zero", "/dev/null"):
            with pytest.raises(FileSystemError):
                await sandbox.files.read(path)
        with pytest.raises(FileSystemError):
            await sandbox.files.write("pipe", "x")
        assert self.clock.time() - started < SOON

    @case("FS-046", needs=BOTH, area="files")
    async def test_files_the_rights_of_the_user(self, sandbox: AsyncSandbox) -> None:
        """Files are used with the rights of the sandbox's user: `PermissionDenied` without them."""
        await self.skip_root(sandbox)
        await self.sh(sandbox, "echo x >f; chmod 0 f; mkdir d; echo x >d/f; chmod 0 d")
        files = sandbox.files
        for path in ("f", "d/f", "d/none"):
            with pytest.raises(PermissionDenied):
                await files.read(path)
        with pytest.raises(PermissionDenied):
            await files.stat("d/f")
        with pytest.raises(PermissionDenied):
            await files.ls("d")
        for path in ("f", "d/g"):
            with pytest.raises(PermissionDenied):
                await files.write(path, "y")
        assert await self.sh(sandbox, "chmod 700 d; chmod 600 f; cat f d/f; echo d/*") == (
            "x\nx\nd/f\n"
        )

    @case("FS-047", needs=BOTH, area="files")
    async def test_files_places_of_root(self, sandbox: AsyncSandbox) -> None:
        """In a directory of root nothing can be made, changed or removed."""
        await self.skip_root(sandbox)
        files = sandbox.files
        for path in ("/etc/x", "/etc/passwd"):
            for content in ("x", "x" * 2_000_000):
                with pytest.raises(PermissionDenied):
                    await files.write(path, content)
        for path, parents in (("/etc/x", False), ("/etc/x/y", True)):
            with pytest.raises(PermissionDenied):
                await files.mkdir(path, parents=parents)
        for recursive in (False, True):
            with pytest.raises(PermissionDenied):
                await files.remove("/etc/passwd", recursive=recursive)
        assert await self.sh(sandbox, "[ ! -e /etc/x ] && grep -c root: /etc/passwd")

    @case("FS-048", needs=BOTH, area="files")
    async def test_files_the_owner(self, sandbox: AsyncSandbox) -> None:
        """What is made belongs to the user of commands, directories on the way included."""
        await sandbox.files.write("f", "some")
        await sandbox.files.mkdir("d/e", parents=True)
        await sandbox.files.write("d/e/g", "some")
        owners = await self.sh(sandbox, "stat -c %u:%g f d d/e d/e/g; echo $(id -u):$(id -g)")
        assert len(set(owners.split())) == 1
        await self.sh(sandbox, "echo more >>f && touch d/e/x && rm -r f d")

    @case("FS-049", needs=BOTH, area="files")
    async def test_files_the_owner_in_a_sandbox_of_another_user(self, create: Create) -> None:
        """With `create(user=...)` files belong to that user, and are used with its rights."""
        try:
            sandbox = await create(user="1234:5678")
        except CapabilityNotSupported:
            pytest.skip(reason="this backend gives its sandboxes no other user")
        await sandbox.files.mkdir("d/e", parents=True)
        await sandbox.files.write("d/e/f", "x")
        assert await self.sh(sandbox, "stat -c %u:%g d d/e d/e/f") == "1234:5678\n" * 3
        with pytest.raises(PermissionDenied):
            await sandbox.files.write("/etc/x", "x")

    @case("FS-050", needs=BOTH, area="files")
    async def test_files_modes(self, sandbox: AsyncSandbox) -> None:
        """A new file has mode 0644 unless `mode` says otherwise, whatever the size."""
        for mode in (None, 0o600, 0o755, 0o777, 0o400, 0o660):
            for size in (0, 200_000):
                name = f"{mode}-{size}"
                await sandbox.files.write(name, "x" * size, mode=mode)
                expected = 0o644 if mode is None else mode
                assert await self.sh(sandbox, f"stat -c %a {name}") == f"{expected:o}\n"
                assert (await sandbox.files.stat(name)).mode == expected

    @case("FS-051", needs=BOTH, area="files")
    async def test_files_the_mode_of_an_existing_file(self, sandbox: AsyncSandbox) -> None:
        """A file that exists keeps its mode, unless `mode` is given."""
        await self.sh(sandbox, "echo x >f; chmod 700 f")
        await sandbox.files.write("f", "y")
        assert await self.sh(sandbox, "stat -c %a f; cat f") == "700\ny"
        await sandbox.files.write("f", "z", mode=0o640)
        assert await self.sh(sandbox, "stat -c %a f; cat f") == "640\nz"

    @case("FS-052", needs=BOTH, area="files")
    async def test_files_a_written_script_runs(self, sandbox: AsyncSandbox) -> None:
        """A script written with an execute bit can be started; without one it cannot."""
        await sandbox.files.write("yes-x", "#!/bin/sh\necho ran $1\n", mode=0o755)
        await sandbox.files.write("no-x", "#!/bin/sh\necho ran $1\n")
        assert (await sandbox.run(["./yes-x", "well"])).stdout == "ran well\n"
        assert (await sandbox.run(["./no-x"])).exit_code == 126

    @case("FS-075", needs=BOTH, area="files")
    async def test_files_programs_of_the_user_decide_nothing(self, create: Create) -> None:
        """What comes first on the caller's `PATH` answers commands, and not the file API."""
        sandbox = await create(env={"PATH": "bin:/usr/local/bin:/usr/bin:/bin"})
        await sandbox.files.mkdir("bin")
        for tool in ("cat", "find", "head", "sh", "stat", "wc"):
            await sandbox.files.write(f"bin/{tool}", "#!/bin/sh\necho a lie\n", mode=0o755)
        await sandbox.files.write("f", "content")
        assert (await sandbox.run(["cat", "f"])).stdout == "a lie\n"
        assert await sandbox.files.read("f") == b"content"
        assert [(info.path, info.size) for info in await sandbox.files.ls() if not info.is_dir] == [
            ("f", 7)
        ]
