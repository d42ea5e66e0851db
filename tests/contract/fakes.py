"""The contract suite as the fake takes it: probes that reach into its memory."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar

from sandboxio.core.tiers import IsolationTier
from sandboxio.testing import FakeBackend
from sandboxio.testing._inside import Inside
from sandboxio.testing.fake import EVERYTHING
from sandboxio.testing.suite import BackendContractSuite, Canary

if TYPE_CHECKING:
    from collections.abc import Generator

    from sandboxio.core.clock import Clock
    from sandboxio.core.models import Capability
    from sandboxio.core.protocols import AsyncSandbox, Backend


class FakeCanary(Canary):
    """An address that only a virtual connection can reach."""

    def __init__(self, fake: FakeBackend) -> None:
        self._fake = fake
        self._before = len(fake.egress)

    @property
    def addresses(self) -> list[tuple[str, int]]:
        return [("canary.example", 4711), ("192.0.2.7", 4711)]

    @property
    def visitors(self) -> list[str]:
        hosts = {host for host, _ in self.addresses}
        seen = self._fake.egress[self._before :]
        return [one.sandbox_id for one in seen if one.allowed and one.host in hosts]


class FakeSuite(BackendContractSuite):
    """Every case on a fake of its own, by its virtual clock."""

    capabilities: ClassVar[Capability] = EVERYTHING
    isolation: ClassVar[IsolationTier] = IsolationTier.CONTAINER
    latency: ClassVar[float] = 0.0
    credential = "SBX_FAKE_TOKEN"
    fake: FakeBackend

    def make_backend(self) -> Backend:
        self.fake = self.make_fake()
        return self.fake

    def make_fake(self) -> FakeBackend:
        return FakeBackend(
            capabilities=self.capabilities, isolation=self.isolation, latency=self.latency
        )

    @property
    def clock(self) -> Clock:
        return self.fake.clock

    @contextmanager
    def canary(self) -> Generator[Canary]:
        yield FakeCanary(self.fake)

    async def remove_behind(self, sandbox: AsyncSandbox) -> None:
        inside(sandbox).end("removed", "An operator removed it.")

    async def expire(self, sandbox: AsyncSandbox) -> None:
        inside(sandbox).expire()

    async def count(self, run: str) -> int:
        return sum(one.metadata.get("contract_run") == run for one in self.fake.sandboxes)

    @contextmanager
    def slow_create(self) -> Generator[None]:
        self.fake.simulate(create_takes=4000)
        yield
        self.fake.simulate()

    @contextmanager
    def failing_create(self, error: Exception) -> Generator[None]:
        self.fake.simulate(create_fails=error)
        yield
        self.fake.simulate()

    @contextmanager
    def hanging_removal(self) -> Generator[None]:
        self.fake.simulate(kill_hangs=True)
        yield
        self.fake.simulate()

    @contextmanager
    def unauthenticated(self) -> Generator[None]:
        self.fake.simulate(auth_missing=True)
        yield
        self.fake.simulate()


def inside(sandbox: AsyncSandbox) -> Inside:
    """Return the inside of a fake sandbox."""
    assert isinstance(sandbox.native, Inside)
    return sandbox.native
