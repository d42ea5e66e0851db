"""The public ports of files: what users hold, and what a third party may implement."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, AsyncIterator, Sequence
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from sandboxio.core.models import FileInfo, TreeTransfer


@runtime_checkable
class FileReader(Protocol):
    """A file opened by `open_read()`; it is read while its `async with` block lasts.

    Example:
        async with sb.files.open_read("big.log") as chunks:
            async for chunk in chunks:
                digest.update(chunk)

    Chunks are never empty and have no certain size. Nothing is read ahead of the reader but the
    chunk to come and what the connection holds.
    """

    async def __aenter__(self) -> Self:
        """Open the file; raises what `read()` would."""
        ...

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        """End the reading, wherever it is."""
        ...

    def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield chunks; raises `ExecutionTimeout` at the deadline, `SandboxGone`, `LinkLost`."""
        ...


@runtime_checkable
class AsyncFileSystem(Protocol):
    """Files inside one sandbox, with the rights of its user.

    Example:
        await sb.files.write("notes.txt", "hello")
        assert await sb.files.read("notes.txt") == b"hello"

    Paths are POSIX and belong to the sandbox; relative ones start at the working directory that
    commands have. Every operation raises `PathNotFound`, `PermissionDenied` or another
    `FileSystemError`, `SandboxGone`, and `ExecutionTimeout` at the sandbox's timeout.
    """

    async def read(self, path: str, *, offset: int = 0, length: int | None = None) -> bytes:
        """Return the bytes of a file, following links.

        `length=None` reads to the end. At most 256 MiB are returned at once; a longer file
        raises `FileSystemError`: use `download()` or ranges.
        """
        ...

    async def write(self, path: str, data: bytes | str, *, mode: int | None = None) -> None:
        """Write a file, text as UTF-8; a link is followed, an existing file keeps its mode.

        `mode=None` gives a new file 0644. The directory must exist. A new file appears whole or
        not at all; one that exists is overwritten in place, and an interruption or a full disk
        can leave it half written.
        """
        ...

    async def write_from(
        self,
        path: str,
        chunks: AsyncIterable[bytes],
        *,
        size: int | None = None,
        mode: int | None = None,
    ) -> None:
        """Write what an async iterable gives, as `write()` writes; at no time all in memory.

        `size` is what the chunks come to, in bytes: it saves time, and a difference raises
        `FileSystemError`; `None` writes to their end. What raises in `chunks` comes out as it
        is, and leaves no new file and an existing one as it was. A generator is closed in the
        end. The time that the chunks take counts.

        Example:
            async with client.stream("GET", url) as response:
                await sb.files.write_from("data.bin", response.aiter_bytes())
        """
        ...

    def open_read(self, path: str, *, offset: int = 0, length: int | None = None) -> FileReader:
        """Return a file to be read in chunks by `async with`; nothing to await here.

        Ranges as `read()`, without its limit of size. The sandbox's timeout bounds the whole of
        it, the reader's own time included. Leaving the block early ends the reading.

        Raises:
            CapabilityNotSupported, ConfigurationError: refused, at once.
        """
        ...

    async def stat(self, path: str) -> FileInfo:
        """Describe one entry; a link is described itself."""
        ...

    async def exists(self, path: str) -> bool:
        """Say whether the path leads to something; False for a dangling link."""
        ...

    async def ls(self, path: str = ".", *, recursive: bool = False) -> list[FileInfo]:
        """List a directory, hidden entries included, sorted by path.

        Each `FileInfo.path` begins with `path` as given (with nothing for `"."`), so that it can
        be passed on as it is. `recursive=True` lists all that is below it; no link is followed
        there, and a directory that cannot be read raises `PermissionDenied`.
        """
        ...

    async def glob(self, pattern: str) -> list[FileInfo]:
        """Find what a pattern matches, sorted by path; an empty list where nothing does.

        `*`, `?` and `[...]` match within one name, leading dots included, and `[!...]` what is
        not in the set. `**` as a whole component is any number of directories, none included, and
        everything below at the end of a pattern. There is no escape but a set of one: `[*]`. A
        trailing slash asks for directories. Below the first wildcard no link is followed, and
        what cannot be read is left out. Paths begin as the pattern does, without `.` and doubled
        slashes.

        Example:
            tests = await sb.files.glob("tests/**/test_*.py")

        Raises:
            ConfigurationError: `..` stands behind a wildcard.
        """
        ...

    async def mkdir(self, path: str, *, parents: bool = False) -> None:
        """Make a directory; `parents=True` makes those above and accepts an existing one."""
        ...

    async def remove(self, path: str, *, recursive: bool = False) -> None:
        """Remove a file, link or empty directory; `recursive=True` removes a whole tree."""
        ...

    async def move(self, source: str, target: str) -> None:
        """Give a file, link or directory another path; a link is moved itself.

        A file or link at `target` is replaced, at once, by anything but a directory. `target` is
        the new path, never a directory to put it in, and the directory above it must exist.
        Between file systems the copy is complete before the target is replaced.

        Example:
            await sb.files.move("report.tmp", "report.txt")

        Raises:
            PathNotFound: there is no `source`, or no directory above `target`.
            PathExists: `source` and `target` are directories.
            IsADirectory: `target` is a directory, and `source` is not.
            NotADirectory: `source` is a directory, and something else is at `target`.
            FileSystemError: a directory would go into itself.
        """
        ...

    async def copy(self, source: str, target: str) -> None:
        """Copy a file, link or directory with all in it; links are copied as links.

        Modes and times are kept, owners where the user may. The copy appears at `target` when it
        is complete, and on failure not at all. `target` and errors as `move()`.

        Example:
            await sb.files.copy("project", "project.orig")
        """
        ...

    async def chmod(self, path: str, mode: int) -> None:
        """Set the permission bits, between 0 and 0o777, of a file or directory.

        A link is followed. Only the owner may: anyone else gets `PermissionDenied`.

        Example:
            await sb.files.chmod("run.sh", 0o755)
        """
        ...

    async def edit(
        self, path: str, old: bytes | str, new: bytes | str, *, count: int | None = 1
    ) -> int:
        """Replace `old` by `new` in a file, text as UTF-8, and return how often.

        `old` must occur exactly `count` times, which are counted without overlaps; `None` is any
        number above 0. The file stays the same file, with its mode, and is written as `write()`
        writes. It may hold 64 MiB. What others write to it at the same time can be lost.

        Example:
            await sb.files.edit("settings.ini", "debug = true", "debug = false")

        Raises:
            FileSystemError: `old` occurs another number of times, which it tells; nothing was
                changed.
        """
        ...

    async def upload(self, local: str | Path, remote: str) -> None:
        """Copy one file of the host into the sandbox.

        Its mode there is the local one, at least 0644 and at most 0755.
        """
        ...

    async def download(self, remote: str, local: str | Path) -> None:
        """Copy one regular file out to exactly `local`, replacing a file or link there.

        Its mode is the one inside, at most 0755, and writable by its owner. At most 16 GiB.
        On failure nothing is left at `local`.
        """
        ...

    async def upload_dir(
        self,
        local: str | Path,
        remote: str,
        *,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
    ) -> TreeTransfer:
        """Copy what is in a directory of the host into a directory of the sandbox.

        `remote` is made if it is missing, parents too; what is there already stays, and files of
        the same name are replaced as by `upload()`. Links are not followed and not copied: they
        are in `skipped`. `include` and `exclude` are patterns as of `glob()`, of paths below
        `local`; a directory that matches stands for all that is in it. Without `include`
        everything is wanted; what is excluded is not even looked into. At most 100,000 entries.
        Each file appears whole; on failure those before it stay.

        Example:
            await sb.files.upload_dir("src", "work/src", exclude=("**/__pycache__",))
        """
        ...

    async def download_dir(
        self,
        remote: str,
        local: str | Path,
        *,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
    ) -> TreeTransfer:
        """Copy what is in a directory of the sandbox into a directory of the host.

        `local` is made if it is missing, parents too. Nothing is written but directories and
        regular files below it, with modes as of `download()`: links are in `skipped`, a link of
        the host on the way is refused, and so is a name that no file of this host can have, or
        two that it takes for one. `include` and `exclude` are as of `upload_dir()`. At most
        16 GiB together. Each file appears whole; on failure those before it stay.

        Example:
            await sb.files.download_dir("results", "out", include=("**/*.csv",))
        """
        ...
