"""Two engines for the documentation: the double on this host, and a real one."""

from __future__ import annotations

import gc
import os
import warnings
import zipfile
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

import docker
import pytest
from docker.errors import DockerException

import sandboxio
from sandboxio.adapters import docker as adapter
from sandboxio.core.owner import session

from .double import HostBackend

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sandboxio.adapters.docker import DockerConfig
    from sandboxio.core.driver import DriverSandbox
    from sandboxio.core.requests import CreateRequest

DOCUMENTED = ("python:3.12-slim", "agent-runtime:1")
"""Images our pages name; the test image stands in for those the engine does not have."""
TEST_IMAGE = os.environ.get("SANDBOXIO_TEST_IMAGE", "sandboxio-test/python")

RealBackend = adapter.DockerBackend


class StandInBackend(RealBackend):
    """Docker, with the test image where a documented image is not on the engine."""

    present: frozenset[str] = frozenset()

    def configured(self, config: DockerConfig) -> StandInBackend:
        return StandInBackend(config=config)

    async def _provision(self, request: CreateRequest) -> DriverSandbox:
        template = request.template or DOCUMENTED[0]
        if template in DOCUMENTED and template not in self.present:
            template = TEST_IMAGE
        return await super()._provision(replace(request, template=template))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory of an example, with the files our pages speak of."""
    (tmp_path / "data.csv").write_text("name,amount\na,3\nb,4\n")
    (tmp_path / "wheels").mkdir()
    _write_wheel(tmp_path / "wheels" / "tabulate-0.9.0-py3-none-any.whl")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def double(folder: Path) -> Iterator[HostBackend]:
    """The double in the place of Docker; everything made in it must be gone afterwards."""
    backend = HostBackend()
    sandboxio.register("docker", lambda: backend)
    yield backend
    sandboxio.unregister("docker")
    assert backend.left == []


@pytest.fixture
def engine(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A real engine; everything made on it must be gone afterwards."""
    client = _connect()
    tags = {tag for image in client.images() for tag in image.get("RepoTags") or ()}
    monkeypatch.setattr(StandInBackend, "present", frozenset(DOCUMENTED) & tags)
    monkeypatch.setattr(adapter, "DockerBackend", StandInBackend)
    sandboxio.register("docker", StandInBackend)
    yield
    sandboxio.unregister("docker")
    ours = f"io.sandboxio.session={session()}"
    assert client.containers(all=True, filters={"label": ours}) == []
    client.close()


def _connect() -> Any:
    client, reason = _try_engine()
    if client is None:
        with warnings.catch_warnings():
            # docker-py leaves the socket open that found nobody.
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()
        _unavailable(reason)
    return client


def _try_engine() -> tuple[Any, str]:
    try:
        client: Any = docker.from_env(timeout=60).api
    except DockerException as exc:
        return None, f"no engine answers: {exc}"
    try:
        client.inspect_image(TEST_IMAGE)
    except DockerException as exc:
        client.close()
        return None, f"the image {TEST_IMAGE} is not on the engine (dev/image makes it): {exc}"
    return client, ""


def _unavailable(reason: str) -> NoReturn:
    if os.environ.get("SANDBOXIO_REQUIRE_ENGINE") == "1" or os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


def _write_wheel(path: Path) -> None:
    """Write a wheel with the name of a real package and one function of it."""
    info = "tabulate-0.9.0.dist-info"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("tabulate.py", "def tabulate(rows):\n    return repr(rows)\n")
        wheel.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: tabulate\nVersion: 0.9.0\n"
        )
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", "")
