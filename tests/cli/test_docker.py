"""The real commands, on a real engine."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

import sandboxio
from sandboxio.core.models import NetworkPolicy

if TYPE_CHECKING:
    from collections.abc import Iterator

    import docker

    from tests.cli.conftest import Run

pytestmark = pytest.mark.docker

IMAGE = os.environ.get("SANDBOXIO_TEST_IMAGE", "sandboxio-test/python")
TARGET = f"docker://{IMAGE}"
DEMO = ("demo", "--backend", TARGET)


@pytest.fixture(scope="module")
def engine() -> Iterator[docker.DockerClient]:
    """The engine, asked past the library; tests skip without it, or fail where it is required."""
    docker = pytest.importorskip("docker", reason="the extra 'docker' is not installed")
    try:
        client = docker.from_env(timeout=30)
        client.images.get(IMAGE)
    except docker.errors.DockerException as exc:
        required = os.environ.get("SANDBOXIO_REQUIRE_ENGINE") == "1" or os.environ.get("CI")
        (pytest.fail if required else pytest.skip)(f"no engine with {IMAGE}: {exc}")
    yield client
    client.close()


def containers(engine: docker.DockerClient, label: str) -> list[str]:
    found = engine.containers.list(all=True, ignore_removed=True, filters={"label": label})
    return [str(container.name) for container in found]


def command(*argv: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "sandboxio", *argv],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(*argv: str) -> tuple[int, Any, int]:
    """Run a command as a process; its exit code, its JSON and its pid."""
    process = command(*argv, "--json")
    out, err = process.communicate(timeout=120)
    assert err == ""
    return process.returncode, json.loads(out), process.pid


@pytest.fixture
def run_id(engine: docker.DockerClient) -> str:
    return secrets.token_hex(6)


@pytest.fixture
def sandbox(run_id: str) -> Iterator[sandboxio.SyncSandbox]:
    """A sandbox that carries this test's metadata."""
    with sandboxio.create_sync(TARGET, timeout=120, metadata={"test_cli": run_id}) as made:
        yield made


def test_demo_passes_and_leaves_nothing(engine: docker.DockerClient) -> None:
    """Five steps ok in a real sandbox, and no container of that process afterwards."""
    code, report, pid = ended(*DEMO)
    assert code == 0
    assert [step["status"] for step in report["steps"]] == ["ok"] * 5
    assert len(report["probe"]["attempts"]) >= 3
    assert containers(engine, f"io.sandboxio.owner.pid={pid}") == []


def test_demo_fails_in_a_sandbox_with_a_network(
    engine: docker.DockerClient, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With egress open the probe gets out, the canary sees it, and the demo says so."""
    create = sandboxio.create

    async def opened(target: Any, *, metadata: dict[str, str]) -> Any:
        return await create(target, metadata=metadata, network=NetworkPolicy(egress="allow"))

    monkeypatch.setattr(sandboxio, "create", opened)
    result = run(*DEMO, "--json")
    assert result.code == 1
    step = next(step for step in result.json["steps"] if step["name"] == "egress")
    assert "REACHED" in step["detail"]
    assert containers(engine, f"io.sandboxio.meta.run={result.json['run']}") == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("after", ["A sandbox on docker", "create", "run_code"])
def test_interrupted_demo_leaves_nothing(
    engine: docker.DockerClient, number: signal.Signals, after: str
) -> None:
    """In any step a signal ends the demo within seconds: exit code 130, no container."""
    process = command(*DEMO)
    assert process.stdout is not None
    for line in process.stdout:
        if after in line:
            break
    process.send_signal(number)
    _, err = process.communicate(timeout=10)
    assert (process.returncode, err) == (130, "")
    assert containers(engine, f"io.sandboxio.owner.pid={process.pid}") == []


def test_doctor_is_content_with_this_engine(engine: docker.DockerClient) -> None:
    """What the engine says of itself is in the report; exit code 0."""
    code, report, _ = ended("doctor")
    backend = next(entry for entry in report["backends"] if entry["name"] == "docker")
    facts = {check["name"]: check["detail"] for check in backend["checks"]}
    assert (code, backend["isolation"]) == (0, "container")
    assert facts["engine version"] == engine.version()["Version"]


def test_reap_lists_and_does_not_touch(sandbox: sandboxio.SyncSandbox, run_id: str) -> None:
    """The dry run finds a running sandbox by its metadata, and it goes on running."""
    code, report, _ = ended("reap", "--label", f"test_cli={run_id}")
    found = report["backends"][0]["sandboxes"]
    assert code == 0
    assert [(s["id"], s["state"], s["fate"]) for s in found] == [(sandbox.id, "running", "kept")]
    assert sandbox.run(["true"]).ok


@pytest.mark.parametrize("state", ["running", "stopped"])
def test_reap_removes_what_the_label_matches(
    engine: docker.DockerClient, sandbox: sandboxio.SyncSandbox, run_id: str, state: str
) -> None:
    """Running or stopped, `--kill` removes it; a second run finds nothing."""
    if state == "stopped":
        engine.containers.get(f"sandboxio-{sandbox.id}").kill()
    code, report, _ = ended("reap", "--kill", "--label", f"test_cli={run_id}")
    assert code == 0
    assert [s["fate"] for s in report["backends"][0]["sandboxes"]] == ["removed"]
    assert containers(engine, f"io.sandboxio.meta.test_cli={run_id}") == []
