"""Docker: one hardened container per sandbox, one engine exec per call."""

from __future__ import annotations

import contextlib
import secrets
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, ClassVar, Literal
from urllib.parse import quote

import anyio

from sandboxio.adapters import _docker_container as containers
from sandboxio.adapters import _docker_exec as execs
from sandboxio.adapters import _docker_image as images
from sandboxio.adapters._docker_engine import Engine
from sandboxio.adapters._docker_stream import READ_BYTES, FrameDecoder
from sandboxio.core.backend import DriverBackend
from sandboxio.core.config import BackendConfig
from sandboxio.core.errors import ConnectError, CreationError, SandboxGone
from sandboxio.core.lifecycle import undone_on_failure
from sandboxio.core.models import Capability, ManagedSandbox
from sandboxio.core.tiers import IsolationTier
from sandboxio.guest import code, probe
from sandboxio.guest.shell_files import ShellFiles

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sandboxio.adapters._docker_image import ImageFacts, User
    from sandboxio.core.record import OperationRecord
    from sandboxio.core.requests import CodeRequest, CreateRequest, ExecRequest

DEFAULT_IMAGE = "python:3.12-slim"
CAPABILITIES = (
    Capability.RUN_COMMAND
    | Capability.RUN_CODE
    | Capability.STREAMING
    | Capability.FILESYSTEM
    | Capability.UPLOAD_DOWNLOAD
    | Capability.NETWORK_POLICY
    | Capability.STDIN
)
_CONTAINER_RUNTIMES = ("runc", "crun")
_LAST_WORDS = 2048


@dataclass(frozen=True, kw_only=True)
class DockerConfig(BackendConfig):
    """Configuration of the Docker backend.

    Example:
        >>> DockerConfig(template="ghcr.io/acme/agent-runtime:1.4").backend
        'docker'
    """

    backend: ClassVar[str] = "docker"

    host: str | None = None
    """Engine address; `None` follows DOCKER_HOST, then the current context, then the default."""
    tls_directory: str | None = None
    """Folder with ca.pem, cert.pem and key.pem for `host`; `None` without TLS."""
    pull: Literal["missing", "never"] = "missing"
    """Whether an image that is not on the engine is pulled."""
    on_pull: Callable[[str], None] | None = field(default=None, compare=False)
    """Receives progress lines of a pull, from a worker thread."""


class DockerBackend(DriverBackend):
    """Sandboxes as containers of a Docker engine.

    `image` is used where `create()` names no template. `on_record` receives the record of every
    operation.
    """

    config_type = DockerConfig

    def __init__(
        self,
        *,
        image: str = DEFAULT_IMAGE,
        config: DockerConfig | None = None,
        on_record: Callable[[OperationRecord], None] | None = None,
    ) -> None:
        self._image = image
        self._config_on_record = on_record
        super().__init__(DockerDriver(image=image, config=config), on_record=on_record)

    def configured(self, config: DockerConfig) -> DockerBackend:
        """Return a backend with the engine and pull settings of a configuration."""
        return DockerBackend(image=self._image, config=config, on_record=self._config_on_record)


