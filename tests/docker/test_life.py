"""The life of a sandbox: its end, who may find it, and what is not ours."""

from __future__ import annotations

import contextlib
import secrets
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
import pytest

from sandboxio import ConnectError, ExecutionTimeout, SandboxGone
from sandboxio.adapters.docker import DockerBackend
from tests.docker.outside import METADATA, RUN, Outside, unique_seconds

if TYPE_CHECKING:
    from collections.abc import Callable

    from sandboxio.protocols import AsyncSandbox
    from tests.docker.conftest import Derive, Make

pytestmark = [pytest.mark.docker, pytest.mark.anyio]

both_loops = pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"], scope="module")


@both_loops
async def test_removed_from_outside_in_mid_run(fresh: AsyncSandbox, outside: Outside) -> None:
    """LIFE-1: the waiting call and every later one raise `SandboxGone`; `kill()` is silent."""
    errors: list[SandboxGone] = []

    async def wait() -> None:
        with pytest.raises(SandboxGone) as caught:
            await fresh.run(["sleep", "60"])
        errors.append(caught.value)

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await anyio.sleep(0.5)
            outside.container(fresh).remove(force=True)
        with pytest.raises(SandboxGone):
            await fresh.run(["true"])
        with pytest.raises(SandboxGone):
            await fresh.stream(["true"]).__aenter__()
        with pytest.raises(SandboxGone):
            await fresh.files.read("f")
        await fresh.kill()
        await fresh.kill()
    assert len(errors) == 1


async def test_every_kind_of_call_learns_that_the_sandbox_is_gone(
    make: Make, outside: Outside
) -> None:
    """LIFE-1: whichever call comes first after the removal raises `SandboxGone`."""
    sandboxes = [await make() for _ in range(4)]
    for sb in sandboxes:
        outside.container(sb).remove(force=True)
    code, write, listing, stream = sandboxes
    for first_call in (
        code.run_code("1"),
        write.files.write("f", b""),
        listing.files.ls(),
        stream.stream(["true"]).__aenter__(),
    ):
        with pytest.raises(SandboxGone):
            await first_call


async def test_stopped_from_outside(fresh: AsyncSandbox, outside: Outside) -> None:
    """LIFE-1: a sandbox that was stopped, not removed, is gone too."""
    outside.container(fresh).kill()
    with pytest.raises(SandboxGone):
        await fresh.run(["true"])
    with pytest.raises(SandboxGone):
        await fresh.files.read("f")
    outside.discard(fresh)


async def test_a_stopped_sandbox_is_still_removed(make: Make, outside: Outside) -> None:
    """LIFE-5: once a call has found the sandbox stopped, `kill()` still removes what is left."""
    sb = await make(metadata={"left": "1"})
    outside.container(sb).kill()
    with pytest.raises(SandboxGone):
        await sb.run(["true"])
    await sb.kill()
    left = outside.containers(left="1")
    outside.discard(sb)
    assert left == []


async def test_stopped_while_commands_are_being_started(make: Make, outside: Outside) -> None:
    """LIFE-1: a sandbox that ends while calls are starting makes each of them `SandboxGone`."""
    sb = await make()
    said: set[str] = set()

    async def keep_calling() -> None:
        with contextlib.suppress(SandboxGone):
            while True:
                said.add((await sb.run(["true"])).stdout)

    async with anyio.create_task_group() as tasks:
        for _ in range(8):
            tasks.start_soon(keep_calling)
        await anyio.sleep(0.5)
        await anyio.to_thread.run_sync(outside.container(sb).kill)
    outside.discard(sb)
    assert said == {""}


async def test_many_removals_at_once(fresh: AsyncSandbox, outside: Outside) -> None:
    """LIFE-2: ten `kill()` and an outside removal at once all succeed in silence."""
    docker_rm = ["docker", "rm", "--force", f"sandboxio-{fresh.id}"]
    async with anyio.create_task_group() as tasks:
        for _ in range(10):
            tasks.start_soon(fresh.kill)
        tasks.start_soon(lambda: anyio.run_process(docker_rm, check=False))
    assert f"sandboxio-{fresh.id}" not in outside.containers(**METADATA)
    assert not await DockerBackend().kill_managed(fresh.id)


