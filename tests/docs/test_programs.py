"""Every program of `examples/` runs, and prints what it is there to show."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from .blocks import ROOT

if TYPE_CHECKING:
    from .double import HostBackend

SHOWS = {
    "hello.py": "hello from the sandbox",
    "files_and_streaming.py": "total: 7",
    "prove_egress_denied.py": "denied",
    "timeouts.py": "SBX_E1302",
    "sync.py": "42",
}
SUITES: dict[str, list[str]] = {
    "test_my_tool.py": [],
    "test_local_adapter.py": ["-k", "asyncio and (exit_codes or streams_are_apart or ready_for)"],
}
"""Files of tests, and the options with which they are run here; `make test` runs all of the
adapter's, which wait for real processes."""
IMPORTED = {"local_adapter.py", "local_keeper.py"}
TARGETS: list[list[str]] = [[], ["docker://python:3.12-slim"]]


@pytest.mark.parametrize("name", SHOWS)
@pytest.mark.parametrize("arguments", TARGETS, ids=["default", "given"])
def test_program_runs_offline(
    name: str,
    arguments: list[str],
    double: HostBackend,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A program takes its target from its first argument, or has one."""
    assert SHOWS[name] in _output(name, arguments, monkeypatch, capsys)


@pytest.mark.docker
@pytest.mark.parametrize("name", SHOWS)
@pytest.mark.usefixtures("engine")
def test_program_runs_on_a_real_engine(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A program does on a real engine what it says it does."""
    assert SHOWS[name] in _output(name, [], monkeypatch, capsys)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", SUITES)
def test_tests_pass(name: str) -> None:
    """A file of tests passes, in a run of its own."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *SUITES[name]]
    done = subprocess.run(
        [*command, f"examples/{name}"],
        cwd=ROOT,
        env=ours,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]


def test_every_program_is_run() -> None:
    """No program of the folder is forgotten here or in its README."""
    programs = {path.name for path in ROOT.glob("examples/*.py")}
    readme = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    assert programs == {*SHOWS, *SUITES, *IMPORTED}
    assert [name for name in programs if f"]({name})" not in readme] == []


def test_the_adapter_is_what_its_page_says() -> None:
    """It stays as short as the page promises, and the lines quoted there are lines of it."""
    page = (ROOT / "docs/how-to/write-an-adapter.md").read_text(encoding="utf-8")
    adapter = (ROOT / "examples/local_adapter.py").read_text(encoding="utf-8")
    quoted = re.findall(r"one line of the example: `([^`]+)`", page)
    assert quoted
    assert [line for line in quoted if f"{line}\n" not in adapter] == []
    assert "a whole adapter, in 300 lines," in page
    assert len(adapter.splitlines()) <= 305


def _output(
    name: str,
    arguments: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> str:
    monkeypatch.setattr("sys.argv", [name, *arguments])
    runpy.run_path(str(ROOT / "examples" / name), run_name="__main__")
    return capsys.readouterr().out
