"""The facade: `create`, `connect` and their sync twin."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from sandboxio.core import dsn, registry, requests
from sandboxio.core.backend import check_claim, check_verified
from sandboxio.core.config import (
    DEFAULT_NETWORK,
    DEFAULT_RESOURCES,
    BackendConfig,
    CreateOptions,
)
from sandboxio.core.errors import ConfigurationError
from sandboxio.core.lifecycle import undone, warn_orphaned
from sandboxio.core.models import DEFAULT_TIMEOUT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sandboxio.core.models import NetworkPolicy, Resources
    from sandboxio.core.protocols import AsyncSandbox, Backend
    from sandboxio.core.sync import SyncSandbox
    from sandboxio.core.tiers import IsolationTier

DEFAULT_TARGET = "docker://"


async def create(
    target: str | BackendConfig | None = None,
    *,
    template: str | None = None,
    resources: Resources = DEFAULT_RESOURCES,
    network: NetworkPolicy = DEFAULT_NETWORK,
    env: Mapping[str, str] | None = None,
    secrets: Mapping[str, str] | None = None,
    timeout: float = DEFAULT_TIMEOUT,
    metadata: Mapping[str, str] | None = None,
    require_isolation: IsolationTier | None = None,
    user: str | None = None,
) -> AsyncSandbox:
    """Create a sandbox, ready for use and under its policy.

    `target` is a DSN (`"docker://python:3.12-slim"`), a backend's typed configuration, or `None`
    for local Docker. `timeout`, in seconds, bounds the creation, then the sandbox's whole life,
    and is what calls inherit. `env` and `secrets` reach every command; secrets are masked in
    whatever sandboxio shows. `metadata` becomes labels, so that an operator can find the
    sandbox. `user` is who runs commands; `None` is an unprivileged user that owns `/work`.

    Example:
        async with await sandboxio.create("docker://python:3.12-slim", timeout=60) as sb:
            print((await sb.run(["python3", "--version"])).stdout)

    Raises:
        ConfigurationError: an argument is not acceptable, or the backend is weaker than
            `require_isolation`; nothing was made, or it was removed before any code ran.
        CapabilityNotSupported: the backend cannot enforce what was asked; nothing was made.
        BackendNotFound, BackendNotInstalled: the target names no usable backend.
        CreationError, CreateTimeout, ConnectError, AuthError, RateLimitError: it could not be
            made; nothing was left behind.
    """
    given = CreateOptions(
        template=template,
        resources=resources,
        network=network,
        env=env,
        secrets=secrets,
        timeout=timeout,
        metadata=metadata,
        require_isolation=require_isolation,
        user=user,
    )
    name, backend, options = _resolve(target, given)
    requirement = requests.requirement(options.require_isolation)
    check_claim(name, backend, requirement)
    sandbox = await backend.create(
        template=options.template,
        resources=options.resources,
        network=options.network,
        env=options.env,
        secrets=options.secrets,
        timeout=options.timeout,
        metadata=options.metadata,
        user=options.user,
    )
    try:
        check_verified(name, sandbox, requirement)
    except BaseException:
        if not await undone(sandbox.kill):
            warn_orphaned(name, sandbox.id, options.metadata or {})
        raise
    return sandbox


async def connect(sandbox_id: str, target: str | BackendConfig | None = None) -> AsyncSandbox:
    """Return a handle on a sandbox that runs already; leaving its block removes the sandbox.

    `target` names its backend as in `create()`. The handle knows no `env` and no `secrets` of
    whoever created the sandbox.

    Example:
        sb = await sandboxio.connect("3f9c2a7b51d04e86", "docker://")

    Raises:
        ConnectError: no running sandbox of ours has that id.
    """
    _, backend, _ = _resolve(target, CreateOptions())
    return await backend.connect(sandbox_id)


def create_sync(
    target: str | BackendConfig | None = None,
    *,
    template: str | None = None,
    resources: Resources = DEFAULT_RESOURCES,
    network: NetworkPolicy = DEFAULT_NETWORK,
    env: Mapping[str, str] | None = None,
    secrets: Mapping[str, str] | None = None,
    timeout: float = DEFAULT_TIMEOUT,
    metadata: Mapping[str, str] | None = None,
    require_isolation: IsolationTier | None = None,
    user: str | None = None,
) -> SyncSandbox:
    """Create a sandbox for blocking code; arguments and errors as `create()`.

    Each sync sandbox has an event loop in a thread of its own.

    Example:
        with sandboxio.create_sync("docker://python:3.12-slim") as sb:
            print(sb.run_code("print(6 * 7)").stdout)
    """
    from sandboxio.core.sync import create_in_portal

    return create_in_portal(
        lambda: create(
            target,
            template=template,
            resources=resources,
            network=network,
            env=env,
            secrets=secrets,
            timeout=timeout,
            metadata=metadata,
            require_isolation=require_isolation,
            user=user,
        )
    )


def _resolve(
    target: str | BackendConfig | None, given: CreateOptions
) -> tuple[str, Backend, CreateOptions]:
    if isinstance(target, BackendConfig):
        backend = registry.resolve(target.backend)
        return target.backend, _configured(backend, target), target.merged(given)
    if target is not None and not isinstance(target, str):
        raise ConfigurationError(
            f"target must be a DSN or a backend's configuration, not {type(target).__name__}."
        )
    parsed = dsn.parse(DEFAULT_TARGET if target is None else target)
    backend = registry.resolve(parsed.backend)
    config_type = getattr(backend, "config_type", BackendConfig)
    config = config_type.from_dsn(parsed)
    return parsed.backend, _configured(backend, config), config.merged(given)


def _configured(backend: Backend, config: BackendConfig) -> Backend:
    """Apply the fields of a configuration that are the backend's own."""
    own = {option.name for option in fields(config)} - {f.name for f in fields(CreateOptions)}
    changed = [
        name
        for name in own
        if getattr(config, name) != type(config).__dataclass_fields__[name].default
    ]
    if not changed:
        return backend
    configured = getattr(backend, "configured", None)
    if configured is None:
        raise ConfigurationError(
            f"The backend in use does not take {', '.join(sorted(changed))} from "
            f"{type(config).__name__}."
        )
    result: Backend = configured(config)
    return result
