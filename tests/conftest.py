"""Fixtures of every offline test: a driver in memory, and what is built upon it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import sandboxio
from sandboxio.core.backend import DriverBackend
from tests.doubles import DoubleDriver

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sandboxio.core.record import OperationRecord
    from sandboxio.core.sandbox import Sandbox

SECRET = "hunter2-and-more"


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def driver() -> DoubleDriver:
    return DoubleDriver()


@pytest.fixture
def records() -> list[OperationRecord]:
    """The records of every operation, in the order in which they closed."""
    return []


@pytest.fixture
def backend(driver: DoubleDriver, records: list[OperationRecord]) -> DriverBackend:
    return DriverBackend(driver, on_record=records.append)


@pytest.fixture
async def sandbox(backend: DriverBackend, records: list[OperationRecord]) -> Sandbox:
    """A sandbox that knows one secret; the record of its creation is put aside."""
    made = await backend.create(timeout=60, secrets={"TOKEN": SECRET}, env={"MODE": "env-value-1"})
    records.clear()
    return made


@pytest.fixture
def target(backend: DriverBackend, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A DSN that leads to the double."""
    monkeypatch.setattr("sandboxio.core.backend._warned", set[str]())
    sandboxio.register("double", lambda: backend)
    yield "double://"
    sandboxio.unregister("double")


@pytest.fixture
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Teardown steps get a twentieth of a second."""
    monkeypatch.setenv("SBX_TEARDOWN_GRACE", "0.05")
