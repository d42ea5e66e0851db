"""`files.upload()` and `files.download()`: one file, whole, exactly where it was asked for."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from sandboxio.core.errors import (
    CapabilityNotSupported,
    ConfigurationError,
    FileSystemError,
    IsADirectory,
    PathNotFound,
    PermissionDenied,
)
from sandboxio.core.models import Capability
from sandboxio.testing.suite._case import case
from sandboxio.testing.suite._files_names import octal
from sandboxio.testing.suite._files_tree import SOON
from sandboxio.testing.suite._transfer_download import LARGE, Downloads, host_umask, names
from sandboxio.testing.suite._transfer_trees import Trees
from sandboxio.testing.suite.files import EVERY_BYTE, LINES, numbered_lines

if TYPE_CHECKING:
    from sandboxio.core.protocols import AsyncSandbox

TRANSFER = Capability.UPLOAD_DOWNLOAD
BOTH = Capability.UPLOAD_DOWNLOAD | Capability.RUN_COMMAND


class TransferSuite(Downloads, Trees):
    """Cases of `upload()` and of both ways; those of `download()` and of trees are inherited."""

    @case("XFER-001", needs=BOTH)
    async def test_transfer_upload_is_exact(self, sandbox: AsyncSandbox, tmp_path: Path) -> None:
        """What is uploaded arrives unchanged, each of the 256 byte values in its place."""
        (tmp_path / "local").write_bytes(EVERY_BYTE)
        await sandbox.files.upload(tmp_path / "local", "bytes")
        script = (
            "wc -c <bytes; head -c 1 bytes | tr -d '\\000' | wc -c; "
            f"""[ "$(tail -c 255 bytes)" = "$(printf '{octal(EVERY_BYTE[1:])}')" ]"""
        )
        assert (await self.sh(sandbox, script)).split() == ["256", "0"]

    @case("XFER-002", needs=BOTH)
    async def test_transfer_empty_files(self, sandbox: AsyncSandbox, tmp_path: Path) -> None:
        """An empty file is transferred as an empty file, in both directions."""
        (tmp_path / "local").touch()
        await sandbox.files.upload(tmp_path / "local", "ours")
        await self.sh(sandbox, "[ -f ours ] && [ ! -s ours ]; : >theirs")
        await sandbox.files.download("theirs", tmp_path / "back")
        assert (tmp_path / "back").read_bytes() == b""

    @case("XFER-003", needs=BOTH)
    async def test_transfer_large_files(self, sandbox: AsyncSandbox, tmp_path: Path) -> None:
        """Files of 5 MB are transferred whole and in order, in both directions."""
        data = numbered_lines()
        (tmp_path / "local").write_bytes(data)
        await sandbox.files.upload(tmp_path / "local", "large")
        same = f'[ "$(cat large)" = "$(seq {LINES})" ]'
        assert (await self.sh(sandbox, f"{same} && wc -c <large")).split() == [str(len(data))]
        await self.sh(sandbox, f"seq {LINES} >theirs")
        await sandbox.files.download("theirs", tmp_path / "back")
        assert (tmp_path / "back").read_bytes() == data

    @case("XFER-004", needs=BOTH)
    async def test_transfer_local_paths(
        self, sandbox: AsyncSandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """`local` is text or a `Path`, and relative to the host's working directory."""
        monkeypatch.chdir(tmp_path)
        (tmp_path / "local").write_text("text")
        ways: tuple[str | Path, ...] = (
            str(tmp_path / "local"),
            tmp_path / "local",
            "local",
            Path("local"),
        )
        for i, local in enumerate(ways):
            await sandbox.files.upload(local, f"f{i}")
        assert await self.sh(sandbox, "cat f0 f1 f2 f3") == "text" * 4
        targets: tuple[str | Path, ...] = (str(tmp_path / "b0"), tmp_path / "b1", "b2", Path("b3"))
        for i, target in enumerate(targets):
            await sandbox.files.download(f"f{i}", target)
            assert (tmp_path / f"b{i}").read_text() == "text"

    @case("XFER-005", needs=BOTH)
    async def test_transfer_remote_paths(self, sandbox: AsyncSandbox, tmp_path: Path) -> None:
        """`remote` is a path as other operations take it; the name at `local` is not made of it."""
        here = (await self.sh(sandbox, "mkdir d; pwd")).strip()
        (tmp_path / "local").write_text("text")
        await sandbox.files.upload(tmp_path / "local", "d/../d/rel")
        await sandbox.files.upload(tmp_path / "local", f"{here}/d/abs")
        assert await self.sh(sandbox, "cat d/rel d/abs") == "texttext"
        await sandbox.files.download(f"{here}/d/../d/rel", tmp_path / "back")
        assert names(tmp_path) == ["back", "local"]

    @case("XFER-006", needs=BOTH)
    async def test_transfer_awkward_names(self, sandbox: AsyncSandbox, tmp_path: Path) -> None:
        """Names are data on both sides: quotes, dashes, line ends, patterns and letters."""
        for name in ("-rf", "$(touch pwned)", "a'; touch pwned; '", "*", "a\nb", " ü ", "%s\\n"):
            (tmp_path / name).write_text(name)
            await sandbox.files.upload(tmp_path / name, name)
            assert (await sandbox.run(["cat", f"./{name}"])).stdout == name
            await sandbox.files.download(name, tmp_path / f"{name} back")
            assert (tmp_path / f"{name} back").read_text() == name
            await sandbox.files.remove(name)
        assert await self.sh(sandbox, "echo *") == "*\n"

    @case("XFER-007", needs=BOTH)
    async def test_transfer_the_mode_of_an_upload(
        self, sandbox: AsyncSandbox, tmp_path: Path
    ) -> None:
        """The mode inside is the local one, at least 0644 and at most 0755, for a new file or old.

        The umask of the host plays no part.
        """
        modes = {0o600: 0o644, 0o755: 0o755, 0o777: 0o755, 0o666: 0o644, 0o700: 0o744}
        modes |= {0o400: 0o644, 0o6755: 0o755, 0o664: 0o644, 0o1644: 0o644}
        local = tmp_path / "local"
        local.write_text("#!/bin/sh\necho ran\n")
        for mode, expected in modes.items():
            local.chmod(mode)
            with host_umask(0o077):
                await sandbox.files.upload(local, f"new-{mode}")
                await sandbox.files.upload(local, "same")
            shown = await self.sh(sandbox, f"stat -c %a new-{mode} same; cat same >/dev/null")
            assert shown == f"{expected:o}\n" * 2, oct(mode)
        assert await self.sh(sandbox, f"./new-{0o755}") == "ran\n"

    @case("XFER-008", needs=BOTH)
    async def test_transfer_the_owner_of_an_upload(
        self, sandbox: AsyncSandbox, tmp_path: Path
    ) -> None:
        """An uploaded file belongs to the user of commands, who can change and remove it."""
        (tmp_path / "local").write_text("some")
        await sandbox.files.upload(tmp_path / "local", "f")
        owners = await self.sh(sandbox, "stat -c %u:%g f; echo $(id -u):$(id -g)")
        assert len(set(owners.split())) == 1
        assert await self.sh(sandbox, "echo more >>f && cat f && rm f") == "somemore\n"

    @case("XFER-009", needs=BOTH)
    async def test_transfer_the_time_of_an_upload(
        self, sandbox: AsyncSandbox, tmp_path: Path
    ) -> None:
        """An uploaded file is dated by the sandbox's clock, and so never before 1980."""
        (tmp_path / "local").write_text("x")
        os.utime(tmp_path / "local", (0, 0))
        await sandbox.files.upload(tmp_path / "local", "f")
        inside, now = (await self.sh(sandbox, "stat -c %Y f; date +%s")).split()
        assert abs(int(now) - int(inside)) < 300

    @case("XFER-010", needs=BOTH)
    async def test_transfer_upload_over_a_file(self, sandbox: AsyncSandbox, tmp_path: Path) -> None:
        """An upload replaces the content of a file, all of it, and follows a link to one."""
        await self.sh(sandbox, "echo much longer than what comes >f; ln -s f link")
        (tmp_path / "local").write_text("short")
        await sandbox.files.upload(tmp_path / "local", "f")
        assert await self.sh(sandbox, "cat f") == "short"
        (tmp_path / "local").write_text("through the link")
        await sandbox.files.upload(tmp_path / "local", "link")
        assert await self.sh(sandbox, "cat f; readlink link") == "through the linkf\n"

    @case("XFER-011", needs=BOTH)
    async def test_transfer_upload_of_a_link(self, sandbox: AsyncSandbox, tmp_path: Path) -> None:
        """A link on the host is uploaded as the file it leads to."""
        (tmp_path / "local").write_text("content")
        (tmp_path / "link").symlink_to("local")
        await sandbox.files.upload(tmp_path / "link", "f")
        assert await self.sh(sandbox, "[ ! -L f ] && cat f") == "content"

    @case("XFER-012", needs=BOTH)
    async def test_transfer_upload_of_what_is_no_file(
        self, sandbox: AsyncSandbox, tmp_path: Path
    ) -> None:
        """What is no regular file of the host is refused, soon, and nothing is made inside."""
        os.mkfifo(tmp_path / "pipe")
        (tmp_path / "dangling").symlink_to("none")
        (tmp_path / "loop").symlink_to("loop")
        started = self.clock.time()
        for name in ("none", "none/x", "pipe", "dangling", "loop", ""):
            with pytest.raises(ConfigurationError) as caught:
                await sandbox.files.upload(tmp_path / name, "f")
            assert caught.value.outcome == "not_started"
        assert self.clock.time() - started < SOON
        assert await self.sh(sandbox, "echo *") == "*\n"

    @case("XFER-013", needs=BOTH)
    async def test_transfer_upload_where_no_file_can_be(
        self, sandbox: AsyncSandbox, tmp_path: Path
    ) -> None:
        """A missing directory is `PathNotFound`, a directory `IsADirectory`; nothing is made."""
        await self.sh(sandbox, "mkdir d; mkfifo pipe; ln -s loop loop")
        for size in (1, 3_000_000):
            (tmp_path / "local").write_bytes(b"x" * size)
            with pytest.raises(PathNotFound):
                await sandbox.files.upload(tmp_path / "local", "none/x")
            with pytest.raises(IsADirectory):
                await sandbox.files.upload(tmp_path / "local", "d")
            for path in ("pipe", "loop", "/dev/null"):
                with pytest.raises(FileSystemError):
                    await sandbox.files.upload(tmp_path / "local", path)
        assert await self.sh(sandbox, "echo * d/*; readlink loop") == "d loop pipe d/*\nloop\n"

    @case("XFER-014", needs=BOTH)
    async def test_transfer_transfers_have_the_rights_of_the_user(
        self, sandbox: AsyncSandbox, tmp_path: Path
    ) -> None:
        """What the sandbox's user may not read or write is `PermissionDenied`."""
        if await self.sh(sandbox, "id -u") == "0\n":
            pytest.skip(reason="the user of this sandbox is root")
        await self.sh(sandbox, "echo x >f; chmod 0 f")
        (tmp_path / "local").write_text("x")
        for path in ("/etc/x", "/etc/passwd", "f"):
            with pytest.raises(PermissionDenied):
                await sandbox.files.upload(tmp_path / "local", path)
        with pytest.raises(PermissionDenied):
            await sandbox.files.download("f", tmp_path / "back")
        assert names(tmp_path) == ["local"]

    @case("XFER-015", needs=BOTH)
    async def test_transfer_paths_that_are_none(
        self, sandbox: AsyncSandbox, tmp_path: Path
    ) -> None:
        """What can be no path, here or there, is refused before anything is done."""
        await self.sh(sandbox, "echo x >f")
        local = tmp_path / "local"
        local.write_text("x")
        upload: Any = sandbox.files.upload
        download: Any = sandbox.files.download
        for bad in ("", "a\0b", None, 7, b"bytes"):
            with pytest.raises(ConfigurationError):
                await upload(local, bad)
            with pytest.raises(ConfigurationError):
                await upload(bad, "g")
            with pytest.raises(ConfigurationError):
                await download(bad, tmp_path / "back")
            with pytest.raises(ConfigurationError):
                await download("f", bad)
        assert names(tmp_path) == ["local"]
        assert await self.sh(sandbox, "echo *") == "f\n"

    @case("XFER-016", needs=BOTH)
    async def test_transfer_transfers_at_the_same_time(
        self, sandbox: AsyncSandbox, tmp_path: Path
    ) -> None:
        """Transfers that run at the same time do not mix."""

        async def there_and_back(name: str) -> None:
            (tmp_path / name).write_text(name * 40_000)
            await sandbox.files.upload(tmp_path / name, name)
            await sandbox.files.download(name, tmp_path / f"{name} back")

        asked = [f"file{i}" for i in range(6)]
        async with anyio.create_task_group() as tasks:
            for name in asked:
                tasks.start_soon(there_and_back, name)
        for name in asked:
            assert (tmp_path / f"{name} back").read_text() == name * 40_000
        assert len(names(tmp_path)) == 2 * len(asked)

    @case("XFER-017", needs=BOTH)
    async def test_transfer_an_upload_cancelled_on_its_way(
        self, sandbox: AsyncSandbox, tmp_path: Path
    ) -> None:
        """An upload that is cancelled leaves nothing that passes for the whole file."""
        with (tmp_path / "local").open("wb") as file:
            file.truncate(LARGE)
        with self.clock.limit(self.clock.time() + 0.3) as scope:
            await sandbox.files.upload(tmp_path / "local", "large")
        sizes = await self.sh(sandbox, "for f in * .[!.]*; do [ -e $f ] && wc -c <$f; done; :")
        assert sizes.split() == ([] if scope.cancelled_caught else [str(LARGE)])
        await sandbox.files.upload(tmp_path / "local", "large")
        assert (await self.sh(sandbox, "wc -c <large")).split() == [str(LARGE)]

    @case("XFER-018", lacks=TRANSFER)
    async def test_transfer_without_transfers(self, sandbox: AsyncSandbox, tmp_path: Path) -> None:
        """A sandbox without transfers says so; nothing is read, and nothing written at `local`."""
        (tmp_path / "local").write_text("x")
        with pytest.raises(CapabilityNotSupported) as caught:
            await sandbox.files.upload(tmp_path / "local", "f")
        assert caught.value.outcome == "not_started"
        with pytest.raises(CapabilityNotSupported):
            await sandbox.files.download("f", tmp_path / "back")
        assert names(tmp_path) == ["local"]
