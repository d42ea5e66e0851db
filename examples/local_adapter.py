"""A whole adapter: temporary directories and processes of this host, on Linux.

It isolates nothing. What it runs has your rights, your network and your files, so that it is
something to read and to copy from, and no place for code that you do not trust. It says so
itself: its tier is NONE, and as it can enforce no network policy it declares none, so that core
refuses every `create()` but one with `network=NetworkPolicy(egress="allow")`.

`local_keeper.py` stands for the provider. Read this from the end: `LocalBackend`, the driver, one
of its sandboxes, one call in it.
"""

from __future__ import annotations

import json
import os
import pwd
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel
import anyio.to_thread
import local_keeper
from anyio.streams.buffered import BufferedByteReceiveStream

from sandboxio.core import errors
from sandboxio.core.backend import DriverBackend
from sandboxio.core.driver import ExitStatus, KillReport
from sandboxio.core.lifecycle import undone_on_failure
from sandboxio.core.models import Capability, ManagedSandbox, OutputChunk, Resources
from sandboxio.core.tiers import IsolationTier
from sandboxio.guest import code
from sandboxio.guest.shell_files import ShellFiles
from sandboxio.guest.shell_metrics import measure

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sandboxio.core.models import StreamName
    from sandboxio.core.requests import CodeRequest, CreateRequest, ExecRequest

CAPABILITIES = (
    Capability.RUN_COMMAND
    | Capability.RUN_CODE
    | Capability.STREAMING
    | Capability.STDIN
    | Capability.FILESYSTEM
    | Capability.UPLOAD_DOWNLOAD
)
PATH = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"
STREAMS: dict[bytes, StreamName] = {b"o": "stdout", b"e": "stderr"}
CLEAR = 'rm -rf "$0" 2>/dev/null || { chmod -R u+rwx "$0"; rm -rf "$0"; }'
ERRORS: dict[type[OSError], type[errors.SandboxError]] = {
    FileNotFoundError: errors.PathNotFound,
    NotADirectoryError: errors.NotADirectory,
    PermissionError: errors.PermissionDenied,
}
"""What the host says of a `cwd`, and what leaves here; always `from` the original."""


class LocalCall:
    """A keeper and what runs under it, as an `ExecChannel`."""

    def __init__(self, sandbox: LocalSandbox, preface: bytes) -> None:
        self._sandbox, self._preface = sandbox, preface
        self._head = b""  # kept, as whoever reads may be cancelled and read on
        self._status: ExitStatus | None = None
        self._killed = False

    async def spawn(self, argv: tuple[str, ...], cwd: Path, env: dict[str, str], how: int) -> None:
        with anyio.CancelScope(shield=True):  # a process that nobody knows is never ended
            self._process = await anyio.open_process(
                argv, stdin=how, stderr=subprocess.DEVNULL, cwd=cwd, env=env
            )
        assert self._process.stdout is not None
        self._output = BufferedByteReceiveStream(self._process.stdout)

    async def receive(self) -> OutputChunk | None:
        data, self._preface = self._preface, b""
        await self.send(data)
        try:
            self._head = self._head or await self._output.receive_exactly(local_keeper.HEAD.size)
            kind, size = local_keeper.HEAD.unpack(self._head)
            data = await self._output.receive_exactly(size)
        except anyio.IncompleteRead:
            return None
        self._head = b""
        if kind in STREAMS:
            return OutputChunk(STREAMS[kind], data)
        exit_code, cut = data.split()
        self._status = ExitStatus(int(exit_code), cut=cut == b"1")
        return None

    async def send(self, data: bytes) -> None:
        await anyio.lowlevel.checkpoint()
        if data and self._process.stdin is not None:
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
                await self._process.stdin.send(data)

    async def close_stdin(self) -> None:
        await anyio.lowlevel.checkpoint()
        if self._process.stdin is not None:
            await self._process.stdin.aclose()

    async def wait(self) -> ExitStatus:
        if self._status is None:
            await anyio.to_thread.run_sync(self._sandbox.require, "unknown")
            if not self._killed:
                raise errors.LinkLost("Something in the sandbox ended the keeper of the call.")
        return self._status or ExitStatus(137)

    async def kill(self) -> KillReport:
        self._killed = True
        if self._process.returncode is None:
            local_keeper.stop(self._process.pid)
        await self._process.wait()
        return KillReport(complete=self._process.returncode in local_keeper.DONE)

    async def aclose(self) -> None:
        await self.close_stdin()
        with anyio.move_on_after(0.1):  # else it goes on in the background, and `remove()` ends it
            await self.ended()

    async def ended(self) -> None:
        await self._process.wait()
        await self._process.aclose()
        self._sandbox.calls.discard(self)


