"""The contract suite as Docker takes it: probes that reach the engine past the library."""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import anyio
import anyio.to_thread
import docker
import pytest
from docker.errors import APIError

from sandboxio.adapters import _docker_engine, _docker_link
from sandboxio.adapters._docker_birth import Maker
from sandboxio.adapters._docker_engine import Engine
from sandboxio.adapters.docker import DockerBackend, DockerConfig, LinkPolicy
from sandboxio.testing.suite import SuiteFixtures

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

    from sandboxio.core.protocols import AsyncSandbox, Backend

_LONG = 4000.0
_METADATA = "io.sandboxio.meta.contract_run"


@contextmanager
def _instead_of_starting(act: Callable[..., Awaitable[None]]) -> Generator[None]:
    """Have something else happen to a container that is about to be started, in either mode."""

    async def start(maker: Maker, container: str) -> None:
        engine: Engine = vars(maker)["_engine"]
        await act(engine, container)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Maker, "_start", start)
        patch.setattr(_docker_link, "begin", act)
        yield


class DockerSettings(SuiteFixtures):
    """Each case on a backend of its own, and one engine for all."""

    template = os.environ.get("SANDBOXIO_TEST_IMAGE", "sandboxio-test/python")
    link: LinkPolicy = "auto"
    engine: docker.DockerClient

    @pytest.fixture(autouse=True)
    def client(self, backend: Backend) -> Generator[None]:
        """Look at the engine with a client that is not the adapter's."""
        del backend  # whose fixture notes the case, also when there is no engine
        self.engine = docker.from_env(timeout=60)
        yield
        self.engine.close()

    def make_backend(self) -> Backend:
        return DockerBackend(config=DockerConfig(link=self.link))

    async def remove_behind(self, sandbox: AsyncSandbox) -> None:
        """Remove the container, unless somebody is about it already."""
        with suppress(APIError):
            await anyio.to_thread.run_sync(partial(self._container(sandbox).remove, force=True))

    async def expire(self, sandbox: AsyncSandbox) -> None:
        """Stop the container, which is all that the end of a lifetime does."""
        stop = partial(self._container(sandbox).stop, timeout=0)
        await anyio.to_thread.run_sync(stop)

    async def count(self, run: str) -> int:
        list_all = partial(
            self.engine.containers.list,
            all=True,
            ignore_removed=True,
            filters={"label": f"{_METADATA}={run}"},
        )
        return len(await anyio.to_thread.run_sync(list_all))

    @contextmanager
    def slow_create(self) -> Generator[None]:
        """Let the engine be silent once the container is there."""

        async def silent(*_: object) -> None:
            await anyio.sleep(_LONG)

        with _instead_of_starting(silent):
            yield

    @contextmanager
    def failing_create(self, error: Exception) -> Generator[None]:
        """Let docker-py raise when the container, which is there, is to start."""

        def fail(client: Any) -> NoReturn:
            raise error

        async def failing(*arguments: Any) -> None:
            engine = next(one for one in arguments if isinstance(one, Engine))
            await engine.call("create", fail)

        with _instead_of_starting(failing):
            yield

    @contextmanager
    def hanging_removal(self) -> Generator[None]:
        """Let the engine's answer to a removal wait for the end of the block."""
        over = threading.Event()
        remove: Any = vars(_docker_engine)["_remove"]

        def late(client: Any, name: str) -> bool:
            over.wait(_LONG)
            return bool(remove(client, name))

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(_docker_engine, "_remove", late)
            try:
                yield
            finally:
                over.set()

    def _container(self, sandbox: AsyncSandbox) -> Any:
        return self.engine.containers.get(f"sandboxio-{sandbox.id}")
