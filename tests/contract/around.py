"""The ports, each passed on as it is: a fault overrides one method of one of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sandboxio.core.driver import Driver, DriverFiles, DriverSandbox, ExecChannel
from sandboxio.core.requests import CodeRequest, ExecRequest
from sandboxio.core.sandbox import Sandbox
from sandboxio.testing import FakeBackend

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Awaitable, Callable, Mapping, Sequence

    from sandboxio.core.clock import Clock
    from sandboxio.core.driver import ExitStatus, KillReport
    from sandboxio.core.models import (
        Capability,
        ExecResult,
        FileInfo,
        ManagedSandbox,
        Metrics,
        OutputChunk,
    )
    from sandboxio.core.redaction import Redactor
    from sandboxio.core.requests import CreateRequest
    from sandboxio.core.tiers import IsolationTier
    from sandboxio.testing._driver import FakeDriver


class ChannelAround(ExecChannel):
    """A running call, and what was asked for."""

    def __init__(
        self, inner: ExecChannel, request: ExecRequest | CodeRequest, clock: Clock
    ) -> None:
        self.inner = inner
        self.request = request
        self.clock = clock
        self.began = clock.time()

    @property
    def is_code(self) -> bool:
        return isinstance(self.request, CodeRequest)

    @property
    def is_stream(self) -> bool:
        return self.request.max_output_bytes is None

    @property
    def is_late(self) -> bool:
        """Whether the time that the call may take is over."""
        return self.clock.time() - self.began >= self.request.timeout

    async def receive(self) -> OutputChunk | None:
        return await self.inner.receive()

    async def send(self, data: bytes) -> None:
        await self.inner.send(data)

    async def close_stdin(self) -> None:
        await self.inner.close_stdin()

    async def wait(self) -> ExitStatus:
        return await self.inner.wait()

    async def kill(self) -> KillReport:
        return await self.inner.kill()

    async def aclose(self) -> None:
        await self.inner.aclose()

    @classmethod
    def put_into(cls, parts: Parts) -> Parts:
        return replace(parts, channel=cls)


class FilesAround(DriverFiles):
    """The files of a sandbox."""

    def __init__(self, inner: DriverFiles) -> None:
        self.inner = inner

    async def read(
        self,
        path: str,
        *,
        offset: int,
        length: int | None,
        sink: Callable[[bytes], Awaitable[None]],
    ) -> None:
        await self.inner.read(path, offset=offset, length=length, sink=sink)

    async def write(
        self, path: str, source: AsyncIterable[bytes], *, size: int | None, mode: int | None
    ) -> None:
        await self.inner.write(path, source, size=size, mode=mode)

    async def stat(self, path: str, *, follow: bool) -> FileInfo:
        return await self.inner.stat(path, follow=follow)

    async def exists(self, path: str) -> bool:
        return await self.inner.exists(path)

    async def ls(self, path: str, *, recursive: bool) -> list[FileInfo]:
        return await self.inner.ls(path, recursive=recursive)

    async def glob(self, pattern: str) -> list[FileInfo]:
        return await self.inner.glob(pattern)

    async def mkdir(self, path: str, *, parents: bool) -> None:
        await self.inner.mkdir(path, parents=parents)

    async def remove(self, path: str, *, recursive: bool) -> None:
        await self.inner.remove(path, recursive=recursive)

    async def move(self, source: str, target: str) -> None:
        await self.inner.move(source, target)

    async def copy(self, source: str, target: str) -> None:
        await self.inner.copy(source, target)

    async def chmod(self, path: str, mode: int) -> None:
        await self.inner.chmod(path, mode)

    async def edit(self, path: str, old: bytes, new: bytes, *, count: int | None) -> int:
        return await self.inner.edit(path, old, new, count=count)

    @classmethod
    def put_into(cls, parts: Parts) -> Parts:
        return replace(parts, files=cls)


class SandboxAround(DriverSandbox):
    """A provisioned sandbox."""

    def __init__(self, inner: DriverSandbox, clock: Clock, parts: Parts) -> None:
        self.inner = inner
        self.clock = clock
        self.parts = parts

    @property
    def id(self) -> str:
        return self.inner.id

    @property
    def capabilities(self) -> Capability:
        return self.inner.capabilities

    @property
    def isolation(self) -> IsolationTier:
        return self.inner.isolation

    @property
    def timeout(self) -> float:
        return self.inner.timeout

    @property
    def metadata(self) -> Mapping[str, str]:
        return self.inner.metadata

    @property
    def native(self) -> object:
        return self.inner.native

    @property
    def files(self) -> DriverFiles:
        return self.parts.files(self.inner.files)

    def explain(self, capability: Capability) -> str | None:
        return self.inner.explain(capability)

    async def start(self, request: ExecRequest) -> ExecChannel:
        return self.parts.channel(await self.inner.start(request), request, self.clock)

    async def start_code(self, request: CodeRequest) -> ExecChannel:
        return self.parts.channel(await self.inner.start_code(request), request, self.clock)

    async def metrics(self) -> Metrics:
        return await self.inner.metrics()

    async def remove(self) -> None:
        await self.inner.remove()

    @classmethod
    def put_into(cls, parts: Parts) -> Parts:
        return replace(parts, sandbox=cls)


class DriverAround(Driver):
    """The source of the sandboxes."""

    def __init__(self, inner: FakeDriver, parts: Parts) -> None:
        self.inner = inner
        self.parts = parts

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def capabilities(self) -> Capability:
        return self.inner.capabilities

    @property
    def isolation(self) -> IsolationTier:
        return self.inner.isolation

    def refuse(self, request: CreateRequest) -> None:
        self.inner.refuse(request)

    async def provision(self, request: CreateRequest) -> DriverSandbox:
        return self.around(await self.inner.provision(request))

    async def connect(self, sandbox_id: str) -> DriverSandbox:
        return self.around(await self.inner.connect(sandbox_id))

    async def list_managed(self, labels: Mapping[str, str]) -> list[ManagedSandbox]:
        return await self.inner.list_managed(labels)

    async def remove_managed(self, sandbox_id: str) -> bool:
        return await self.inner.remove_managed(sandbox_id)

    def around(self, made: DriverSandbox) -> DriverSandbox:
        return self.parts.sandbox(made, self.inner.clock, self.parts)

    @classmethod
    def put_into(cls, parts: Parts) -> Parts:
        return replace(parts, driver=cls)


class HandleAround(Sandbox):
    """What the caller holds; `ran` and `ran_code` see each call."""

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
        return await self.ran(
            lambda: Sandbox.run(
                self,
                cmd,
                timeout=timeout,
                env=env,
                cwd=cwd,
                user=user,
                stdin=stdin,
                max_output_bytes=max_output_bytes,
            )
        )

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
        return await self.ran_code(
            lambda: Sandbox.run_code(
                self,
                code,
                language=language,
                context_id=context_id,
                timeout=self.seconds(timeout),
                env=env,
                cwd=cwd,
                max_output_bytes=max_output_bytes,
            )
        )

    def seconds(self, timeout: float | None) -> float | None:
        """Return the timeout that `run_code()` has instead of the caller's."""
        return timeout

    async def ran(self, act: Callable[[], Awaitable[ExecResult]]) -> ExecResult:
        return await act()

    async def ran_code(self, act: Callable[[], Awaitable[ExecResult]]) -> ExecResult:
        return await act()

    @classmethod
    def put_into(cls, parts: Parts) -> Parts:
        return replace(parts, handle=cls)


@dataclass(frozen=True)
class Parts:
    """What a backend is made of; each of them passes everything on."""

    channel: type[ChannelAround] = ChannelAround
    files: type[FilesAround] = FilesAround
    sandbox: type[SandboxAround] = SandboxAround
    driver: type[DriverAround] = DriverAround
    handle: type[HandleAround] = HandleAround


Part = ChannelAround | FilesAround | SandboxAround | DriverAround | HandleAround


class AroundBackend(FakeBackend):
    """A fake with one of its parts taken by another."""

    def __init__(self, part: type[Part]) -> None:
        super().__init__()
        self._parts = part.put_into(Parts())
        self._driver = self._parts.driver(self._fake, self._parts)
        self.capabilities = self._driver.capabilities
        self.isolation = self._driver.isolation

    def _handle(
        self, sandbox: DriverSandbox, env: Mapping[str, str], redactor: Redactor
    ) -> Sandbox:
        return self._parts.handle(
            sandbox,
            backend=self.name,
            env=env,
            redactor=redactor,
            clock=self.clock,
            recorder=self._recorder(sandbox.id, sandbox.metadata, redactor, sandbox.isolation),
        )
