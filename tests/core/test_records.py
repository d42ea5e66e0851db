"""The operation record: one per operation, in every outcome."""

from __future__ import annotations

import contextlib
import hashlib
import time
import traceback
from datetime import UTC
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from sandboxio import (
    ConnectError,
    CreateTimeout,
    CreationError,
    ExecutionTimeout,
    IsolationTier,
    LinkLost,
    PathNotFound,
)
from sandboxio.core.backend import DriverBackend
from sandboxio.core.clock import LOOP
from tests.conftest import SECRET
from tests.doubles import Play, err, out

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from sandboxio.core.record import OperationRecord
    from sandboxio.core.sandbox import Sandbox
    from tests.doubles import DoubleDriver

pytestmark = pytest.mark.anyio


async def stream_to_the_end(sandbox: Sandbox) -> object:
    async with sandbox.stream(["x"]) as process:
        return await process.wait()


OPERATIONS: dict[str, Callable[[Sandbox], Awaitable[object]]] = {
    "exec": lambda sandbox: sandbox.run(["x"]),
    "run_code": lambda sandbox: sandbox.run_code("x"),
    "stream": stream_to_the_end,
    "kill": lambda sandbox: sandbox.kill(),
    "file_read": lambda sandbox: sandbox.files.read("f"),
    "file_write": lambda sandbox: sandbox.files.write("f", b"x"),
    "file_stat": lambda sandbox: sandbox.files.stat("f"),
    "file_exists": lambda sandbox: sandbox.files.exists("f"),
    "file_list": lambda sandbox: sandbox.files.ls(),
    "file_mkdir": lambda sandbox: sandbox.files.mkdir("d"),
    "file_remove": lambda sandbox: sandbox.files.remove("f"),
}
STEPS = {"exec": "receive", "run_code": "receive", "stream": "receive", "kill": "remove"}


@pytest.mark.parametrize("event", OPERATIONS)
async def test_a_success_is_one_record(
    sandbox: Sandbox, driver: DoubleDriver, records: list[OperationRecord], event: str
) -> None:
    """Each operation closes one record that says where it ran."""
    driver.stored["f"] = b"content"
    await OPERATIONS[event](sandbox)
    (record,) = records
    assert (record.event, record.outcome, record.error_code) == (event, "done", None)
    assert (record.backend, record.sandbox_id) == ("double", "made-1")
    assert record.isolation is IsolationTier.CONTAINER
    assert record.started_at.tzinfo is UTC


@pytest.mark.parametrize("event", OPERATIONS)
async def test_a_failure_is_one_record(
    sandbox: Sandbox, driver: DoubleDriver, records: list[OperationRecord], event: str
) -> None:
    """A failed operation is recorded as such, with the code of its error."""
    driver.stored["f"] = b"content"
    driver.steps.fail[STEPS.get(event, event)] = LinkLost("broken")
    with pytest.raises(LinkLost):
        await OPERATIONS[event](sandbox)
    assert [(r.event, r.outcome, r.error_code) for r in records] == [(event, "error", "SBX_E1205")]


@pytest.mark.parametrize("event", [event for event in OPERATIONS if event != "kill"])
async def test_a_timeout_is_one_record(
    backend: DriverBackend, driver: DoubleDriver, records: list[OperationRecord], event: str
) -> None:
    """An operation that met its deadline is recorded as a timeout."""
    sandbox = await backend.create(timeout=0.2)
    driver.stored["f"] = b"content"
    driver.steps.hang.add(STEPS.get(event, event))
    with pytest.raises(ExecutionTimeout):
        await OPERATIONS[event](sandbox)
    assert [(r.event, r.outcome) for r in records[1:]] == [(event, "timeout")]


@pytest.mark.parametrize("event", [event for event in OPERATIONS if event != "kill"])
async def test_a_cancellation_is_one_record(
    sandbox: Sandbox, driver: DoubleDriver, records: list[OperationRecord], event: str
) -> None:
    """A cancelled operation is recorded as cancelled."""
    driver.stored["f"] = b"content"
    step = STEPS.get(event, event)
    driver.steps.hang.add(step)
    with anyio.CancelScope() as scope:
        driver.steps.call[step] = scope.cancel
        await OPERATIONS[event](sandbox)
    assert [(r.event, r.outcome) for r in records] == [(event, "cancelled")]


async def test_a_creation_is_recorded_with_its_sandbox(
    backend: DriverBackend, records: list[OperationRecord]
) -> None:
    """The record of a creation names the sandbox it made and its verified tier."""
    await backend.create(metadata={"tenant": "t1"})
    (record,) = records
    assert (record.event, record.sandbox_id, record.outcome) == ("create", "made-1", "done")
    assert (dict(record.metadata), record.isolation) == ({"tenant": "t1"}, IsolationTier.CONTAINER)


@pytest.mark.parametrize(
    ("trouble", "error", "outcome"),
    [("fail", CreationError, "error"), ("hang", CreateTimeout, "timeout")],
)
async def test_a_creation_that_failed_is_recorded(
    backend: DriverBackend,
    driver: DoubleDriver,
    records: list[OperationRecord],
    trouble: str,
    error: type[Exception],
    outcome: str,
) -> None:
    """Failure and timeout of a creation are told apart."""
    if trouble == "fail":
        driver.steps.fail["provision"] = CreationError("no")
    else:
        driver.steps.hang.add("provision")
    with pytest.raises(error):
        await backend.create(timeout=0.02)
    assert [(r.event, r.outcome, r.sandbox_id) for r in records] == [("create", outcome, "")]


