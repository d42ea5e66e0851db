"""A driver that lives in memory and does what a test wrote down for it.

Every step of every call has a name. A test may let a step hang, fail, or be waited for; the log
says which steps began, `done` which came to their end.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel

from sandboxio.core.driver import ExitStatus, KillReport
from sandboxio.core.edits import edited
from sandboxio.core.errors import PathNotFound, SandboxError
from sandboxio.core.lifecycle import undone_on_failure
from sandboxio.core.models import Capability, FileInfo, ManagedSandbox, Metrics, OutputChunk
from sandboxio.core.tiers import IsolationTier

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Awaitable, Callable, Mapping

    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

    from sandboxio.core.requests import CodeRequest, CreateRequest, ExecRequest

EVERYTHING = ~Capability(0)


def out(text: str) -> OutputChunk:
    """Return one piece of stdout."""
    return OutputChunk("stdout", text.encode())


def err(text: str) -> OutputChunk:
    """Return one piece of stderr."""
    return OutputChunk("stderr", text.encode())


@dataclass
class Steps:
    """The script: what hangs, what fails, and what has happened so far."""

    hang: set[str] = field(default_factory=set[str])
    """Steps that wait until `release(step)`, or for ever."""
    fail: dict[str, BaseException] = field(default_factory=dict[str, BaseException])
    call: dict[str, Callable[[], object]] = field(default_factory=dict[str, Any])
    """Called when a step begins, on the thread of the event loop."""
    log: list[str] = field(default_factory=list[str])
    done: list[str] = field(default_factory=list[str])
    _reached: defaultdict[str, anyio.Event] = field(
        default_factory=lambda: defaultdict(anyio.Event)
    )
    _released: defaultdict[str, anyio.Event] = field(
        default_factory=lambda: defaultdict(anyio.Event)
    )

    async def reached(self, step: str) -> None:
        """Wait until the step has begun."""
        await self._reached[step].wait()

    def release(self, step: str) -> None:
        """Let a step that hangs go on."""
        self._released[step].set()

    async def at(self, step: str) -> None:
        """Begin a step, do what the script says, and end it."""
        self.log.append(step)
        self._reached[step].set()
        if step in self.call:
            self.call[step]()
        await anyio.lowlevel.checkpoint()
        if step in self.hang:
            await self._released[step].wait()
        if step in self.fail:
            raise self.fail[step]
        self.done.append(step)


@dataclass
class Play:
    """What every call of a driver does, besides the steps that hang or fail."""

    output: tuple[OutputChunk, ...] = ()
    exit_code: int = 0
    failure: SandboxError | None = None
    released: bool = False
    report: KillReport = field(default_factory=lambda: KillReport(complete=True))
    echo: bool = False
    """stdin comes back on stdout, and a write waits until its echo has been read."""


class DoubleDriver:
    """A `Driver`; set its attributes before the call that should see them."""

    name = "double"

    def __init__(self) -> None:
        self.capabilities = EVERYTHING
        self.isolation = IsolationTier.CONTAINER
        self.verified = IsolationTier.CONTAINER
        self.steps = Steps()
        self.play = Play()
        self.refusal: BaseException | None = None
        self.reasons: dict[Capability, str] = {}
        self.created: list[CreateRequest] = []
        self.calls: list[DoubleChannel] = []
        self.stored: dict[str, bytes] = {}
        self.modes: dict[str, int] = {}

    @property
    def log(self) -> list[str]:
        return self.steps.log

    def refuse(self, request: CreateRequest) -> None:
        self.log.append("refuse")
        if self.refusal is not None:
            raise self.refusal

    async def provision(self, request: CreateRequest) -> DoubleSandbox:
        self.created.append(request)
        async with undone_on_failure(
            lambda: self.steps.at("undo"), backend=self.name, name="half", labels=request.metadata
        ):
            await self.steps.at("provision")
        return DoubleSandbox(self, request.timeout, request.metadata)

    async def connect(self, sandbox_id: str) -> DoubleSandbox:
        await self.steps.at("connect")
        return DoubleSandbox(self, 60.0, {})

    async def list_managed(self, labels: Mapping[str, str]) -> list[ManagedSandbox]:
        await self.steps.at("list_managed")
        return [ManagedSandbox("made-1", self.name, "running", labels=labels)]

    async def remove_managed(self, sandbox_id: str) -> bool:
        await self.steps.at("remove_managed")
        return sandbox_id == "made-1"


class DoubleSandbox:
    """A `DriverSandbox`."""

    id = "made-1"
    native = None

    def __init__(self, driver: DoubleDriver, timeout: float, metadata: Mapping[str, str]) -> None:
        self._driver = driver
        self.capabilities = driver.capabilities
        self.isolation = driver.verified
        self.timeout = timeout
        self.metadata = metadata
        self.files = DoubleFiles(driver)

    async def start(self, request: ExecRequest) -> DoubleChannel:
        return await self._start(request)

    async def start_code(self, request: CodeRequest) -> DoubleChannel:
        return await self._start(request)

    def explain(self, capability: Capability) -> str | None:
        return self._driver.reasons.get(capability)

    async def metrics(self) -> Metrics:
        await self._driver.steps.at("metrics")
        return Metrics(0.5, 1024, None, 2)

    async def remove(self) -> None:
        await self._driver.steps.at("remove")

    async def _start(self, request: ExecRequest | CodeRequest) -> DoubleChannel:
        channel = DoubleChannel(self._driver.steps, self._driver.play, request)
        self._driver.calls.append(channel)
        await self._driver.steps.at("start")
        return channel


class DoubleChannel:
    """An `ExecChannel`; output ends when the call is killed, as that of a real one does."""

    def __init__(self, steps: Steps, play: Play, request: ExecRequest | CodeRequest) -> None:
        self.request = request
        self.sent = b""
        self._steps = steps
        self._play = play
        self._left = list(play.output)
        self._killed = anyio.Event()
        pair = anyio.create_memory_object_stream[bytes](0)
        self._to_echo: MemoryObjectSendStream[bytes] = pair[0]
        self._echoed: MemoryObjectReceiveStream[bytes] = pair[1]
        if not play.echo:
            self._release()

    async def receive(self) -> OutputChunk | None:
        if self._left:
            await anyio.lowlevel.checkpoint()
            return self._left.pop(0)
        if self._play.echo:
            return await self._echo()
        if "receive" in self._steps.hang:
            return await self._quiet()
        await self._steps.at("receive")
        return None

    async def send(self, data: bytes) -> None:
        await self._steps.at("send")
        self.sent += data
        for start in range(0, len(data) if self._play.echo else 0, 65536):
            await self._to_echo.send(data[start : start + 65536])

    async def close_stdin(self) -> None:
        await self._steps.at("close_stdin")
        self._to_echo.close()

    async def wait(self) -> ExitStatus:
        await self._steps.at("wait")
        play = self._play
        return ExitStatus(play.exit_code, failure=play.failure, released=play.released)

    async def kill(self) -> KillReport:
        await self._steps.at("kill")
        self._killed.set()
        return self._play.report

    async def aclose(self) -> None:
        self._release()
        await self._steps.at("aclose")

    def _release(self) -> None:
        self._to_echo.close()
        self._echoed.close()

    async def _echo(self) -> OutputChunk | None:
        try:
            return OutputChunk("stdout", await self._echoed.receive())
        except anyio.EndOfStream:
            return None

    async def _quiet(self) -> OutputChunk | None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._end_when_killed, tasks.cancel_scope)
            await self._steps.at("receive")
            tasks.cancel_scope.cancel()
        return None

    async def _end_when_killed(self, scope: anyio.CancelScope) -> None:
        await self._killed.wait()
        scope.cancel()


class DoubleFiles:
    """`DriverFiles` over a dictionary."""

    def __init__(self, driver: DoubleDriver) -> None:
        self._driver = driver
        self._steps = driver.steps

    async def read(
        self,
        path: str,
        *,
        offset: int,
        length: int | None,
        sink: Callable[[bytes], Awaitable[None]],
    ) -> None:
        content = self._content(path)
        end = None if length is None else offset + length
        for position in range(offset, len(content[:end]), 4):
            await sink(content[:end][position : position + 4])
        await self._steps.at("file_read")

    async def write(
        self, path: str, source: AsyncIterable[bytes], *, size: int | None, mode: int | None
    ) -> None:
        await self._steps.at("file_write")
        self._driver.stored[path] = b"".join([piece async for piece in source])
        self._driver.modes[path] = 0o644 if mode is None else mode

    async def stat(self, path: str, *, follow: bool) -> FileInfo:
        await self._steps.at("file_stat")
        mode = self._driver.modes.get(path, 0o644)
        return FileInfo(path, len(self._content(path)), is_dir=False, mode=mode)

    async def exists(self, path: str) -> bool:
        await self._steps.at("file_exists")
        return path in self._driver.stored

    async def ls(self, path: str, *, recursive: bool) -> list[FileInfo]:
        await self._steps.at("file_list")
        return [await self.stat(name, follow=False) for name in sorted(self._driver.stored)]

    async def glob(self, pattern: str) -> list[FileInfo]:
        await self._steps.at("file_glob")
        return [info for info in await self.ls(".", recursive=True) if info.path == pattern]

    async def mkdir(self, path: str, *, parents: bool) -> None:
        await self._steps.at("file_mkdir")

    async def remove(self, path: str, *, recursive: bool) -> None:
        await self._steps.at("file_remove")
        del self._driver.stored[path]

    async def move(self, source: str, target: str) -> None:
        await self._steps.at("file_move")
        self._driver.stored[target] = self._driver.stored.pop(source)

    async def copy(self, source: str, target: str) -> None:
        await self._steps.at("file_copy")
        self._driver.stored[target] = self._content(source)

    async def chmod(self, path: str, mode: int) -> None:
        await self._steps.at("file_chmod")
        self._driver.modes[path] = mode

    async def edit(self, path: str, old: bytes, new: bytes, *, count: int | None) -> int:
        await self._steps.at("file_edit")
        self._driver.stored[path], found = edited(path, self._content(path), old, new, count)
        return found

    def _content(self, path: str) -> bytes:
        if path not in self._driver.stored:
            raise PathNotFound(f"{path!r}: no such file or directory", outcome="done")
        return self._driver.stored[path]
