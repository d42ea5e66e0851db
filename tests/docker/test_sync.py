"""The blocking facade and its threads, on a real engine."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
import pytest

import sandboxio
from sandboxio import ConfigurationError, ExecutionTimeout, PathNotFound, SyncSandbox
from sandboxio.adapters.docker import DockerBackend
from tests.docker.outside import IMAGE, METADATA, TARGET, Outside, host_processes, unique_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sandboxio.core.record import OperationRecord

pytestmark = pytest.mark.docker


def _create() -> SyncSandbox:
    return sandboxio.create_sync(TARGET, timeout=60, metadata=METADATA)


@pytest.fixture
def blocking() -> Iterator[SyncSandbox]:
    with _create() as sb:
        yield sb


def _portals() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "sandboxio-portal"]


def test_the_sync_side_does_it_all(blocking: SyncSandbox, tmp_path: Path) -> None:
    """PY-1: run, code, files, streams and errors from blocking code."""
    assert blocking.run("echo hi; exit 3").exit_code == 3
    assert blocking.run_code("print(6 * 7)").stdout == "42\n"
    blocking.files.write("f", "content")
    blocking.files.download("f", tmp_path / "f")
    assert (tmp_path / "f").read_text() == "content"
    with blocking.stream("echo one; echo two >&2; exit 5") as proc:
        data = {chunk.stream: chunk.data for chunk in proc}
        assert (data, proc.wait().exit_code) == ({"stdout": b"one\n", "stderr": b"two\n"}, 5)
    with pytest.raises(PathNotFound):
        blocking.files.read("none")


def test_the_portals_thread_ends_at_close(outside: Outside) -> None:
    """PY-1: the `with` block's end removes the sandbox and ends the thread; `close()` is safe."""
    before = _portals()
    with _create() as sb:
        assert len(_portals()) == len(before) + 1
    assert _portals() == before
    assert f"sandboxio-{sb.id}" not in outside.containers(**METADATA)
    sb.close()
    with pytest.raises(ConfigurationError):
        sb.run(["true"])


def test_inside_a_running_loop() -> None:
    """PY-1: `create_sync()` works directly inside a coroutine."""

    async def main() -> str:
        with _create() as sb:
            return sb.run(["echo", "ok"]).stdout

    assert asyncio.run(main()) == "ok\n"


def test_in_a_worker_thread() -> None:
    """PY-1: it works in a worker thread of an event loop."""

    def work() -> str:
        with _create() as sb:
            return sb.run(["echo", "ok"]).stdout

    async def main() -> str:
        return await anyio.to_thread.run_sync(work)

    assert anyio.run(main) == "ok\n"


def test_two_sandboxes_in_two_threads() -> None:
    """PY-1: two sync sandboxes in two threads do not wait for each other."""
    said: dict[int, str] = {}

    def work(number: int) -> None:
        with _create() as sb:
            said[number] = sb.run(f"sleep 0.2; echo {number}").stdout

    threads = [threading.Thread(target=work, args=(number,)) for number in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert said == {1: "1\n", 2: "2\n"}


def test_one_sandbox_in_two_threads(blocking: SyncSandbox) -> None:
    """PY-1: one sync sandbox serves several threads at once."""
    said: dict[int, str] = {}

    def work(number: int) -> None:
        said[number] = blocking.run(f"sleep 0.2; echo {number}").stdout

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert said == {number: f"{number}\n" for number in range(4)}


def test_on_the_portals_own_thread() -> None:
    """PY-1: a callback on the portal's thread gets a clear error, never a deadlock."""
    sandboxes: list[SyncSandbox] = []
    errors: list[ConfigurationError] = []

    def on_record(record: OperationRecord) -> None:
        if record.event == "exec":
            with pytest.raises(ConfigurationError) as caught:
                sandboxes[0].run(["true"])
            errors.append(caught.value)

    sandboxio.register("docker-recorded", lambda: DockerBackend(on_record=on_record))
    try:
        target = f"docker-recorded://{IMAGE}"
        with sandboxio.create_sync(target, timeout=60, metadata=METADATA) as sb:
            sandboxes.append(sb)
            assert sb.run(["true"]).ok
    finally:
        sandboxio.unregister("docker-recorded")
    assert ["thread" in error.message for error in errors] == [True]


def test_errors_keep_class_and_content(blocking: SyncSandbox) -> None:
    """PY-1: a timeout comes through the portal as it was raised, partial output included."""
    mark = unique_seconds()
    with pytest.raises(ExecutionTimeout) as caught:
        blocking.run(f"echo begun; sleep {mark}", timeout=1)
    assert caught.value.partial.stdout == "begun\n"
    assert not host_processes(mark)


def test_the_loop_closes_at_once_and_no_thread_is_left() -> None:
    """TIME-3: after a cancelled call the event loop ends, and its worker threads with it."""
    threads = set(threading.enumerate())
    mark = unique_seconds()

    async def main() -> float:
        async with await sandboxio.create(TARGET, timeout=60, metadata=METADATA) as sb:
            with anyio.move_on_after(0.5):
                await sb.run(["sleep", mark])
            await sb.kill()
            return time.monotonic()

    ended = asyncio.run(main())
    assert time.monotonic() - ended < 2
    for thread in set(threading.enumerate()) - threads:
        thread.join(2)
        assert not thread.is_alive()
    assert not host_processes(mark)
