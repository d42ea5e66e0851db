"""The public ports: what users hold, and what a third party may implement.

Structural, so that an implementation needs no base class. Type checking is necessary and not
sufficient: the contract suite is what proves an implementation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, AsyncIterator, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from sandboxio.core.models import (
        Capability,
        ExecResult,
        FileInfo,
        ManagedSandbox,
        Metrics,
        NetworkPolicy,
        OutputChunk,
        Resources,
        TreeTransfer,
    )
    from sandboxio.core.tiers import IsolationTier


@runtime_checkable
class Process(Protocol):
    """A command started by `stream()`; starts on `async with`, ends at its exit.

    Iterate to receive output as it is written. Order is kept within stdout and within stderr,
    not between them. A full reader is waited for: output is never dropped.

    Example:
        async with sb.stream(["pytest", "-q"], timeout=300) as proc:
            async for chunk in proc:
                log.write(chunk.data)
            result = await proc.wait()
    """

    async def __aenter__(self) -> Self: ...
    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        """End the command if it still runs, whatever the reason for leaving."""
        ...

    def __aiter__(self) -> AsyncIterator[OutputChunk]:
        """Yield output; raises `ExecutionTimeout` at the deadline, `SandboxGone`, `LinkLost`."""
        ...

    async def write(self, data: bytes | str) -> None:
        """Send bytes (text as UTF-8) to stdin; needs `stream(stdin=True)`.

        Waits for a slow reader. What a command that ends has not read is lost, silently.
        """
        ...

    async def close_stdin(self) -> None:
        """Let the command read end of file."""
        ...

    async def wait(self) -> ExecResult:
        """Return the end of the command, discarding output not yet read.

        May be called again. Texts are empty and `streamed` is True. While another task iterates
        nothing is taken from it: this waits for the end that it finds. After `kill()` the exit
        code is 137.

        Raises:
            ExecutionTimeout: the time was over, reading included.
            SandboxGone, LinkLost: as `run()`.
        """
        ...

    async def kill(self) -> None:
        """End the command and every process it started; silent when it has ended.

        What cannot be ended for certain within the teardown grace (`SBX_TEARDOWN_GRACE`,
        5 seconds) takes the sandbox with it.
        """
        ...

    @property
    def returncode(self) -> int | None:
        """Exit code, or `None` while the command runs."""
        ...


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


@runtime_checkable
class AsyncSandbox(Protocol):
    """A live sandbox. Leave its `async with` block and it is gone.

    Example:
        async with await sandboxio.create() as sb:
            print((await sb.run(["id", "-un"])).stdout)
    """

    @property
    def id(self) -> str:
        """Unique within its backend."""
        ...

    @property
    def capabilities(self) -> Capability:
        """What this sandbox can do."""
        ...

    @property
    def isolation(self) -> IsolationTier:
        """The verified tier of this sandbox."""
        ...

    @property
    def files(self) -> AsyncFileSystem:
        """Its file system; where there is none, every use raises `CapabilityNotSupported`."""
        ...

    @property
    def native(self) -> object:
        """The provider's own object, outside the stability contract."""
        ...

    async def run(
        self,
        cmd: str | Sequence[str],
        *,
        timeout: float | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        user: str | None = None,
        stdin: bytes | str | None = None,
        max_output_bytes: int | None = None,
    ) -> ExecResult:
        """Run a command to its end.

        A list reaches the program untouched; a string is read by one `sh -c`. stdin is at end of
        file unless given. `timeout` is in seconds, `None` inherits the sandbox's. `user` is a
        name, `"uid"` or `"uid:gid"` of the sandbox; `None` is its own user. Output beyond
        `max_output_bytes` per stream (`None`: 10 MiB) loses its middle and is marked so.

        Raises:
            ExecutionTimeout: the time was over; the command and all it started were ended.
            SandboxGone: the sandbox no longer exists.
            LinkLost: the connection broke; whether the command ended is unknown.
            ConfigurationError, CapabilityNotSupported: refused, nothing was run.
        """
        ...

    async def run_code(
        self,
        code: str,
        *,
        language: str = "python",
        context_id: str | None = None,
        timeout: float | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        max_output_bytes: int | None = None,
    ) -> ExecResult:
        """Run source code in a fresh interpreter; errors as `run()`.

        The code is in no argument list and no file. `context_id` keeps state between calls and
        needs `Capability.STATEFUL_CODE`.
        """
        ...

    def stream(
        self,
        cmd: str | Sequence[str],
        *,
        timeout: float | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        user: str | None = None,
        stdin: bool = False,
    ) -> Process:
        """Return a command to be started by `async with`; nothing to await here.

        Arguments as `run()`. `timeout` bounds the whole of it, the reader's own time included.
        `stdin=True` keeps stdin open for `write()`; otherwise it is at end of file.

        Raises:
            CapabilityNotSupported, ConfigurationError: refused, at once.
        """
        ...

    async def metrics(self) -> Metrics:
        """Say what the sandbox uses now: CPU time, memory, processes.

        Example:
            used = await sb.metrics()
            print(f"{used.cpu_seconds:.1f} s, {used.memory_bytes / 2**20:.0f} MiB")

        Raises:
            CapabilityNotSupported: this sandbox has nobody who could tell.
            SandboxGone, LinkLost: as `run()`.
            ExecutionTimeout: there was no answer within the sandbox's timeout.
        """
        ...

    async def kill(self) -> None:
        """Remove the sandbox and all in it. Silent when it is gone; safe to call again.

        Bounded by the teardown grace (`SBX_TEARDOWN_GRACE`, 5 seconds): beyond it,
        `OrphanedSandboxWarning` names the sandbox, whose lifetime still bounds it.

        Raises:
            ConnectError: the engine refused, or did not answer.
        """
        ...

    async def __aenter__(self) -> Self: ...
    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None: ...


