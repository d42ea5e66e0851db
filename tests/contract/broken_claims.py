"""Faults of promises: of policy, caps, tiers, capabilities, secrets and paths."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio

from sandboxio.core.errors import CapabilityNotSupported, PathNotFound
from sandboxio.core.files import SandboxFiles
from sandboxio.core.models import Capability, NetworkPolicy
from sandboxio.core.tiers import IsolationTier
from tests.contract.around import (
    DriverAround,
    FilesAround,
    HandleAround,
    SandboxAround,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Awaitable, Callable

    from sandboxio.core.driver import DriverSandbox, ExecChannel
    from sandboxio.core.requests import CreateRequest, ExecRequest

OPEN = NetworkPolicy(egress="allow")


class IgnoresDeny(DriverAround):
    """A sandbox that was to reach nothing reaches everything."""

    async def provision(self, request: CreateRequest) -> DriverSandbox:
        policy = request.network if request.network.allow else OPEN
        return await super().provision(replace(request, network=policy))


class IgnoresTheAllowlist(DriverAround):
    """A sandbox with an allowlist reaches everything."""

    async def provision(self, request: CreateRequest) -> DriverSandbox:
        policy = OPEN if request.network.allow else request.network
        return await super().provision(replace(request, network=policy))


class IgnoresTheMemoryCap(DriverAround):
    """Every sandbox has the memory of the default."""

    async def provision(self, request: CreateRequest) -> DriverSandbox:
        caps = replace(request.resources, memory_mb=None)
        return await super().provision(replace(request, resources=caps))


class IgnoresTheDiskCap(DriverAround):
    """A cap on the disk is taken and not held."""

    async def provision(self, request: CreateRequest) -> DriverSandbox:
        caps = replace(request.resources, disk_mb=None)
        return await super().provision(replace(request, resources=caps))


class ReadsTheHost(FilesAround):
    """A path that is not in the sandbox is read on the host."""

    async def read(
        self,
        path: str,
        *,
        offset: int,
        length: int | None,
        sink: Callable[[bytes], Awaitable[None]],
    ) -> None:
        try:
            await super().read(path, offset=offset, length=length, sink=sink)
        except PathNotFound:
            if not Path(path).is_file():
                raise
            await sink(await anyio.Path(path).read_bytes())


class ReadsNothingAsEmpty(FilesAround):
    """A file that is missing is read as an empty one."""

    async def read(
        self,
        path: str,
        *,
        offset: int,
        length: int | None,
        sink: Callable[[bytes], Awaitable[None]],
    ) -> None:
        try:
            await super().read(path, offset=offset, length=length, sink=sink)
        except PathNotFound:
            await sink(b"")


class WritesBesideLinks(FilesAround):
    """A write removes what was at the path: links are replaced, other names keep the old."""

    async def write(
        self, path: str, source: AsyncIterable[bytes], *, size: int | None, mode: int | None
    ) -> None:
        if await self.inner.exists(path) and (await self.stat(path, follow=True)).kind == "file":
            await self.remove(path, recursive=False)
        await super().write(path, source, size=size, mode=mode)


class IgnoresTheMode(FilesAround):
    """A file is written without the mode that was asked for."""

    async def write(
        self, path: str, source: AsyncIterable[bytes], *, size: int | None, mode: int | None
    ) -> None:
        await super().write(path, source, size=size, mode=None)


class WritesThroughLinks(HandleAround):
    """What is downloaded to a link of the host is written to where the link leads."""

    @property
    def files(self) -> SandboxFiles:
        found = super().files

        async def download(remote: str, local: str | Path) -> None:
            await SandboxFiles.download(found, remote, Path(local).resolve())

        vars(found)["download"] = download
        return found


class RefusesInput(SandboxAround):
    """Input is declared, and refused by `run()`."""

    async def start(self, request: ExecRequest) -> ExecChannel:
        if request.stdin and request.max_output_bytes is not None:
            raise CapabilityNotSupported("This sandbox takes no input.")
        return await super().start(request)


class RefusesAllowlists(DriverAround):
    """Allowlists are declared and refused."""

    def refuse(self, request: CreateRequest) -> None:
        if request.network.allow:
            raise CapabilityNotSupported("This backend has no allowlists.")


class PretendsState(DriverAround):
    """State between calls is declared, and there is none."""

    @property
    def capabilities(self) -> Capability:
        return self.inner.capabilities | Capability.STATEFUL_CODE

    def around(self, made: DriverSandbox) -> DriverSandbox:
        return _Stateful(made, self.inner.clock, self.parts)


class _Stateful(SandboxAround):
    @property
    def capabilities(self) -> Capability:
        return self.inner.capabilities | Capability.STATEFUL_CODE


class DeclaresTooMuch(SandboxAround):
    """A sandbox declares what its backend does not, and what nothing is made of yet."""

    @property
    def capabilities(self) -> Capability:
        return self.inner.capabilities | Capability.PTY


class OutdoesTheClaim(SandboxAround):
    """A sandbox has a stronger tier than its backend claims."""

    @property
    def isolation(self) -> IsolationTier:
        return IsolationTier.VM


class GuessesTheTier(DriverAround):
    """A second handle has a weaker tier than the first one."""

    async def connect(self, sandbox_id: str) -> DriverSandbox:
        return _Process(await super().connect(sandbox_id), self.inner.clock, self.parts)


class _Process(SandboxAround):
    @property
    def isolation(self) -> IsolationTier:
        return IsolationTier.PROCESS


class ShowsItsVariables(HandleAround):
    """The `repr` of a sandbox shows what its variables are."""

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]} env={dict(self._variables())}>"


class KeepsItsVariables(HandleAround):
    """The values of variables are attributes of the handle."""

    def __init__(self, driver: DriverSandbox, **options: Any) -> None:
        super().__init__(driver, **options)
        self.environment = dict(options["env"])