async def test_the_lifetime_ends_during_a_call(make: Make, outside: Outside) -> None:
    """LIFE-5: calls in progress raise `SandboxGone` with a hint at `timeout=`; four at once."""
    sb = await make(timeout=3)
    hints: list[str] = []

    async def wait() -> None:
        try:
            await sb.run(["sleep", "30"], timeout=30)
        except SandboxGone as gone:
            hints.append(gone.hint)

    async with anyio.create_task_group() as tasks:
        for _ in range(4):
            tasks.start_soon(wait)
    outside.discard(sb)
    assert ["timeout=" in hint for hint in hints] == [True] * 4


async def test_calls_after_the_end_of_the_lifetime(make: Make, outside: Outside) -> None:
    """LIFE-5: every later call raises `SandboxGone` with a hint at `timeout=`."""
    sb = await make(timeout=1)
    outside.container(sb).wait()
    for _ in range(2):
        with pytest.raises(SandboxGone) as caught:
            await sb.run(["true"])
        assert "timeout=" in caught.value.hint
    outside.discard(sb)


async def test_an_ended_sandbox_is_listed_and_removed(make: Make, outside: Outside) -> None:
    """LIFE-5: it is listed as stopped, with labels and an aware `created_at`; `kill()` works."""
    sb = await make(timeout=1, metadata={"tenant": "t2"})
    outside.container(sb).wait()
    (found,) = await DockerBackend().list_managed(labels={"test_run": RUN, "tenant": "t2"})
    assert (found.sandbox_id, found.state) == (sb.id, "stopped")
    assert found.labels == {**METADATA, "tenant": "t2"}
    assert found.created_at is not None
    assert found.created_at.tzinfo is not None
    await sb.kill()
    assert outside.containers(tenant="t2") == []


async def test_connect_from_another_backend_object(make: Make) -> None:
    """A second handle reaches the same sandbox, as the same user, and can end it."""
    first = await make(user="root", env={"ONLY": "first"})
    await first.files.write("note", "hello")
    second = await DockerBackend().connect(first.id)
    assert (second.id, second.capabilities) == (first.id, first.capabilities)
    assert await second.files.read("note") == b"hello"
    assert (await second.run(["id", "-u"])).stdout == "0\n"
    assert (await second.run(["printenv", "ONLY"])).exit_code == 1
    assert (await second.run_code("print(6 * 7)")).stdout == "42\n"
    await second.kill()
    with pytest.raises(SandboxGone):
        await first.run(["true"])


async def test_a_connected_handle_times_out_exactly(fresh: AsyncSandbox) -> None:
    """Ending a call exactly works through a connected handle as through the first one."""
    second = await DockerBackend().connect(fresh.id)
    async with fresh.stream(f"echo up; sleep {unique_seconds()}") as proc:
        await anext(aiter(proc))
        with pytest.raises(ExecutionTimeout) as caught:
            await second.run("sleep 60 & sleep 60", timeout=1)
        assert not caught.value.collateral
        assert proc.returncode is None


@pytest.mark.parametrize("sandbox_id", ["0123456789abcdef", "../../x", "sandboxio-x", "*"])
async def test_connect_to_nothing(sandbox_id: str) -> None:
    """An id that names no sandbox is `ConnectError`; `kill_managed()` says False."""
    with pytest.raises(ConnectError):
        await DockerBackend().connect(sandbox_id)
    assert await DockerBackend().kill_managed(sandbox_id) is False


async def test_connect_to_an_ended_sandbox(make: Make, outside: Outside) -> None:
    """A sandbox whose lifetime is over cannot be connected to."""
    sb = await make(timeout=1)
    outside.container(sb).wait()
    with pytest.raises(ConnectError):
        await DockerBackend().connect(sb.id)


