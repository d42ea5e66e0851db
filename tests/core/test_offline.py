"""The switch that keeps a test run from reaching a real backend."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import sandboxio
from sandboxio import ConfigurationError
from sandboxio.core import offline, registry
from sandboxio.core.models import Capability
from sandboxio.core.tiers import IsolationTier

if TYPE_CHECKING:
    from sandboxio.core.protocols import AsyncSandbox

pytestmark = pytest.mark.anyio


class Foreign:
    """A backend that is built on nothing of ours."""

    name = "foreign"
    capabilities = Capability.RUN_COMMAND
    isolation = IsolationTier.UNKNOWN

    async def create(self, **options: Any) -> AsyncSandbox:
        raise NotImplementedError

    async def connect(self, sandbox_id: str) -> AsyncSandbox:
        raise NotImplementedError


class Double(Foreign):
    """One that says that it is a double."""

    reaches_out = False


async def test_a_foreign_backend_is_refused() -> None:
    """What does not say `reaches_out = False` is taken for a real one, whoever wrote it."""
    with (
        registry.replaced({"foreign": Foreign}),
        offline.enforced("a test"),
        pytest.raises(ConfigurationError, match=r"foreign .* a real one") as caught,
    ):
        await sandboxio.create("foreign://")
    assert "reaches_out = False" in caught.value.hint


def test_a_double_is_not() -> None:
    """A backend that says so may be used offline, and any other may before and after."""
    with registry.replaced({"foreign": Foreign, "double": Double}):
        with offline.enforced("a test"):
            assert isinstance(registry.resolve("double"), Double)
        assert isinstance(registry.resolve("foreign"), Foreign)
