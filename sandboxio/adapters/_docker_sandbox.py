"""One container as a sandbox."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from sandboxio.adapters import _docker_container as containers
from sandboxio.adapters import _docker_exec as execs
from sandboxio.adapters._docker_image import WORKDIR
from sandboxio.adapters._docker_launch import Container, ExecSpec
from sandboxio.adapters._loader import load
from sandboxio.core.lifecycle import undone
from sandboxio.core.models import Capability
from sandboxio.core.tiers import IsolationTier
from sandboxio.guest import code, probe
from sandboxio.guest.shell_files import ShellFiles
from sandboxio.guest.shell_metrics import measure

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from sandboxio.adapters._docker_answers import ContainerDescription
    from sandboxio.adapters._docker_engine import Engine
    from sandboxio.adapters._docker_image import ImageFacts, User
    from sandboxio.core.models import Metrics
    from sandboxio.core.requests import CodeRequest, ExecRequest

CAPABILITIES = (
    Capability.RUN_COMMAND
    | Capability.RUN_CODE
    | Capability.STREAMING
    | Capability.FILESYSTEM
    | Capability.UPLOAD_DOWNLOAD
    | Capability.NETWORK_POLICY
    | Capability.STDIN
)
_REPORT_LIMIT = probe.REPORT_LIMIT


class ContainerSandbox:
    """What is the same of every container, however calls get into it."""

    def __init__(
        self,
        engine: Engine,
        described: ContainerDescription,
        facts: ImageFacts,
        user: User,
        isolation: IsolationTier,
    ) -> None:
        labels = described.labels
        self._engine = engine
        self._container = Container(
            engine,
            described.name,
            containers.PIDS_LIMIT,
            described.memory_mb,
            visible=isolation is IsolationTier.CONTAINER,
        )
        self._described = described
        self._facts = facts
        self._user = user
        self.id = labels[f"{containers.PREFIX}name"]
        self.isolation = isolation
        self.timeout = containers.lifetime_of(labels)
        self.metadata: Mapping[str, str] = containers.metadata_of(labels)

    @property
    def native(self) -> object:
        """docker-py's `Container`."""
        docker: Any = load("docker", backend="docker", extra="docker")
        models: Any = load("docker.models.containers", backend="docker", extra="docker")
        client = docker.DockerClient.__new__(docker.DockerClient)
        client.api = self._engine.client()
        return models.Container(attrs=self._described.raw, client=client)

    def _flags(self, programs: Collection[str]) -> Capability:
        flags = CAPABILITIES
        if not code.languages(programs):
            flags &= ~Capability.RUN_CODE
        return flags

    def explain(self, capability: Capability) -> str | None:
        if capability is Capability.RUN_CODE:
            return f"Its image has none of the interpreters {', '.join(probe.INTERPRETERS)}."
        return None

    def _caller(self, spec: str | None) -> User:
        return self._user if spec is None else containers.caller_user(self._facts, spec)

    def _cwd(self, cwd: str | None) -> str:
        return str(PurePosixPath(WORKDIR) / (cwd or ""))

    def _environment(self, user: User, env: Mapping[str, str]) -> dict[str, str]:
        defaults = {
            "PATH": f"{self._facts.path}:{user.home.rstrip('/')}/.local/bin",
            "HOME": user.home,
            "USER": user.name,
            "LOGNAME": user.name,
        }
        return {**defaults, **env}


class ExecSandbox(ContainerSandbox):
    """A container in which each call is an exec of the engine."""

    def __init__(
        self,
        engine: Engine,
        described: ContainerDescription,
        facts: ImageFacts,
        user: User,
        report: probe.Report,
        isolation: IsolationTier,
    ) -> None:
        super().__init__(engine, described, facts, user, isolation)
        self._report = report
        self.files = ShellFiles(self.start, timeout=self.timeout, give_up=self.remove)

    @property
    def capabilities(self) -> Capability:
        flags = self._flags(self._report.programs)
        if self._engine.endpoint.one_way_streams:
            flags &= ~Capability.STDIN
        return flags

    def explain(self, capability: Capability) -> str | None:
        if capability is Capability.STDIN:
            return "A stream to this engine cannot be half closed, so that stdin would never end."
        return super().explain(capability)

    async def start(self, request: ExecRequest) -> execs.DockerExec:
        user = self._caller(request.user)
        spec = ExecSpec(
            argv=request.argv,
            user=user.spec,
            cwd=self._cwd(request.cwd),
            env=self._environment(user, request.env),
            stdin=request.stdin,
        )
        return await execs.start(self._container, spec)

    async def start_code(self, request: CodeRequest) -> execs.DockerExec:
        command = code.command(request.language, request.code, self._report.programs)
        spec = ExecSpec(
            argv=command.argv,
            user=self._user.spec,
            cwd=self._cwd(request.cwd),
            env=self._environment(self._user, request.env),
            stdin=True,
        )
        channel = await execs.start(self._container, spec)
        channel.preface(command.stdin)
        return channel

    async def metrics(self) -> Metrics:
        return await measure(self.start, timeout=self.timeout, give_up=self.remove)

    async def remove(self) -> None:
        for channel in tuple(self._container.channels):
            await undone(channel.aclose)  # the engine waits for its output to be taken
        await self._engine.remove(self._container.id)

    async def ask(self) -> None:
        """Learn, on a sandbox that runs already, what its first words would have told."""
        spec = ExecSpec(("/bin/sh", "-c", probe.PROBE), self._user.spec, "/", {})
        channel = await execs.start(self._container, spec)
        said = b""
        try:
            while (chunk := await channel.receive()) is not None and len(said) < _REPORT_LIMIT:
                said += chunk.data
        finally:
            await undone(channel.aclose)
        self._report = probe.parse(said)
