"""The `Driver` of the fake: it makes sandboxes in memory and notes what they are asked."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import anyio.lowlevel

from sandboxio.core.errors import ConnectError
from sandboxio.core.models import ManagedSandbox
from sandboxio.core.redaction import Redactor
from sandboxio.core.requests import CodeRequest, CreateRequest, ExecRequest
from sandboxio.testing._faults import FOR_EVER, Faults
from sandboxio.testing._inside import Inside
from sandboxio.testing.calls import Call, Values

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sandboxio.core.models import Capability
    from sandboxio.core.tiers import IsolationTier
    from sandboxio.testing._machine.network import EgressAttempt
    from sandboxio.testing._rules import Rule
    from sandboxio.testing.clock import FakeClock


class FakeDriver:
    """Everything a `FakeBackend` knows."""

    def __init__(
        self,
        name: str,
        *,
        capabilities: Capability,
        isolation: IsolationTier,
        clock: FakeClock,
        latency: float,
        seed: int,
    ) -> None:
        self.name = name
        self.capabilities = capabilities
        self.isolation = isolation
        self.clock = clock
        self.latency = latency
        self.faults = Faults()
        self.calls: list[Call] = []
        self.attempts: list[EgressAttempt] = []
        self.on_run: list[Rule] = []
        self.on_run_code: list[Rule] = []
        self.sandboxes: dict[str, Inside] = {}
        self._made = 0
        self._dice = random.Random(seed)  # noqa: S311  # it is to be predictable

    def refuse(self, request: CreateRequest) -> None:
        """Nothing more than core refuses: the fake has every cap."""

    async def provision(self, request: CreateRequest) -> Inside:
        made = self.make(request)
        await anyio.lowlevel.checkpoint()
        error = self.faults.of_create(self._dice)
        await self._pause(self.latency + self.faults.create_takes)
        if error is not None:
            raise error
        await made.begin()
        self.sandboxes[made.id] = made
        return made

    def make(self, request: CreateRequest) -> Inside:
        """Make a sandbox that nobody can find yet."""
        self._made += 1
        made = Inside(self, f"{self.name}-{self._made:04}", request)
        self.note("create", made, request=request)
        return made

    async def connect(self, sandbox_id: str) -> Inside:
        await self._pause(self.latency)
        found = self.sandboxes.get(sandbox_id)
        if found is None or found.state != "running":
            raise ConnectError(
                f"No running sandbox of the {self.name} backend has the id {sandbox_id!r}."
            )
        self.note("connect", found)
        return found

    async def list_managed(self, labels: Mapping[str, str]) -> list[ManagedSandbox]:
        await self._pause(self.latency)
        return [
            ManagedSandbox(
                one.id,
                self.name,
                "running" if one.state == "running" else "stopped",
                one.created_at,
                dict(one.metadata),
            )
            for one in self.sandboxes.values()
            if one.state != "removed" and labels.items() <= one.metadata.items()
        ]

    async def remove_managed(self, sandbox_id: str) -> bool:
        await self._pause(self.latency)
        found = self.sandboxes.get(sandbox_id)
        if found is None or found.state == "removed":
            return False
        await found.remove()
        return True

    async def before_call(self) -> None:
        """Take the time of a call, and fail it if it is to fail."""
        await self._pause(self.latency)
        error = self.faults.of_call(self._dice)
        if error is not None:
            raise error

    async def before_removal(self) -> None:
        await self._pause(self.latency + self.faults.kill_takes)
        while self.faults.kill_hangs:
            await self.clock.sleep(FOR_EVER)

    def note(
        self,
        op: str,
        sandbox: Inside,
        *,
        request: CreateRequest | ExecRequest | CodeRequest | None = None,
        path: str | None = None,
        data: bytes | None = None,
    ) -> Call:
        """Record a call."""
        made = sandbox.request
        call = Call(
            op=op,
            sandbox_id=sandbox.id,
            at=self.clock.time(),
            network=made.network,
            resources=made.resources,
            path=path,
            data=data,
            secrets=tuple(sorted(made.secrets)),
        )
        if isinstance(request, CreateRequest):
            call.template, call.metadata = request.template, request.metadata
        if request is not None:
            open_env = {k: v for k, v in request.env.items() if made.secrets.get(k) != v}
            call.env, call.timeout = Values(open_env), request.timeout
        redact = Redactor(made.secrets.values()).redact
        if isinstance(request, ExecRequest):
            cmd = request.cmd
            call.cmd = redact(cmd) if isinstance(cmd, str) else tuple(redact(p) for p in cmd)
            call.stdin = b"" if request.stdin else None
        if isinstance(request, CodeRequest):
            call.code, call.language = redact(request.code), request.language
        if isinstance(request, ExecRequest | CodeRequest):
            call.cwd, call.max_output_bytes = request.cwd, request.max_output_bytes
        if isinstance(request, ExecRequest | CreateRequest):
            call.user = request.user
        self.calls.append(call)
        return call

    async def _pause(self, seconds: float) -> None:
        await anyio.lowlevel.checkpoint()
        self.clock.touch()
        if seconds:
            await self.clock.sleep(seconds)
