"""`files.download()`: one regular file, whole, exactly at `local`."""

from __future__ import annotations

import os
import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from sandboxio.core.errors import ConfigurationError, FileSystemError, PathNotFound
from sandboxio.core.models import Capability
from sandboxio.testing.suite._case import case
from sandboxio.testing.suite._files_names import octal
from sandboxio.testing.suite._files_tree import SOON
from sandboxio.testing.suite.files import EVERY_BYTE
from sandboxio.testing.suite.fixtures import SuiteFixtures

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from sandboxio.core.protocols import AsyncSandbox

BOTH = Capability.UPLOAD_DOWNLOAD | Capability.RUN_COMMAND
LARGE = 64 * 1024 * 1024
"""So much that a transfer of it can be cancelled on its way."""


class Downloads(SuiteFixtures):
    """Cases of `download()`."""

    @case("XFER-019", needs=BOTH, area="transfer")
    async def test_transfer_download_is_exact(self, sandbox: AsyncSandbox, tmp_path: Path) -> None:
        """What is downloaded arrives unchanged, each of the 256 byte values in its place."""
        await self.sh(sandbox, f"printf '{octal(EVERY_BYTE)}' >bytes")
        await sandbox.files.download("bytes", tmp_path / "local")
        assert (tmp_path / "local").read_bytes() == EVERY_BYTE

    @case("XFER-020", needs=BOTH, area="transfer")
    async def test_transfer_the_mode_of_a_download(
        self, sandbox: AsyncSandbox, tmp_path: Path
    ) -> None:
        """The mode at `local` is the one inside, at most 0755 and writable by its owner.

        No setuid, setgid or sticky bit leaves the sandbox, and the host's umask plays no part.
        """
        modes = {"600": 0o600, "644": 0o644, "755": 0o755, "777": 0o755, "666": 0o644}
        modes |= {"444": 0o644, "4755": 0o755, "2755": 0o755, "1777": 0o755, "7777": 0o755}
        await self.sh(sandbox, "echo x >f")
        for mode, expected in modes.items():
            await self.sh(sandbox, f"chmod {mode} f")
            for umask in (0o077, 0o000):
                local = tmp_path / f"{mode}-{umask}"
                with host_umask(umask):
                    await sandbox.files.download("f", local)
                assert stat.S_IMODE(local.stat().st_mode) == expected, mode

    @case("XFER-021", needs=BOTH, area="transfer")
    async def test_transfer_download_replaces_a_file(
        self, sandbox: AsyncSandbox, tmp_path: Path
    ) -> None:
        """A file at `local` is replaced; other names of it keep the old content."""
        await self.sh(sandbox, "echo new >f")
        (tmp_path / "back").write_text("old, and longer")
        (tmp_path / "other").hardlink_to(tmp_path / "back")
        await sandbox.files.download("f", tmp_path / "back")
        assert (tmp_path / "back").read_text() == "new\n"
        assert (tmp_path / "other").read_text() == "old, and longer"

    @case("XFER-022", needs=BOTH, area="transfer")
    async def test_transfer_download_replaces_a_link(
        self, sandbox: AsyncSandbox, tmp_path: Path
    ) -> None:
        """A link at `local` is replaced by the file; nothing is ever written through it."""
        await self.sh(sandbox, "echo new >f")
        (tmp_path / "kept").write_text("kept")
        for name, target in (("link", "kept"), ("dangling", "none")):
            (tmp_path / name).symlink_to(target)
            await sandbox.files.download("f", tmp_path / name)
            assert not (tmp_path / name).is_symlink()
            assert (tmp_path / name).read_text() == "new\n"
        assert (tmp_path / "kept").read_text() == "kept"
        assert not (tmp_path / "none").exists()

    @case("XFER-023", needs=BOTH, area="transfer")
    async def test_transfer_download_follows_links(
        self, sandbox: AsyncSandbox, tmp_path: Path
    ) -> None:
        """A link inside is downloaded as `cat` would show it, and a hard link as any file."""
        await self.sh(sandbox, "echo x >f; chmod 755 f; ln -s f a; ln -s a b; ln f hard")
        for name in ("a", "b", "hard"):
            await sandbox.files.download(name, tmp_path / name)
            assert not (tmp_path / name).is_symlink()
            assert (tmp_path / name).read_text() == "x\n"
            assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o755

    @case("XFER-024", needs=BOTH, area="transfer")
    async def test_transfer_download_of_what_is_missing(
        self, sandbox: AsyncSandbox, tmp_path: Path
    ) -> None:
        """A missing path is `PathNotFound`, a dangling link too; nothing is left on the host."""
        await self.sh(sandbox, "ln -s none dangling; ln -s none/x into")
        for path in ("none", "none/x", "/none", "dangling", "into"):
            with pytest.raises(PathNotFound):
                await sandbox.files.download(path, tmp_path / "back")
            assert names(tmp_path) == []

    @case("XFER-025", needs=BOTH, area="transfer")
    async def test_transfer_download_of_what_is_no_file(
        self, sandbox: AsyncSandbox, tmp_path: Path
    ) -> None:
        """A directory, FIFO, device or loop is a `FileSystemError`, soon, and leaves nothing."""
        await self.sh(sandbox, "mkdir d; ln -s d to-dir; mkfifo pipe; ln -s loop loop; echo x >f")
        started = self.clock.time()
        for path in ("d", "to-dir", ".", "/", "pipe", "loop", "f/x", "/dev/zero", "/dev/null"):
            with pytest.raises(FileSystemError) as caught:
                await sandbox.files.download(path, tmp_path / "back")
            assert not isinstance(caught.value, PathNotFound), path
            assert names(tmp_path) == []
        assert self.clock.time() - started < SOON

    @case("XFER-026", needs=BOTH, area="transfer")
    async def test_transfer_download_where_no_file_can_be(
        self, sandbox: AsyncSandbox, tmp_path: Path
    ) -> None:
        """A `local` in a missing directory, or that is one, is refused; no directory is made."""
        await self.sh(sandbox, "echo x >f")
        (tmp_path / "d").mkdir()
        (tmp_path / "file").write_text("kept")
        (tmp_path / "to-dir").symlink_to("d")
        for name in ("none/x", "d", "to-dir", "file/x", ""):
            with pytest.raises(ConfigurationError):
                await sandbox.files.download("f", tmp_path / name)
        assert names(tmp_path) == ["d", "file", "to-dir"]
        assert names(tmp_path / "d") == []
        assert (tmp_path / "file").read_text() == "kept"

    @case("XFER-027", needs=BOTH, area="transfer")
    async def test_transfer_a_download_cancelled_on_its_way(
        self, sandbox: AsyncSandbox, tmp_path: Path
    ) -> None:
        """A download that is cancelled leaves nothing on the host, not even a part beside it."""
        await self.sh(sandbox, f"head -c {LARGE} /dev/zero >large")
        with self.clock.limit(self.clock.time() + 0.3) as scope:
            await sandbox.files.download("large", tmp_path / "back")
        assert names(tmp_path) == ([] if scope.cancelled_caught else ["back"])
        await sandbox.files.download("large", tmp_path / "back")
        assert (tmp_path / "back").stat().st_size == LARGE

    @case("XFER-028", needs=BOTH, area="transfer")
    async def test_transfer_download_beyond_the_limit(
        self, sandbox: AsyncSandbox, tmp_path: Path
    ) -> None:
        """A file of 1 TB is a `FileSystemError`, soon, however little of the disk it takes."""
        if not (await sandbox.run("truncate -s 1T sparse")).ok:
            pytest.skip(reason="this sandbox makes no file of 1 TB")
        started = self.clock.time()
        with pytest.raises(FileSystemError):
            await sandbox.files.download("sparse", tmp_path / "back")
        assert self.clock.time() - started < SOON
        assert names(tmp_path) == []


@contextmanager
def host_umask(mask: int) -> Generator[None]:
    """Have this process make files with another umask."""
    old = os.umask(mask)
    try:
        yield
    finally:
        os.umask(old)


def names(folder: Path) -> list[str]:
    """Return what is in a directory of the host."""
    return sorted(path.name for path in folder.iterdir())
