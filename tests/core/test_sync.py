"""The blocking facade: the same calls, from any thread, on a loop of its own."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import sandboxio
from sandboxio import (
    ConfigurationError,
    ExecutionTimeout,
    LinkLost,
    Metrics,
    PathNotFound,
    SandboxGone,
)
from sandboxio.core import file_protocols, protocols
from sandboxio.core.files import SandboxFiles
from sandboxio.core.process import SandboxProcess
from sandboxio.core.reading import SandboxFileReader
from sandboxio.core.sandbox import Sandbox
from sandboxio.core.sync import SyncProcess, SyncSandbox
from sandboxio.core.sync_files import SyncFileReader, SyncFileSystem
from tests.doubles import Play, err, out

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.doubles import DoubleDriver

ROOT = Path(__file__).parents[2]
TWINS: list[tuple[type, type, set[str]]] = [
    (Sandbox, SyncSandbox, {"close"}),
    (SandboxFiles, SyncFileSystem, set()),
    (SandboxProcess, SyncProcess, set()),
    (protocols.AsyncSandbox, SyncSandbox, {"close"}),
    (file_protocols.AsyncFileSystem, SyncFileSystem, set()),
    (protocols.Process, SyncProcess, set()),
    (SandboxFileReader, SyncFileReader, set()),
    (file_protocols.FileReader, SyncFileReader, set()),
]


@pytest.fixture
def sync_sandbox(target: str) -> Iterator[SyncSandbox]:
    """A blocking sandbox on the double, closed at the end."""
    made = sandboxio.create_sync(target, timeout=60)
    yield made
    made.close()


def portals() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "sandboxio-portal"]


def public(cls: type) -> dict[str, object]:
    return {name: value for name, value in vars(cls).items() if not name.startswith("_")}


@pytest.mark.parametrize(("twin", "sync", "extra"), TWINS)
def test_both_sides_have_the_same_members(twin: type, sync: type, extra: set[str]) -> None:
    """No public method or property is missing on either side."""
    assert set(public(sync)) - extra == set(public(twin))


@pytest.mark.parametrize(("twin", "sync", "extra"), TWINS)
def test_both_sides_have_the_same_signatures(twin: type, sync: type, extra: set[str]) -> None:
    """Names, kinds, defaults and annotations of parameters agree; only `await` differs, and that
    an async iterable there is an iterable here."""
    for name, member in public(twin).items():
        if callable(member):
            ours = str(inspect.signature(getattr(sync, name)).replace(return_annotation=""))
            theirs = str(inspect.signature(member).replace(return_annotation=""))
            assert ours == theirs.replace("AsyncIterable", "Iterable"), name
            assert not inspect.iscoroutinefunction(getattr(sync, name))


def test_create_sync_takes_what_create_takes() -> None:
    """The two facades have one signature."""
    ours = inspect.signature(sandboxio.create_sync).parameters
    assert ours == inspect.signature(sandboxio.create).parameters


def test_every_method_reaches_the_driver(sync_sandbox: SyncSandbox, driver: DoubleDriver) -> None:
    """Commands, code and files give the results of their async twins."""
    driver.play = Play(output=(out("o"), err("e")), exit_code=3)
    result = sync_sandbox.run(["x"], timeout=5)
    assert (result.exit_code, result.stdout, result.stderr) == (3, "o", "e")
    assert sync_sandbox.run_code("x").exit_code == 3
    sync_sandbox.files.write("f", "é", mode=0o600)
    assert sync_sandbox.files.read("f") == "é".encode()
    assert sync_sandbox.files.stat("f").size == 2
    assert [info.path for info in sync_sandbox.files.ls()] == ["f"]
    sync_sandbox.files.mkdir("d", parents=True)
    assert [info.path for info in sync_sandbox.files.glob("f")] == ["f"]
    sync_sandbox.files.copy("f", "g")
    sync_sandbox.files.move("g", "h")
    sync_sandbox.files.chmod("h", 0o755)
    assert sync_sandbox.files.edit("h", "é", "e") == 1
    sync_sandbox.files.write_from("k", iter([b"two ", b"chunks"]))
    with sync_sandbox.files.open_read("k") as chunks:
        assert list(chunks) == [b"two ", b"chun", b"ks"]
    assert sync_sandbox.metrics() == Metrics(0.5, 1024, None, 2)
    sync_sandbox.files.remove("f")
    assert not sync_sandbox.files.exists("f")
    assert driver.calls[0].request.timeout == 5


def test_transfers(sync_sandbox: SyncSandbox, tmp_path: Path) -> None:
    """Files of the host go in and come back."""
    (tmp_path / "a").write_bytes(b"content")
    sync_sandbox.files.upload(tmp_path / "a", "inside")
    sync_sandbox.files.download("inside", tmp_path / "b")
    assert (tmp_path / "b").read_bytes() == b"content"


def test_properties_are_those_of_the_sandbox(sync_sandbox: SyncSandbox) -> None:
    """Identity, tier and capabilities need no round trip."""
    assert sync_sandbox.id == "made-1"
    assert sync_sandbox.isolation is sandboxio.IsolationTier.CONTAINER
    assert sandboxio.Capability.RUN_CODE in sync_sandbox.capabilities
    assert sync_sandbox.native is None
    assert repr(sync_sandbox).startswith("<SyncSandbox double:made-1 container running")


def test_a_stream_is_read_chunk_by_chunk(sync_sandbox: SyncSandbox, driver: DoubleDriver) -> None:
    """A blocking stream iterates, waits, and knows its exit code."""
    driver.play = Play(output=(out("a"), err("b")), exit_code=7)
    with sync_sandbox.stream(["x"]) as process:
        assert [chunk.data for chunk in process] == [b"a", b"b"]
        assert process.wait().exit_code == 7
        assert repr(process) == "<SyncProcess ended with 7>"
    assert process.returncode == 7


def test_a_stream_takes_input(sync_sandbox: SyncSandbox, driver: DoubleDriver) -> None:
    """Writing and closing stdin work from blocking code."""
    with sync_sandbox.stream(["x"], stdin=True) as process:
        process.write("é")
        process.close_stdin()
        process.kill()
    assert driver.calls[0].sent == "é".encode()
    assert driver.log.count("kill") == 1


def test_it_works_inside_a_running_loop(target: str, driver: DoubleDriver) -> None:
    """A blocking sandbox may be made and used directly in a coroutine."""

    async def main() -> bool:
        with sandboxio.create_sync(target) as sandbox:
            return sandbox.run(["x"]).ok

    assert asyncio.run(main())
    assert "remove" in driver.steps.done


def test_it_works_from_worker_threads(sync_sandbox: SyncSandbox, driver: DoubleDriver) -> None:
    """Several threads may use one blocking sandbox."""
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(sync_sandbox.run, [["x"]] * 8))
    assert [result.ok for result in results] == [True] * 8
    assert len(driver.calls) == 8


def test_its_own_thread_is_told_so(sync_sandbox: SyncSandbox, driver: DoubleDriver) -> None:
    """A call on the thread of its own loop is a clear error, never a deadlock."""
    driver.steps.call["start"] = lambda: sync_sandbox.run(["y"])
    with pytest.raises(ConfigurationError, match="thread of its own event loop"):
        sync_sandbox.run(["x"])


def test_the_thread_ends_with_the_sandbox(target: str, driver: DoubleDriver) -> None:
    """`close()` removes the sandbox and ends its thread, and may be repeated."""
    before = portals()
    sandbox = sandboxio.create_sync(target)
    assert len(portals()) == len(before) + 1
    sandbox.close()
    sandbox.close()
    assert portals() == before
    assert driver.log.count("remove") == 1
    with pytest.raises(ConfigurationError, match="is closed"):
        sandbox.run(["x"])


def test_a_failed_creation_leaves_no_thread(target: str, driver: DoubleDriver) -> None:
    """The error arrives as it is, and its loop is stopped."""
    before = portals()
    driver.steps.fail["provision"] = error = sandboxio.CreationError("no")
    with pytest.raises(sandboxio.CreationError) as caught:
        sandboxio.create_sync(target)
    assert caught.value is error
    assert portals() == before


def test_a_kill_keeps_the_thread_until_the_end(target: str) -> None:
    """After kill() calls are refused as gone; leaving the block is silent."""
    before = portals()
    with sandboxio.create_sync(target) as sandbox:
        sandbox.kill()
        with pytest.raises(SandboxGone):
            sandbox.run(["x"])
    assert portals() == before


def test_a_removal_that_fails_still_ends_the_thread(target: str, driver: DoubleDriver) -> None:
    """The driver's error is raised once and nothing of ours is left."""
    before = portals()
    driver.steps.fail["remove"] = LinkLost("no engine")
    sandbox = sandboxio.create_sync(target)
    with pytest.warns(sandboxio.OrphanedSandboxWarning), pytest.raises(LinkLost):
        sandbox.close()
    assert portals() == before


