"""Reading a stream: to the end, slowly, from several tasks, or not at all."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel

from sandboxio.core.models import Capability
from sandboxio.testing.suite._case import case
from sandboxio.testing.suite.fixtures import SuiteFixtures

if TYPE_CHECKING:
    from sandboxio.core.models import ExecResult
    from sandboxio.core.protocols import AsyncSandbox, Process

AREA = "streaming"
STREAMS = Capability.RUN_COMMAND | Capability.STREAMING


class StreamReading(SuiteFixtures):
    """Cases of reading a stream."""

    @case("STREAM-022", needs=STREAMS, area=AREA)
    async def test_large_streams(self, sandbox: AsyncSandbox) -> None:
        """Some megabytes on both streams, written at once, arrive whole and in order."""
        async with sandbox.stream("(seq 400000 >&2) & seq 300000; wait", timeout=60) as proc:
            out, err = await collected(proc)
        assert out == numbers(300_000)
        assert err == numbers(400_000)

    @case("STREAM-023", needs=STREAMS, area=AREA)
    async def test_a_slow_reader(self, sandbox: AsyncSandbox) -> None:
        """A reader that takes its time loses nothing of some megabytes."""
        size, parts = 0, list[bytes]()
        async with sandbox.stream("seq 700000", timeout=80) as proc:
            async for chunk in proc:
                parts.append(chunk.data)
                if len(parts) <= 10:
                    await self.clock.sleep(0.2)
            size = (await proc.wait()).stdout_bytes
        assert b"".join(parts) == numbers(700_000)
        assert size == len(numbers(700_000))

    @case("STREAM-024", needs=STREAMS, area=AREA)
    async def test_back_pressure(self, sandbox: AsyncSandbox) -> None:
        """While nobody reads, a command that writes without end has to wait: its output piles up
        nowhere.
        """
        script = "echo first; head -c 300000000 /dev/zero; echo x >done"
        async with sandbox.stream(script, timeout=60) as proc:
            assert (await anext(aiter(proc))).data.startswith(b"first\n")
            await self.clock.sleep(4)
            assert await self.sh(sandbox, "test ! -e done && echo waits") == "waits\n"
            assert proc.returncode is None

    @case("STREAM-025", needs=STREAMS, area=AREA)
    async def test_a_paused_reader_holds_up_nobody(self, sandbox: AsyncSandbox) -> None:
        """A stream that nobody reads does not hold up other calls of the sandbox."""
        async with sandbox.stream("seq 3000000", timeout=60) as proc:
            await anext(aiter(proc))
            begin = self.clock.time()
            for _ in range(3):
                assert (
                    await self.sh(sandbox, "seq 1000; echo ok") == f"{numbers(1000).decode()}ok\n"
                )
            assert self.clock.time() - begin < 30

    @case("STREAM-026", needs=STREAMS, area=AREA)
    async def test_wait_reads_the_rest(self, sandbox: AsyncSandbox) -> None:
        """`wait()` takes output that nobody has read out of the way, and counts it."""
        for read_first in (False, True):
            async with sandbox.stream("seq 500000; exit 6", timeout=60) as proc:
                if read_first:
                    await anext(aiter(proc))
                end = await proc.wait()
            assert (end.exit_code, end.stdout_bytes) == (6, len(numbers(500_000)))
            assert (end.stdout, end.streamed) == ("", True)

    @case("STREAM-027", needs=STREAMS, area=AREA)
    async def test_wait_again(self, sandbox: AsyncSandbox) -> None:
        """`wait()` gives the same each time it is called, also after the block."""
        async with sandbox.stream("echo x; exit 4") as proc:
            end = await proc.wait()
            assert end.exit_code == 4
            assert await proc.wait() == end
        assert await proc.wait() == end
        assert proc.returncode == 4

    @case("STREAM-028", needs=STREAMS, area=AREA)
    async def test_wait_of_several_tasks(self, sandbox: AsyncSandbox) -> None:
        """Several tasks can wait for one end; all get it."""
        ends: list[ExecResult] = []

        async def wait(proc: Process) -> None:
            ends.append(await proc.wait())

        async with (
            sandbox.stream("sleep 1; seq 1000; exit 4", timeout=40) as proc,
            anyio.create_task_group() as tasks,
        ):
            for _ in range(4):
                tasks.start_soon(wait, proc)
        assert [end.exit_code for end in ends] == [4] * 4
        assert len(set(ends)) == 1

    @case("STREAM-029", needs=STREAMS, area=AREA)
    async def test_wait_takes_nothing_from_a_reader(self, sandbox: AsyncSandbox) -> None:
        """While one task reads, another that waits takes nothing from it, and gets the end."""
        ends: list[ExecResult] = []

        async def wait(proc: Process) -> None:
            ends.append(await proc.wait())

        script = "for i in $(seq 20); do seq 500; sleep 0.05; done; exit 5"
        out = b""
        async with sandbox.stream(script, timeout=60) as proc, anyio.create_task_group() as tasks:
            out += (await anext(aiter(proc))).data
            tasks.start_soon(wait, proc)
            await anyio.lowlevel.checkpoint()
            out += (await collected(proc))[0]
        assert out == numbers(500) * 20
        assert [end.exit_code for end in ends] == [5]

    @case("STREAM-030", needs=STREAMS, area=AREA)
    async def test_reading_on(self, sandbox: AsyncSandbox) -> None:
        """Reading can be given up and taken up again inside the block; nothing is lost or doubled,
        and after the end there is nothing more.
        """
        out = b""
        async with sandbox.stream("seq 200000", timeout=60) as proc:
            for _ in range(3):
                async for chunk in proc:
                    out += chunk.data
                    break
            out += (await collected(proc))[0]
            assert await collected(proc) == (b"", b"")
        assert out == numbers(200_000)


async def collected(proc: Process) -> tuple[bytes, bytes]:
    """Read a process to its end; return stdout and stderr."""
    out, err = bytearray(), bytearray()
    async for chunk in proc:
        (out if chunk.stream == "stdout" else err).extend(chunk.data)
    return bytes(out), bytes(err)


@cache
def numbers(last: int) -> bytes:
    """Return what `seq` writes."""
    return ("\n".join(map(str, range(1, last + 1))) + "\n").encode()
