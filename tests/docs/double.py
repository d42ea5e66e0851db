"""A stand-in for Docker: runs our own documented examples as processes of this host.

It isolates nothing and is for nothing else. Each sandbox is a temporary folder that plays
`/work`; Python that runs in it finds no network, so that examples see what they would see.
"""

from __future__ import annotations

import os
import queue
import secrets
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, TypeVar

import anyio
import anyio.lowlevel

from sandboxio.core import patterns
from sandboxio.core.backend import DriverBackend
from sandboxio.core.driver import ExitStatus, KillReport
from sandboxio.core.edits import edited
from sandboxio.core.errors import (
    CapabilityNotSupported,
    ConnectError,
    FileSystemError,
    IsADirectory,
    NotADirectory,
    PathExists,
    PathNotFound,
    PermissionDenied,
    SandboxGone,
)
from sandboxio.core.models import Capability, FileInfo, ManagedSandbox, Metrics, OutputChunk
from sandboxio.core.tiers import IsolationTier
from sandboxio.guest import code

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Awaitable, Callable, Mapping

    from sandboxio.core.config import BackendConfig
    from sandboxio.core.models import FileKind, StreamName
    from sandboxio.core.requests import CodeRequest, CreateRequest, ExecRequest

T = TypeVar("T")

WORK = "/work"
CAPABILITIES = (
    Capability.RUN_COMMAND
    | Capability.RUN_CODE
    | Capability.STREAMING
    | Capability.FILESYSTEM
    | Capability.UPLOAD_DOWNLOAD
    | Capability.NETWORK_POLICY
    | Capability.STDIN
)
_PROGRAMS = frozenset({"python3", "bash"})
_NO_NETWORK = """\
import socket


def unreachable(*_):
    raise OSError(101, "Network is unreachable")


socket.socket.connect = unreachable
"""
_PAUSE = 0.005
_LAST_WORDS = 0.1
_ERRORS: tuple[tuple[type[OSError], type[FileSystemError]], ...] = (
    (FileNotFoundError, PathNotFound),
    (FileExistsError, PathExists),
    (IsADirectoryError, IsADirectory),
    (NotADirectoryError, NotADirectory),
    (PermissionError, PermissionDenied),
)


class HostCall:
    """One process of the host, as an `ExecChannel`."""

    def __init__(self, process: subprocess.Popen[bytes], data: bytes = b"") -> None:
        self._process = process
        self._data = data
        self._chunks: queue.SimpleQueue[OutputChunk] = queue.SimpleQueue()
        self._pumps = [
            threading.Thread(target=self._pump, args=(name, source), daemon=True)
            for name, source in (("stdout", process.stdout), ("stderr", process.stderr))
        ]
        for pump in self._pumps:
            pump.start()

    async def receive(self) -> OutputChunk | None:
        if self._data:
            data, self._data = self._data, b""
            await self.send(data)
        quiet = 0.0
        while self._chunks.empty():
            if not any(pump.is_alive() for pump in self._pumps):
                break
            quiet = quiet + _PAUSE if self._process.poll() is not None else 0.0
            if quiet > _LAST_WORDS:  # a child left in the background holds the output open
                break
            await anyio.sleep(_PAUSE)
        await anyio.lowlevel.checkpoint()
        return None if self._chunks.empty() else self._chunks.get()

    async def send(self, data: bytes) -> None:
        await anyio.lowlevel.checkpoint()
        if self._process.stdin is not None:
            try:
                self._process.stdin.write(data)
                self._process.stdin.flush()
            except BrokenPipeError:
                return

    async def close_stdin(self) -> None:
        await anyio.lowlevel.checkpoint()
        if self._process.stdin is not None:
            self._process.stdin.close()

    async def wait(self) -> ExitStatus:
        while (status := self._process.poll()) is None:
            await anyio.sleep(_PAUSE)
        return ExitStatus(status if status >= 0 else 128 - status)

    async def kill(self) -> KillReport:
        end_group(self._process.pid)
        await self.wait()
        return KillReport(complete=True)

    async def aclose(self) -> None:
        await self.close_stdin()

    def _pump(self, name: StreamName, source: IO[bytes]) -> None:
        with source:
            while data := os.read(source.fileno(), 65536):
                self._chunks.put(OutputChunk(name, data))


