"""What the tests of the command line stand on."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import pytest

import sandboxio
from sandboxio.cli.main import main
from sandboxio.core.backend import DriverBackend
from tests.cli.engine import StubEngine
from tests.cli.world import World

if TYPE_CHECKING:
    from collections.abc import Iterator


class Ended(NamedTuple):
    """A command that ran in this process."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Run(Protocol):
    """Runs a command line in this process."""

    def __call__(self, *argv: str) -> Ended: ...


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.delenv("SBX_DEBUG", raising=False)

    def run(*argv: str) -> Ended:
        code = main(argv)
        out, err = capsys.readouterr()
        return Ended(code, out, err)

    return run


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """The double behind `world://`, whose canary listens on loopback alone."""
    monkeypatch.setattr("sandboxio.cli._egress.host_addresses", lambda: ["127.0.0.1"])
    made = World()
    sandboxio.register("world", lambda: DriverBackend(made))
    yield made
    sandboxio.unregister("world")


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[StubEngine]:
    """A stub that DOCKER_HOST leads to."""
    monkeypatch.delenv("DOCKER_TLS_VERIFY", raising=False)
    with StubEngine() as stub:
        monkeypatch.setenv("DOCKER_HOST", stub.url)
        yield stub
        stub.shutdown()
