"""LIFE-2: removals at once, removals under way, and engines that will not remove."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
import pytest

from sandboxio import ConnectError, OrphanedSandboxWarning, SandboxError
from sandboxio.adapters.docker import DockerBackend
from tests.stub.faults import Answer, Fault, refusal, silence

if TYPE_CHECKING:
    from sandboxio.adapters.docker import DockerConfig
    from sandboxio.protocols import AsyncSandbox
    from tests.stub.conftest import Create
    from tests.stub.engine import StubEngine

pytestmark = pytest.mark.anyio

DELETE = "DELETE /containers/.*"
NOBODY = "3f9c2a7b51d04e86"
UNDER_WAY = refusal(409, "removal of container 3f9c is already in progress")


@pytest.fixture
def backend(config: DockerConfig) -> DockerBackend:
    return DockerBackend(config=config)


async def test_a_removal_under_way_is_awaited_in_silence(create: Create, stub: StubEngine) -> None:
    """409 "removal in progress", then 404: the sandbox is gone, and nobody hears of it."""
    sandbox = await create()
    stub.faults.set(Fault(DELETE, instead=UNDER_WAY, times=2))
    await sandbox.kill()
    assert stub.world.boxes == []
    await sandbox.kill()


async def test_somebody_else_finishes_the_removal(create: Create, stub: StubEngine) -> None:
    """A container that is gone at the next look was removed, if not by us."""
    sandbox = await create()
    stub.faults.set(Fault(DELETE, instead=UNDER_WAY))
    stub.world.remove(stub.world.boxes[0])
    async with sandbox:
        pass
    assert sum(asked.startswith("DELETE") for asked in stub.asked) == 1


async def test_a_removal_that_never_ends(
    create: Create, stub: StubEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is given up when the grace is over, with a warning."""
    sandbox = await create()
    monkeypatch.setenv("SBX_TEARDOWN_GRACE", "0.3")
    stub.faults.set(Fault(DELETE, instead=UNDER_WAY))
    with anyio.fail_after(5), pytest.warns(OrphanedSandboxWarning):
        await sandbox.kill()
    stub.faults.set()
    assert await anyio.to_thread.run_sync(stub.emptied)


async def test_one_already_gone(backend: DockerBackend, create: Create, stub: StubEngine) -> None:
    """`kill_managed()` says whether there was something to remove."""
    sandbox = await create()
    assert await backend.kill_managed(sandbox.id)
    assert not await backend.kill_managed(sandbox.id)
    assert not await backend.kill_managed(NOBODY)
    assert not await backend.kill_managed("../../version")
    await sandbox.kill()
    assert stub.world.boxes == []


async def test_ten_at_once(backend: DockerBackend, create: Create, stub: StubEngine) -> None:
    """Kills of every kind at once all succeed, and one of `kill_managed()` at most did it."""
    sandbox = await create()
    stub.faults.set(Fault(DELETE, instead=UNDER_WAY, skip=1, times=3))
    removed: list[bool] = []

    async def managed() -> None:
        removed.append(await backend.kill_managed(sandbox.id))

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(sandbox.kill)
            tasks.start_soon(managed)
    assert stub.world.boxes == []
    assert (len(removed), removed.count(True) <= 1) == (5, True)


@pytest.mark.parametrize(
    "answer",
    [
        refusal(500, "driver failed to remove root filesystem"),
        Answer(502, b"<html>Bad Gateway</html>", "text/html"),
        Answer(404, b"<html>Not Found</html>", "text/html"),
        refusal(404, "page not found"),
        Answer(302, headers=(("Location", "/login"),)),
        Answer(600, b"{}"),
    ],
    ids=["500", "502", "a page", "404 of another kind", "redirected", "600"],
)
async def test_an_engine_that_will_not_remove(
    create: Create, stub: StubEngine, answer: Answer
) -> None:
    """Whatever is no removal is an error with a hint, and a removal asked for again works."""
    sandbox = await create()
    stub.faults.set(Fault(DELETE, instead=answer))
    with anyio.fail_after(5), pytest.raises(ConnectError) as caught:
        await sandbox.kill()
    assert caught.value.hint
    assert caught.value.__cause__ is not None
    stub.faults.set()
    await sandbox.kill()
    assert stub.world.boxes == []


async def test_leaving_the_block_warns(create: Create, stub: StubEngine) -> None:
    """At the end of `async with` the error comes with the warning that names what is left."""
    stub.faults.set(Fault(DELETE, instead=refusal(500, "busy")))
    with pytest.warns(OrphanedSandboxWarning), pytest.raises(ConnectError, match="busy"):
        async with await create():
            pass


async def test_an_engine_that_is_silent_at_removal(
    create: Create, stub: StubEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The grace bounds the wait, and a warning tells."""
    sandbox = await create()
    monkeypatch.setenv("SBX_TEARDOWN_GRACE", "0.3")
    stub.faults.set(silence(DELETE))
    with anyio.fail_after(5), pytest.warns(OrphanedSandboxWarning):
        await sandbox.kill()


@pytest.mark.parametrize(
    "answer",
    [Answer(404, b"<html>Not Found</html>", "text/html"), Answer(302), Answer(600, b"{}")],
    ids=["a page", "redirected", "600"],
)
async def test_a_page_is_no_proof_of_absence(
    backend: DockerBackend, sb: AsyncSandbox, stub: StubEngine, answer: Answer
) -> None:
    """What is said by no engine does not make a sandbox that runs one that is gone."""
    stub.faults.set(Fault("GET /containers/.*/json", instead=answer))
    with pytest.raises(SandboxError):
        await backend.kill_managed(sb.id)
