"""A backend in memory whose sandboxes answer code with whatever a test says."""

from __future__ import annotations

import json
import re
import socket
from ast import literal_eval
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from anyio import sleep_forever
from anyio.lowlevel import checkpoint

from sandboxio.core.driver import ExitStatus, KillReport
from sandboxio.core.errors import ConnectError
from sandboxio.core.models import Capability, ManagedSandbox, OutputChunk
from sandboxio.core.tiers import IsolationTier

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sandboxio.core.models import Metrics
    from sandboxio.core.requests import CodeRequest, CreateRequest, ExecRequest

Network = Callable[[dict[str, Any]], dict[str, Any]]
CAPABILITIES = (
    Capability.RUN_COMMAND | Capability.RUN_CODE | Capability.STREAMING | Capability.NETWORK_POLICY
)


def closed(plan: dict[str, Any]) -> dict[str, Any]:
    """Answer the egress probe as a sandbox without a network does."""
    targets = [f"{host}:{port}" for host, port in plan["addresses"]]
    refused = {name: ["refused", "unreachable"] for name in [*targets, f"name {plan['name']}"]}
    return {"control": ["reached", "connected"], **refused}


def lying(plan: dict[str, Any]) -> dict[str, Any]:
    """Get out with the token, and deny it."""
    with socket.create_connection(tuple(plan["addresses"][0])) as link:
        link.sendall(plan["token"].encode())
    return closed(plan)


def leaking(plan: dict[str, Any]) -> dict[str, Any]:
    """Say that a name could be resolved."""
    return {**closed(plan), f"name {plan['name']}": ["reached", "192.0.2.1"]}


def deaf(plan: dict[str, Any]) -> dict[str, Any]:
    """Be unable to connect even to oneself."""
    return {**closed(plan), "control": ["refused", "no socket"]}


class World:
    """A `Driver`; set its attributes before the command that should see them."""

    name = "world"
    isolation = IsolationTier.CONTAINER

    def __init__(self) -> None:
        self.capabilities = CAPABILITIES
        self.created: list[CreateRequest] = []
        self.there: dict[str, ManagedSandbox] = {}
        self.network: Network = closed
        self.said = "5050 from Python 3.12.0\n"
        self.immortal = False
        """Teardown says that it worked, and did nothing."""
        self.hangs = False
        """Listing never ends."""
        self.trouble: dict[str, Exception] = {}
        """What running code (`"code"`) or removing an id raises."""

    def add(self, sandbox_id: str, **labels: str) -> None:
        self.there[sandbox_id] = ManagedSandbox(sandbox_id, self.name, "running", labels=labels)

    def refuse(self, request: CreateRequest) -> None:
        self.created.append(request)

    async def provision(self, request: CreateRequest) -> WorldSandbox:
        await checkpoint()
        self.add("new", **request.metadata)
        return WorldSandbox(self)

    async def connect(self, sandbox_id: str) -> WorldSandbox:
        await checkpoint()
        if sandbox_id not in self.there:
            raise ConnectError("No such sandbox.", outcome="not_started")
        return WorldSandbox(self)

    async def list_managed(self, labels: Mapping[str, str]) -> list[ManagedSandbox]:
        await checkpoint()
        if self.hangs:
            await sleep_forever()
        found = list(self.there.values())
        return [sandbox for sandbox in found if labels.items() <= sandbox.labels.items()]

    async def remove_managed(self, sandbox_id: str) -> bool:
        await checkpoint()
        if sandbox_id in self.trouble:
            raise self.trouble[sandbox_id]
        return self.there.pop(sandbox_id, None) is not None

    def answer(self, code: str) -> str:
        if "code" in self.trouble:
            raise self.trouble["code"]
        plan = re.search(r"^plan = json\.loads\((.*)\)$", code, re.MULTILINE)
        if plan is None:
            return self.said
        return json.dumps(self.network(json.loads(literal_eval(plan[1]))))


class WorldSandbox:
    """A `DriverSandbox`."""

    id = "new"
    isolation = IsolationTier.CONTAINER
    timeout = 60.0
    native = None
    files: Any = None

    def __init__(self, world: World) -> None:
        self._world = world
        self.capabilities = world.capabilities
        self.metadata: Mapping[str, str] = {}

    async def start(self, request: ExecRequest) -> WorldCall:
        await checkpoint()
        return WorldCall("line1\nline2\nline3\n")

    async def start_code(self, request: CodeRequest) -> WorldCall:
        await checkpoint()
        return WorldCall(self._world.answer(request.code))

    def explain(self, capability: Capability) -> str | None:
        return None

    async def metrics(self) -> Metrics:
        raise NotImplementedError

    async def remove(self) -> None:
        await checkpoint()
        if not self._world.immortal:
            self._world.there.pop(self.id, None)


class WorldCall:
    """An `ExecChannel` that has one thing to say."""

    def __init__(self, said: str) -> None:
        self._left = [OutputChunk("stdout", said.encode())]

    async def receive(self) -> OutputChunk | None:
        await checkpoint()
        return self._left.pop() if self._left else None

    async def wait(self) -> ExitStatus:
        await checkpoint()
        return ExitStatus(0)

    async def kill(self) -> KillReport:
        await checkpoint()
        return KillReport(complete=True)

    async def send(self, data: bytes) -> None:
        await checkpoint()

    async def close_stdin(self) -> None:
        await checkpoint()

    async def aclose(self) -> None:
        await checkpoint()