@dataclass(eq=False)
class LocalSandbox:
    """One directory, as a `DriverSandbox`: `work` for commands, `home` beside it."""

    native: Path
    timeout: float
    created: float
    ends: float
    """On the monotonic clock, which all processes of a Linux host share."""
    metadata: Mapping[str, str]

    capabilities = CAPABILITIES
    isolation = IsolationTier.NONE

    def __post_init__(self) -> None:
        self.id, self.record = self.native.name, self.native / "record.json"
        self.files = ShellFiles(self.start, timeout=self.timeout, give_up=self.remove)
        self.metrics = lambda: measure(self.start, timeout=self.timeout, give_up=self.remove)
        self.calls: set[LocalCall] = set()

    @classmethod
    def load(cls, directory: Path) -> LocalSandbox | None:
        """Return what the record in a directory says; without one it is no sandbox."""
        with suppress(OSError, ValueError):
            return cls(directory, **json.loads((directory / "record.json").read_text()))
        return None

    def make(self) -> None:
        for name in ("work", "home"):
            (self.native / name).mkdir(parents=True)
        said = {name: getattr(self, name) for name in ("timeout", "created", "ends", "metadata")}
        self.record.write_text(json.dumps(said))

    def running(self) -> bool:
        found = LocalSandbox.load(self.native)
        return found is not None and time.monotonic() < found.ends

    def require(self, outcome: errors.Outcome = "not_started") -> None:
        if not self.running():
            message = f"Sandbox {self.id} was removed, or its time is over."
            raise errors.SandboxGone(message, outcome=outcome)

    def explain(self, capability: Capability) -> str | None:
        return "Everything is this host's." if capability is Capability.NETWORK_POLICY else None

    async def start(self, request: ExecRequest) -> LocalCall:
        refuse_user(request.user)
        return await self._start(request, request.argv, b"" if request.stdin else None)

    async def start_code(self, request: CodeRequest) -> LocalCall:
        found = [name for name in ("python3", "python", "bash") if shutil.which(name, path=PATH)]
        return await self._start(request, *code.command(request.language, request.code, found))

    async def _start(
        self, request: ExecRequest | CodeRequest, argv: tuple[str, ...], stdin: bytes | None
    ) -> LocalCall:
        await anyio.to_thread.run_sync(self.require)
        env = {"PATH": PATH, "HOME": str(self.native / "home"), "LANG": "C.UTF-8", **request.env}
        keeper = local_keeper.command(str(self.record), self.ends - time.monotonic(), argv)
        call = LocalCall(self, stdin or b"")
        how = subprocess.DEVNULL if stdin is None else subprocess.PIPE
        try:
            await call.spawn(keeper, self.native / "work" / (request.cwd or "."), env, how)
        except OSError as exc:
            message = f"This host did not start the call: {exc}."
            kind = ERRORS.get(type(exc), errors.ConnectError)
            raise kind(message, outcome="not_started") from exc
        self.calls.add(call)
        return call

    async def remove(self) -> None:
        await anyio.to_thread.run_sync(self._end_keepers)
        for call in tuple(self.calls):
            await call.ended()
        try:
            await anyio.run_process(["sh", "-c", CLEAR, self.native])
        except subprocess.CalledProcessError as exc:
            raise errors.ConnectError(f"{self.native} cannot be removed: {exc.stderr!r}") from exc

    def _end_keepers(self) -> None:
        self.record.unlink(missing_ok=True)  # first: a keeper that is just starting looks for it
        while local_keeper.stop(*local_keeper.find(str(self.record))):
            time.sleep(0.01)


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
            raise errors.ConfigurationError("The local backend has no templates but this host.")
        if request.resources != Resources():
            raise errors.ConfigurationError("The local backend sets no caps, nor does a template.")
        refuse_user(request.user)

    async def provision(self, request: CreateRequest) -> LocalSandbox:
        now, ends = time.time(), time.monotonic() + request.timeout
        directory = self.base / secrets.token_hex(8)
        sandbox = LocalSandbox(directory, request.timeout, now, ends, dict(request.metadata))
        async with undone_on_failure(
            sandbox.remove, backend=self.name, name=sandbox.id, labels=request.metadata
        ):
            try:
                await anyio.to_thread.run_sync(sandbox.make)
            except Exception as exc:
                message = f"{sandbox.native} cannot be made: {exc}."
                raise errors.CreationError(message, outcome="not_started") from exc
            return sandbox

    async def connect(self, sandbox_id: str) -> LocalSandbox:
        found = await anyio.to_thread.run_sync(self._find, sandbox_id)
        if found is None or not found.running():
            message = f"No running local sandbox has the id {sandbox_id[:64]!r}."
            raise errors.ConnectError(message, outcome="not_started")
        return found

    async def list_managed(self, labels: Mapping[str, str]) -> list[ManagedSandbox]:
        return await anyio.to_thread.run_sync(self._list, labels)

    async def remove_managed(self, sandbox_id: str) -> bool:
        found = await anyio.to_thread.run_sync(self._find, sandbox_id)
        if found is not None:
            await found.remove()
        return found is not None

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


def refuse_user(user: str | None) -> None:
    uid, gid = os.getuid(), os.getgid()
    if user not in (None, str(uid), f"{uid}:{gid}", pwd.getpwuid(uid).pw_name):
        raise errors.CapabilityNotSupported("The local backend runs everything as its own user.")
