"""What the tests on a real engine stand on, and the proof that they leave nothing there."""

from __future__ import annotations

import contextlib
import gc
import os
import time
import warnings
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import docker
import pytest
from docker.errors import DockerException

import sandboxio
from sandboxio.adapters.docker import LINK_VARIABLE
from sandboxio.core import owner
from tests.docker.outside import IMAGE, METADATA, RUN, TARGET, Outside, host_processes

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from sandboxio.protocols import AsyncSandbox


class Make(Protocol):
    """Makes a sandbox that is removed when the test ends."""

    async def __call__(self, image: str = ..., **options: Any) -> AsyncSandbox: ...


class Derive(Protocol):
    """Makes an image by a root shell script and Dockerfile instructions, for one test."""

    def __call__(self, script: str = ..., *changes: str) -> str: ...


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run on asyncio alone what does not ask for both loops: an engine run is slow enough."""
    asked = [mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")]
    if "anyio_backend" in metafunc.fixturenames and "anyio_backend" not in asked:
        metafunc.definition.add_marker(
            pytest.mark.parametrize("anyio_backend", ["asyncio"], scope="module")
        )


OVER_THE_LINK = ("test_link_", "test_memory", "test_network", "test_output")
"""Files of tests whose sandboxes have the agent; those of all others are made of execs."""


@pytest.fixture(scope="module", autouse=True)
def mode(request: pytest.FixtureRequest) -> Iterator[None]:
    """Choose how calls get into the sandboxes of a file; `SBX_DOCKER_LINK` outside decides too."""
    with pytest.MonkeyPatch.context() as patch:
        if LINK_VARIABLE not in os.environ and not request.path.name.startswith(OVER_THE_LINK):
            patch.setenv(LINK_VARIABLE, "0")
        yield


@pytest.fixture(scope="session", autouse=True)
def outside() -> Iterator[Outside]:
    """The engine; without it and the image the tests skip, or fail where they are required."""
    client = _client()
    yield Outside(client)
    try:
        _assert_nothing_left(client)
    finally:
        client.close()


def _client() -> docker.DockerClient:
    client = _connected()
    if client is None:
        with warnings.catch_warnings(action="ignore", category=ResourceWarning):
            gc.collect()  # docker-py leaves open the socket of an attempt that failed
        _unavailable("no engine answers (dev/engine starts one)")
    try:
        client.images.get(IMAGE)
    except DockerException as exc:
        client.close()
        _unavailable(f"the image {IMAGE} is not on the engine (dev/image makes it): {exc}")
    return client


def _connected() -> docker.DockerClient | None:
    try:
        return docker.from_env(timeout=60)
    except DockerException:
        return None


def _unavailable(reason: str) -> NoReturn:
    required = os.environ.get("SANDBOXIO_REQUIRE_ENGINE") == "1" or os.environ.get("CI")
    if required:
        pytest.fail(reason)
    pytest.skip(reason)


def _assert_nothing_left(client: docker.DockerClient) -> None:
    """No container of this process or of its children, in any state, and no process of them."""
    labels = (f"io.sandboxio.session={owner.session()}", f"io.sandboxio.meta.test_run={RUN}")
    left: list[str] = []
    for _ in range(20):
        found = [
            client.containers.list(all=True, ignore_removed=True, filters={"label": label})
            for label in labels
        ]
        left = [f"{c.name} ({c.status})" for group in found for c in group]
        if not left:
            break
        time.sleep(0.5)
    assert left == []
    assert host_processes(RUN) == []


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Endings may take longer on a loaded machine before they cost the sandbox."""
    monkeypatch.setenv("SBX_TEARDOWN_GRACE", "20")


@pytest.fixture(scope="module")
async def sb(anyio_backend: object) -> AsyncIterator[AsyncSandbox]:
    """A sandbox shared by a module, for cases that leave it as they found it."""
    async with await sandboxio.create(TARGET, timeout=280, metadata=METADATA) as sandbox:
        yield sandbox


@pytest.fixture
async def make(derive: Derive) -> AsyncIterator[Make]:
    """Sandboxes for one test; they are removed before the images that `derive` made."""
    async with contextlib.AsyncExitStack() as stack:

        async def make(image: str = IMAGE, **options: Any) -> AsyncSandbox:
            options = {"timeout": 120, **options}
            options["metadata"] = {**METADATA, **options.get("metadata", {})}
            sandbox = await sandboxio.create(f"docker://{image}", **options)
            return await stack.enter_async_context(sandbox)

        yield make


@pytest.fixture
async def fresh(make: Make) -> AsyncSandbox:
    """A sandbox of the test's own."""
    return await make()


@pytest.fixture
def derive(outside: Outside) -> Iterator[Derive]:
    made: list[str] = []

    def derive(script: str = "true", *changes: str) -> str:
        tag = f"sandboxio-test/derived-{RUN}-{len(made)}"
        container: Any = outside.client.containers.create(
            IMAGE, ["/bin/sh", "-ec", script], user="0", entrypoint="", network_mode="none"
        )
        try:
            container.start()
            assert container.wait()["StatusCode"] == 0
            undone = ["USER root", 'CMD ["/bin/sh"]', *changes]
            container.commit(repository=tag, changes=undone)
        finally:
            container.remove(force=True)
        made.append(tag)
        return tag

    yield derive
    for tag in made:
        outside.client.images.remove(tag, force=True)


@pytest.fixture
def foreign(outside: Outside, derive: Derive) -> Iterator[Callable[..., str]]:
    """Makes containers that are somebody else's, and gives their ids."""
    made: list[str] = []

    def foreign(name: str, labels: dict[str, str], image: str = IMAGE) -> str:
        container = outside.client.containers.run(
            image, ["sleep", "120"], name=name, labels=labels, detach=True, network_mode="none"
        )
        made.append(str(container.id))
        return made[-1]

    yield foreign
    for container in made:
        outside.client.containers.get(container).remove(force=True)