class DockerDriver:
    """Provider work for Docker; see `core.driver.Driver`."""

    name = "docker"
    capabilities = CAPABILITIES
    isolation = IsolationTier.CONTAINER

    def __init__(self, *, image: str = DEFAULT_IMAGE, config: DockerConfig | None = None) -> None:
        self._image = image
        self._config = config or DockerConfig()
        self.engine = Engine(config)
        self._facts: dict[str, ImageFacts] = {}

    def refuse(self, request: CreateRequest) -> None:
        images.parse_reference(request.template or self._image)
        containers.refuse(request)

    async def provision(self, request: CreateRequest) -> DockerSandbox:
        image = await images.bring(
            self.engine,
            request.template or self._image,
            pull=self._config.pull == "missing",
            progress=self._config.on_pull,
        )
        sandbox_id = secrets.token_hex(8)
        name = containers.NAME_PREFIX + sandbox_id
        async with undone_on_failure(
            lambda: self._discard(name),
            backend=self.name,
            name=sandbox_id,
            labels=request.metadata,
        ):
            return await self._make(sandbox_id, request, image)

    async def _make(
        self, sandbox_id: str, request: CreateRequest, image: dict[str, Any]
    ) -> DockerSandbox:
        container = await self._create(sandbox_id, request, image, ())
        facts = await self._facts_of(container, image)
        user = _default_user(facts, request.user)
        if groups := facts.groups_of(user):
            await self._discard(container)
            container = await self._create(sandbox_id, request, image, groups)
        archive = containers.preparation(facts, user, hosts=request.network.egress == "deny")
        await self.engine.call("create", lambda client: client.put_archive(container, "/", archive))
        report = await self._start(container)
        described = await self._describe(container)
        containers.check_limits(described, request)
        containers.check_network(described, request)
        probe.verify(report, network=request.network.egress != "deny")
        return await self._sandbox(described, facts, user, report)

    async def _create(
        self,
        sandbox_id: str,
        request: CreateRequest,
        image: dict[str, Any],
        groups: tuple[int, ...],
    ) -> str:
        return await self.engine.call(
            "create",
            lambda client: containers.make(client, sandbox_id, request, image, groups),
            late=self._discard_late,
        )

    async def _facts_of(self, container: str, image: dict[str, Any]) -> ImageFacts:
        key = str(image["Id"])
        if key not in self._facts:
            self._facts[key] = await self.engine.call(
                "create", lambda client: images.read_facts(client, container, image)
            )
        return self._facts[key]

    async def _start(self, container: str) -> probe.Report:
        """Start the container and hear its first words, or say why there were none."""
        stream, early = await self.engine.stream(
            "create", f"/containers/{quote(container)}/attach?stream=1&stdout=1&stderr=1"
        )
        said = {"stdout": b"", "stderr": b""}
        decoder, data = FrameDecoder(), early
        try:
            await self.engine.call("create", lambda client: client.start(container))
            while True:
                for chunk in decoder.feed(data):
                    kept = said[chunk.stream] + chunk.data
                    said[chunk.stream] = kept[-probe.REPORT_LIMIT :]
                if said["stdout"].endswith(probe.READY):
                    return probe.parse(said["stdout"])
                data = await stream.receive(READ_BYTES)
        except (anyio.EndOfStream, anyio.BrokenResourceError, OSError) as exc:
            raise await self._first_process_ended(container, said["stderr"]) from exc
        finally:
            with anyio.CancelScope(shield=True), contextlib.suppress(OSError):
                await stream.aclose()

    async def _first_process_ended(self, container: str, stderr: bytes) -> CreationError:
        state: dict[str, Any] = (await self._describe(container)).get("State") or {}
        words = stderr[-_LAST_WORDS:].decode("utf-8", "replace").strip()
        hint = "Use an image with a shell and sleep, such as docker://python:3.12-slim"
        if "exec format error" in words.lower():
            hint = "The image is for another platform; use one for the engine's architecture."
        return CreationError(
            f"The container's first process ended with exit code {state.get('ExitCode')}: "
            f"{words or 'it said nothing'}",
            hint=hint,
            outcome="not_started",
        )

    async def connect(self, sandbox_id: str) -> DockerSandbox:
        described = await self._find(sandbox_id)
        if described is None or not (described.get("State") or {}).get("Running"):
            raise ConnectError(
                f"No running Docker sandbox has the id {sandbox_id[:64]!r}.",
                hint="List those there are: sandboxio reap",
                outcome="not_started",
            )
        image = await self.engine.call(
            "image", lambda client: client.inspect_image(described["Image"])
        )
        facts = await self._facts_of(described["Id"], image)
        labels = described["Config"].get("Labels") or {}
        user = _default_user(facts, labels.get(f"{containers.PREFIX}user"))
        sandbox = await self._sandbox(described, facts, user, probe.Report())
        await sandbox.ask()
        return sandbox

    async def list_managed(self, labels: Mapping[str, str]) -> list[ManagedSandbox]:
        filters = [f"{containers.PREFIX}managed=true"]
        filters += [f"{containers.PREFIX}meta.{key}={value}" for key, value in labels.items()]
        found: list[dict[str, Any]] = await self.engine.call(
            "connect", lambda client: client.containers(all=True, filters={"label": filters})
        )
        return [
            _managed(entry)
            for entry in found
            if any(containers.is_ours(name, entry.get("Labels") or {}) for name in entry["Names"])
        ]

    async def remove_managed(self, sandbox_id: str) -> bool:
        if await self._find(sandbox_id) is None:
            return False
        return await self._discard(containers.NAME_PREFIX + sandbox_id)

    async def _sandbox(
        self, described: dict[str, Any], facts: ImageFacts, user: User, report: probe.Report
    ) -> DockerSandbox:
        runtime = str((described.get("HostConfig") or {}).get("Runtime", ""))
        path = (await self.engine.runtimes()).get(runtime, "")
        known = PurePosixPath(path).name in _CONTAINER_RUNTIMES
        tier = IsolationTier.CONTAINER if known else IsolationTier.UNKNOWN
        return DockerSandbox(self, described, facts, user, report, tier)

    async def _find(self, sandbox_id: str) -> dict[str, Any] | None:
        name = containers.NAME_PREFIX + sandbox_id
        found = await self.engine.call("connect", lambda client: _inspect(client, name))
        if found is None:
            return None
        labels = (found.get("Config") or {}).get("Labels") or {}
        return found if containers.is_ours(str(found.get("Name")), labels) else None

    async def _describe(self, container: str) -> dict[str, Any]:
        described: dict[str, Any] = await self.engine.call(
            "create", lambda client: client.inspect_container(container)
        )
        return described

    async def _discard(self, name: str) -> bool:
        """Remove a container; False when there was none."""
        return await self.engine.call("remove", lambda client: _remove(client, name), urgent=True)

    def _discard_late(self, container: str) -> None:
        with contextlib.suppress(Exception):  # nobody is left to tell; the lifetime bounds it
            _remove(self.engine.client(), container)


