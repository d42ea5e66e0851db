"""The contract on the fake, in five shapes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sandboxio.core.models import Capability
from sandboxio.core.tiers import IsolationTier
from tests.contract.fakes import FakeSuite

if TYPE_CHECKING:
    from sandboxio.core.protocols import AsyncSandbox


class TestEverything(FakeSuite):
    """Every capability there is."""


class TestNextToNothing(FakeSuite):
    """Commands and a closed network, and nothing else."""

    capabilities = Capability.RUN_COMMAND | Capability.NETWORK_POLICY


class TestUnknownTier(FakeSuite):
    """Isolation that nobody has verified."""

    isolation = IsolationTier.UNKNOWN


class TestNoIsolation(FakeSuite):
    """Isolation that is known not to be there."""

    isolation = IsolationTier.NONE


class TestSlow(FakeSuite):
    """Half a virtual second for everything."""

    latency = 0.5

    async def test_a_stream_that_is_waited_for(self, sandbox: AsyncSandbox, marker: int) -> None:
        """Its bounds leave no room for latency yet."""
        pytest.skip("the bounds of this case leave no room for latency yet")
