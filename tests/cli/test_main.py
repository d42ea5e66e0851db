"""Exit codes, errors, help, and the ways a command can end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import warnings
from typing import TYPE_CHECKING

import anyio
import pytest

from sandboxio.cli import _interrupt
from sandboxio.core.errors import ConnectError, OrphanedSandboxWarning

if TYPE_CHECKING:
    from tests.cli.conftest import Run
    from tests.cli.engine import StubEngine
    from tests.cli.world import World


@pytest.mark.parametrize("command", ["demo", "doctor", "reap"])
def test_help_of_every_command_has_examples_and_json(run: Run, command: str) -> None:
    """`--help` shows what to type; every command has `--json`."""
    ended = run(command, "--help")
    assert ended.code == 0
    assert f"\n  sandboxio {command}" in ended.out
    assert "--json" in ended.out


def test_version_and_missing_command(run: Run) -> None:
    """`--version` succeeds; no command at all is a usage error."""
    assert run("--version").out.startswith("sandboxio ")
    assert run().code == 2


def test_error_is_json_where_json_was_asked_for(run: Run, world: World) -> None:
    """Code, message, hint and page, on stdout, and nothing else there."""
    world.trouble["code"] = ConnectError("The engine went away.", hint="Start it.")
    ended = run("demo", "--backend", "world://", "--json")
    assert ended.code == 1
    assert ended.json == {
        "error": {
            "code": "SBX_E1202",
            "message": "The engine went away.",
            "hint": "Start it.",
            "url": ConnectError("").url,
        }
    }


def test_error_for_humans_is_on_stderr_without_a_traceback(run: Run, world: World) -> None:
    """The rendered error, its lines harmless, and nothing of how it came about."""
    world.trouble["code"] = ConnectError("The \x1b[31mengine went away.")
    ended = run("demo", "--backend", "world://")
    assert r"[SBX_E1202] The \x1b[31mengine" in ended.err
    assert "Traceback" not in ended.err


def test_debug_shows_the_traceback(run: Run, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """`SBX_DEBUG=1` is for those who want to see where it came from."""
    monkeypatch.setattr("sandboxio.cli.main.install_tracebacks", lambda: None)
    world.trouble["code"] = ConnectError("The engine went away.")

    def debugged() -> str:
        monkeypatch.setenv("SBX_DEBUG", "1")
        return run("demo", "--backend", "world://").err

    assert "Traceback" in debugged()


def test_own_warnings_are_one_line(run: Run, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A warning of ours is for the operator: no file, no line number."""

    def warned(code: str) -> str:
        warnings.warn("Something may be left.", OrphanedSandboxWarning, stacklevel=1)
        return world.said

    monkeypatch.setattr(world, "answer", warned)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        ended = run("demo", "--backend", "world://")
    assert "warning: Something may be left.\n" in ended.err


def test_reader_that_goes_away_is_no_traceback() -> None:
    """`sandboxio doctor | head -0` ends quietly."""
    reading, writing = os.pipe()
    os.close(reading)
    ended = subprocess.run(
        [sys.executable, "-m", "sandboxio", "doctor"],
        stdout=writing,
        stderr=subprocess.PIPE,
        env={**os.environ, "DOCKER_HOST": "tcp://127.0.0.1:1"},
        check=False,
    )
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (1, b"")


def test_interrupt_does_not_wait_for_a_pull(engine: StubEngine) -> None:
    """A worker thread that is stuck in the engine does not keep the process."""
    pytest.importorskip("docker", reason="the extra 'docker' is not installed")
    engine.image = False
    program = "from sandboxio.cli.main import run; run()"
    with subprocess.Popen(
        [sys.executable, "-c", program, "demo"], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert any("pulling" in line for line in process.stdout)
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 130


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_lets_teardown_finish(number: signal.Signals) -> None:
    """Work is cancelled, its shielded teardown is not."""
    steps: list[str] = []

    async def work() -> None:
        try:
            os.kill(os.getpid(), number)
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.wait_all_tasks_blocked()
                steps.append("torn down")

    with pytest.raises(KeyboardInterrupt):
        _interrupt.run(work)
    assert steps == ["torn down"]


def test_error_of_the_work_arrives_as_itself() -> None:
    """Neither the supervision nor its task group wraps what the work raises."""

    async def work() -> None:
        await anyio.lowlevel.checkpoint()
        raise ConnectError("No.")

    with pytest.raises(ConnectError):
        _interrupt.run(work)


def test_interrupted_command_exits_130(
    run: Run, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exit code says that it was interrupted, and the sandbox is gone."""

    def interrupt(code: str) -> str:
        os.kill(os.getpid(), signal.SIGINT)
        return "not what was expected"

    monkeypatch.setattr(world, "answer", interrupt)
    assert run("demo", "--backend", "world://").code == 130
    assert not world.there