def test_errors_keep_class_and_cause(sync_sandbox: SyncSandbox, driver: DoubleDriver) -> None:
    """What an async caller would catch, a blocking one catches too."""
    error = LinkLost("broken")
    error.__cause__ = OSError("pipe")
    driver.steps.fail["receive"] = error
    with pytest.raises(LinkLost) as caught:
        sync_sandbox.run(["x"])
    assert isinstance(caught.value.__cause__, OSError)
    with pytest.raises(PathNotFound):
        sync_sandbox.files.read("missing")


def test_a_timeout_carries_its_partial(sync_sandbox: SyncSandbox, driver: DoubleDriver) -> None:
    """The deadline holds in blocking code as well."""
    driver.play = Play(output=(out("one\n"),))
    driver.steps.hang.add("receive")
    with pytest.raises(ExecutionTimeout) as caught:
        sync_sandbox.run(["x"], timeout=0.02)
    assert caught.value.partial.stdout == "one\n"


INTERRUPTED = """
import signal, threading, sandboxio
from sandboxio.core.backend import DriverBackend
from tests.doubles import DoubleDriver

driver = DoubleDriver()
driver.steps.hang.add("receive")
main = threading.main_thread().ident
interrupt = threading.Timer(0.2, signal.pthread_kill, (main, signal.SIGINT))
driver.steps.call["receive"] = interrupt.start
sandboxio.register("double", lambda: DriverBackend(driver))
try:
    with sandboxio.create_sync("double://") as sandbox:
        sandbox.run(["sleep", "300"])
except KeyboardInterrupt:
    interrupt.join()
    print(",".join(driver.steps.done), threading.active_count())
"""


def test_an_interrupt_cancels_the_call() -> None:
    """Ctrl-C in the waiting thread ends the call, then the sandbox, then its thread."""
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", INTERRUPTED],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ended.stdout.split(), ended.stderr) == (["provision,start,kill,aclose,remove", "1"], "")


FORGOTTEN = """
import sandboxio
from sandboxio.core.backend import DriverBackend
from tests.doubles import DoubleDriver

driver = DoubleDriver()
driver.steps.call["remove"] = lambda: print("removed", flush=True)
sandboxio.register("double", lambda: DriverBackend(driver))
sandbox = sandboxio.create_sync("double://")
"""


def test_a_forgotten_sandbox_is_removed_at_exit() -> None:
    """A program that ends without closing its sandbox still removes it."""
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", FORGOTTEN],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ended.stdout, ended.stderr, ended.returncode) == ("removed\n", "", 0)