class DockerSandbox:
    """One container; see `core.driver.DriverSandbox`."""

    def __init__(
        self,
        driver: DockerDriver,
        described: dict[str, Any],
        facts: ImageFacts,
        user: User,
        report: probe.Report,
        isolation: IsolationTier,
    ) -> None:
        labels: dict[str, str] = described["Config"].get("Labels") or {}
        self._driver = driver
        self._name = str(described["Name"]).removeprefix("/")
        self._described = described
        self._facts = facts
        self._user = user
        self._report = report
        self.id = labels[f"{containers.PREFIX}name"]
        self.isolation = isolation
        self.timeout = float(labels[f"{containers.PREFIX}timeout"])
        self.metadata: Mapping[str, str] = containers.metadata_of(labels)
        self.files = ShellFiles(self.start, timeout=self.timeout)

    @property
    def capabilities(self) -> Capability:
        flags = CAPABILITIES
        if not code.languages(self._report.programs):
            flags &= ~Capability.RUN_CODE
        if self._driver.engine.endpoint.one_way_streams:
            flags &= ~Capability.STDIN
        return flags

    @property
    def native(self) -> object:
        """docker-py's `Container`."""
        import docker
        from docker.models.containers import Container

        client = docker.DockerClient.__new__(docker.DockerClient)
        client.api = self._driver.engine.client()
        return Container(attrs=self._described, client=client)

    async def start(self, request: ExecRequest) -> execs.DockerExec:
        user = self._caller(request.user)
        spec = execs.ExecSpec(
            argv=request.argv,
            user=user.spec,
            cwd=self._cwd(request.cwd),
            env=self._environment(user, request.env),
            stdin=request.stdin,
        )
        return await execs.start(self._container, spec)

    async def start_code(self, request: CodeRequest) -> execs.DockerExec:
        command = code.command(request.language, request.code, self._report.programs)
        spec = execs.ExecSpec(
            argv=command.argv,
            user=self._user.spec,
            cwd=self._cwd(request.cwd),
            env=self._environment(self._user, request.env),
            stdin=True,
        )
        channel = await execs.start(self._container, spec)
        channel.preface(command.stdin)
        return channel

    async def remove(self) -> None:
        await self._driver._discard(self._name)  # noqa: SLF001

    async def ask(self) -> None:
        """Learn, on a sandbox that runs already, what its first words would have told."""
        spec = execs.ExecSpec(("/bin/sh", "-c", probe.PROBE), self._user.spec, "/", {})
        channel = await execs.start(self._container, spec)
        said = b""
        while (chunk := await channel.receive()) is not None and len(said) < probe.REPORT_LIMIT:
            said += chunk.data
        await channel.aclose()
        self._report = probe.parse(said)

    @property
    def _container(self) -> execs.Container:
        return execs.Container(
            self._driver.engine, self._name, self._report.process, containers.PIDS_LIMIT
        )

    def _caller(self, spec: str | None) -> User:
        if spec is None or spec == self._user.name:
            return self._user
        return containers.caller_user(self._facts, spec)

    def _cwd(self, cwd: str | None) -> str:
        return str(PurePosixPath(containers.WORKDIR) / (cwd or ""))

    def _environment(self, user: User, env: Mapping[str, str]) -> dict[str, str]:
        defaults = {
            "PATH": f"{self._facts.path}:{user.home.rstrip('/')}/.local/bin",
            "HOME": user.home,
            "USER": user.name,
            "LOGNAME": user.name,
        }
        return {**defaults, **env}


def _default_user(facts: ImageFacts, spec: str | None) -> User:
    return containers.caller_user(facts, spec) if spec else containers.sandbox_user(facts)


def _inspect(client: Any, name: str) -> dict[str, Any] | None:
    from docker.errors import NotFound

    try:
        found: dict[str, Any] = client.inspect_container(name)
    except NotFound:
        return None
    return found


def _remove(client: Any, name: str) -> bool:
    """Remove a container and wait until it is gone, also when somebody else is at it."""
    import time

    from docker.errors import APIError, NotFound

    for _ in range(50):
        try:
            client.remove_container(name, force=True, v=True)
        except NotFound:
            return False
        except APIError as exc:
            if exc.status_code != 409:
                raise
            time.sleep(0.1)
            if _inspect(client, name) is None:
                return False
        else:
            return True
    raise SandboxGone("The engine keeps removing the container and does not finish.")


def _managed(entry: dict[str, Any]) -> ManagedSandbox:
    labels: dict[str, str] = entry.get("Labels") or {}
    state = str(entry.get("State", ""))
    known: Literal["running", "paused", "stopped"] = (
        "running" if state == "running" else "paused" if state == "paused" else "stopped"
    )
    return ManagedSandbox(
        sandbox_id=labels[f"{containers.PREFIX}name"],
        backend="docker",
        state=known,
        created_at=datetime.fromtimestamp(int(entry.get("Created", 0))).astimezone(),
        labels=containers.metadata_of(labels),
    )
