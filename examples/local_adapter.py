"""A whole adapter in one file: temporary directories and processes of this host, on Linux.

It isolates nothing. What it runs has your rights, your network and your files, so that it is
something to read and to copy from, and no place for code that you do not trust. It says so
itself: its tier is NONE, and as it can enforce no network policy it declares none, so that core
refuses every `create()` but one with `network=NetworkPolicy(egress="allow")`.

Read it from the end: `LocalBackend`, the driver, its sandboxes, their files, one call, its keeper.
"""

from __future__ import annotations

import errno
import json
import os
import pwd
import re
import secrets
import select
import shutil
import signal
import stat
import sys
import tempfile
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, TypeVar

import anyio
import anyio.lowlevel
import anyio.to_thread

from sandboxio.core import errors
from sandboxio.core.backend import DriverBackend
from sandboxio.core.driver import ExitStatus, KillReport
from sandboxio.core.lifecycle import undone_on_failure
from sandboxio.core.models import Capability, FileInfo, ManagedSandbox, OutputChunk, Resources
from sandboxio.core.tiers import IsolationTier
from sandboxio.guest import code

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Awaitable, Callable, Mapping

    from sandboxio.core.models import FileKind, StreamName
    from sandboxio.core.requests import CodeRequest, CreateRequest, ExecRequest

T = TypeVar("T")

CAPABILITIES = (
    Capability.RUN_COMMAND
    | Capability.RUN_CODE
    | Capability.STREAMING
    | Capability.STDIN
    | Capability.FILESYSTEM
    | Capability.UPLOAD_DOWNLOAD
)
PATH = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"
PIECE = 64 * 1024
SILENCE, LAST_SECONDS = 0.1, 2.0
"""How long output may pause, and go on, once its command has ended."""
ERRORS: tuple[tuple[type[OSError], type[errors.FileSystemError]], ...] = (
    (FileNotFoundError, errors.PathNotFound),
    (FileExistsError, errors.PathExists),
    (IsADirectoryError, errors.IsADirectory),
    (NotADirectoryError, errors.NotADirectory),
    (PermissionError, errors.PermissionDenied),
)
"""What the provider raises, and what leaves here; always `from` the original."""

KEEPER = """\
import ctypes, os, signal, sys
record, seconds, status, *command = sys.argv[1:]
status, child = int(status), 0
prctl = ctypes.CDLL(None).prctl
prctl(36, 1)  # PR_SET_CHILD_SUBREAPER: whatever loses its parent becomes our child

def end(number, frame):
    if number == signal.SIGALRM:
        os.write(status, b'over')
    try:
        if child:
            os.killpg(child, 9)
    except ProcessLookupError:
        pass
    while True:  # the children of whom we kill become ours, until there are none
        for pid in open('/proc/thread-self/children').read().split():
            os.kill(int(pid), 9)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            os._exit(0)

signal.signal(signal.SIGTERM, end)
signal.signal(signal.SIGALRM, end)
signal.setitimer(signal.ITIMER_REAL, max(float(seconds), 0.001))
if not os.path.exists(record):
    os._exit(0)
main = child = os.fork()
if not main:
    os.setsid()
    prctl(1, 9)  # PR_SET_PDEATHSIG: it does not outlive us
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        os.write(2, f'{command[0]}: {error.strerror}\\n'.encode(errors='replace'))
        os._exit(127 if isinstance(error, (FileNotFoundError, NotADirectoryError)) else 126)
null = os.open(os.devnull, os.O_RDWR)
for stream in (0, 1, 2):
    os.dup2(null, stream)
while True:
    try:
        pid, how = os.waitpid(-1, 0)
    except ChildProcessError:
        break
    if pid == main:
        child, exit_code = 0, os.waitstatus_to_exitcode(how)
        os.write(status, b'%d' % (exit_code if exit_code >= 0 else 128 - exit_code))
"""
"""The parent of one call. It ends all that the call started when told to (SIGTERM) and when the
sandbox's lifetime is over, also if the program that uses this library is gone by then."""


