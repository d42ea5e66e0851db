"""`DriverBackend`: a driver, wrapped into a full backend."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, TypeVar

from sandboxio.core import offline, requests
from sandboxio.core.clock import LOOP
from sandboxio.core.config import DEFAULT_NETWORK, DEFAULT_RESOURCES
from sandboxio.core.errors import (
    CapabilityNotSupported,
    ConfigurationError,
    ConnectError,
    CreateTimeout,
    UnverifiedIsolationWarning,
)
from sandboxio.core.lifecycle import teardown_grace, undone, warn_orphaned
from sandboxio.core.mapping import Deadline, DeadlinePassed
from sandboxio.core.models import DEFAULT_TIMEOUT, Capability, NetworkPolicy
from sandboxio.core.record import Recorder
from sandboxio.core.redaction import Redactor
from sandboxio.core.sandbox import Sandbox
from sandboxio.core.tiers import IsolationTier

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from sandboxio.core.clock import Clock
    from sandboxio.core.driver import Driver, DriverSandbox
    from sandboxio.core.models import ManagedSandbox, Resources
    from sandboxio.core.protocols import AsyncSandbox, Backend
    from sandboxio.core.record import OperationRecord

T = TypeVar("T")

CONNECT_TIMEOUT = 30.0
"""Seconds that finding, listing or removing a sandbox may take."""

UNRESTRICTED = NetworkPolicy(egress="allow")
"""The one policy that needs nobody to enforce it."""

_warned: set[str] = set()


class DriverBackend:
    """A backend made of a driver; adds what is the same everywhere.

    `on_record` receives the record of every operation when it closes. `clock` is what deadlines
    and durations are measured with.
    """

    reaches_out = True
    """False for a double, which makes nothing outside of its process."""

    def __init__(
        self,
        driver: Driver,
        *,
        on_record: Callable[[OperationRecord], None] | None = None,
        clock: Clock = LOOP,
    ) -> None:
        self._driver = driver
        self._on_record = on_record
        self._clock = clock
        self.name = driver.name
        self.capabilities = driver.capabilities
        self.isolation = driver.isolation

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} {self.isolation.value}>"

    async def create(
        self,
        *,
        template: str | None = None,
        resources: Resources = DEFAULT_RESOURCES,
        network: NetworkPolicy = DEFAULT_NETWORK,
        env: Mapping[str, str] | None = None,
        secrets: Mapping[str, str] | None = None,
        timeout: float = DEFAULT_TIMEOUT,
        metadata: Mapping[str, str] | None = None,
        user: str | None = None,
    ) -> Sandbox:
        request = requests.CreateRequest.build(
            template=template,
            resources=resources,
            network=network,
            env=env,
            secrets=secrets,
            timeout=timeout,
            metadata=metadata,
            user=user,
        )
        offline.check(self, self.name)
        teardown_grace()  # a bad value is refused now, when nothing can leak
        self._driver.refuse(request)
        _refuse_undeclared(self.name, self.capabilities, request)
        redactor = Redactor(request.secrets.values())
        _keep_secrets_out_of_labels(request, redactor)
        made: list[DriverSandbox] = []
        try:
            with self._recorder("", request.metadata, redactor).operation("create") as record:
                made.append(await self._provision(request))
                record.sandbox_id, record.isolation = made[0].id, made[0].isolation
        except BaseException:
            await self._discard(made)
            raise
        return self._handle(made[0], {**request.env, **request.secrets}, redactor)

    async def connect(self, sandbox_id: str) -> Sandbox:
        requests.text("sandbox_id", sandbox_id)
        offline.check(self, self.name)
        redactor = Redactor()
        with self._recorder(sandbox_id, {}, redactor).operation("connect"):
            sandbox = await self._bounded(lambda: self._driver.connect(sandbox_id))
        return self._handle(sandbox, {}, redactor)

    async def list_managed(
        self, *, labels: Mapping[str, str] | None = None
    ) -> list[ManagedSandbox]:
        wanted = requests.labels(labels)
        offline.check(self, self.name)
        return await self._bounded(lambda: self._driver.list_managed(wanted))

    async def kill_managed(self, sandbox_id: str) -> bool:
        requests.text("sandbox_id", sandbox_id)
        offline.check(self, self.name)
        with self._recorder(sandbox_id, {}, Redactor()).operation("kill"):
            return await self._bounded(lambda: self._driver.remove_managed(sandbox_id))

    async def _provision(self, request: requests.CreateRequest) -> DriverSandbox:
        try:
            return await Deadline(request.timeout, self._clock).bound(
                lambda: self._driver.provision(request)
            )
        except DeadlinePassed:
            raise CreateTimeout(
                f"The {self.name} sandbox was not ready within {request.timeout:g} s.",
                outcome="not_started",
            ) from None

    async def _discard(self, made: list[DriverSandbox]) -> None:
        """Remove what was made although `create()` fails, as when its record is not taken."""
        for sandbox in made:
            if not await undone(sandbox.remove, self._clock):
                warn_orphaned(self.name, sandbox.id, sandbox.metadata)

    async def _bounded(self, action: Callable[[], Awaitable[T]]) -> T:
        try:
            return await Deadline(CONNECT_TIMEOUT, self._clock).bound(action)
        except DeadlinePassed:
            raise ConnectError(
                f"The {self.name} backend did not answer within {CONNECT_TIMEOUT:g} s."
            ) from None

    def _handle(
        self, sandbox: DriverSandbox, env: Mapping[str, str], redactor: Redactor
    ) -> Sandbox:
        return Sandbox(
            sandbox,
            backend=self.name,
            env=env,
            redactor=redactor,
            clock=self._clock,
            recorder=self._recorder(sandbox.id, sandbox.metadata, redactor, sandbox.isolation),
        )

    def _recorder(
        self,
        sandbox_id: str,
        metadata: Mapping[str, str],
        redactor: Redactor,
        isolation: IsolationTier = IsolationTier.UNKNOWN,
    ) -> Recorder:
        return Recorder(
            backend=self.name,
            sandbox_id=sandbox_id,
            isolation=isolation,
            metadata=metadata,
            redactor=redactor,
            on_record=self._on_record,
            clock=self._clock,
        )


def _refuse_undeclared(name: str, declared: Capability, request: requests.CreateRequest) -> None:
    """Refuse what needs a capability that no sandbox of this backend has."""
    network = request.network
    if Capability.NETWORK_POLICY not in declared and network != UNRESTRICTED:
        raise CapabilityNotSupported(
            f"The {name} backend declares no NETWORK_POLICY: it cannot enforce any, not even deny.",
            hint='To run without one, say so: network=NetworkPolicy(egress="allow").',
        )
    if network.egress == "learn":
        raise CapabilityNotSupported(f"The {name} backend cannot learn an allowlist.")
    wanted = {
        Capability.EGRESS_ALLOWLIST: (network.allow, "an egress allowlist"),
        Capability.TUNNELS: (network.ingress_ports, "ingress ports"),
        Capability.GPU: (request.resources.gpu, "accelerators"),
    }
    for capability, (asked, what) in wanted.items():
        if asked and capability not in declared:
            raise CapabilityNotSupported(
                f"The {name} backend does not support {what}: it declares no {capability.name}."
            )


def _keep_secrets_out_of_labels(request: requests.CreateRequest, redactor: Redactor) -> None:
    for key, value in request.metadata.items():
        if redactor.redact(value) != value:
            raise ConfigurationError(
                f"metadata: the value of {key!r} holds a secret, and metadata becomes labels.",
                hint="Pass an identifier of the secret, never the secret.",
            )


def check_claim(name: str, backend: Backend, requirement: IsolationTier | None) -> None:
    """Refuse, before anything is made, a backend that does not even claim the required tier."""
    if requirement is not None and not backend.isolation.satisfies(requirement):
        raise ConfigurationError(
            f"The {name!r} backend offers {backend.isolation.name} isolation; "
            f"{requirement.name} is required.",
            hint="Choose a backend of that tier, or lower require_isolation on purpose.",
        )


def check_verified(name: str, sandbox: AsyncSandbox, requirement: IsolationTier | None) -> None:
    """Refuse a sandbox whose verified tier is too weak, and warn of an unverified one.

    The caller removes what is refused; no code has run in it.
    """
    tier = sandbox.isolation
    if requirement is not None and not tier.satisfies(requirement):
        raise ConfigurationError(
            f"The {name!r} sandbox was verified as {tier.name}; {requirement.name} is required. "
            "It was removed before any code ran.",
            hint="Choose a backend of that tier, or lower require_isolation on purpose.",
        )
    if tier is IsolationTier.UNKNOWN and name not in _warned:
        _warned.add(name)
        warnings.warn(
            f"The isolation of {name!r} sandboxes is unverified; "
            "pass require_isolation= to refuse such sandboxes.",
            UnverifiedIsolationWarning,
            stacklevel=3,
        )
