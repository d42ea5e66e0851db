"""Files: every name a file can have, as data and never as code."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

import pytest

from sandboxio.core.errors import FileSystemError, PathNotFound
from sandboxio.core.models import Capability
from sandboxio.testing.suite._case import case
from sandboxio.testing.suite.fixtures import SuiteFixtures

if TYPE_CHECKING:
    from sandboxio.core.protocols import AsyncSandbox

FILES = Capability.FILESYSTEM
BOTH = Capability.FILESYSTEM | Capability.RUN_COMMAND
AWKWARD = (
    *("a\nb", "end\n", "\n", "tab\t", "quote'\"", "$HOME", "back\\slash", "\\n", "\\101", "%s%d"),
    *(" lead", "trail ", " ", "a b", "~", "#", ";", "&", "|", "a=b", "{a,b}", "ünï", "🎉"),
    *(unicodedata.normalize("NFC", "é"), unicodedata.normalize("NFD", "é")),
    *("-n", "-rf", "--", "-", "--help", "...", ".hidden", "X"),
)
CODE = (
    "a'; touch pwned; '",
    "$(touch pwned)",
    "`touch pwned`",
    '"; touch pwned; "',
    "a\ntouch pwned",
)
PATTERNS = ("*", "?", "[a]", "[!x]*")


def octal(data: bytes) -> str:
    """Return what `printf` makes these bytes of."""
    return "".join(f"\\{byte:03o}" for byte in data)


class FileNames(SuiteFixtures):
    """Cases of `files`, as far as they are about names."""

    @case("FS-065", needs=BOTH, area="files", patience=300)
    async def test_files_awkward_names(self, sandbox: AsyncSandbox) -> None:
        """Every name round trips exactly: write, list, describe, read and remove use that name."""
        files = sandbox.files
        names = {f"d/{name}": name for name in (*AWKWARD, *CODE, *PATTERNS)}
        await files.mkdir("d")
        for path, name in names.items():
            await files.write(path, name)
        assert [info.path for info in await files.ls("d")] == sorted(names)
        for path, name in names.items():
            assert (await files.stat(path)).size == len(name.encode())
            assert (await sandbox.run(["cat", path])).stdout == name
            assert await files.read(path) == name.encode()
            await files.remove(path)
        assert await files.ls("d") == []

    @case("FS-066", needs=BOTH, area="files", patience=300)
    async def test_files_awkward_relative_names(self, sandbox: AsyncSandbox) -> None:
        """A name alone is a path as well: a leading dash is no option, a tilde no home."""
        for name in ("-n", "-rf", "--", "-", "--help", "~", "a b", "$HOME", "*", "\\n", "%s", " "):
            await sandbox.files.write(name, name)
            assert (await sandbox.run(["cat", f"./{name}"])).stdout == name
            assert await sandbox.files.read(name) == name.encode()
            assert [info.path for info in await sandbox.files.ls()] == [name]
            await sandbox.files.remove(name)
            await sandbox.files.mkdir(name)
            assert await sandbox.files.ls(name) == []
            await sandbox.files.remove(name, recursive=True)
        assert await sandbox.files.ls() == []

    @case("FS-067", needs=BOTH, area="files")
    async def test_files_names_are_the_bytes_given(self, sandbox: AsyncSandbox) -> None:
        """A name is stored as UTF-8: a command that spells its bytes finds it, and the reverse."""
        for name in ("ünï", "🎉 '\"\\x", "e\u0301", "\u00e9"):
            await sandbox.files.write(f"{name}.x", name)
            spelled = octal(f"{name}.x".encode())
            assert await self.sh(sandbox, f"cat \"$(printf '{spelled}')\"") == name
            await self.sh(sandbox, f"echo theirs >\"$(printf '{spelled}')\"")
            assert await sandbox.files.read(f"{name}.x") == b"theirs\n"

    @case("FS-068", needs=BOTH, area="files")
    async def test_files_names_are_never_code(self, sandbox: AsyncSandbox) -> None:
        """No operation lets a shell read a path: what it spells is not carried out."""
        files = sandbox.files
        for name in CODE:
            await files.write(name, "x")
            await files.mkdir(f"{name}d")
            assert await files.ls(f"{name}d") == []
            assert len(await files.ls()) == 2
            await files.stat(name)
            await files.exists(name)
            await files.read(name)
            await files.remove(name)
            await files.remove(f"{name}d", recursive=True)
            with pytest.raises(PathNotFound):
                await files.read(name)
            assert (
                await self.sh(
                    sandbox, "for f in * /pwned /tmp/pwned; do [ -e $f ] && echo $f; done; exit 0"
                )
                == ""
            )

    @case("FS-069", needs=BOTH, area="files")
    async def test_files_names_are_no_patterns(self, sandbox: AsyncSandbox) -> None:
        """A name that looks like a pattern means itself, and touches no file that it matches."""
        await self.sh(sandbox, "echo 1 >a; echo 2 >b; mkdir d; echo 3 >d/a")
        for name in PATTERNS:
            for path in (name, f"d/{name}"):
                for act in (sandbox.files.read, sandbox.files.stat, sandbox.files.remove):
                    with pytest.raises(PathNotFound):
                        await act(path)
                await sandbox.files.write(path, "pattern")
                await sandbox.files.remove(path, recursive=True)
        assert await self.sh(sandbox, "cat a b d/a") == "1\n2\n3\n"

    @case("FS-070", needs=BOTH, area="files")
    async def test_files_two_forms_of_one_letter(self, sandbox: AsyncSandbox) -> None:
        """Composed and decomposed letters are different names; neither is made into the other."""
        composed, decomposed = (unicodedata.normalize(form, "é") for form in ("NFC", "NFD"))
        await sandbox.files.write(composed, "one")
        assert not await sandbox.files.exists(decomposed)
        await sandbox.files.write(decomposed, "two")
        assert await sandbox.files.read(composed) == b"one"
        listed = [info.path for info in await sandbox.files.ls()]
        assert listed == sorted([composed, decomposed])

    @case("FS-071", needs=BOTH, area="files")
    async def test_files_a_name_that_is_not_utf8(self, sandbox: AsyncSandbox) -> None:
        """Bytes that are not UTF-8 are listed as surrogate escapes, which every operation takes."""
        await self.sh(sandbox, r"""printf made >"$(printf 'bad\377\351name')" """)
        (found,) = await sandbox.files.ls()
        assert found.path == "bad\udcff\udce9name"
        assert await sandbox.files.read(found.path) == b"made"
        assert (await sandbox.files.stat(found.path)).size == 4
        await sandbox.files.write(found.path, "by api")
        assert await self.sh(sandbox, "cat bad*; set -- *; echo $#") == "by api1\n"
        await sandbox.files.remove(found.path)
        assert await sandbox.files.ls() == []

    @case("FS-072", needs=BOTH, area="files")
    async def test_files_a_link_to_a_name_that_is_not_utf8(self, sandbox: AsyncSandbox) -> None:
        """The same holds for where a link points, line ends included."""
        await self.sh(sandbox, r"""ln -s "$(printf 'bad\377\nname')" link""")
        assert (await sandbox.files.stat("link")).target == "bad\udcff\nname"
        assert [info.target for info in await sandbox.files.ls()] == ["bad\udcff\nname"]

    @case("FS-073", needs=BOTH, area="files")
    async def test_files_the_longest_name(self, sandbox: AsyncSandbox) -> None:
        """255 bytes are a name, counted in bytes; one more is a `FileSystemError`."""
        for longest in ("n" * 255, "é" * 127 + "n"):
            await sandbox.files.write(longest, "long")
            assert [info.path for info in await sandbox.files.ls()] == [longest]
            assert (await sandbox.run(["cat", longest])).stdout == "long"
            await sandbox.files.remove(longest)
            with pytest.raises(FileSystemError):
                await sandbox.files.write(f"{longest}x", "x")
            with pytest.raises(FileSystemError):
                await sandbox.files.read(f"{longest}x")
        assert await sandbox.files.ls() == []

    @case("FS-074", needs=BOTH, area="files")
    async def test_files_a_deep_path(self, sandbox: AsyncSandbox) -> None:
        """A path of 3,000 bytes through many directories is a path like any other."""
        deep = "/".join(["d" * 99] * 30)
        await sandbox.files.mkdir(deep, parents=True)
        await sandbox.files.write(f"{deep}/f", "deep")
        assert (await sandbox.run(["cat", f"{deep}/f"])).stdout == "deep"
        assert [info.path for info in await sandbox.files.ls(deep)] == [f"{deep}/f"]
        await sandbox.files.remove("d" * 99, recursive=True)
        assert await self.sh(sandbox, "echo *") == "*\n"
