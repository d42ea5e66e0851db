"""What tests use: the fake backend, its clock, and the contract suite in `testing.suite`."""

from sandboxio.testing._network import EgressAttempt
from sandboxio.testing.calls import Call
from sandboxio.testing.clock import FakeClock
from sandboxio.testing.fake import FakeBackend

__all__ = ["Call", "EgressAttempt", "FakeBackend", "FakeClock"]
