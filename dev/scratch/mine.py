"""An adapter on its first day: it makes sandboxes, and cannot do anything in them yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from sandboxio.core.backend import DriverBackend
from sandboxio.core.models import Capability
from sandboxio.core.tiers import IsolationTier

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sandboxio.core.driver import DriverFiles
    from sandboxio.core.models import ManagedSandbox
    from sandboxio.core.requests import CodeRequest, CreateRequest, ExecRequest


class MySandbox:
    capabilities = Capability.RUN_COMMAND
    isolation = IsolationTier.CONTAINER
    id = "mine-1"
    native = None

    def __init__(self, request: CreateRequest) -> None:
        self.timeout, self.metadata = request.timeout, request.metadata

    @property
    def files(self) -> DriverFiles:
        raise NotImplementedError("files")

    def explain(self, capability: Capability) -> None: ...

    async def start(self, request: ExecRequest) -> NoReturn:
        raise NotImplementedError("start")

    async def start_code(self, request: CodeRequest) -> NoReturn:
        raise NotImplementedError("start_code")

    async def metrics(self) -> NoReturn:
        raise NotImplementedError("metrics")

    async def remove(self) -> None: ...


class MyDriver:
    name = "mine"
    capabilities = Capability.RUN_COMMAND
    isolation = IsolationTier.CONTAINER

    def refuse(self, request: CreateRequest) -> None: ...

    async def provision(self, request: CreateRequest) -> MySandbox:
        return MySandbox(request)

    async def connect(self, sandbox_id: str) -> MySandbox:
        raise NotImplementedError("connect")

    async def list_managed(self, labels: Mapping[str, str]) -> list[ManagedSandbox]:
        return []

    async def remove_managed(self, sandbox_id: str) -> bool:
        return False


class MyBackend(DriverBackend):
    def __init__(self) -> None:
        super().__init__(MyDriver())
