"""The contract on the fake, in five shapes.

Those that differ in their tier or their latency alone take one event loop each: no tier knows of
loops, and both loops have the virtual clock as it is in the first shape.
"""

from __future__ import annotations

from sandboxio.core.models import Capability
from sandboxio.core.tiers import IsolationTier
from tests.contract.fakes import FakeSuite


class TestEverything(FakeSuite):
    """Every capability there is."""


class TestNextToNothing(FakeSuite):
    """Commands and a closed network, and nothing else."""

    capabilities = Capability.RUN_COMMAND | Capability.NETWORK_POLICY


class TestUnknownTier(FakeSuite):
    """Isolation that nobody has verified."""

    isolation = IsolationTier.UNKNOWN
    loops = ("asyncio",)


class TestNoIsolation(FakeSuite):
    """Isolation that is known not to be there."""

    isolation = IsolationTier.NONE
    loops = ("trio",)


class TestSlow(FakeSuite):
    """Half a virtual second for everything."""

    latency = 0.5
    loops = ("asyncio",)
