"""Docker: one hardened container per sandbox, one engine exec per call."""

from __future__ import annotations

import contextlib
import secrets
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args
from urllib.parse import quote

import anyio

from sandboxio.adapters import _docker_container as containers
from sandboxio.adapters import _docker_image as images
from sandboxio.adapters._docker_answers import (
    Answer,
    ContainerDescription,
    ImageDescription,
)
from sandboxio.adapters._docker_engine import Engine
from sandboxio.adapters._docker_sandbox import CAPABILITIES, DockerSandbox
from sandboxio.adapters._docker_stream import READ_BYTES, FrameDecoder
from sandboxio.adapters._docker_watcher import ANSWERED, BEGUN, watcher_for
from sandboxio.core.backend import DriverBackend
from sandboxio.core.config import BackendConfig
from sandboxio.core.errors import (
    ConfigurationError,
    ConnectError,
    CreationError,
    LinkLost,
    SandboxError,
    SandboxGone,
)
from sandboxio.core.lifecycle import undone_on_failure
from sandboxio.core.requests import text
from sandboxio.core.tiers import IsolationTier
from sandboxio.guest import probe

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sandboxio.adapters._docker_image import ImageFacts, User
    from sandboxio.adapters._docker_watcher import Watcher
    from sandboxio.core.models import ManagedSandbox
    from sandboxio.core.record import OperationRecord
    from sandboxio.core.requests import CreateRequest

DEFAULT_IMAGE = "python:3.12-slim"
_CONTAINER_RUNTIMES = ("runc", "crun")
_LAST_WORDS = 2048
_BIRTH_SECONDS = 60.0
"""Seconds the engine has to answer a create call, whatever the caller's own deadline is."""
_ENDING_PAUSES = (0.05, 0.1, 0.2, 0.4)
_GATEWAY = (502, 503, 504)
"""What something between us and the engine answers; the engine may go on regardless."""
_BIRTH_PAUSE, _LATE_BIRTH_PAUSE = 0.02, 0.2


PullPolicy = Literal["missing", "never"]


