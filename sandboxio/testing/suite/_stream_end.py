"""The end of a stream: by itself, by leaving its block, by `kill()`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import pytest

from sandboxio.core.errors import ConfigurationError
from sandboxio.core.models import Capability
from sandboxio.testing.suite._case import case
from sandboxio.testing.suite._stream_reading import StreamReading, collected, numbers

if TYPE_CHECKING:
    from sandboxio.core.protocols import AsyncSandbox, Process

AREA = "streaming"
STREAMS = Capability.RUN_COMMAND | Capability.STREAMING
KILLED = 137


class StreamEnd(StreamReading):
    """Cases of the end of a stream."""

    @case("STREAM-031", needs=STREAMS, area=AREA)
    async def test_returncode(self, sandbox: AsyncSandbox) -> None:
        """`returncode` is `None` while the command runs, and its exit code as soon as the output
        has ended, time after time.
        """
        for number in range(10):
            async with sandbox.stream(f"echo x; sleep 0.1; exit {number + 1}") as proc:
                first, running = await anext(aiter(proc)), proc.returncode
                assert (first.data, running) == (b"x\n", None)
                assert await collected(proc) == (b"", b"")
                assert proc.returncode == number + 1
                assert (await proc.wait()).exit_code == number + 1

    @case("STREAM-032", needs=STREAMS, area=AREA)
    async def test_full_iteration_leaves_nothing(self, sandbox: AsyncSandbox, marker: int) -> None:
        """After a stream that was read to its end no process of the command is left."""
        script = f"{self.hang(marker)} & echo up; until [ -e go ]; do sleep 0.1; done; kill $!; "
        async with sandbox.stream(f"{script} wait; exit 3", timeout=40) as proc:
            await anext(aiter(proc))
            await self.until_alive(sandbox, marker)
            await self.sh(sandbox, "echo x >go")
            await collected(proc)
            assert proc.returncode == 3
        assert await self.alive(sandbox, marker) == 0

    @case("STREAM-033", needs=STREAMS, area=AREA)
    async def test_an_early_break_leaves_nothing(self, sandbox: AsyncSandbox, marker: int) -> None:
        """Leaving the block after a `break` ends the command, with everything it started."""
        async with sandbox.stream(self._stream_tree(marker), timeout=60) as proc:
            async for _ in proc:
                break
            await self.until_alive(sandbox, marker, 3)
        await self._nothing_of_stream_left(sandbox, proc, marker)

    @case("STREAM-034", needs=STREAMS, area=AREA)
    async def test_an_exception_leaves_nothing(self, sandbox: AsyncSandbox, marker: int) -> None:
        """An exception in the block ends the command, and comes out as it was raised."""
        error = TimeoutError("the caller's own")
        proc = sandbox.stream(self._stream_tree(marker), timeout=60)
        with pytest.raises(TimeoutError) as caught:
            async with proc:
                await self.until_alive(sandbox, marker, 3)
                raise error
        assert caught.value is error
        await self._nothing_of_stream_left(sandbox, proc, marker)

    @case("STREAM-035", needs=STREAMS, area=AREA)
    async def test_cancellation_leaves_nothing(self, sandbox: AsyncSandbox, marker: int) -> None:
        """Cancellation of whoever reads ends the command, and stays a cancellation."""
        proc = sandbox.stream(self._stream_tree(marker), timeout=60)
        ends: list[BaseException] = []

        async def read() -> None:
            try:
                async with proc:
                    await collected(proc)
            except BaseException as exc:
                ends.append(exc)
                raise

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            await self.until_alive(sandbox, marker, 3)
            tasks.cancel_scope.cancel()
        assert [type(end) for end in ends] == [anyio.get_cancelled_exc_class()]
        await self._nothing_of_stream_left(sandbox, proc, marker)

    @case("STREAM-036", needs=STREAMS, area=AREA)
    async def test_leaving_at_once(self, sandbox: AsyncSandbox, marker: int) -> None:
        """A block that is left at once leaves nothing, however often."""
        for _ in range(5):
            async with sandbox.stream(self.hang(marker)):
                pass
        await self.until_dead(sandbox, marker)
        assert await self.sh(sandbox, "echo ok") == "ok\n"

    @case("STREAM-037", needs=STREAMS, area=AREA)
    async def test_kill_of_a_stream(self, sandbox: AsyncSandbox, marker: int) -> None:
        """`kill()` ends the command with everything it started, while the block goes on; its exit
        code is 137 from then on.
        """
        async with sandbox.stream(self._stream_tree(marker), timeout=60) as proc:
            await self.until_alive(sandbox, marker, 3)
            await proc.kill()
            await self.until_dead(sandbox, marker)
            assert proc.returncode == KILLED
            end = await proc.wait()
            assert (end.exit_code, end.streamed, end.stdout) == (KILLED, True, "")
        await self._nothing_of_stream_left(sandbox, proc, marker)

    @case("STREAM-038", needs=STREAMS, area=AREA)
    async def test_kill_of_a_stream_again(self, sandbox: AsyncSandbox, marker: int) -> None:
        """`kill()` is silent the second time, by several tasks at once, and after the block."""
        async with sandbox.stream(self.hang(marker)) as proc:
            async with anyio.create_task_group() as tasks:
                for _ in range(3):
                    tasks.start_soon(proc.kill)
            await proc.kill()
        await proc.kill()
        assert proc.returncode == KILLED

    @case("STREAM-039", needs=STREAMS, area=AREA)
    async def test_kill_after_the_end(self, sandbox: AsyncSandbox) -> None:
        """`kill()` of a command that has ended is silent, and changes nothing of its end."""
        async with sandbox.stream("echo x; exit 7") as proc:
            await collected(proc)
            await proc.kill()
            assert (await proc.wait()).exit_code == 7
        await proc.kill()
        assert proc.returncode == 7

    @case("STREAM-040", needs=STREAMS, area=AREA)
    async def test_kill_while_it_is_read(self, sandbox: AsyncSandbox, marker: int) -> None:
        """Whoever reads a stream that another task kills sees its output end, without an error."""
        seen: list[tuple[bytes, bytes]] = []

        async def read(proc: Process) -> None:
            seen.append(await collected(proc))

        script = f"echo one; {self.hang(marker)}"
        async with sandbox.stream(script, timeout=60) as proc, anyio.create_task_group() as tasks:
            tasks.start_soon(read, proc)
            await self.until_alive(sandbox, marker)
            await proc.kill()
        assert seen in ([(b"one\n", b"")], [(b"", b"")])
        assert proc.returncode == KILLED

    @case("STREAM-041", needs=STREAMS, area=AREA)
    async def test_unread_output(self, sandbox: AsyncSandbox) -> None:
        """Output that nobody reads does not hold up leaving the block, nor `kill()`."""
        begin = self.clock.time()
        async with sandbox.stream("yes 0123456789abcde", timeout=60) as proc:
            await anext(aiter(proc))
        async with sandbox.stream("yes 0123456789abcde", timeout=60):
            pass
        async with sandbox.stream("yes 0123456789abcde", timeout=60) as proc:
            await self.clock.sleep(1)
            await proc.kill()
            assert proc.returncode == KILLED
        assert self.clock.time() - begin < 40
        assert await self.sh(sandbox, "echo ok") == "ok\n"

    @case("STREAM-042", needs=STREAMS, area=AREA)
    async def test_a_background_child_of_a_stream(self, sandbox: AsyncSandbox, marker: int) -> None:
        """The output ends with the command, although a child in the background holds it open, for
        whoever reads as for whoever waits.
        """
        begin = self.clock.time()
        for start in (f"{self.hang(marker)} &", f"(setsid {self.hang(marker)} &);"):
            async with sandbox.stream(f"{start} seq 50000; exit 3", timeout=60) as proc:
                assert (await collected(proc))[0] == numbers(50_000)
                assert proc.returncode == 3
            async with sandbox.stream(f"{start} echo hi", timeout=60) as proc:
                assert (await proc.wait()).exit_code == 0
        assert self.clock.time() - begin < 30

    @case("STREAM-043", needs=STREAMS, area=AREA)
    async def test_a_stream_that_closes_its_output(self, sandbox: AsyncSandbox) -> None:
        """A command that gives its output up and goes on is waited for."""
        script = "echo a; exec >/dev/null 2>&1; sleep 2; echo x >f; exit 7"
        async with sandbox.stream(script, timeout=40) as proc:
            assert await collected(proc) == (b"a\n", b"")
            assert (await proc.wait()).exit_code == 7
        await self.sh(sandbox, "test -s f")

    @case("STREAM-044", needs=STREAMS, area=AREA)
    async def test_a_neighbour_of_a_stream_goes_on(
        self, sandbox: AsyncSandbox, marker: int
    ) -> None:
        """Leaving one stream ends its own command alone."""
        other = marker + 1
        async with sandbox.stream(f"{self.hang(other)}; exit 5", timeout=60) as beside:
            async with sandbox.stream(self.hang(marker), timeout=60):
                await self.until_alive(sandbox, marker)
                await self.until_alive(sandbox, other)
            await self.until_dead(sandbox, marker)
            assert await self.alive(sandbox, other) == 1
            assert beside.returncode is None

    @case("STREAM-045", needs=STREAMS | Capability.STDIN, area=AREA)
    async def test_after_the_block(self, sandbox: AsyncSandbox) -> None:
        """After the block there is nothing to write to, and nothing more to read."""
        async with sandbox.stream(["cat"], stdin=True) as proc:
            pass
        with pytest.raises(ConfigurationError):
            await proc.write("x")
        with pytest.raises(ConfigurationError):
            await proc.close_stdin()
        try:
            assert await collected(proc) == (b"", b"")
        except ConfigurationError as exc:
            assert exc.outcome == "not_started"  # noqa: PT017  # refusing is as good

    @case("STREAM-046", needs=STREAMS, area=AREA)
    async def test_streams_run_once(self, sandbox: AsyncSandbox, marker: int) -> None:
        """A command is run exactly once, whether it is read, waited for, left or killed."""
        script = "echo x >>runs; echo up; {}"
        async with sandbox.stream(script.format("exit 3")) as proc:
            await collected(proc)
        async with sandbox.stream(script.format("exit 3")) as proc:
            await proc.wait()
        for leave in (True, False):
            async with sandbox.stream(script.format(self.hang(marker))) as proc:
                await anext(aiter(proc))
                if not leave:
                    await proc.kill()
        assert (await self.sh(sandbox, "wc -l <runs")).split() == ["4"]

    def _stream_tree(self, marker: int) -> str:
        """Return a command of three marked processes: one of its own session, one deaf."""
        hang = self.hang(marker)
        return f"(setsid {hang} &); (trap '' TERM HUP; {hang}) & echo up; {hang}"

    async def _nothing_of_stream_left(
        self, sandbox: AsyncSandbox, proc: Process, marker: int
    ) -> None:
        await self.until_dead(sandbox, marker)
        assert proc.returncode == KILLED
        assert (await proc.wait()).exit_code == KILLED
        assert await self.sh(sandbox, "echo ok") == "ok\n"
