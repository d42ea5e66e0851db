"""Isolation tiers: what is claimed, what is verified, and what is refused for it."""

from __future__ import annotations

import secrets
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

import sandboxio
from sandboxio.core.errors import ConfigurationError, UnverifiedIsolationWarning
from sandboxio.core.registry import register, unregister
from sandboxio.core.tiers import IsolationTier
from sandboxio.testing.suite._case import case
from sandboxio.testing.suite._probes import assert_gone
from sandboxio.testing.suite.fixtures import SuiteFixtures

if TYPE_CHECKING:
    from collections.abc import Generator

    from sandboxio.core.models import Capability
    from sandboxio.core.protocols import AsyncSandbox, Backend
    from sandboxio.testing.suite.fixtures import Create

REAL = tuple(tier for tier in IsolationTier if tier is not IsolationTier.UNKNOWN)
UNMET = [
    (claim, required)
    for claim in (IsolationTier.UNKNOWN, IsolationTier.NONE, IsolationTier.CONTAINER)
    for required in REAL
    if not claim.satisfies(required)
]


class IsolationHonestySuite(SuiteFixtures):
    """Cases of tiers; requirements go through `sandboxio.create()`, under a name for the case."""

    @case("TIER-001")
    async def test_a_tier_is_reported(self, backend: Backend, sandbox: AsyncSandbox) -> None:
        """The backend claims a tier, and every sandbox reports the one that was verified."""
        assert isinstance(backend.isolation, IsolationTier)
        assert isinstance(sandbox.isolation, IsolationTier)

    @case("TIER-002")
    async def test_the_tier_stays(self, backend: Backend, sandbox: AsyncSandbox) -> None:
        """The tier of a sandbox is the same for a second handle, and after its end."""
        tier = sandbox.isolation
        assert (await backend.connect(sandbox.id)).isolation is tier
        await sandbox.kill()
        assert sandbox.isolation is tier

    @case("TIER-003")
    async def test_the_claim_can_be_required(
        self, backend: Backend, create: Create, options: dict[str, Any]
    ) -> None:
        """What a backend claims, and its sandboxes turn out to be, can be required."""
        verified = (await create()).isolation
        if not verified.satisfies(backend.isolation):
            pytest.skip(reason=f"claimed is {backend.isolation.name}, verified {verified.name}")
        options["require_isolation"] = backend.isolation
        with _spied(backend) as (target, _):
            async with await sandboxio.create(target, **options) as sandbox:
                assert sandbox.isolation.satisfies(backend.isolation)

    @case("TIER-004")
    async def test_less_than_the_claim_can_be_required(
        self, backend: Backend, create: Create, options: dict[str, Any]
    ) -> None:
        """Every tier that is weaker than what is claimed and verified can be required as well."""
        verified = (await create()).isolation
        both = (verified, backend.isolation)
        weaker = [tier for tier in REAL if tier not in both and _all_satisfy(both, tier)]
        with _spied(backend) as (target, spy):
            for tier in weaker:
                async with await sandboxio.create(target, **options, require_isolation=tier):
                    pass
        assert len(spy.asked) == len(weaker)

    @case("TIER-005")
    async def test_more_than_the_claim_is_refused(
        self, backend: Backend, options: dict[str, Any], run_id: str
    ) -> None:
        """A tier that the backend does not claim is refused before anything is asked of it."""
        with _spied(backend) as (target, spy):
            for tier in REAL:
                if not backend.isolation.satisfies(tier):
                    with pytest.raises(ConfigurationError, match=tier.name):
                        await sandboxio.create(target, **options, require_isolation=tier)
        assert spy.asked == []
        assert await self.count(run_id) == 0

    @pytest.mark.parametrize(("claim", "required"), UNMET, ids=lambda tier: tier.name)
    @case("TIER-006")
    async def test_claims_that_do_not_meet(
        self,
        backend: Backend,
        options: dict[str, Any],
        claim: IsolationTier,
        required: IsolationTier,
    ) -> None:
        """An unknown tier meets no requirement, `NONE` only itself, any other nothing stronger."""
        named = pytest.raises(ConfigurationError, match=required.name)
        with _spied(backend, claim=claim) as (target, spy), named:
            await sandboxio.create(target, **options, require_isolation=required)
        assert spy.asked == []

    @pytest.mark.parametrize("bad", [IsolationTier.UNKNOWN, "container", 10, True])
    @case("TIER-007")
    async def test_what_cannot_be_required(
        self, backend: Backend, options: dict[str, Any], bad: Any
    ) -> None:
        """To require `UNKNOWN`, or what is no tier, is refused before anything is asked."""
        named = pytest.raises(ConfigurationError, match="require_isolation")
        with _spied(backend) as (target, spy), named:
            await sandboxio.create(target, **options, require_isolation=bad)
        assert spy.asked == []

    @case("TIER-008")
    async def test_a_sandbox_weaker_than_required_is_removed(
        self, backend: Backend, options: dict[str, Any], run_id: str
    ) -> None:
        """A sandbox that turns out weaker than the claim is refused where that was required, and
        is removed.
        """
        required = IsolationTier.CONTAINER
        for verified in (IsolationTier.UNKNOWN, IsolationTier.NONE, IsolationTier.PROCESS):
            named = pytest.raises(ConfigurationError, match=verified.name)
            with _spied(backend, claim=required, verified=verified) as (target, spy), named:
                await sandboxio.create(target, **options, require_isolation=required)
            (made,) = spy.made
            await assert_gone(backend, made.id)
        assert await self.count(run_id) == 0

    @case("TIER-009")
    async def test_an_unverified_tier_is_warned_of_once(
        self, backend: Backend, options: dict[str, Any]
    ) -> None:
        """The first sandbox of unknown tier gives one `UnverifiedIsolationWarning`, which names
        the backend; those after it give none.
        """
        with _spied(backend, verified=IsolationTier.UNKNOWN) as (target, _), _warned() as found:
            for _ in range(2):
                await (await sandboxio.create(target, **options)).kill()
        assert [target.partition(":")[0] in text for text in found] == [True]

    @case("TIER-010")
    async def test_a_verified_tier_is_not_warned_of(
        self, backend: Backend, options: dict[str, Any]
    ) -> None:
        """Whether a warning comes depends on the verified tier alone: only `UNKNOWN` has one."""
        with _spied(backend) as (target, _), _warned() as found:
            sandbox = await sandboxio.create(target, **options)
            await sandbox.kill()
        assert len(found) == (sandbox.isolation is IsolationTier.UNKNOWN)

    @case("TIER-011")
    async def test_no_sandbox_outdoes_the_claim(
        self, backend: Backend, sandbox: AsyncSandbox
    ) -> None:
        """No sandbox reports a stronger tier than its backend claims."""
        assert sandbox.isolation <= backend.isolation


