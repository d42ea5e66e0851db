"""A file in chunks: back-pressure, the end of a reading, and what is recorded of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel
import pytest

from sandboxio import ExecutionTimeout, LinkLost, PathNotFound
from tests.conftest import SECRET
from tests.stepwise import cancel_at_each_await

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from sandboxio.core.backend import DriverBackend
    from sandboxio.core.record import OperationRecord
    from sandboxio.core.sandbox import Sandbox
    from tests.doubles import DoubleDriver

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def stored(driver: DoubleDriver) -> None:
    """A file of eleven bytes, which the double gives four at a time."""
    driver.stored["f"] = b"hello world"


async def test_chunks_come_one_by_one(sandbox: Sandbox, driver: DoubleDriver) -> None:
    """The driver is not asked for more before a piece is taken."""
    async with sandbox.files.open_read("f") as chunks:
        assert await anext(aiter(chunks)) == b"hell"
        await anyio.wait_all_tasks_blocked()
        assert "file_read" not in driver.log  # it stands behind the last piece
        assert [chunk async for chunk in chunks] == [b"o wo", b"rld"]
        assert [chunk async for chunk in chunks] == []
    assert "file_read" in driver.steps.done


async def test_a_reading_is_recorded(sandbox: Sandbox, records: list[OperationRecord]) -> None:
    """One record per reading: what was taken, and `killed` where its own caller left."""
    async with sandbox.files.open_read("f", offset=1) as chunks:
        assert b"".join([chunk async for chunk in chunks]) == b"ello world"
    async with sandbox.files.open_read("f"):
        pass
    assert [(one.event, one.outcome) for one in records] == [
        ("file_read", "done"),
        ("file_read", "killed"),
    ]
    assert records[0].bytes_out == 10


async def test_an_error_is_raised_where_the_reader_waits(
    sandbox: Sandbox, driver: DoubleDriver, records: list[OperationRecord]
) -> None:
    """It comes out bare and redacted: on entering where there is no chunk, else behind the last."""
    with pytest.raises(PathNotFound):
        await sandbox.files.open_read("none").__aenter__()
    driver.steps.fail["file_read"] = LinkLost(f"lost with {SECRET}")
    async with sandbox.files.open_read("f") as chunks:
        with pytest.raises(LinkLost) as caught:
            _ = [chunk async for chunk in chunks]
    assert SECRET not in str(caught.value)
    assert [one.outcome for one in records] == ["error", "error"]


async def test_the_deadline_bounds_the_whole(
    backend: DriverBackend, driver: DoubleDriver, records: list[OperationRecord]
) -> None:
    """A reader that dawdles, or a driver that gives nothing, ends at the sandbox's timeout."""
    sandbox = await backend.create(timeout=0.2)
    async with sandbox.files.open_read("f") as chunks:
        await anyio.sleep(0.3)
        assert await anext(aiter(chunks)) == b"hell"  # it was there in time
        with pytest.raises(ExecutionTimeout):
            await anext(aiter(chunks))
    driver.steps.hang.add("file_read")
    driver.stored["f"] = b""
    with pytest.raises(ExecutionTimeout):
        await sandbox.files.open_read("f").__aenter__()
    assert [one.outcome for one in records[1:]] == ["timeout", "timeout"]


async def test_readings_cancelled_at_each_await(sandbox: Sandbox) -> None:
    """A cancellation at any point comes out as that, and the next reading is whole."""

    async def read() -> None:
        async with sandbox.files.open_read("f") as chunks:
            assert [chunk async for chunk in chunks] == [b"hell", b"o wo", b"rld"]

    await cancel_at_each_await(read)
    await read()


async def test_writes_from_chunks_cancelled_at_each_await(sandbox: Sandbox) -> None:
    """The same of a write, whose generator is closed whenever it ends."""
    closed: list[str] = []

    async def pieces() -> AsyncGenerator[bytes]:
        try:
            yield b"a"
            await anyio.lowlevel.checkpoint()
            yield b"b"
        finally:
            closed.append("closed")

    async def write() -> None:
        await sandbox.files.write_from("g", pieces())

    await cancel_at_each_await(write)
    await write()
    assert await sandbox.files.read("g") == b"ab"
    assert closed