class LocalCall:
    """A keeper and what runs under it, as an `ExecChannel`."""

    def __init__(self, sandbox: LocalSandbox, *, stdin: bool, preface: bytes = b"") -> None:
        self._sandbox, self._preface = sandbox, preface
        (out, self._out), (err, self._err), (self._status, self._report) = (
            os.pipe() for _ in range(3)
        )
        self._in, self._stdin = os.pipe() if stdin else (os.open(os.devnull, os.O_RDONLY), -1)
        if stdin:
            os.set_blocking(self._stdin, False)
        self._outputs: dict[int, StreamName] = {out: "stdout", err: "stderr"}
        self._poll = select.epoll()
        for fd in (out, err, self._status):
            self._poll.register(fd, select.EPOLLIN)
        self._exit_code: int | None = None
        self._until = float("inf")
        self._cut = self._killed = False

    async def spawn(self, argv: tuple[str, ...], cwd: Path, env: Mapping[str, str]) -> None:
        seconds = self._sandbox.ends - time.monotonic()
        keeper = (sys.executable, "-I", "-S", "-c", KEEPER, str(self._sandbox.file), str(seconds))
        try:
            with anyio.CancelScope(shield=True):  # a process that nobody knows is never ended
                self._process = await anyio.open_process(
                    [*keeper, str(self._report), *argv],
                    stdin=self._in,
                    stdout=self._out,
                    stderr=self._err,
                    cwd=cwd,
                    env=env,
                    pass_fds=[self._report],
                )
        except BaseException:
            self._close()
            raise
        finally:
            for fd in (self._in, self._out, self._err, self._report):
                os.close(fd)

    async def receive(self) -> OutputChunk | None:
        data, self._preface = self._preface, b""
        await self.send(data)
        while self._outputs:
            pause = SILENCE if self._exit_code is not None else float("inf")
            with anyio.move_on_after(pause) as scope:
                await anyio.wait_readable(self._poll.fileno())
            if scope.cancelled_caught:  # something in the background holds it open, and is silent
                break
            for fd, _ in self._poll.poll(0, 1):
                if fd == self._status:
                    self._hear()
                elif not (data := os.read(fd, PIECE)):
                    self._poll.unregister(fd)
                    del self._outputs[fd]
                    os.close(fd)
                elif time.monotonic() > self._until:
                    self._cut = True
                    return None
                else:
                    return OutputChunk(self._outputs[fd], data)
        return None

    async def send(self, data: bytes) -> None:
        await anyio.lowlevel.checkpoint()
        left = memoryview(data)
        with suppress(BrokenPipeError, anyio.ClosedResourceError):
            while left and self._stdin >= 0:
                await anyio.wait_writable(self._stdin)
                with suppress(BlockingIOError):
                    left = left[os.write(self._stdin, left[:PIECE]) :]

    async def close_stdin(self) -> None:
        await anyio.lowlevel.checkpoint()
        fd, self._stdin = self._stdin, -1
        if fd >= 0:
            anyio.notify_closing(fd)
            os.close(fd)

    async def wait(self) -> ExitStatus:
        while self._exit_code is None:
            await anyio.wait_readable(self._status)
            self._hear()
        if self._exit_code < 0:
            await anyio.to_thread.run_sync(self._sandbox.require, "unknown")
            if not self._killed:
                raise errors.LinkLost("Something in the sandbox ended the keeper of the call.")
        return ExitStatus(self._exit_code if self._exit_code >= 0 else 137, cut=self._cut)

    async def kill(self) -> KillReport:
        self._killed = True
        if self._process.returncode is None:
            _end_keeper(self._process.pid)
        await self._process.wait()
        # Where the signal came before the keeper could catch it, nothing had been started.
        return KillReport(complete=self._process.returncode in (0, -signal.SIGTERM))

    async def aclose(self) -> None:
        await self.close_stdin()
        self._close()
        with anyio.move_on_after(SILENCE):  # else it has work left, and `remove()` ends it
            await self.ended()

    async def ended(self) -> None:
        await self._process.wait()
        self._sandbox.calls.discard(self)

    def _hear(self) -> None:
        """Take what the keeper says of the end: a number, `over`, or nothing at all."""
        word = os.read(self._status, 8)
        self._poll.unregister(self._status)
        self._exit_code = int(word) if word.isdigit() else -1
        self._until = time.monotonic() + LAST_SECONDS

    def _close(self) -> None:
        anyio.notify_closing(self._poll.fileno())
        self._poll.close()
        for fd in (*self._outputs, self._status, self._stdin):
            if fd >= 0:
                anyio.notify_closing(fd)
                os.close(fd)
        self._outputs, self._status, self._stdin = {}, -1, -1