@dataclass(frozen=True, kw_only=True)
class DockerConfig(BackendConfig):
    """Configuration of the Docker backend.

    Example:
        >>> DockerConfig(template="ghcr.io/acme/agent-runtime:1.4").backend
        'docker'
    """

    backend: ClassVar[str] = "docker"

    host: str | None = field(default=None, repr=False)
    """Engine address; `None` follows DOCKER_HOST, then the current context, then the default."""
    tls_directory: str | None = None
    """Folder with ca.pem, cert.pem and key.pem for `host`; `None` without TLS."""
    pull: PullPolicy = "missing"
    """Whether an image that is not on the engine is pulled."""
    on_pull: Callable[[str], None] | None = field(default=None, compare=False)
    """Receives progress lines of a pull, from a worker thread."""

    def __post_init__(self) -> None:
        if self.pull not in get_args(PullPolicy):
            raise ConfigurationError('DockerConfig.pull must be "missing" or "never".')
        for name in ("host", "tls_directory"):
            value: object = getattr(self, name)
            if value is not None:
                text(f"DockerConfig.{name}", value)
        if self.tls_directory is not None and self.host is None:
            raise ConfigurationError(
                "DockerConfig.tls_directory belongs to DockerConfig.host, which is not set.",
                hint="Set host= too; for DOCKER_HOST use DOCKER_TLS_VERIFY and DOCKER_CERT_PATH.",
            )


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
        watcher = watcher_for(self.engine.endpoint)
        await watcher.start()
        birth = _Birth(secrets.token_hex(8), watcher)
        async with undone_on_failure(
            lambda: self._undo(birth),
            backend=self.name,
            name=birth.sandbox_id,
            labels=request.metadata,
        ):
            made = await self._make(birth, request, image)
            await watcher.settle()
            return made

    async def _undo(self, birth: _Birth) -> None:
        """Remove what provisioning made so far; a container still to come is waited for."""
        while birth.under_way:  # noqa: ASYNC110  # it ends in a thread
            await anyio.sleep(_BIRTH_PAUSE)
        while not await self.engine.remove(birth.name) and birth.unanswered:  # noqa: ASYNC110
            await anyio.sleep(_LATE_BIRTH_PAUSE)

    async def _make(
        self, birth: _Birth, request: CreateRequest, image: ImageDescription
    ) -> DockerSandbox:
        container = await self._create(birth, request, image, ())
        facts = await self._facts_of(container, image)
        user = _default_user(facts, request.user)
        if groups := facts.groups_of(user):
            await self.engine.remove(container)
            container = await self._create(birth, request, image, groups)
        archive = containers.preparation(facts, user, hosts=request.network.egress == "deny")
        await self.engine.call("create", lambda client: client.put_archive(container, "/", archive))
        report = await self._start(container)
        described = await self._describe(container)
        containers.check_identity(described, birth.name)
        containers.check_limits(described, request)
        containers.check_network(described, request)
        probe.verify(report, network=request.network.egress != "deny")
        return await self._sandbox(described, facts, user, report)

    async def _create(
        self,
        birth: _Birth,
        request: CreateRequest,
        image: ImageDescription,
        groups: tuple[int, ...],
    ) -> str:
        def make(client: Any) -> str:
            with birth:
                return containers.make(client, birth.sandbox_id, request, image, groups)

        return await self.engine.call(
            "create",
            make,
            at_least=_BIRTH_SECONDS,
            late=lambda: self.engine.remove_late(birth.name),
        )

    async def _facts_of(self, container: str, image: ImageDescription) -> ImageFacts:
        if image.id not in self._facts:
            self._facts[image.id] = await self.engine.call(
                "create", lambda client: images.read_facts(client, container, image)
            )
        return self._facts[image.id]

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

    async def _first_process_ended(self, container: str, stderr: bytes) -> SandboxError:
        described = await self._describe(container)
        for pause in _ENDING_PAUSES:  # the engine may not have noticed yet
            if not described.running:
                break
            await anyio.sleep(pause)
            described = await self._describe(container)
        if described.running:
            return LinkLost("The connection to the engine broke while the sandbox started.")
        code = described.exit_code
        words = stderr[-_LAST_WORDS:].decode("utf-8", "replace").strip()
        hint = "Use an image with a shell and sleep, such as docker://python:3.12-slim"
        if "exec format error" in words.lower():
            hint = await images.platforms(self.engine, described.image)
        return CreationError(
            f"The container's first process ended with exit code {code}: "
            f"{words or 'it said nothing'}",
            hint=hint,
            outcome="not_started",
        )

    async def connect(self, sandbox_id: str) -> DockerSandbox:
        described = await self._find(sandbox_id)
        if described is None or not described.running:
            raise ConnectError(
                f"No running Docker sandbox has the id {sandbox_id[:64]!r}.",
                hint="List those there are: sandboxio reap",
                outcome="not_started",
            )
        image = await self.engine.call(
            "image", lambda client: ImageDescription(client.inspect_image(described.image))
        )
        facts = await self._facts_of(described.id, image)
        user = _default_user(facts, described.labels.get(f"{containers.PREFIX}user"))
        sandbox = await self._sandbox(described, facts, user, probe.Report())
        try:
            await sandbox.ask()
        except SandboxGone as exc:
            raise ConnectError(exc.message, outcome="not_started") from exc
        return sandbox

    async def list_managed(self, labels: Mapping[str, str]) -> list[ManagedSandbox]:
        filters = [f"{containers.PREFIX}managed=true"]
        filters += [f"{containers.PREFIX}meta.{key}={value}" for key, value in labels.items()]

        def ask(client: Any) -> list[ManagedSandbox]:
            found: list[Answer] = client.containers(all=True, filters={"label": filters})
            return [sandbox for entry in found for sandbox in containers.managed(entry)]

        return await self.engine.call("connect", ask)

    async def remove_managed(self, sandbox_id: str) -> bool:
        found = await self._find(sandbox_id)
        return found is not None and await self.engine.remove(found.id)

    async def _sandbox(
        self, described: ContainerDescription, facts: ImageFacts, user: User, report: probe.Report
    ) -> DockerSandbox:
        path = (await self.engine.runtimes()).get(described.runtime, "")
        return DockerSandbox(self.engine, described, facts, user, report, tier_of(path))

    async def _find(self, sandbox_id: str) -> ContainerDescription | None:
        if not containers.is_id(sandbox_id):
            return None
        found = await self.engine.find(containers.NAME_PREFIX + sandbox_id)
        if found is None or not containers.is_ours(found.name, found.labels):
            return None
        return found

    async def _describe(self, container: str) -> ContainerDescription:
        return await self.engine.call(
            "create", lambda client: ContainerDescription(client.inspect_container(container))
        )


class _Birth:
    """A container on its way: named by us beforehand, so that it can be found in any case."""

    def __init__(self, sandbox_id: str, watcher: Watcher) -> None:
        self._watcher = watcher
        self.sandbox_id = sandbox_id
        self.name = containers.NAME_PREFIX + sandbox_id
        self.under_way = False
        self.unanswered = False
        """The engine was asked and did not say whether it made the container."""

    def __enter__(self) -> None:
        self._watcher.tell(BEGUN)
        self.under_way = self.unanswered = True

    def __exit__(self, kind: type[BaseException] | None, exc: object, trace: object) -> None:
        self.under_way = False
        status = getattr(exc, "status_code", None)
        self.unanswered = kind is not None and (status is None or status in _GATEWAY)
        if not self.unanswered:
            self._watcher.tell(ANSWERED)


def tier_of(runtime: str) -> IsolationTier:
    """Return the tier of the program that runs containers, given its path on the engine."""
    known = PurePosixPath(runtime).name in _CONTAINER_RUNTIMES
    return IsolationTier.CONTAINER if known else IsolationTier.UNKNOWN


def _default_user(facts: ImageFacts, spec: str | None) -> User:
    return containers.caller_user(facts, spec) if spec else containers.sandbox_user(facts)
