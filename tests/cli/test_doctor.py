"""The diagnosis: what it finds, what it never shows, and that it always comes to an end."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import sandboxio
from sandboxio.doctor import DoctorReport, doctor

if TYPE_CHECKING:
    from sandboxio.doctor import BackendReport, Check
    from tests.cli.conftest import Run
    from tests.cli.engine import StubEngine

pytest.importorskip("docker", reason="the extra 'docker' is not installed")

PASSWORD = "hunter2"


def docker_of(report: DoctorReport) -> BackendReport:
    return next(backend for backend in report.backends if backend.name == "docker")


def checks() -> dict[str, Check]:
    return {check.name: check for check in docker_of(doctor()).checks}


def test_healthy_engine_has_no_complaint(engine: StubEngine) -> None:
    """Versions, endpoint and who named it, caps, image and tier, all in order."""
    report = docker_of(doctor())
    found = {check.name: check for check in report.checks}
    assert {check.status for check in report.checks} == {"ok"}
    assert (report.installed, report.isolation) == (True, "container")
    assert found["endpoint"].detail == f"{engine.url} (from DOCKER_HOST)"
    assert found["engine version"].detail == "24.0.7"
    assert set(report.packages) == {"docker", "h11"}


@pytest.mark.parametrize(
    ("key", "name", "status"),
    [
        ("MemoryLimit", "memory cap", "failed"),
        ("PidsLimit", "process cap", "failed"),
        ("CpuCfsQuota", "CPU cap", "failed"),
        ("SwapLimit", "swap cap", "note"),
    ],
)
def test_cap_the_engine_cannot_apply(
    engine: StubEngine, run: Run, key: str, name: str, status: str
) -> None:
    """A cap that create() would insist on fails the check; one it only warns of is a note."""
    engine.info[key] = False
    assert checks()[name].status == status
    assert run("doctor").code == (1 if status == "failed" else 0)


def test_unknown_runtime_has_no_tier(engine: StubEngine) -> None:
    """The tier is what the engine's default runtime is known for, not what we hope."""
    engine.info |= {"Runtimes": {"other": {"path": "/opt/other"}}, "DefaultRuntime": "other"}
    report = docker_of(doctor())
    assert (report.isolation, report.healthy) == ("unknown", True)


def test_absent_image_is_a_note_with_the_pull_command(engine: StubEngine) -> None:
    """The first sandbox pulls it; that is worth knowing and no failure."""
    engine.image = False
    check = checks()["default image"]
    assert (check.status, check.fix) == ("note", "docker pull python:3.12-slim")


