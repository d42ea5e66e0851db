"""Docker: one hardened container per sandbox, with an agent of ours in it where it has Python."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

from sandboxio.adapters import _docker_container as containers
from sandboxio.adapters import _docker_image as images
from sandboxio.adapters._docker_answers import Answer, ContainerDescription, ImageDescription
from sandboxio.adapters._docker_birth import Maker, Memory, default_user, facts_of, joined
from sandboxio.adapters._docker_engine import Engine
from sandboxio.adapters._docker_sandbox import CAPABILITIES
from sandboxio.core.backend import DriverBackend
from sandboxio.core.config import BackendConfig
from sandboxio.core.errors import ConfigurationError, ConnectError, SandboxGone
from sandboxio.core.requests import text
from sandboxio.core.tiers import IsolationTier

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sandboxio.adapters._docker_linked import LinkedSandbox
    from sandboxio.adapters._docker_sandbox import ExecSandbox
    from sandboxio.core.models import ManagedSandbox
    from sandboxio.core.record import OperationRecord
    from sandboxio.core.requests import CreateRequest

DEFAULT_IMAGE = "python:3.12-slim"
LINK_VARIABLE = "SBX_DOCKER_LINK"

LinkPolicy = Literal["auto", "never"]
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
    link: LinkPolicy = "auto"
    """`"auto"` reaches the sandbox through an agent of ours where its image has Python 3.8 or
    newer; `"never"` through an engine exec for each call, as where there is none."""
    on_pull: Callable[[str], None] | None = field(default=None, compare=False)
    """Receives progress lines of a pull, from a worker thread."""

    def __post_init__(self) -> None:
        if self.pull not in get_args(PullPolicy):
            raise ConfigurationError('DockerConfig.pull must be "missing" or "never".')
        if self.link not in get_args(LinkPolicy):
            raise ConfigurationError('DockerConfig.link must be "auto" or "never".')
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
        self._memory = Memory()

    def refuse(self, request: CreateRequest) -> None:
        images.parse_reference(request.template or self._image)
        containers.refuse(request)

    async def provision(self, request: CreateRequest) -> LinkedSandbox | ExecSandbox:
        image = await images.bring(
            self.engine,
            request.template or self._image,
            pull=self._config.pull == "missing",
            progress=self._config.on_pull,
        )
        return await Maker(self.engine, request, image, self._memory).make(
            link=self._config.link == "auto" and os.environ.get(LINK_VARIABLE) != "0"
        )

    async def connect(self, sandbox_id: str) -> LinkedSandbox | ExecSandbox:
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
        facts = await facts_of(self.engine, described.id, image, self._memory)
        user = default_user(facts, described.labels.get(f"{containers.PREFIX}user"))
        try:
            return await joined(self.engine, described, facts, user)
        except SandboxGone as exc:
            raise ConnectError(exc.message, outcome="not_started") from exc

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

    async def _find(self, sandbox_id: str) -> ContainerDescription | None:
        if not containers.is_id(sandbox_id):
            return None
        found = await self.engine.find(containers.NAME_PREFIX + sandbox_id)
        if found is None or not containers.is_ours(found.name, found.labels):
            return None
        return found