class LocalFiles:
    """Files below the working directory, which `/` stands for; other paths are refused."""

    def __init__(self, sandbox: LocalSandbox) -> None:
        self._sandbox = sandbox
        self._root = str(sandbox.work)

    def place(self, path: str, *, follow: bool = True) -> Path:
        """Return where a path is on this host, unless it leads out."""
        where = Path(self._root, path if self._within(path) else path.lstrip("/"))
        real = os.path.realpath(where)
        if not follow and where.name != "..":
            real = os.path.join(os.path.realpath(where.parent), where.name)  # noqa: PTH118
        if not self._within(real) and where != self._sandbox.work:
            raise errors.PermissionDenied(f"{path!r} leads out of the sandbox's directory.")
        return where

    def _within(self, path: str) -> bool:
        return path == self._root or path.startswith(f"{self._root}/")

    async def read(
        self,
        path: str,
        *,
        offset: int,
        length: int | None,
        sink: Callable[[bytes], Awaitable[None]],
    ) -> None:
        left = sys.maxsize if length is None else length
        async with anyio.wrap_file(await self._do(path, _open_to_read)) as file:
            await file.seek(offset)
            while left and (piece := await file.read(min(left, PIECE))):
                left -= len(piece)
                await sink(piece)

    async def write(
        self, path: str, source: AsyncIterable[bytes], *, size: int, mode: int | None
    ) -> None:
        part = self._sandbox.home / f".part-{secrets.token_hex(8)}"
        target = await self._do(path, lambda where: _open_to_write(where, part))
        try:
            async with anyio.wrap_file(target) as file:
                async for piece in source:
                    size -= await file.write(piece)
            if size:
                raise errors.FileSystemError(f"{path!r}: the data arrived incomplete.")
            await self._do(path, lambda where: _publish(where, part, mode))
        finally:
            part.unlink(missing_ok=True)

    async def stat(self, path: str, *, follow: bool) -> FileInfo:
        return await self._do(path, lambda where: _describe(path, where, follow=follow), follow)

    async def exists(self, path: str) -> bool:
        return await self._do(path, Path.exists)

    async def ls(self, path: str) -> list[FileInfo]:
        base = "" if path == "." else f"{path.rstrip('/')}/"

        def ls(where: Path) -> list[FileInfo]:
            found = sorted(where.iterdir())
            return [_describe(base + entry.name, entry, follow=False) for entry in found]

        return await self._do(path, ls)

    async def mkdir(self, path: str, *, parents: bool) -> None:
        await self._do(path, lambda where: where.mkdir(0o755, parents, exist_ok=parents))

    async def remove(self, path: str, *, recursive: bool) -> None:
        def remove(where: Path) -> None:
            if not stat.S_ISDIR(where.lstat().st_mode):
                where.unlink()
            elif recursive:
                shutil.rmtree(where)
            else:
                where.rmdir()

        await self._do(path, remove, follow=False)

    async def directory(self, path: str) -> Path:
        """Return where a call may start."""
        try:
            return await self._do(path, _enter)
        except errors.FileSystemError as exc:
            exc.outcome = "not_started"
            raise

    async def _do(self, path: str, act: Callable[[Path], T], follow: bool = True) -> T:
        """Do blocking work in a thread, in a sandbox that is there, with errors of ours."""

        def work() -> T:
            self._sandbox.require()
            try:
                return act(self.place(path, follow=follow))
            except OSError as exc:
                kind = next((ours for theirs, ours in ERRORS if isinstance(exc, theirs)), None)
                if exc.errno == errno.ENOTEMPTY:
                    kind = errors.IsADirectory
                raise (kind or errors.FileSystemError)(f"{path!r}: {exc.strerror}") from exc

        return await anyio.to_thread.run_sync(work)