class HostFiles:
    """File operations in the folder that plays `/work`, as `DriverFiles`."""

    def __init__(self, root: Path) -> None:
        self._root = root

    async def read(
        self,
        path: str,
        *,
        offset: int,
        length: int | None,
        sink: Callable[[bytes], Awaitable[None]],
    ) -> None:
        data = await self._do(path, Path.read_bytes)
        await sink(data[offset : None if length is None else offset + length])

    async def write(
        self, path: str, source: AsyncIterable[bytes], *, size: int | None, mode: int | None
    ) -> None:
        data = b"".join([piece async for piece in source])
        assert size in (None, len(data))
        await self._do(path, lambda where: where.write_bytes(data))
        if mode is not None:
            await self._do(path, lambda where: where.chmod(mode))

    async def stat(self, path: str, *, follow: bool) -> FileInfo:
        return await self._do(path, lambda where: _describe(path, where, follow=follow))

    async def exists(self, path: str) -> bool:
        return await self._do(path, Path.exists)

    async def ls(self, path: str, *, recursive: bool) -> list[FileInfo]:
        found = await self._do(
            path, lambda where: list(where.rglob("*") if recursive else where.iterdir())
        )
        top = host_path(self._root, path)
        names = sorted(str(entry.relative_to(top)) for entry in found)
        paths = [name if path == "." else str(PurePosixPath(path) / name) for name in names]
        return [await self.stat(entry, follow=False) for entry in paths]

    async def glob(self, pattern: str) -> list[FileInfo]:
        wanted = patterns.parse(pattern)
        if not wanted.parts:
            found = await self.exists(wanted.prefix)
            return [await self.stat(wanted.prefix, follow=False)] if found else []
        return [info for info in await self.ls(wanted.prefix, recursive=True) if wanted.takes(info)]

    async def mkdir(self, path: str, *, parents: bool) -> None:
        await self._do(path, lambda where: where.mkdir(parents=parents, exist_ok=parents))

    async def remove(self, path: str, *, recursive: bool) -> None:
        await self._do(path, lambda where: _remove(where, recursive=recursive))

    async def move(self, source: str, target: str) -> None:
        await self._do(source, lambda where: where.rename(host_path(self._root, target)))

    async def copy(self, source: str, target: str) -> None:
        await self._do(source, lambda where: _copy(where, host_path(self._root, target)))

    async def chmod(self, path: str, mode: int) -> None:
        await self._do(path, lambda where: where.chmod(mode))

    async def edit(self, path: str, old: bytes, new: bytes, *, count: int | None) -> int:
        content = await self._do(path, Path.read_bytes)
        changed, found = edited(path, content, old, new, count)
        await self._do(path, lambda where: where.write_bytes(changed))
        return found

    async def _do(self, path: str, action: Callable[[Path], T]) -> T:
        await anyio.lowlevel.checkpoint()
        try:
            return action(host_path(self._root, path))
        except OSError as exc:
            mapped = next((ours for theirs, ours in _ERRORS if isinstance(exc, theirs)), None)
            raise (mapped or FileSystemError)(f"{path!r}: {exc.strerror}") from exc


