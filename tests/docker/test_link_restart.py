"""An engine that is restarted, or killed, while calls are under way over a link."""

from __future__ import annotations

import gc
import os
import shutil
import signal
from functools import partial
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
import pytest

import sandboxio
from sandboxio import LinkLost, SandboxError, SandboxGone
from sandboxio.adapters.docker import DockerConfig
from tests.docker.hostile import assert_works
from tests.docker.outside import IMAGE, METADATA
from tests.soak.engine import private_engine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from anyio.abc import TaskStatus

    from sandboxio.protocols import AsyncSandbox
    from tests.soak.engine import PrivateEngine

pytestmark = [
    pytest.mark.docker,
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

either = pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    """docker-py leaves the socket open of a connection that an absent engine does not take."""
    yield
    gc.collect()


@pytest.fixture(scope="module", autouse=True)
def _able() -> None:
    if os.geteuid() or not shutil.which("dockerd"):
        pytest.skip(reason="an engine of the test's own takes root and dockerd")


@pytest.fixture(scope="module")
def keeping() -> Iterator[PrivateEngine]:
    """An engine whose containers outlive it."""
    with private_engine(keeps=True) as engine:
        engine.load(IMAGE)
        yield engine


@pytest.fixture(scope="module")
def ending() -> Iterator[PrivateEngine]:
    """An engine that ends its containers, before it goes or when it is back."""
    with private_engine() as engine:
        engine.load(IMAGE)
        yield engine


async def _create(engine: PrivateEngine) -> AsyncSandbox:
    config = DockerConfig(host=engine.url, template=IMAGE, metadata=METADATA)
    return await sandboxio.create(config, timeout=120)


async def _restarted(engine: PrivateEngine, sb: AsyncSandbox, number: int) -> SandboxError:
    """Restart an engine while a command runs, and return what became of that."""
    found: list[SandboxError] = []

    async def work(*, task_status: TaskStatus[None]) -> None:
        try:
            async with sb.stream("echo begun; exec sleep 60") as proc:
                await anext(aiter(proc))
                task_status.started()
                await proc.wait()
        except SandboxError as exc:
            found.append(exc)

    async with anyio.create_task_group() as tasks:
        await tasks.start(work)
        await anyio.to_thread.run_sync(partial(engine.restart, number))
    return found[0]


@either
async def test_a_sandbox_outlives_its_engine(keeping: PrivateEngine, number: int) -> None:
    """A call under way is lost with the link, and said to be; the next call has another link."""
    async with await _create(keeping) as sb:
        await sb.files.write("kept", b"as it was")
        lost = await _restarted(keeping, sb, number)
        assert (type(lost), lost.outcome) == (LinkLost, "unknown")
        assert await sb.files.read("kept") == b"as it was"
        await assert_works(sb)


@either
async def test_a_sandbox_ends_with_its_engine(ending: PrivateEngine, number: int) -> None:
    """A call under way does not outlast its engine, and every later one hears of the end."""
    async with await _create(ending) as sb:
        lost = await _restarted(ending, sb, number)
        assert lost.outcome == "unknown"
        with pytest.raises(SandboxGone):
            await sb.run(["true"])