class LocalSandbox:
    """One directory, as a `DriverSandbox`: `work` for commands, `home` beside it.

    `record.json` in it is what the provider knows of a sandbox; without it there is none.
    """

    capabilities = CAPABILITIES
    isolation = IsolationTier.NONE

    def __init__(
        self,
        directory: Path,
        *,
        timeout: float,
        created: float,
        ends: float,
        metadata: Mapping[str, str],
    ) -> None:
        self.id, self.native = directory.name, directory
        self.timeout, self.created, self.metadata = timeout, created, metadata
        self.ends = ends  # on the monotonic clock, which all processes of a Linux host share
        self.file = directory / "record.json"
        self.work, self.home = directory / "work", directory / "home"
        self.files = LocalFiles(self)
        self.calls: set[LocalCall] = set()

    @classmethod
    def load(cls, directory: Path) -> LocalSandbox | None:
        with suppress(OSError, ValueError):
            return cls(directory, **json.loads((directory / "record.json").read_text()))
        return None

    def make(self) -> None:
        self.work.mkdir(parents=True)
        self.home.mkdir()
        names = ("timeout", "created", "ends", "metadata")
        self.file.write_text(json.dumps({name: getattr(self, name) for name in names}))

    def running(self) -> bool:
        found = LocalSandbox.load(self.native)
        return found is not None and time.monotonic() < found.ends

    def require(self, outcome: errors.Outcome = "not_started") -> None:
        if not self.running():
            raise errors.SandboxGone(
                f"Sandbox {self.id} was removed, or its time is over.", outcome=outcome
            )

    def explain(self, capability: Capability) -> str | None:
        if capability is Capability.NETWORK_POLICY:
            return "Its processes use the network of this host."
        return None

    async def start(self, request: ExecRequest) -> LocalCall:
        _refuse_user(request.user)
        return await self._start(request.argv, request, stdin=request.stdin)

    async def start_code(self, request: CodeRequest) -> LocalCall:
        found = [name for name in ("python3", "python", "bash") if shutil.which(name, path=PATH)]
        argv, source = code.command(request.language, request.code, found)
        return await self._start(argv, request, stdin=True, preface=source)

    async def _start(
        self,
        argv: tuple[str, ...],
        request: ExecRequest | CodeRequest,
        *,
        stdin: bool,
        preface: bytes = b"",
    ) -> LocalCall:
        where = await self.files.directory(request.cwd or ".")
        own = {"PATH": PATH, "HOME": str(self.home), "LANG": "C.UTF-8"}  # and nothing of ours
        try:
            call = LocalCall(self, stdin=stdin, preface=preface)
            await call.spawn(argv, where, {**own, **request.env})
        except OSError as exc:
            raise errors.ConnectError(
                f"This host did not start the call: {exc.strerror}.", outcome="not_started"
            ) from exc
        self.calls.add(call)
        return call

    async def remove(self) -> None:
        try:
            await anyio.to_thread.run_sync(self._remove)
        except OSError as exc:
            raise errors.ConnectError(f"{self.native} cannot be removed: {exc.strerror}.") from exc
        for call in tuple(self.calls):
            await call.ended()

    def _remove(self) -> None:
        with suppress(FileNotFoundError):
            self.native.chmod(0o700)
        self.file.unlink(missing_ok=True)  # first: a keeper that is just starting looks for it
        while keepers := self._keepers():
            for pid in keepers:
                _end_keeper(pid)
            time.sleep(0.01)
        while self.native.exists():
            with suppress(FileNotFoundError):  # somebody else removes it too
                for place, names, _ in os.walk(self.native):  # commands may have closed some
                    for path in (Path(place, name) for name in names):
                        if not path.is_symlink():
                            path.chmod(0o700)
                shutil.rmtree(self.native)

    def _keepers(self) -> list[int]:
        """Find the keepers of this sandbox, whichever program started them."""
        mark, found = b"\0%s\0" % os.fsencode(self.file), list[int]()
        for process in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                if mark in process.read_bytes():
                    found.append(int(process.parent.name))
        return found


