"""Files: what is found by a pattern, and listed all the way down."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from sandboxio.core.errors import ConfigurationError, PermissionDenied
from sandboxio.core.models import Capability
from sandboxio.testing.suite._case import case
from sandboxio.testing.suite.fixtures import SuiteFixtures

if TYPE_CHECKING:
    from sandboxio.core.protocols import AsyncSandbox

FILES = Capability.FILESYSTEM
BOTH = Capability.FILESYSTEM | Capability.RUN_COMMAND
TREE = (
    "mkdir -p a/b/c a/.h; for f in x.py a/x.py a/y.txt a/.z.py a/b/x.py a/b/c/x.py a/.h/x.py; "
    "do echo $f >$f; done"
)
LINKED = "; ln -s a to-dir; ln -s b a/loop; ln -s x.py a/l.py; ln -s none a/d.py"


class FileSearch(SuiteFixtures):
    """Cases of `files`, as far as they are about `glob()` and `ls(recursive=True)`."""

    @case("FS-103", needs=BOTH, area="files")
    async def test_files_glob_within_a_name(self, sandbox: AsyncSandbox) -> None:
        """`*`, `?` and `[...]` match within one name, a leading dot like any other sign."""
        await self.sh(sandbox, TREE)
        for pattern, found in {
            "a/*.py": ["a/.z.py", "a/x.py"],
            "a/?.*": ["a/x.py", "a/y.txt"],
            "a/[xy].[!p]*": ["a/y.txt"],
            "*/x.py": ["a/x.py"],
            "a/*/x.py": ["a/.h/x.py", "a/b/x.py"],
            "*": ["a", "x.py"],
            "a/*/": ["a/.h", "a/b"],
        }.items():
            assert await self._paths(sandbox, pattern) == found, pattern

    @case("FS-104", needs=BOTH, area="files")
    async def test_files_glob_through_directories(self, sandbox: AsyncSandbox) -> None:
        """`**` is any number of directories, none included, and at the end everything below."""
        await self.sh(sandbox, TREE)
        everywhere = ["a/.h/x.py", "a/b/c/x.py", "a/b/x.py", "a/x.py"]
        for pattern, found in {
            "**/x.py": [*everywhere, "x.py"],
            "a/**/x.py": everywhere,
            "a/**/c/*.py": ["a/b/c/x.py"],
            "a/b/**": ["a/b/c", "a/b/c/x.py", "a/b/x.py"],
            "**/b/**/x.py": ["a/b/c/x.py", "a/b/x.py"],
            "**/": ["a", "a/.h", "a/b", "a/b/c"],
        }.items():
            assert await self._paths(sandbox, pattern) == found, pattern

    @case("FS-105", needs=BOTH, area="files")
    async def test_files_glob_finds_nothing(self, sandbox: AsyncSandbox) -> None:
        """Where nothing matches, and where there is nothing to look in, the list is empty."""
        await self.sh(sandbox, f"{TREE}; mkdir empty; ln -s none dangling; ln -s loop loop")
        patterns = ("none", "*.none", "none/*", "x.py/*", "empty/*", "empty/**", "x.py/", "**/none")
        for pattern in (*patterns, "dangling/*", "loop/*"):
            assert await sandbox.files.glob(pattern) == [], pattern

    @case("FS-106", needs=BOTH, area="files")
    async def test_files_glob_paths(self, sandbox: AsyncSandbox) -> None:
        """Paths begin as the pattern does, without `.` and doubled slashes, and without wildcards
        a pattern is the path of what is there.
        """
        here = (await self.sh(sandbox, f"{TREE}; pwd")).strip()
        for pattern, found in {
            f"{here}/*.py": [f"{here}/x.py"],
            f"{here}/a/**/c/*": [f"{here}/a/b/c/x.py"],
            "./a//./b/*.py": ["a/b/x.py"],
            "a/../*.py": ["a/../x.py"],
            "a/b": ["a/b"],
            "./x.py": ["x.py"],
            "a/b/": ["a/b"],
            ".": ["."],
            "/et[c]": ["/etc"],
        }.items():
            assert await self._paths(sandbox, pattern) == found, pattern

    @case("FS-107", needs=BOTH, area="files")
    async def test_files_glob_follows_no_link(self, sandbox: AsyncSandbox) -> None:
        """Links are found as links, dangling ones too, and followed only before the first
        wildcard.
        """
        await self.sh(sandbox, TREE + LINKED)
        assert await self._paths(sandbox, "*/x.py") == ["a/x.py"]
        assert await self._paths(sandbox, "a/*/c") == ["a/b/c"]
        assert await self._paths(sandbox, "a/*o*/") == []
        assert await self._paths(sandbox, "**/c") == ["a/b/c"]
        assert await self._paths(sandbox, "to-dir/?.py") == [
            *("to-dir/d.py", "to-dir/l.py", "to-dir/x.py"),
        ]
        (link,) = await sandbox.files.glob("a/[l].py")
        assert (link.kind, link.target) == ("link", "x.py")

    @case("FS-108", needs=BOTH, area="files")
    async def test_files_glob_describes_as_stat_does(self, sandbox: AsyncSandbox) -> None:
        """Each entry is what `stat()` says of it."""
        await self.sh(sandbox, f"{TREE}{LINKED}; mkfifo a/p; chmod 600 a/x.py")
        found = await sandbox.files.glob("**")
        assert len(found) > 10
        assert found == [await sandbox.files.stat(info.path) for info in found]

    @case("FS-109", needs=BOTH, area="files")
    async def test_files_glob_of_awkward_names(self, sandbox: AsyncSandbox) -> None:
        """Wildcards match every sign but a slash; a set of one is a sign that means itself."""
        names = ("a\nb", "-rf", "[x]", "*", "?", "back\\slash", "$(touch pwned)", "é", " ", "!")
        for name in names:
            await sandbox.files.write(name, "x")
        await self.sh(sandbox, r""": >"$(printf 'bad\377name')" """)
        assert await self._paths(sandbox, "*") == sorted([*names, "bad\udcffname"])
        for pattern, found in {
            "[*]": ["*"],
            "[?]": ["?"],
            "[[]x]": ["[x]"],
            "a?b": ["a\nb"],
            "-*": ["-rf"],
            "*\\*": ["back\\slash"],
            "[é]": ["é"],
            "[!a-zA-Z*?é -]": ["!"],
            "bad?name": ["bad\udcffname"],
            "$(touch*": ["$(touch pwned)"],
        }.items():
            assert await self._paths(sandbox, pattern) == found, pattern

    @case("FS-110", needs=BOTH, area="files")
    async def test_files_glob_with_the_rights_of_the_user(self, sandbox: AsyncSandbox) -> None:
        """What cannot be read is left out, and is no error."""
        await self.skip_root(sandbox)
        await self.sh(sandbox, f"{TREE}; chmod 0 a/b")
        assert await self._paths(sandbox, "a/**/x.py") == ["a/.h/x.py", "a/x.py"]
        assert await self._paths(sandbox, "a/b/*") == []
        await self.sh(sandbox, "chmod 700 a/b")

    @case("FS-111", needs=FILES, area="files")
    async def test_files_patterns_that_are_none(self, sandbox: AsyncSandbox) -> None:
        """What can be no pattern is refused, `..` behind a wildcard included."""
        glob: Any = sandbox.files.glob
        for bad in ("", "a\0*", None, 7, b"*", "*/../x", "**/.."):
            with pytest.raises(ConfigurationError):
                await glob(bad)

    @case("FS-112", needs=BOTH, area="files")
    async def test_files_ls_all_the_way_down(self, sandbox: AsyncSandbox) -> None:
        """`ls(recursive=True)` lists everything below, sorted by path, each as `stat()` says."""
        await self.sh(sandbox, TREE)
        listed = await sandbox.files.ls(recursive=True)
        assert [info.path for info in listed] == [
            *("a", "a/.h", "a/.h/x.py", "a/.z.py", "a/b", "a/b/c", "a/b/c/x.py", "a/b/x.py"),
            *("a/x.py", "a/y.txt", "x.py"),
        ]
        assert listed == [await sandbox.files.stat(info.path) for info in listed]
        below = [info.path for info in await sandbox.files.ls("./a/b/", recursive=True)]
        assert below == ["./a/b/c", "./a/b/c/x.py", "./a/b/x.py"]

    @case("FS-113", needs=BOTH, area="files")
    async def test_files_ls_follows_no_link_below(self, sandbox: AsyncSandbox) -> None:
        """Links below are listed as links and lead nowhere; one that is itself listed is followed
        as ever.
        """
        await self.sh(sandbox, "mkdir -p d/sub out; echo x >out/f; ln -s ../out d/l; ln -s .. d/up")
        await self.sh(sandbox, "ln -s d to-dir")
        found = {
            info.path: info.target for info in await sandbox.files.ls("to-dir", recursive=True)
        }
        assert found == {"to-dir/l": "../out", "to-dir/sub": None, "to-dir/up": ".."}

    @case("FS-114", needs=BOTH, area="files")
    async def test_files_ls_is_all_or_nothing(self, sandbox: AsyncSandbox) -> None:
        """A part that cannot be read is `PermissionDenied`: no part is taken for the whole."""
        await self.skip_root(sandbox)
        await self.sh(sandbox, f"{TREE}; chmod 0 a/b")
        with pytest.raises(PermissionDenied):
            await sandbox.files.ls("a", recursive=True)
        await self.sh(sandbox, "chmod 700 a/b")

    async def _paths(self, sandbox: AsyncSandbox, pattern: str) -> list[str]:
        return [info.path for info in await sandbox.files.glob(pattern)]
