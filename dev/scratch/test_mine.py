"""The contract on an adapter that is not finished: it fails, and says what to do."""

from __future__ import annotations

from mine import MyBackend

from sandboxio.testing.suite import BackendContractSuite, RunSuite


class TestMine(BackendContractSuite):
    backend = MyBackend()


class TestForgotten(RunSuite):
    """It has no backend."""