@runtime_checkable
class Backend(Protocol):
    """A source of sandboxes.

    Example:
        sandboxio.register("mine", lambda: MyBackend())
        sb = await sandboxio.create("mine://")
    """

    name: str
    capabilities: Capability
    isolation: IsolationTier

    async def create(
        self,
        *,
        template: str | None = None,
        resources: Resources = ...,
        network: NetworkPolicy = ...,
        env: Mapping[str, str] | None = None,
        secrets: Mapping[str, str] | None = None,
        timeout: float = ...,
        metadata: Mapping[str, str] | None = None,
        user: str | None = None,
    ) -> AsyncSandbox:
        """Provision a sandbox, ready for use and under its policy, or raise.

        Arguments and errors as `sandboxio.create()`: `timeout` is in seconds and bounds both
        the creation and the sandbox's life; `template=None` is the backend's own default. Whatever
        cannot be honoured is refused before anything is made; when it raises, nothing is left.
        """
        ...

    async def connect(self, sandbox_id: str) -> AsyncSandbox:
        """Return a handle on a running sandbox; leaving its `async with` block removes it.

        Raises:
            ConnectError: no running sandbox has that id, or the backend did not answer within
                30 seconds; none is ever created.
        """
        ...


@runtime_checkable
class ReapableBackend(Backend, Protocol):
    """A backend that can find and remove the sandboxes it made.

    Example:
        for found in await backend.list_managed(labels={"tenant_id": "t1"}):
            await backend.kill_managed(found.sandbox_id)
    """

    async def list_managed(
        self, *, labels: Mapping[str, str] | None = None
    ) -> list[ManagedSandbox]:
        """List our sandboxes, ended ones included; `labels` narrows by metadata.

        Raises:
            ConnectError: the backend did not answer within 30 seconds.
        """
        ...

    async def kill_managed(self, sandbox_id: str) -> bool:
        """Remove one of ours; False when it is gone already, or is not ours.

        Raises:
            ConnectError: the backend refused, or did not answer within 30 seconds.
        """
        ...