class HostSandbox:
    """A temporary folder, as a `DriverSandbox`."""

    capabilities = CAPABILITIES
    isolation = IsolationTier.CONTAINER
    native: object = None

    def __init__(self, request: CreateRequest) -> None:
        self.id = secrets.token_hex(8)
        self.timeout = request.timeout
        self.metadata: Mapping[str, str] = request.metadata
        self.root = Path(tempfile.mkdtemp(prefix="sandboxio-docs-"))
        self.work = self.root / "work"
        self.work.mkdir()
        (self.root / "sitecustomize.py").write_text(_NO_NETWORK)
        self.files = HostFiles(self.work)
        self.gone = False
        self._calls: list[int] = []

    async def start(self, request: ExecRequest) -> HostCall:
        return HostCall(self._spawn(request.argv, request.cwd, request.env, stdin=request.stdin))

    async def start_code(self, request: CodeRequest) -> HostCall:
        command = code.command(request.language, self._local(request.code), _PROGRAMS)
        return HostCall(
            self._spawn(command.argv, request.cwd, request.env, stdin=True), command.stdin
        )

    def explain(self, capability: Capability) -> str | None:
        return None

    async def metrics(self) -> Metrics:
        await anyio.lowlevel.checkpoint()
        return Metrics(0.25, 40_000_000, 536_870_912, len(self._calls))

    async def remove(self) -> None:
        await anyio.lowlevel.checkpoint()
        self.gone = True
        for pid in self._calls:
            end_group(pid)
        shutil.rmtree(self.root, ignore_errors=True)

    def _spawn(
        self, argv: tuple[str, ...], cwd: str | None, env: Mapping[str, str], *, stdin: bool
    ) -> subprocess.Popen[bytes]:
        if self.gone:
            raise SandboxGone("The double was removed.", outcome="not_started")
        local = [self._local(part) for part in argv]
        where = host_path(self.work, cwd or ".")
        command = ["sh", "-c", 'command -v "$0" >/dev/null || exit 127; exec "$0" "$@"', *local]
        process = subprocess.Popen(
            command,
            cwd=where,
            env=self._environment(env),
            stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self._calls.append(process.pid)
        return process

    def _environment(self, env: Mapping[str, str]) -> dict[str, str]:
        programs = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"
        defaults = {"HOME": str(self.root), "USER": "sandbox", "PATH": programs}
        path = f"{self.root}:{env.get('PYTHONPATH', '')}".rstrip(":")
        return {**defaults, **env, "PYTHONPATH": path}

    def _local(self, text: str) -> str:
        return text.replace(WORK, str(self.work))


class HostDriver:
    """Makes host sandboxes under the name of the real driver."""

    name = "docker"
    capabilities = CAPABILITIES
    isolation = IsolationTier.CONTAINER

    def __init__(self) -> None:
        self.made: dict[str, HostSandbox] = {}

    def refuse(self, request: CreateRequest) -> None:
        if request.network.allow or request.network.egress == "learn":
            raise CapabilityNotSupported("The double enforces no allowlist.")
        if request.resources.disk_mb is not None or request.resources.gpu is not None:
            raise CapabilityNotSupported("The double caps neither disk nor GPU.")

    async def provision(self, request: CreateRequest) -> HostSandbox:
        await anyio.lowlevel.checkpoint()
        sandbox = HostSandbox(request)
        self.made[sandbox.id] = sandbox
        return sandbox

    async def connect(self, sandbox_id: str) -> HostSandbox:
        await anyio.lowlevel.checkpoint()
        if sandbox_id not in self.made or self.made[sandbox_id].gone:
            raise ConnectError(f"No running double has the id {sandbox_id!r}.")
        return self.made[sandbox_id]

    async def list_managed(self, labels: Mapping[str, str]) -> list[ManagedSandbox]:
        await anyio.lowlevel.checkpoint()
        return [
            ManagedSandbox(made.id, self.name, "running", None, made.metadata)
            for made in self.made.values()
            if not made.gone and labels.items() <= made.metadata.items()
        ]

    async def remove_managed(self, sandbox_id: str) -> bool:
        if sandbox_id not in self.made or self.made[sandbox_id].gone:
            return False
        await self.made[sandbox_id].remove()
        return True


class HostBackend(DriverBackend):
    """The double, ready to be registered; takes any configuration of Docker's."""

    def __init__(self) -> None:
        self.driver = HostDriver()
        super().__init__(self.driver)

    def configured(self, _config: BackendConfig) -> HostBackend:
        return self

    @property
    def left(self) -> list[str]:
        """Ids of sandboxes that were not removed."""
        return [made.id for made in self.driver.made.values() if not made.gone]


def host_path(work: Path, path: str) -> Path:
    """Return where a path of the sandbox is on this host."""
    if path == WORK or path.startswith(f"{WORK}/"):
        return work / path[len(WORK) :].lstrip("/")
    return work / path


def end_group(pid: int) -> None:
    """Kill a process and all that is still in its group."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _describe(path: str, where: Path, *, follow: bool) -> FileInfo:
    status = where.stat() if follow else where.lstat()
    kind: FileKind = "directory" if stat.S_ISDIR(status.st_mode) else "file"
    if stat.S_ISLNK(status.st_mode):
        kind = "link"
    return FileInfo(
        path=path,
        size=status.st_size,
        is_dir=kind == "directory",
        kind=kind,
        mode=stat.S_IMODE(status.st_mode),
        mtime=datetime.fromtimestamp(status.st_mtime, UTC),
        target=os.readlink(where) if kind == "link" else None,
    )


def _copy(where: Path, target: Path) -> None:
    if where.is_dir():
        shutil.copytree(where, target, symlinks=True)
    else:
        shutil.copy2(where, target, follow_symlinks=False)


def _remove(where: Path, *, recursive: bool) -> None:
    if recursive:
        shutil.rmtree(where)
    elif where.is_dir():
        where.rmdir()
    else:
        where.unlink()
