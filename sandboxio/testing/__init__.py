"""What tests use: the fake backend and its clock; the contract suite is `testing.suite`.

Names are loaded when they are used, so that the suite comes without the fake.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sandboxio.testing._machine.network import EgressAttempt
    from sandboxio.testing.calls import Call
    from sandboxio.testing.clock import FakeClock
    from sandboxio.testing.fake import FakeBackend

__all__ = ["Call", "EgressAttempt", "FakeBackend", "FakeClock"]

_HOMES = {"Call": "calls", "EgressAttempt": "_network", "FakeBackend": "fake", "FakeClock": "clock"}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