def _all_satisfy(tiers: tuple[IsolationTier, ...], required: IsolationTier) -> bool:
    return all(tier.satisfies(required) for tier in tiers)


class _Spy:
    """The backend, with notes of what was asked of it, and with a claim that can be changed."""

    def __init__(
        self, backend: Backend, claim: IsolationTier | None, verified: IsolationTier | None
    ) -> None:
        self._backend = backend
        self._verified = verified
        self.name = backend.name
        self.capabilities: Capability = backend.capabilities
        self.isolation: IsolationTier = backend.isolation if claim is None else claim
        self.asked: list[dict[str, Any]] = []
        self.made: list[AsyncSandbox] = []

    async def create(self, **options: Any) -> AsyncSandbox:
        self.asked.append(options)
        self.made.append(await self._backend.create(**options))
        if self._verified is None:
            return self.made[-1]
        found: Any = _Verified(self.made[-1], self._verified)
        result: AsyncSandbox = found
        return result

    async def connect(self, sandbox_id: str) -> AsyncSandbox:
        return await self._backend.connect(sandbox_id)


class _Verified:
    """A sandbox whose tier was verified as another one."""

    def __init__(self, sandbox: AsyncSandbox, tier: IsolationTier) -> None:
        self._sandbox = sandbox
        self.isolation = tier

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sandbox, name)


@contextmanager
def _warned() -> Generator[list[str]]:
    """Collect the texts of warnings about tiers; others pass."""
    texts: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UnverifiedIsolationWarning)
        yield texts
    for each in caught:
        if issubclass(each.category, UnverifiedIsolationWarning):
            texts.append(str(each.message))
        else:
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)


@contextmanager
def _spied(
    backend: Backend, *, claim: IsolationTier | None = None, verified: IsolationTier | None = None
) -> Generator[tuple[str, _Spy]]:
    """Make the backend reachable by a DSN of its own, and watch what is asked of it."""
    spy = _Spy(backend, claim, verified)
    name = f"tier-{secrets.token_hex(4)}"
    register(name, lambda: spy)
    try:
        yield f"{name}://", spy
    finally:
        unregister(name)
