"""PY-9: the version of the API is negotiated; an impossible pair is told with a hint."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import pytest

import sandboxio
from sandboxio import ConnectError
from sandboxio.adapters.docker import DockerBackend, DockerConfig
from sandboxio.cli.main import main
from sandboxio.doctor import doctor
from tests.stub.engine import StubEngine
from tests.stub.faults import Answer, Fault, data, refusal
from tests.stub.world import IMAGE, Program

if TYPE_CHECKING:
    from pathlib import Path

    from tests.stub.conftest import Create

TOO_OLD = "client version 1.41 is too old. Minimum supported API version is 1.44"
TOO_NEW = "client version 1.52 is too new. Maximum supported API version is 1.41"
RANGES = [("1.41", "1.24"), ("1.52", "1.44")]


@pytest.mark.anyio
@pytest.mark.parametrize(("api", "least"), RANGES)
async def test_a_version_is_negotiated(tmp_path: Path, api: str, least: str) -> None:
    """Every request, the upgraded ones too, speaks a version that the engine takes."""
    with StubEngine(tmp_path / "engine.sock", api=api, least=least) as stub:
        stub.world.programs["echo"] = Program(out=b"hi\n")
        config = DockerConfig(host=stub.url, template=IMAGE)
        async with await sandboxio.create(config, timeout=30) as sandbox:
            assert (await sandbox.run(["echo"])).stdout == "hi\n"
        assert stub.versions == {None, api}


@pytest.mark.anyio
@pytest.mark.parametrize("message", [TOO_OLD, TOO_NEW])
@pytest.mark.parametrize(
    "route",
    ["GET /version", "GET /images/.*", "POST /containers/create", "POST /containers/.*/attach"],
)
async def test_a_version_that_is_refused(
    create: Create, stub: StubEngine, route: str, message: str
) -> None:
    """Wherever the engine says so, it is a `ConnectError` whose hint says what to upgrade."""
    stub.faults.set(Fault(route, instead=refusal(400, message)))
    with anyio.fail_after(5), pytest.raises(ConnectError) as caught:
        await create()
    assert "pip install --upgrade docker" in caught.value.hint
    assert stub.world.boxes == []


@pytest.mark.anyio
async def test_an_engine_too_old_for_the_client(create: Create, stub: StubEngine) -> None:
    """The client's own refusal reads the same."""
    stub.faults.set(Fault("GET /version", instead=data({"ApiVersion": "1.20"})))
    with pytest.raises(ConnectError) as caught:
        await create()
    assert "pip install --upgrade docker" in caught.value.hint


@pytest.mark.anyio
@pytest.mark.parametrize(
    "answer", [data({}), data([]), data(None), data({"ApiVersion": 1}), data({"ApiVersion": "x"})]
)
async def test_a_version_that_cannot_be_read(
    create: Create, stub: StubEngine, answer: Answer
) -> None:
    """Something that is no engine is a `ConnectError` with a hint."""
    stub.faults.set(Fault("GET /version", instead=answer))
    with pytest.raises(ConnectError) as caught:
        await create()
    assert caught.value.hint


@pytest.mark.anyio
async def test_an_engine_that_was_exchanged(config: DockerConfig, stub: StubEngine) -> None:
    """After an engine's downgrade the version is negotiated anew, by the second attempt."""
    backend = DockerBackend(config=config)
    await backend.list_managed()
    stub.api = "1.41"
    with pytest.raises(ConnectError):
        await backend.list_managed()
    assert await backend.list_managed() == []


@pytest.mark.parametrize(("api", "least"), RANGES)
def test_the_diagnosis_shows_both_versions(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    api: str,
    least: str,
) -> None:
    """What is in use, what the engine offers, and what the client can do at most."""
    from docker.constants import DEFAULT_DOCKER_API_VERSION

    with StubEngine(tmp_path / "engine.sock", api=api, least=least) as stub:
        monkeypatch.setenv("DOCKER_HOST", stub.url)
        assert main(["doctor"]) == 0
    shown = capsys.readouterr().out
    assert f"{api} in use; the engine offers {api}" in shown
    assert f"the client {DEFAULT_DOCKER_API_VERSION} at most" in shown


def test_the_diagnosis_of_a_refused_version(
    stub: StubEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It fails, and the fix is the one that the error would carry."""
    monkeypatch.setenv("DOCKER_HOST", stub.url)
    stub.faults.set(Fault("GET /info", instead=refusal(400, TOO_OLD)))
    report = next(backend for backend in doctor().backends if backend.name == "docker")
    failed = [check for check in report.checks if check.status == "failed"]
    assert ["pip install --upgrade docker" in check.fix for check in failed] == [True]
