"""Programs that are interrupted leave no sandbox behind."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, NamedTuple

import pytest

from sandboxio.core.lifecycle import DEFAULT_GRACE
from tests.docker.outside import RUN, TARGET, Outside, host_processes, unique_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

pytestmark = pytest.mark.docker

SYNC = """\
import sandboxio, sys
try:
    with sandboxio.create_sync({target!r}, timeout={timeout}, metadata={metadata!r}) as sb:
        print("ready", flush=True)
        sb.run(["sleep", {mark!r}], timeout=300)
except KeyboardInterrupt:
    print("interrupted", flush=True)
    sys.exit(130)
"""
ASYNC = """\
import asyncio, sandboxio, sys
async def main():
    async with await sandboxio.create(
        {target!r}, timeout={timeout}, metadata={metadata!r}
    ) as sb:
        print("ready", flush=True)
        await sb.run(["sleep", {mark!r}], timeout=300)
try:
    asyncio.run(main())
except KeyboardInterrupt:
    print("interrupted", flush=True)
    sys.exit(130)
"""


class Interrupted(NamedTuple):
    """How a program ended that got signals."""

    returncode: int
    stdout: str
    stderr: str
    label: str
    mark: str


@pytest.fixture
def interrupt(tmp_path: Path, outside: Outside) -> Callable[..., Interrupted]:
    """Runs a program until it is ready and one second more, then signals it."""

    def interrupt(
        program: str, signals: Sequence[signal.Signals], *, timeout: int = 60
    ) -> Interrupted:
        label, mark = unique_seconds(), unique_seconds()
        metadata = {"test_run": RUN, "signal": label}
        script = tmp_path / "program.py"
        script.write_text(
            program.format(target=TARGET, timeout=timeout, metadata=metadata, mark=mark)
        )
        with subprocess.Popen(
            [sys.executable, str(script)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
            time.sleep(1)
            assert outside.containers(signal=label)
            assert host_processes(mark)
            for number in signals:
                child.send_signal(number)
                time.sleep(0.2)
            said, complaint = child.communicate(timeout=2 + DEFAULT_GRACE)
        return Interrupted(child.returncode, said, complaint, label, mark)

    return interrupt


@pytest.mark.parametrize("program", [SYNC, ASYNC], ids=["sync", "async"])
def test_one_interrupt(
    interrupt: Callable[..., Interrupted], outside: Outside, program: str
) -> None:
    """PY-5: KeyboardInterrupt within 2 s and the grace, no other noise; the sandbox is gone."""
    ended = interrupt(program, [signal.SIGINT])
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "interrupted\n", "")
    assert outside.containers(signal=ended.label) == []
    assert host_processes(ended.mark) == []


@pytest.mark.parametrize("program", [SYNC, ASYNC], ids=["sync", "async"])
@pytest.mark.parametrize("_round", range(3))
def test_two_interrupts(
    interrupt: Callable[..., Interrupted], outside: Outside, program: str, _round: int
) -> None:
    """PY-5: a second interrupt during the teardown does not leave the sandbox behind."""
    ended = interrupt(program, [signal.SIGINT, signal.SIGINT])
    assert ended.returncode in (130, 1, -signal.SIGINT)
    assert outside.containers(signal=ended.label) == []
    assert host_processes(ended.mark) == []


@pytest.mark.parametrize("program", [SYNC, ASYNC], ids=["sync", "async"])
def test_a_termination_without_handler(
    interrupt: Callable[..., Interrupted],
    outside: Outside,
    program: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """LIFE-3: without a watcher the lifetime stops the sandbox of a program that is killed."""
    monkeypatch.setenv("SBX_DOCKER_REAPER", "0")
    ended = interrupt(program, [signal.SIGTERM], timeout=4)
    assert ended.returncode == -signal.SIGTERM
    (name,) = outside.containers(signal=ended.label)
    container = outside.client.containers.get(name)
    with contextlib.ExitStack() as stack:
        stack.callback(container.remove, force=True)
        container.wait(timeout=15)
        container.reload()
        assert container.status == "exited"
        assert host_processes(ended.mark) == []
