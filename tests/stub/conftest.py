"""What the tests on the stub engine stand on."""

from __future__ import annotations

import gc
import threading
from typing import TYPE_CHECKING, Protocol

import pytest

import sandboxio
from sandboxio.adapters.docker import DockerConfig
from tests.stub.engine import StubEngine
from tests.stub.world import IMAGE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from sandboxio.protocols import AsyncSandbox

pytest.importorskip("docker", reason="the extra 'docker' is not installed")


class Create(Protocol):
    """Makes a sandbox on the stub."""

    async def __call__(self, image: str = ..., *, timeout: float = ...) -> AsyncSandbox: ...


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No watcher, no agent, no engine of the host, and a grace that a test can afford."""
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    for name in ("DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH", "DOCKER_CONTEXT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    monkeypatch.setenv("SBX_DOCKER_REAPER", "0")
    monkeypatch.setenv("SBX_DOCKER_LINK", "0")
    monkeypatch.setenv("SBX_TEARDOWN_GRACE", "1")


@pytest.fixture(autouse=True, scope="module")
def nothing_unclosed() -> Iterator[None]:
    """What a module's tests did not close shows there, and not elsewhere."""
    yield
    gc.collect()


@pytest.fixture
def stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StubEngine]:
    """A stub that behaves again at the end, so that whatever was given up comes to its end."""
    monkeypatch.setattr("sandboxio.adapters._docker_engine._LATE_PAUSE", 0.02)
    before = set(threading.enumerate())
    with StubEngine(tmp_path / "engine.sock") as engine:
        yield engine
        engine.faults.set()
        engine.hang_up()
        for thread in set(threading.enumerate()) - before:
            if thread.name == "sandboxio-call":
                thread.join(5)  # one that reports to a loop just closed never ends


@pytest.fixture
def config(stub: StubEngine) -> DockerConfig:
    return DockerConfig(host=stub.url)


@pytest.fixture
def create(config: DockerConfig) -> Create:
    async def create(image: str = IMAGE, *, timeout: float = 30) -> AsyncSandbox:
        return await sandboxio.create(config, template=image, timeout=timeout)

    return create


@pytest.fixture
async def sb(create: Create, stub: StubEngine) -> AsyncIterator[AsyncSandbox]:
    """A sandbox on a stub that has no faults yet, and none again when it is removed."""
    async with await create() as sandbox:
        yield sandbox
        stub.faults.set()