async def test_list_and_kill_managed(make: Make, outside: Outside) -> None:
    """`list_managed()` narrows by metadata, all of it; `kill_managed()` is True once."""
    one, two = await make(metadata={"nr": "1"}), await make(metadata={"nr": "2"})
    backend = DockerBackend()
    listed = await backend.list_managed(labels=METADATA)
    assert {found.sandbox_id for found in listed} >= {one.id, two.id}
    narrowed = await backend.list_managed(labels={**METADATA, "nr": "2"})
    assert [(found.sandbox_id, found.state) for found in narrowed] == [(two.id, "running")]
    assert await backend.kill_managed(one.id) is True
    assert await backend.kill_managed(one.id) is False
    assert outside.containers(nr="1") == []
    assert outside.containers(nr="2") == [f"sandboxio-{two.id}"]


async def test_a_foreign_container_with_our_labels(
    outside: Outside, foreign: Callable[..., str]
) -> None:
    """Labels can be copied: without the name that belongs to them a container is not ours."""
    sandbox_id = secrets.token_hex(8)
    labels = {"io.sandboxio.managed": "true", "io.sandboxio.name": sandbox_id}
    container = foreign(f"theirs-{sandbox_id}", labels)
    await _is_not_ours(sandbox_id, outside, container)


async def test_a_foreign_container_with_our_name(
    outside: Outside, foreign: Callable[..., str]
) -> None:
    """A name can be taken: without our labels a container is not ours."""
    sandbox_id = secrets.token_hex(8)
    container = foreign(f"sandboxio-{sandbox_id}", {"io.sandboxio.name": sandbox_id})
    await _is_not_ours(sandbox_id, outside, container)


async def test_a_container_of_an_image_with_our_labels(
    outside: Outside, foreign: Callable[..., str], derive: Derive
) -> None:
    """Containers inherit an image's labels: that makes none of them ours."""
    sandbox_id = secrets.token_hex(8)
    image = derive(
        "true",
        "LABEL io.sandboxio.managed=true",
        f"LABEL io.sandboxio.name={sandbox_id}",
        f"LABEL io.sandboxio.meta.test_run={RUN}",
    )
    container = foreign(f"inherits-{sandbox_id}", {}, image)
    await _is_not_ours(sandbox_id, outside, container)


async def _is_not_ours(sandbox_id: str, outside: Outside, container: str) -> None:
    backend = DockerBackend()
    assert sandbox_id not in {found.sandbox_id for found in await backend.list_managed()}
    with pytest.raises(ConnectError):
        await backend.connect(sandbox_id)
    assert await backend.kill_managed(sandbox_id) is False
    assert outside.client.containers.get(container).status == "running"


async def test_an_image_cannot_forge_the_labels_of_its_sandboxes(
    make: Make, outside: Outside, derive: Derive
) -> None:
    """Reserved labels are ours whatever the image says; unknown ones of the prefix are emptied."""
    image = derive(
        "true",
        "LABEL io.sandboxio.name=0000000000000000",
        "LABEL io.sandboxio.meta.tenant=forged",
        "LABEL io.sandboxio.owner.pid=1",
        "LABEL org.example=kept",
    )
    sb = await make(image)
    labels = outside.inspect(sb)["Config"]["Labels"]
    assert labels["io.sandboxio.name"] == sb.id
    assert labels["io.sandboxio.meta.tenant"] == ""
    assert labels["io.sandboxio.owner.pid"] != "1"
    assert labels["org.example"] == "kept"


async def test_a_sandbox_of_the_image_shows_only_the_callers_metadata(
    make: Make, derive: Derive
) -> None:
    """What `list_managed()` shows is what the caller gave, nothing that the image carries."""
    sb = await make(derive("true", "LABEL io.sandboxio.meta.tenant=forged"))
    listed = await DockerBackend().list_managed(labels=METADATA)
    (found,) = [found for found in listed if found.sandbox_id == sb.id]
    assert found.labels == METADATA
