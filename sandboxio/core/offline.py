"""The switch that keeps a test run from reaching a real backend by accident."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from sandboxio.core.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Generator

_reasons: list[str] = []


@contextmanager
def enforced(reason: str) -> Generator[None]:
    """Refuse every backend that reaches out while the block lasts."""
    _reasons.append(reason)
    try:
        yield
    finally:
        _reasons.remove(reason)


def check(backend: object, name: str) -> None:
    """Raise when only doubles may be used and this backend does not say `reaches_out = False`.

    Raises:
        ConfigurationError: the run is offline, and the backend reaches out.
    """
    if _reasons and getattr(backend, "reaches_out", True):
        raise ConfigurationError(
            f"The {name} backend is a real one, and this test is offline ({_reasons[-1]}).",
            hint=f"Use the fixture sbx_fake, or: with fake.serving({name!r}): ... A double of your "
            "own says so by the attribute reaches_out = False.",
        )
