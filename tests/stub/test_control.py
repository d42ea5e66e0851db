"""The control: against a stub that behaves, everything works and nothing is left."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import sandboxio
from sandboxio import ExecutionTimeout, IsolationTier
from sandboxio.adapters.docker import DockerConfig
from tests.stub.engine import StubEngine
from tests.stub.world import IMAGE, Program

if TYPE_CHECKING:
    from tests.stub.conftest import Create

pytestmark = pytest.mark.anyio


async def test_a_life_on_the_stub(create: Create, stub: StubEngine) -> None:
    """A sandbox is made, runs a command and is removed."""
    stub.world.programs["echo hi"] = Program(out=b"hi\n", err=b"ho\n", exit_code=3)
    async with await create() as sandbox:
        result = await sandbox.run("echo hi")
        assert stub.world.boxes[0].name == f"sandboxio-{sandbox.id}"
    assert (result.stdout, result.stderr, result.exit_code) == ("hi\n", "ho\n", 3)
    assert stub.world.boxes == []


async def test_a_life_over_tcp() -> None:
    """The same holds over loopback."""
    with StubEngine() as stub:
        config = DockerConfig(host=stub.url, template=IMAGE)
        async with await sandboxio.create(config, timeout=30) as sandbox:
            assert (await sandbox.run(["true"])).exit_code == 0
    assert stub.world.boxes == []


async def test_a_call_is_ended(create: Create, stub: StubEngine) -> None:
    """A command that does not end is ended at its deadline, and the sandbox lives on."""
    stub.world.programs["forever"] = Program(out=b"up\n", lasts=True)
    async with await create() as sandbox:
        with pytest.raises(ExecutionTimeout) as caught:
            await sandbox.run(["forever"], timeout=0.3)
        assert (await sandbox.run(["true"])).exit_code == 0
    assert (caught.value.partial.stdout, caught.value.collateral) == ("up\n", False)


async def test_the_stub_is_taken_for_an_engine(create: Create) -> None:
    """Its runtime is one whose isolation is known."""
    async with await create() as sandbox:
        assert sandbox.isolation is IsolationTier.CONTAINER
