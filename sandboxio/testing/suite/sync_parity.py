"""The blocking facade over the backend: `sandboxio.create_sync()`."""

from __future__ import annotations

import secrets
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import anyio
import anyio.to_thread
import pytest

import sandboxio
from sandboxio.core.errors import (
    CapabilityNotSupported,
    ConfigurationError,
    ExecutionTimeout,
    PathNotFound,
    SandboxError,
    SandboxGone,
    UnverifiedIsolationWarning,
)
from sandboxio.core.models import Capability, ExecResult
from sandboxio.core.registry import register, unregister
from sandboxio.testing.suite._case import case, case_of
from sandboxio.testing.suite._probes import assert_gone
from sandboxio.testing.suite._sync_files import SyncFileCases
from sandboxio.testing.suite._sync_twins import TwinCases

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from sandboxio.core.protocols import Backend
    from sandboxio.core.sync import SyncSandbox

COMMANDS = Capability.RUN_COMMAND
PASSWORD = "hunter2-and-more"  # noqa: S105  # it is what must not show


class CreateSync(Protocol):
    """Creates a blocking sandbox that is closed when the case ends."""

    def __call__(self, **options: Any) -> SyncSandbox: ...


class SyncParitySuite(TwinCases, SyncFileCases):
    """Cases of the blocking facade; the comparison of signatures is in the base."""

    @pytest.fixture
    def sync_target(self, backend: Backend) -> Generator[str]:
        """A DSN that leads to the backend, for this case alone."""
        name = f"sync-{secrets.token_hex(4)}"
        register(name, lambda: backend)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnverifiedIsolationWarning)
            yield f"{name}://"
        unregister(name)

    @pytest.fixture
    def create_sync(
        self, request: pytest.FixtureRequest, sync_target: str, options: dict[str, Any]
    ) -> Generator[CreateSync]:
        """Create blocking sandboxes; the first one is asked whether the case applies."""
        found = case_of(request.function)
        with ExitStack() as stack:

            def create(**changes: Any) -> SyncSandbox:
                made = sandboxio.create_sync(sync_target, **{**options, **changes})
                stack.callback(made.close)
                unfit = None if found is None else found.unfit(made.capabilities)
                if unfit is not None:
                    pytest.skip(reason=unfit)
                return made

            yield create

    @pytest.fixture
    def blocking(self, create_sync: CreateSync) -> SyncSandbox:
        """A fresh blocking sandbox of the backend's defaults."""
        return create_sync()

    @case("SYNC-004", needs=COMMANDS)
    def test_sync_run(self, blocking: SyncSandbox) -> None:
        """`run()` returns the same kind of result as its async twin, and takes its arguments."""
        done = blocking.run("echo out; echo err >&2; exit 3", timeout=30)
        assert isinstance(done, ExecResult)
        assert (done.exit_code, done.stdout, done.stderr) == (3, "out\n", "err\n")
        assert blocking.run('echo "$MODE"', env={"MODE": "fast"}, cwd="/").stdout == "fast\n"
        assert blocking.run("seq 1000", max_output_bytes=100).stdout_truncated

    @case("SYNC-005", needs=Capability.RUN_CODE)
    def test_sync_run_code(self, blocking: SyncSandbox) -> None:
        """`run_code()` returns the same kind of result as its async twin."""
        code = "import os\nprint(os.environ['MODE'], os.getcwd())"
        done = blocking.run_code(code, timeout=30, env={"MODE": "fast"}, cwd="/")
        assert (done.exit_code, done.stdout) == (0, "fast /\n")

    @case("SYNC-006", needs=COMMANDS | Capability.STREAMING)
    def test_sync_stream(self, blocking: SyncSandbox) -> None:
        """A blocking stream is iterated and waited for, and has its exit code at the end."""
        with blocking.stream("echo one; echo two >&2; exit 5") as proc:
            said = {chunk.stream: chunk.data for chunk in proc}
            end = proc.wait()
        assert said == {"stdout": b"one\n", "stderr": b"two\n"}
        assert (end.exit_code, end.streamed, proc.returncode) == (5, True, 5)

    @case("SYNC-007", needs=COMMANDS | Capability.STREAMING | Capability.STDIN)
    def test_sync_stream_input(self, blocking: SyncSandbox) -> None:
        """A blocking stream takes input while it runs."""
        with blocking.stream(["cat"], stdin=True) as proc:
            proc.write("é")
            proc.write(b"\xff")
            proc.close_stdin()
            assert b"".join(chunk.data for chunk in proc) == b"\xc3\xa9\xff"

    @case("SYNC-008", needs=COMMANDS | Capability.STREAMING)
    def test_sync_stream_left_early(self, blocking: SyncSandbox, marker: int) -> None:
        """Leaving the block of a blocking stream ends the command."""
        with blocking.stream(f"echo up; {self.hang(marker)}") as proc:
            assert next(iter(proc)).data == b"up\n"
            codes = [proc.returncode]
        codes.append(proc.returncode)
        assert codes == [None, 137]
        assert blocking.run("echo ok").stdout == "ok\n"

    @case("SYNC-009", needs=COMMANDS | Capability.FILESYSTEM)
    def test_sync_files(self, blocking: SyncSandbox) -> None:
        """File operations work from blocking code, on the files that commands see."""
        files = blocking.files
        files.mkdir("a/b", parents=True)
        files.write("a/b/f", b"\x00\xff", mode=0o600)
        assert blocking.run("wc -c <a/b/f; stat -c %a a/b/f").stdout.split() == ["2", "600"]
        assert files.read("a/b/f", offset=1, length=1) == b"\xff"
        assert [entry.path for entry in files.ls("a/b")] == ["a/b/f"]
        assert files.stat("a/b/f").size == 2
        files.remove("a", recursive=True)
        assert not files.exists("a/b/f")

    @case("SYNC-010", needs=COMMANDS | Capability.FILESYSTEM | Capability.UPLOAD_DOWNLOAD)
    def test_sync_transfers(self, blocking: SyncSandbox, tmp_path: Path) -> None:
        """Files of the host go in and come back from blocking code."""
        (tmp_path / "local").write_bytes(b"content")
        blocking.files.upload(tmp_path / "local", "inside")
        blocking.run("printf more >>inside")
        blocking.files.download("inside", tmp_path / "back")
        assert (tmp_path / "back").read_bytes() == b"contentmore"

    @case("SYNC-011")
    def test_sync_properties(self, create_sync: CreateSync) -> None:
        """Identity, tier, capabilities and the provider's object are there without a call, and
        nothing printed shows a value of `env` or `secrets`.
        """
        sandbox = create_sync(env={"MODE": PASSWORD}, secrets={"TOKEN": PASSWORD})
        assert isinstance(sandbox.id, str)
        assert isinstance(sandbox.capabilities, Capability)
        assert isinstance(sandbox.isolation, sandboxio.IsolationTier)
        assert sandbox.native is not None
        assert PASSWORD not in f"{sandbox!r} {sandbox}"

    @case("SYNC-012", needs=COMMANDS)
    def test_sync_timeouts(self, blocking: SyncSandbox, marker: int) -> None:
        """A timeout comes through as `ExecutionTimeout`, partial output included."""
        with pytest.raises(ExecutionTimeout) as caught:
            blocking.run(f"echo begun; {self.hang(marker)}", timeout=2)
        assert caught.value.partial.stdout == "begun\n"
        assert not isinstance(caught.value, TimeoutError)
        assert blocking.run("echo ok").stdout == "ok\n"

    @case("SYNC-013", needs=Capability.FILESYSTEM)
    def test_sync_file_errors(self, blocking: SyncSandbox) -> None:
        """An error of the file system comes through with its own class and code."""
        with pytest.raises(PathNotFound) as caught:
            blocking.files.read("none")
        assert caught.value.code == "SBX_E1701"

    @case("SYNC-014", needs=COMMANDS)
    def test_sync_refusals(self, blocking: SyncSandbox) -> None:
        """An argument that cannot be right is refused as it is by the async twin."""
        with pytest.raises(ConfigurationError, match="timeout"):
            blocking.run(["touch", "ran"], timeout=0)
        assert blocking.run("test ! -e ran").ok

    @case("SYNC-015")
    def test_sync_causes(self, create_sync: CreateSync, run_id: str) -> None:
        """An error of the provider comes through mapped, with the provider's own as its cause."""
        error = ConnectionRefusedError("the provider's own")
        with self.failing_create(error), pytest.raises(SandboxError) as caught:
            create_sync()
        causes: list[BaseException | None] = [caught.value.__cause__]
        while causes[-1] is not None:
            causes.append(causes[-1].__cause__)
        assert error in causes
        assert anyio.run(self.count, run_id) == 0

    @case("SYNC-016", lacks=Capability.STREAMING)
    def test_sync_stream_is_refused(self, blocking: SyncSandbox) -> None:
        """Where there are no streams, the blocking `stream()` refuses at once as well."""
        with pytest.raises(CapabilityNotSupported):
            blocking.stream(["true"])

    @case("SYNC-017", lacks=Capability.RUN_CODE)
    def test_sync_code_is_refused(self, blocking: SyncSandbox) -> None:
        """Where no code can be run, the blocking `run_code()` refuses as well."""
        with pytest.raises(CapabilityNotSupported):
            blocking.run_code("print(1)")

    @case("SYNC-018", needs=COMMANDS)
    def test_sync_inside_a_running_loop(self, create_sync: CreateSync) -> None:
        """`create_sync()` and its calls work directly inside a coroutine, on a loop that runs."""

        async def main() -> str:
            with create_sync() as sandbox:
                return sandbox.run(["echo", "ok"]).stdout

        assert anyio.run(main) == "ok\n"

    @case("SYNC-019", needs=COMMANDS)
    def test_sync_in_a_worker_thread(self, create_sync: CreateSync) -> None:
        """`create_sync()` and its calls work in a worker thread of a running loop."""

        def work() -> str:
            with create_sync() as sandbox:
                return sandbox.run(["echo", "ok"]).stdout

        async def main() -> str:
            return await anyio.to_thread.run_sync(work)

        assert anyio.run(main) == "ok\n"

    @case("SYNC-020", needs=COMMANDS)
    def test_sync_two_at_once(self, create_sync: CreateSync) -> None:
        """Two blocking sandboxes in two threads are two sandboxes, and neither waits for the
        other.
        """
        one, other = create_sync(), create_sync()
        wait = "until [ -e go ]; do sleep 0.1; done; echo one"
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(one.run, wait, timeout=60)
            assert other.run("ls -A; echo other").stdout == "other\n"
            one.run("touch go")
            assert waiting.result(60).stdout == "one\n"
        assert one.id != other.id

    @case("SYNC-021", needs=COMMANDS)
    def test_sync_one_in_several_threads(self, blocking: SyncSandbox) -> None:
        """One blocking sandbox serves several threads at once, and mixes up no results."""
        with ThreadPoolExecutor(4) as pool:
            done = list(pool.map(blocking.run, [f"sleep 0.2; echo {n}" for n in range(8)]))
        assert [each.stdout for each in done] == [f"{n}\n" for n in range(8)]

    @case("SYNC-022")
    def test_sync_the_block_removes_it(
        self, backend: Backend, create_sync: CreateSync, run_id: str
    ) -> None:
        """Leaving the `with` block removes the sandbox."""
        with create_sync() as sandbox:
            assert anyio.run(self.count, run_id) == 1
        anyio.run(assert_gone, backend, sandbox.id)
        assert anyio.run(self.count, run_id) == 0

    @case("SYNC-023")
    def test_sync_exceptions_in_the_block(self, backend: Backend, create_sync: CreateSync) -> None:
        """An exception in the `with` block removes the sandbox, and comes out as it was raised."""
        sandbox, error = create_sync(), ZeroDivisionError("the caller's own")
        with pytest.raises(ZeroDivisionError) as caught, sandbox:
            raise error
        assert caught.value is error
        anyio.run(assert_gone, backend, sandbox.id)

    @case("SYNC-024", needs=COMMANDS)
    def test_sync_close(self, backend: Backend, create_sync: CreateSync) -> None:
        """`close()` removes the sandbox and may be repeated; a call after it is a clear error."""
        sandbox = create_sync()
        sandbox.close()
        sandbox.close()
        anyio.run(assert_gone, backend, sandbox.id)
        for call in (partial(sandbox.run, ["true"]), sandbox.kill):
            with pytest.raises(ConfigurationError, match="closed"):
                call()

    @case("SYNC-025", needs=COMMANDS)
    def test_sync_kill(self, create_sync: CreateSync, run_id: str) -> None:
        """After `kill()` calls raise `SandboxGone`; another `kill()`, and leaving, are silent."""
        with create_sync() as sandbox:
            sandbox.kill()
            assert anyio.run(self.count, run_id) == 0
            with pytest.raises(SandboxGone):
                sandbox.run(["true"])
            sandbox.kill()

    @case("SYNC-026")
    def test_sync_threads_end(self, create_sync: CreateSync) -> None:
        """The thread of a blocking sandbox ends with it: closing leaves no thread behind."""
        create_sync().close()  # what the provider's library starts once, and keeps
        before = set(threading.enumerate())
        sandbox = create_sync()
        assert set(threading.enumerate()) - before
        sandbox.close()
        _assert_ended(before)

    @case("SYNC-027")
    def test_sync_a_failed_creation_leaves_no_thread(
        self, create_sync: CreateSync, run_id: str
    ) -> None:
        """A creation that is refused leaves neither a sandbox nor a thread."""
        before = set(threading.enumerate())
        with pytest.raises(ConfigurationError, match="timeout"):
            create_sync(timeout=0)
        _assert_ended(before)
        assert anyio.run(self.count, run_id) == 0


def _assert_ended(before: set[threading.Thread]) -> None:
    for thread in set(threading.enumerate()) - before:
        thread.join(10)
        assert not thread.is_alive(), thread
