"""Engines that fall silent, and slow ones that are fine: an operation's own deadline decides."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import anyio
import pytest

from sandboxio import CreateTimeout, ExecutionTimeout
from sandboxio.adapters import _docker_engine, _docker_stream
from sandboxio.core import threads
from tests.stub.faults import Fault, silence
from tests.stub.world import IMAGE, Program

if TYPE_CHECKING:
    from sandboxio.protocols import AsyncSandbox
    from tests.stub.conftest import Create
    from tests.stub.engine import StubEngine

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore::sandboxio.OrphanedSandboxWarning"),
]

CREATION = [
    "GET /version",
    "GET /images/.*",
    "POST /containers/create",
    "HEAD /containers/.*/archive",
    "GET /containers/.*/archive",
    "PUT /containers/.*/archive",
    "POST /containers/.*/attach",
    "POST /containers/.*/start",
    "GET /containers/.*/json",
    "GET /info",
]
CALL = [
    "POST /containers/.*/exec",
    "POST /exec/.*/start",
    "GET /exec/.*/json",
    "GET /containers/.*/json",
    "GET /containers/.*/top",
]


def in_turn(routes: list[str]) -> pytest.MarkDecorator:
    """Have every route met on one of the two loops, in turn: what is slow is not the loop."""
    cases = [(route, ("asyncio", "trio")[number % 2]) for number, route in enumerate(routes)]
    return pytest.mark.parametrize(("route", "anyio_backend"), cases)


@pytest.fixture(autouse=True)
def grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SBX_TEARDOWN_GRACE", "0.3")


@in_turn(CREATION)
async def test_a_creation_keeps_its_deadline(create: Create, stub: StubEngine, route: str) -> None:
    """Wherever the engine falls silent, `create()` ends at its deadline, but for the grace."""
    stub.faults.set(silence(route))
    with anyio.fail_after(2), pytest.raises(CreateTimeout):
        await create(timeout=0.3)
    stub.faults.set()


@pytest.mark.parametrize("route", CALL)
async def test_a_call_keeps_its_deadline(sb: AsyncSandbox, stub: StubEngine, route: str) -> None:
    """Wherever the engine falls silent, a call ends at its deadline, but for the grace."""
    stub.world.programs["forever"] = Program(out=b"up\n", lasts=True)
    stub.faults.set(silence(route))
    with anyio.fail_after(3), pytest.raises(ExecutionTimeout):
        await sb.run(["forever"], timeout=0.3)


async def test_an_engine_silent_about_everything(sb: AsyncSandbox, stub: StubEngine) -> None:
    """A call, its ending and the removal each come to an end."""
    stub.world.programs["forever"] = Program(lasts=True)
    stub.faults.set(silence(".*"))
    with anyio.fail_after(3), pytest.raises(ExecutionTimeout):
        await sb.run(["true"], timeout=0.3)


@in_turn(CREATION)
async def test_a_slow_creation_is_a_creation(
    create: Create, stub: StubEngine, monkeypatch: pytest.MonkeyPatch, route: str
) -> None:
    """EXEC-8: the client's own timeouts end nothing whose deadline has not passed."""
    monkeypatch.setattr(threads, "UNBOUNDED_CALL", 0.1)
    monkeypatch.setattr(_docker_engine, "_SLACK", 0.0)
    stub.faults.set(Fault(route, delay=0.3, times=2))
    async with await create():
        assert len(stub.world.boxes) == 1


@pytest.mark.parametrize("route", CALL[:3])
async def test_a_slow_call_is_a_call(
    sb: AsyncSandbox, stub: StubEngine, monkeypatch: pytest.MonkeyPatch, route: str
) -> None:
    """EXEC-8: nor does a connection that is quiet for longer than any of them."""
    monkeypatch.setenv("SBX_TEARDOWN_GRACE", "0.1")  # which is for endings
    for module, name in (
        (threads, "UNBOUNDED_CALL"),
        (_docker_engine, "_CONNECT_SECONDS"),
        (_docker_stream, "_CONNECT_TIMEOUT"),
    ):
        monkeypatch.setattr(module, name, 0.1)
    stub.world.programs["quiet"] = Program(out=b"done\n")
    stub.faults.set(Fault(route, delay=0.3))
    assert (await sb.run(["quiet"], timeout=20)).stdout == "done\n"


PROGRAM = """\
import anyio, sandboxio, sys
from sandboxio.adapters.docker import DockerConfig
async def main():
    try:
        await sandboxio.create(DockerConfig(host=sys.argv[1], template=sys.argv[2]), timeout=0.3)
    except sandboxio.CreateTimeout:
        print("in time", flush=True)
anyio.run(main, backend=sys.argv[3])
"""


@pytest.mark.parametrize(
    ("route", "anyio_backend"),
    [
        ("GET /images/.*", "asyncio"),
        ("POST /containers/create", "trio"),
        ("DELETE .*", "asyncio"),
    ],
)
def test_a_silent_engine_does_not_keep_a_program(
    stub: StubEngine, anyio_backend: str, route: str
) -> None:
    """The interpreter ends, at the latest when its patience with teardown does."""
    stub.faults.set(silence(route), silence("POST /containers/.*/start"))
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM, stub.url, IMAGE, anyio_backend],
        capture_output=True,
        text=True,
        timeout=threads.EXIT_WAIT + 10,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert (ended.stdout, ended.stderr, ended.returncode) == ("in time\n", "", 0)
