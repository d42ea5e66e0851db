"""`files.upload_dir()` and `files.download_dir()`: whole directories, and no way out."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING, Any

import pytest

from sandboxio.core.errors import (
    CapabilityNotSupported,
    ConfigurationError,
    FileSystemError,
    NotADirectory,
    PathNotFound,
    PermissionDenied,
)
from sandboxio.core.models import Capability
from sandboxio.testing.suite._case import case
from sandboxio.testing.suite.fixtures import SuiteFixtures

if TYPE_CHECKING:
    from pathlib import Path

    from sandboxio.core.protocols import AsyncSandbox

TRANSFER = Capability.UPLOAD_DOWNLOAD
BOTH = Capability.UPLOAD_DOWNLOAD | Capability.RUN_COMMAND
FILES = {"a": "1", "d/b c": "22", "d/e/f.py": "333", "d/e/é": "", ".dot/g": "\n"}


class Trees(SuiteFixtures):
    """Cases of whole directories."""

    @case("XFER-029", needs=BOTH, area="transfer")
    async def test_transfer_a_tree_up(self, sandbox: AsyncSandbox, tmp_path: Path) -> None:
        """All files and directories arrive, empty ones too, in a directory that is made."""
        _make(tmp_path / "local")
        done = await sandbox.files.upload_dir(tmp_path / "local", "new/top")
        assert (done.files, done.size, done.skipped) == (5, 7, ())
        script = 'cd new/top; cat a "d/b c" d/e/f.py d/e/é .dot/g; [ -d empty ]; ls -A . d d/e .dot'
        names = ".:\n.dot\na\nd\nempty\n\n.dot:\ng\n\nd:\nb c\ne\n\nd/e:\nf.py\né\n"
        assert await self.sh(sandbox, script) == f"122333\n{names}"

    @case("XFER-030", needs=BOTH, area="transfer")
    async def test_transfer_a_tree_down(self, sandbox: AsyncSandbox, tmp_path: Path) -> None:
        """All files and directories arrive, empty ones too, in a directory that is made."""
        script = "mkdir -p t/d/e t/empty t/.dot; cd t; echo 1 >a; echo 22 >d/e/'b c'; : >.dot/g"
        await self.sh(sandbox, script)
        done = await sandbox.files.download_dir("t", tmp_path / "new" / "top")
        assert (done.files, done.size, done.skipped) == (3, 5, ())
        assert _found(tmp_path / "new" / "top") == {
            "a": "1\n", "d": None, "d/e": None, "d/e/b c": "22\n",
            "empty": None, ".dot": None, ".dot/g": "",
        }  # fmt: skip

    @case("XFER-031", needs=TRANSFER, area="transfer")
    async def test_transfer_a_tree_there_and_back(
        self, sandbox: AsyncSandbox, tmp_path: Path
    ) -> None:
        """What goes up comes down the same, at every way to write the path of the directory."""
        _make(tmp_path / "local")
        for number, top in enumerate(("t", "t/", "./t", "u/v/w", "u/v/w//")):
            await sandbox.files.upload_dir(tmp_path / "local", top)
            await sandbox.files.download_dir(top, tmp_path / f"back{number}")
            assert _found(tmp_path / f"back{number}") == _found(tmp_path / "local")

    @case("XFER-032", needs=BOTH, area="transfer")
    async def test_transfer_the_modes_of_a_tree(
        self, sandbox: AsyncSandbox, tmp_path: Path
    ) -> None:
        """Files keep their modes within the limits of a single transfer, in both directions."""
        _make(tmp_path / "local")
        (tmp_path / "local" / "a").chmod(0o700)
        await sandbox.files.upload_dir(tmp_path / "local", "t")
        assert await self.sh(sandbox, "stat -c %a t/a 't/d/b c'") == "744\n644\n"
        await self.sh(sandbox, "chmod 4777 t/a")
        await sandbox.files.download_dir("t", tmp_path / "back")
        assert stat.S_IMODE((tmp_path / "back" / "a").stat().st_mode) == 0o755

    @case("XFER-033", needs=TRANSFER, area="transfer")
    async def test_transfer_into_a_tree_that_is_there(
        self, sandbox: AsyncSandbox, tmp_path: Path
    ) -> None:
        """Files of the same name are replaced; whatever else is there stays."""
        _make(tmp_path / "local")
        await sandbox.files.mkdir("t/d", parents=True)
        await sandbox.files.write("t/d/b c", "old, and longer")
        await sandbox.files.write("t/d/kept", "x")
        await sandbox.files.upload_dir(tmp_path / "local", "t")
        (tmp_path / "back").mkdir()
        (tmp_path / "back" / "a").write_text("old, and longer")
        (tmp_path / "back" / "mine").write_text("y")
        await sandbox.files.download_dir("t", tmp_path / "back")
        expected = {**_found(tmp_path / "local"), "d/kept": "x", "mine": "y"}
        assert _found(tmp_path / "back") == expected

    @case("XFER-034", needs=TRANSFER, area="transfer")
    async def test_transfer_part_of_a_tree(self, sandbox: AsyncSandbox, tmp_path: Path) -> None:
        """`include` and `exclude` choose by pattern, a directory for all that is in it."""
        _make(tmp_path / "local")
        files = sandbox.files
        ways: tuple[tuple[tuple[str, ...], tuple[str, ...], set[str]], ...] = (
            (("**/*.py",), (), {"d", "d/e", "d/e/f.py"}),
            (("d",), ("d/e",), {"d", "d/b c"}),
            (("d/e/", "a"), (), {"a", "d", "d/e", "d/e/f.py", "d/e/é"}),
            ((), ("**/e", ".*"), {"a", "d", "d/b c", "empty"}),
            (("a/",), (), set()),
        )
        await files.upload_dir(tmp_path / "local", "whole")
        for number, (include, exclude, expected) in enumerate(ways):
            part, local = f"t{number}", tmp_path / "local"
            await files.upload_dir(local, part, include=include, exclude=exclude)
            await files.download_dir(part, tmp_path / f"up{number}")
            assert _found(tmp_path / f"up{number}").keys() == expected
            back = tmp_path / f"down{number}"
            await files.download_dir("whole", back, include=include, exclude=exclude)
            assert _found(back).keys() == expected

    @case("XFER-035", needs=BOTH, area="transfer")
    async def test_transfer_links_of_the_host_stay_there(
        self, sandbox: AsyncSandbox, tmp_path: Path
    ) -> None:
        """Links are not followed out of a directory that is uploaded; the result names them."""
        _make(tmp_path / "local")
        (tmp_path / "secret").write_text("secret")
        (tmp_path / "local" / "d" / "file").symlink_to(tmp_path / "secret")
        (tmp_path / "local" / "folder").symlink_to(tmp_path, target_is_directory=True)
        done = await sandbox.files.upload_dir(tmp_path / "local", "t")
        assert (done.files, sorted(done.skipped)) == (5, ["d/file", "folder"])
        assert await self.sh(sandbox, "cd t; ls d; [ ! -e folder ]") == "b c\ne\n"

    @case("XFER-036", needs=BOTH, area="transfer")
    async def test_transfer_no_link_leaves_the_sandbox(
        self, sandbox: AsyncSandbox, tmp_path: Path
    ) -> None:
        """A link inside is neither followed nor made on the host; the result names it."""
        links = "ln -s /etc/passwd l; ln -s / d; ln -s . e"
        await self.sh(sandbox, f"mkdir t; cd t; {links}; echo x >f")
        done = await sandbox.files.download_dir("t", tmp_path / "back")
        assert (done.files, sorted(done.skipped)) == (1, ["d", "e", "l"])
        assert _found(tmp_path / "back") == {"f": "x\n"}

    @case("XFER-037", needs=BOTH, area="transfer")
    async def test_transfer_no_link_of_the_host_leads_out(
        self, sandbox: AsyncSandbox, tmp_path: Path
    ) -> None:
        """A link below `local` is not written through: it is replaced, or the way refused."""
        await self.sh(sandbox, "mkdir -p t/d; echo evil >t/d/f; echo new >t/g")
        (tmp_path / "back").mkdir()
        (tmp_path / "other").mkdir()
        (tmp_path / "precious").write_text("mine")
        (tmp_path / "back" / "g").symlink_to(tmp_path / "precious")
        (tmp_path / "back" / "d").symlink_to(tmp_path / "other", target_is_directory=True)
        with pytest.raises(FileSystemError, match="link"):
            await sandbox.files.download_dir("t", tmp_path / "back")
        await self.sh(sandbox, "rm -r t/d")
        await sandbox.files.download_dir("t", tmp_path / "back")
        assert (tmp_path / "back" / "g").read_text() == "new\n"
        assert _found(tmp_path / "other") == {}
        assert (tmp_path / "precious").read_text() == "mine"

    @case("XFER-038", needs=BOTH, area="transfer")
    async def test_transfer_trees_with_the_rights_of_the_user(
        self, sandbox: AsyncSandbox, tmp_path: Path
    ) -> None:
        """What the sandbox's user may not read or write is `PermissionDenied`."""
        await self.skip_root(sandbox)
        _make(tmp_path / "local")
        await self.sh(sandbox, "mkdir -p t/closed; echo x >t/closed/f; chmod 0 t/closed")
        with pytest.raises(PermissionDenied):
            await sandbox.files.upload_dir(tmp_path / "local", "/etc/new")
        with pytest.raises(PermissionDenied):
            await sandbox.files.download_dir("t", tmp_path / "back")

    @case("XFER-039", needs=TRANSFER, area="transfer")
    async def test_transfer_what_is_no_tree(self, sandbox: AsyncSandbox, tmp_path: Path) -> None:
        """A file or nothing in place of a directory is refused on either side."""
        (tmp_path / "file").write_text("x")
        _make(tmp_path / "local")
        await sandbox.files.write("file", "x")
        for local in (tmp_path / "file", tmp_path / "absent"):
            with pytest.raises(ConfigurationError, match="directory"):
                await sandbox.files.upload_dir(local, "t")
        with pytest.raises(NotADirectory):
            await sandbox.files.download_dir("file", tmp_path / "back")
        with pytest.raises(PathNotFound):
            await sandbox.files.download_dir("absent", tmp_path / "back")
        with pytest.raises(FileSystemError):
            await sandbox.files.upload_dir(tmp_path / "local", "file")
        with pytest.raises(ConfigurationError, match="local"):
            await sandbox.files.download_dir(".", tmp_path / "file")

    @case("XFER-040", needs=TRANSFER, area="transfer")
    async def test_transfer_patterns_that_are_none(
        self, sandbox: AsyncSandbox, tmp_path: Path
    ) -> None:
        """Patterns are several, and of paths below the directory."""
        _make(tmp_path / "local")
        bad: tuple[Any, ...] = ("*.py", None, 7, (7,), ("",), ("/a",), ("../a",), ("a\0",))
        for patterns in bad:
            for name in ("include", "exclude"):
                options: Any = {name: patterns}
                with pytest.raises(ConfigurationError, match=name):
                    await sandbox.files.upload_dir(tmp_path / "local", "t", **options)
                with pytest.raises(ConfigurationError, match=name):
                    await sandbox.files.download_dir(".", tmp_path / "back", **options)
        assert not await sandbox.files.exists("t")
        assert not (tmp_path / "back").exists()

    @case("XFER-041", lacks=TRANSFER, area="transfer")
    async def test_transfer_trees_without_transfers(
        self, sandbox: AsyncSandbox, tmp_path: Path
    ) -> None:
        """A sandbox without transfers says so, and nothing is made on the host."""
        with pytest.raises(CapabilityNotSupported):
            await sandbox.files.upload_dir(tmp_path, "t")
        with pytest.raises(CapabilityNotSupported):
            await sandbox.files.download_dir("t", tmp_path / "back")
        assert not (tmp_path / "back").exists()


def _make(top: Path) -> None:
    """Make a tree with an empty directory and odd names."""
    for name, content in FILES.items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(content, encoding="utf-8", newline="")
        (top / name).chmod(0o644)
    (top / "empty").mkdir()


def _found(top: Path) -> dict[str, str | None]:
    """Return the content of each file of the host below a directory, `None` for a directory."""
    return {
        path.relative_to(top).as_posix(): None if path.is_dir() else path.read_text("utf-8")
        for path in top.rglob("*")
    }
