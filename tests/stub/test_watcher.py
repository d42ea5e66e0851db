"""LIFE-4: a watcher on an engine that is a stub, and watchers that cannot work."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest
from anyio.to_thread import run_sync

from sandboxio import CrashCleanupWarning
from sandboxio.adapters import _docker_watcher as watcher
from tests.stub.faults import Fault, refusal
from tests.stub.world import IMAGE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.stub.conftest import Create
    from tests.stub.engine import StubEngine

ROOT = Path(__file__).parents[2]

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform == "win32", reason="scripts that stand for a Python"),
]


@pytest.fixture(autouse=True)
def watchers(
    stub: StubEngine, monkeypatch: pytest.MonkeyPatch
) -> Iterator[dict[object, watcher.Watcher]]:
    """The watchers of one test, which end with it."""
    made: dict[object, watcher.Watcher] = {}
    monkeypatch.delenv("SBX_DOCKER_REAPER")
    monkeypatch.setattr(watcher, "_watchers", made)
    yield made
    stub.faults.set()
    for one in made.values():
        one.end()
    assert stub.emptied()


@pytest.fixture
def python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A shell script that is taken for the interpreter."""
    path = tmp_path / "python"
    path.write_text("#!/bin/sh\nexec cat >/dev/null\n")
    path.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(path))
    return path


async def warned(create: Create) -> str:
    """Make two sandboxes, and return the one warning that this gave."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", CrashCleanupWarning)
        async with await create() as first, await create() as second:
            assert (await first.run(["true"])).exit_code == 0
            assert (await second.run(["true"])).exit_code == 0
    (warning,) = caught
    assert issubclass(warning.category, CrashCleanupWarning)
    return str(warning.message)


async def test_the_end_of_a_program_removes_its_sandboxes(
    create: Create, stub: StubEngine, watchers: dict[object, watcher.Watcher]
) -> None:
    """A watcher that has armed gives no warning, and removes them when the pipe ends."""
    await create()
    await create()
    (one,) = watchers.values()
    one.end()
    assert await run_sync(stub.emptied)


PROGRAM = """\
import sys, sandboxio
from sandboxio.adapters.docker import DockerConfig
sandboxio.create_sync(DockerConfig(host=sys.argv[1]), template=sys.argv[2], timeout=30).close()
"""


async def test_a_program_that_has_a_watcher_ends_without_a_word(stub: StubEngine) -> None:
    """PY-3: nothing is left open that the interpreter would complain of."""
    command = [sys.executable, "-W", "always::ResourceWarning", "-c", PROGRAM, stub.url, IMAGE]
    ended = await anyio.run_process(command, check=False, cwd=ROOT)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"", b"")


async def test_a_watcher_that_was_ended_is_started_again(
    create: Create, stub: StubEngine, watchers: dict[object, watcher.Watcher]
) -> None:
    """The next sandbox has one again."""
    for _ in range(2):
        await create()
        (one,) = watchers.values()
        one.end()
        assert await run_sync(stub.emptied)


async def test_an_interpreter_that_is_none(create: Create, monkeypatch: pytest.MonkeyPatch) -> None:
    """One warning says why; the sandboxes work."""
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    assert "off: sys.executable is no Python" in await warned(create)


async def test_an_interpreter_that_is_not_there(create: Create, python: Path) -> None:
    """It cannot be started at all."""
    python.unlink()
    assert f"off: {python} does not start" in await warned(create)


async def test_a_watcher_that_ends_at_once(create: Create, python: Path) -> None:
    """Its last words are the reason."""
    python.write_text("#!/bin/sh\necho one >&2; echo two >&2; exit 3\n")
    assert "off: the watcher ended (two)" in await warned(create)


async def test_a_handshake_that_is_none(create: Create, python: Path) -> None:
    """Something else on the output is no handshake."""
    python.write_text("#!/bin/sh\necho legged\n")
    assert "off: the watcher ended (without a word)" in await warned(create)


async def test_a_handshake_that_never_comes(
    create: Create, python: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is waited for once, and not long."""
    monkeypatch.setattr(watcher, "HANDSHAKE_SECONDS", 0.1)
    with anyio.fail_after(10):
        assert "off: it did not arm within 0.1 s" in await warned(create)


async def test_a_handshake_that_would_cost_the_deadline(create: Create, python: Path) -> None:
    """A caller with little time gets the sandbox, without a verdict."""
    async with await create(timeout=2) as sandbox:
        assert (await sandbox.run(["true"])).exit_code == 0


async def test_an_engine_that_refuses_the_watcher(create: Create, stub: StubEngine) -> None:
    """What works for the program and not for the watcher is told."""
    stub.faults.set(Fault("GET /version", instead=refusal(403, "not you"), skip=1, times=1))
    assert "not you" in await warned(create)


async def test_a_watcher_that_is_not_wanted(
    create: Create, monkeypatch: pytest.MonkeyPatch, python: Path
) -> None:
    """`SBX_DOCKER_REAPER=0` starts nothing and warns of nothing."""
    python.unlink()
    monkeypatch.setenv("SBX_DOCKER_REAPER", "0")
    async with await create() as sandbox:
        assert (await sandbox.run(["true"])).exit_code == 0


async def test_a_path_with_things_that_are_no_text(
    create: Create, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What Python itself passes over in `sys.path` does not cost the watcher."""
    monkeypatch.setattr(sys, "path", [*sys.path, None, b"bytes"])
    async with await create() as sandbox:
        assert (await sandbox.run(["true"])).exit_code == 0
