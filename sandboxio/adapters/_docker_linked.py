"""One container with the agent in it: every call, file and figure goes over the link."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandboxio.adapters import _docker_link as links
from sandboxio.adapters._docker_sandbox import ContainerSandbox
from sandboxio.core.lifecycle import undone
from sandboxio.guest.driver import LinkCalls

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sandboxio.adapters._docker_answers import ContainerDescription
    from sandboxio.adapters._docker_engine import Engine
    from sandboxio.adapters._docker_image import ImageFacts, User
    from sandboxio.core.driver import ExecChannel
    from sandboxio.core.models import Capability, Metrics
    from sandboxio.core.requests import CodeRequest, ExecRequest
    from sandboxio.core.tiers import IsolationTier
    from sandboxio.guest.link import Link


class LinkedSandbox(ContainerSandbox):
    """A container whose first process is the agent."""

    def __init__(
        self,
        engine: Engine,
        described: ContainerDescription,
        facts: ImageFacts,
        user: User,
        link: Link | None,
        isolation: IsolationTier,
    ) -> None:
        super().__init__(engine, described, facts, user, isolation)
        self._capabilities = self._flags(() if link is None else link.programs)
        self._calls = LinkCalls(
            lambda: links.relay(self._container),
            first=link,
            caller=self._account,
            environment=self._variables,
            cwd=self._cwd,
            gone=lambda: links.gone(self._container),
            memory_mb=described.memory_mb,
            timeout=self.timeout,
        )
        self.files = self._calls.files
        self._accounts: dict[str | None, str] = {}

    @property
    def capabilities(self) -> Capability:
        return self._capabilities

    async def start(self, request: ExecRequest) -> ExecChannel:
        return await self._calls.start(request)

    async def start_code(self, request: CodeRequest) -> ExecChannel:
        return await self._calls.start_code(request)

    async def metrics(self) -> Metrics:
        return await self._calls.metrics()

    async def ask(self) -> None:
        """Learn, on a sandbox that runs already, what its first link would have told."""
        self._capabilities = self._flags((await self._calls.link()).programs)

    async def remove(self) -> None:
        await undone(self._calls.aclose)
        await self._engine.remove(self._container.id)

    def _account(self, spec: str | None) -> str:
        if spec not in self._accounts:
            user = self._caller(spec)
            self._accounts[spec] = links.account(user, self._facts.groups_of(user))
        return self._accounts[spec]

    def _variables(self, spec: str | None, env: Mapping[str, str]) -> dict[str, str]:
        return self._environment(self._caller(spec), env)