class LocalDriver:
    """Makes and finds directories of sandboxes, as a `Driver`."""

    name = "local"
    capabilities = CAPABILITIES
    isolation = IsolationTier.NONE

    def __init__(self, base: Path | None = None) -> None:
        self.base = base or Path(tempfile.gettempdir(), f"sandboxio-local-{os.getuid()}").resolve()

    def refuse(self, request: CreateRequest) -> None:
        if sys.platform != "linux":
            raise errors.ConfigurationError("The local backend needs /proc, which Linux has.")
        if request.template is not None:
            raise errors.ConfigurationError(
                "The local backend has no templates: everything is the host."
            )
        if request.resources != Resources():
            raise errors.ConfigurationError(
                "The local backend has no caps, and no template to bring them."
            )
        _refuse_user(request.user)

    async def provision(self, request: CreateRequest) -> LocalSandbox:
        sandbox = LocalSandbox(
            self.base / secrets.token_hex(8),
            timeout=request.timeout,
            created=time.time(),
            ends=time.monotonic() + request.timeout,
            metadata=dict(request.metadata),
        )
        async with undone_on_failure(
            sandbox.remove, backend=self.name, name=sandbox.id, labels=request.metadata
        ):
            try:
                await anyio.to_thread.run_sync(sandbox.make)
            except Exception as exc:
                raise errors.CreationError(
                    f"{sandbox.native} cannot be made: {exc}.", outcome="not_started"
                ) from exc
            return sandbox

    async def connect(self, sandbox_id: str) -> LocalSandbox:
        found = await anyio.to_thread.run_sync(self._find, sandbox_id)
        if found is None or not found.running():
            raise errors.ConnectError(
                f"No running local sandbox has the id {sandbox_id[:64]!r}.", outcome="not_started"
            )
        return found

    async def list_managed(self, labels: Mapping[str, str]) -> list[ManagedSandbox]:
        return await anyio.to_thread.run_sync(self._list, labels)

    async def remove_managed(self, sandbox_id: str) -> bool:
        found = await anyio.to_thread.run_sync(self._find, sandbox_id)
        if found is None:
            return False
        await found.remove()
        return True

    def _find(self, sandbox_id: str) -> LocalSandbox | None:
        if not re.fullmatch(r"[0-9a-f]{16}", sandbox_id):  # an id is never a path
            return None
        return LocalSandbox.load(self.base / sandbox_id)

    def _list(self, labels: Mapping[str, str]) -> list[ManagedSandbox]:
        found = [self._find(path.name) for path in sorted(self.base.glob("*"))]
        return [
            ManagedSandbox(
                sandbox_id=each.id,
                backend=self.name,
                state="running" if each.running() else "stopped",
                created_at=datetime.fromtimestamp(each.created, UTC),
                labels=each.metadata,
            )
            for each in found
            if each is not None and labels.items() <= each.metadata.items()
        ]


class LocalBackend(DriverBackend):
    """Temporary directories and processes of this host; `base` is where the directories are."""

    def __init__(self, base: Path | None = None) -> None:
        super().__init__(LocalDriver(base))


def _refuse_user(user: str | None) -> None:
    uid, gid = os.getuid(), os.getgid()
    if user not in (None, str(uid), f"{uid}:{gid}", pwd.getpwuid(uid).pw_name):
        raise errors.CapabilityNotSupported("The local backend runs everything as its own user.")


def _end_keeper(pid: int) -> None:
    with suppress(ProcessLookupError):  # `Process.terminate()` would reap behind asyncio's back
        os.kill(pid, signal.SIGTERM)
        os.kill(pid, signal.SIGCONT)  # in case something in the sandbox has stopped it


def _enter(where: Path) -> Path:
    os.close(os.open(where, os.O_PATH | os.O_DIRECTORY))
    if not os.access(where, os.X_OK):
        raise PermissionError(errno.EACCES, "permission denied")
    return where


def _open_to_read(where: Path) -> IO[bytes]:
    return _regular(os.open(where, os.O_RDONLY | os.O_NONBLOCK), "rb")


def _open_to_write(where: Path, part: Path) -> IO[bytes]:
    """Open a file that exists, emptied; or a new one elsewhere, which appears when it is whole."""
    try:
        file = _regular(os.open(where, os.O_WRONLY | os.O_NONBLOCK), "wb")
    except FileNotFoundError:
        Path(os.path.realpath(where)).parent.stat()
        return part.open("xb", buffering=0)
    file.truncate()
    return file


def _regular(fd: int, how: str) -> IO[bytes]:
    mode = os.fstat(fd).st_mode
    if stat.S_ISREG(mode):
        return open(fd, how, buffering=0)
    os.close(fd)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "is a directory")
    raise OSError(errno.EINVAL, "not a regular file")


def _publish(where: Path, part: Path, mode: int | None) -> None:
    if part.exists():
        part.chmod(0o644)
        part.replace(os.path.realpath(where))
    if mode is not None:
        where.chmod(mode)


def _describe(path: str, where: Path, *, follow: bool) -> FileInfo:
    status = where.stat(follow_symlinks=follow)
    kinds: dict[int, FileKind] = {0o100000: "file", 0o040000: "directory", 0o120000: "link"}
    kind = kinds.get(stat.S_IFMT(status.st_mode), "other")
    return FileInfo(
        path=path,
        size=status.st_size,
        is_dir=kind == "directory",
        kind=kind,
        mode=stat.S_IMODE(status.st_mode),
        mtime=datetime.fromtimestamp(status.st_mtime, UTC),
        target=os.readlink(where) if kind == "link" else None,  # noqa: PTH115  # as it is written
    )