def test_crash_clean_up_is_on_when_a_watcher_has_answered(
    engine: StubEngine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """One is really started, and ends with the diagnosis."""
    monkeypatch.setenv("HOME", str(tmp_path))
    check = checks()["crash clean-up"]
    assert (check.status, check.detail) == ("ok", "on: a watcher started and answered")
    until = time.monotonic() + 20
    while _processes_at_home_in(tmp_path):
        assert time.monotonic() < until
        time.sleep(0.05)


def _processes_at_home_in(folder: Path) -> list[str]:
    found: list[str] = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            found += [str(path)] if f"HOME={folder}".encode() in path.read_bytes() else []
    return found


def test_crash_clean_up_that_is_switched_off(
    engine: StubEngine, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LIFE-4: the reason and the way back are shown; it is no failure."""
    monkeypatch.setenv("SBX_DOCKER_REAPER", "0")
    check = checks()["crash clean-up"]
    assert (check.status, check.detail) == ("note", "off: SBX_DOCKER_REAPER=0")
    assert check.fix == "unset SBX_DOCKER_REAPER"
    shown = run("doctor", "--json")
    assert shown.code == 0
    assert "off: SBX_DOCKER_REAPER=0" in shown.out


def test_crash_clean_up_that_cannot_be_had(
    engine: StubEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LIFE-4: a program that is no Python interpreter is told so."""
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    check = checks()["crash clean-up"]
    assert (check.status, bool(check.fix)) == ("note", True)
    assert check.detail.startswith("off: sys.executable is no Python interpreter")


def test_crash_clean_up_whose_watcher_ends(
    engine: StubEngine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """LIFE-4: it counts only after a handshake; the watcher's last words are the reason."""
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho no room >&2; exit 1\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    assert checks()["crash clean-up"].detail == "off: the watcher ended (no room)"


def test_engine_that_talks_nonsense_ends_in_a_finding(engine: StubEngine) -> None:
    """Whatever an engine answers, the diagnosis reports, and is not what breaks."""
    engine.info["Runtimes"] = "nonsense"
    report = doctor()
    assert not report.healthy


def test_escapes_of_an_engine_are_spelled_out(engine: StubEngine, run: Run) -> None:
    """An engine's version cannot steer the terminal."""
    engine.version["Version"] = "1\x1b[2J"
    assert r"1\x1b[2J" in run("doctor").out


@pytest.mark.parametrize(
    "address",
    [
        "tcp://127.0.0.1:1",
        "unix:///nowhere.sock",
        "ssh://engine",
        "tcp://[bad",
        "nonsense",
        f"tcp://me:{PASSWORD}@engine:2375",
    ],
)
@pytest.mark.filterwarnings(  # docker-py drops a unix socket that cannot connect, unclosed
    "ignore::pytest.PytestUnraisableExceptionWarning"
)
def test_every_failure_carries_a_fix_and_no_secret(
    monkeypatch: pytest.MonkeyPatch, run: Run, address: str
) -> None:
    """An address that leads nowhere: exit code 1, what to do, and nothing of the password."""
    monkeypatch.setenv("DOCKER_HOST", address)
    failed = [check for check in docker_of(doctor()).checks if check.status == "failed"]
    assert failed
    assert all(check.fix and "sandboxio doctor" not in check.fix for check in failed)
    for rendering in (run("doctor"), run("doctor", "--json")):
        assert rendering.code == 1
        assert PASSWORD not in rendering.out + rendering.err
    gc.collect()  # so that docker-py's socket is found here, and not in another test


def test_silent_engine_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that accepts and says nothing is reported in bounded time."""
    monkeypatch.setattr("sandboxio.adapters._docker_doctor.REACH_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("DOCKER_HOST", f"tcp://127.0.0.1:{silent.getsockname()[1]}")
        check = checks()["reachable"]
    assert (check.status, check.detail) == ("failed", "The engine did not answer within 0.1 s.")


@pytest.mark.anyio
async def test_works_inside_a_running_event_loop(engine: StubEngine) -> None:
    """It blocks the loop, as documented, and gives the same report."""
    assert docker_of(doctor()).healthy


def test_variables_are_named_and_never_shown(
    monkeypatch: pytest.MonkeyPatch, engine: StubEngine
) -> None:
    """Set or unset is all there is to learn about a variable."""
    monkeypatch.setenv("DOCKER_CERT_PATH", PASSWORD)
    report = docker_of(doctor())
    variables = {variable.name: variable.is_set for variable in report.variables}
    assert variables == {"DOCKER_HOST": True, "DOCKER_TLS_VERIFY": False, "DOCKER_CERT_PATH": True}
    assert PASSWORD not in json.dumps(doctor().as_dict())


def test_missing_sdk_is_not_installed_and_not_unhealthy(
    monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    """An extra nobody asked for is no problem; the command that brings it is shown."""
    monkeypatch.setitem(sys.modules, "h11", None)
    ended = run("doctor")
    assert ended.code == 0
    assert 'docker: not installed\n        fix:               pip install "sandboxio[docker]"' in (
        ended.out
    )


def test_broken_sdk_is_a_failure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An SDK that is there and does not import is in the way."""
    (tmp_path / "h11.py").write_text("raise ImportError('half of it is missing')")
    monkeypatch.setattr("sys.path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "h11", raising=False)
    report = docker_of(doctor())
    assert (report.installed, report.healthy, report.checks[0].name) == (True, False, "SDK")


def test_installed_entry_point_is_listed_and_not_imported(
    monkeypatch: pytest.MonkeyPatch, engine: StubEngine, tmp_path: Path
) -> None:
    """A third party's backend is named with its distribution; its code does not run."""
    folder = tmp_path / "acme_sandbox-3.1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-sandbox\nVersion: 3.1\n")
    (folder / "entry_points.txt").write_text("[sandboxio.backends]\nacme = acme_sandbox:Backend\n")
    (tmp_path / "acme_sandbox.py").write_text("raise AssertionError('imported')")
    monkeypatch.setattr("sys.path", [str(tmp_path), *sys.path])
    report = next(backend for backend in doctor().backends if backend.name == "acme")
    assert (report.origin, report.packages) == ("acme-sandbox", {"acme-sandbox": "3.1"})
    assert report.healthy


@pytest.mark.parametrize("first", ["from sandboxio.doctor import DoctorReport", "pass"])
def test_name_is_callable_whatever_was_imported_first(first: str) -> None:
    """`sandboxio.doctor()` works although the module of that name may shadow the function."""
    program = f"{first}\nimport sandboxio\nprint(sandboxio.doctor().healthy)"
    environment = {**os.environ, "DOCKER_HOST": "tcp://127.0.0.1:1"}
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=True
    )
    assert ended.stdout == "False\n"


def test_both_renderings_are_of_one_report(engine: StubEngine, run: Run) -> None:
    """Every check of the JSON form is in the text, and the JSON is the report's own data."""
    text, data = run("doctor").out, run("doctor", "--json").json
    assert data.keys() == sandboxio.doctor().as_dict().keys()
    for check in data["backends"][0]["checks"]:
        assert check["name"] in text