async def test_connecting_and_removing_are_recorded(
    backend: DriverBackend, driver: DoubleDriver, records: list[OperationRecord]
) -> None:
    """Finding and killing a managed sandbox each close a record."""
    await backend.connect("made-1")
    driver.steps.fail["remove_managed"] = ConnectError("no engine")
    with pytest.raises(ConnectError):
        await backend.kill_managed("made-1")
    assert [(r.event, r.outcome) for r in records] == [("connect", "done"), ("kill", "error")]


async def test_what_a_call_did_is_counted(
    sandbox: Sandbox, driver: DoubleDriver, records: list[OperationRecord]
) -> None:
    """Exit code and bytes in both directions are on the record; code only as a digest."""
    driver.play = Play(output=(out("abc"), err("d")), exit_code=2)
    await sandbox.run_code("print(1)")
    record = records[0]
    assert (record.exit_code, record.bytes_out, record.argv) == (2, 4, None)
    assert record.code_sha256 == hashlib.sha256(b"print(1)").hexdigest()
    assert "print" not in repr(record)


async def test_bytes_of_input_are_counted(
    sandbox: Sandbox, driver: DoubleDriver, records: list[OperationRecord]
) -> None:
    """What was written to stdin, and to a file, is told in bytes."""
    driver.play = Play(echo=True)
    await sandbox.run(["cat"], stdin="éé")
    await sandbox.files.write("f", "é")
    await sandbox.files.read("f")
    assert [(r.bytes_in, r.bytes_out) for r in records] == [(4, 4), (2, 0), (0, 2)]


async def test_the_duration_is_of_the_monotonic_clock(
    sandbox: Sandbox,
    driver: DoubleDriver,
    records: list[OperationRecord],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A wall clock that jumps back is not seen; the loop's own, which deadlines use, is."""
    late = [0.0]
    monkeypatch.setattr(time, "time", lambda: 0.0)
    monkeypatch.setattr(LOOP, "time", lambda: anyio.current_time() + late[0])
    driver.steps.call["wait"] = lambda: late.__setitem__(0, 2.5)
    result = await sandbox.run(["x"])
    assert 2500 <= result.duration_ms <= records[0].duration_ms < 2600


async def test_arguments_and_paths_are_redacted(
    sandbox: Sandbox, records: list[OperationRecord]
) -> None:
    """A secret in a command line or a path is masked in the record."""
    await sandbox.run(["login", f"--password={SECRET}"])
    await sandbox.run(f"login {SECRET}")
    await sandbox.files.write(f"/tmp/{SECRET}", b"")
    assert records[0].argv == ("login", "--password=***")
    assert records[1].argv == ("sh", "-c", "login ***")
    assert records[2].path == "/tmp/***"
    assert SECRET not in repr(records)


async def test_errors_leave_an_operation_redacted(sandbox: Sandbox, driver: DoubleDriver) -> None:
    """Messages and hints of calls and of file operations hold no secret."""
    driver.steps.fail = {
        "receive": LinkLost(f"at {SECRET}", hint=f"see {SECRET}"),
        "file_stat": PathNotFound(f"{SECRET!r}: missing"),
    }
    calls: list[Callable[[], Awaitable[Any]]] = [
        lambda: sandbox.run(["x"]),
        lambda: stream_to_the_end(sandbox),
        lambda: sandbox.files.stat("f"),
    ]
    for call in calls:
        with pytest.raises((LinkLost, PathNotFound), match=r"\*\*\*") as caught:
            await call()
        assert SECRET not in f"{caught.value} {caught.value!r}"


async def test_a_traceback_shows_no_secret(sandbox: Sandbox, driver: DoubleDriver) -> None:
    """The chain below an error is printed with it, so it is masked as well."""
    driver.steps.fail["receive"] = error = LinkLost("broken")
    error.__cause__ = OSError(f"GET /?token={SECRET}")
    with pytest.raises(LinkLost) as caught:
        await sandbox.run(["x"])
    assert SECRET not in "".join(traceback.format_exception(caught.value))


async def test_a_record_that_nobody_takes_leaks_no_sandbox(driver: DoubleDriver) -> None:
    """When the receiver of a record fails, the caller has the sandbox or it is gone."""

    def refuse(record: OperationRecord) -> None:
        raise ZeroDivisionError

    held = False
    with contextlib.suppress(ZeroDivisionError):
        await DriverBackend(driver, on_record=refuse).create()
        held = True
    assert held or {"remove", "undo"} & set(driver.steps.done)


async def test_a_transfer_is_recorded(
    sandbox: Sandbox, records: list[OperationRecord], tmp_path: Path
) -> None:
    """Upload and download close a record with the path inside and the size."""
    (tmp_path / "a").write_bytes(b"12345")
    await sandbox.files.upload(tmp_path / "a", "inside")
    await sandbox.files.download("inside", tmp_path / "b")
    assert [(r.event, r.path, r.bytes_in, r.bytes_out) for r in records] == [
        ("file_upload", "inside", 5, 0),
        ("file_download", "inside", 0, 5),
    ]


async def test_a_refused_call_is_no_operation(
    sandbox: Sandbox, records: list[OperationRecord]
) -> None:
    """What validation refuses never began, and a stream never entered never ran."""
    sandbox.stream(["x"])
    with pytest.raises(Exception, match="cmd"):
        await sandbox.run([])
    assert records == []
