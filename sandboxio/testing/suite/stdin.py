"""stdin: at its end unless it is given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest

from sandboxio.core.errors import (
    CapabilityNotSupported,
    ConfigurationError,
    ExecutionTimeout,
    PathNotFound,
)
from sandboxio.core.models import Capability
from sandboxio.testing.suite._case import case
from sandboxio.testing.suite._stream_reading import collected, numbers
from sandboxio.testing.suite.fixtures import SuiteFixtures

if TYPE_CHECKING:
    from sandboxio.core.protocols import AsyncSandbox, Process

COMMANDS = Capability.RUN_COMMAND
STREAMS = Capability.RUN_COMMAND | Capability.STREAMING
STDIN = Capability.RUN_COMMAND | Capability.STDIN
DIALOGUE = STDIN | Capability.STREAMING
EVERY_BYTE = bytes(range(256))
OCTAL = "".join(f"\\{byte:03o}" for byte in EVERY_BYTE[1:])
CHECK_EVERY_BYTE = (
    "cat >f; wc -c <f; head -c 1 f | tr -d '\\000' | wc -c; "
    f"""[ "$(tail -c 255 f)" = "$(printf '{OCTAL}')" ]"""
)
ECHO = 'while read -r line; do echo "got $line"; done; echo bye'
LARGE = numbers(600_000)
"""Some megabytes: more than every buffer on the way holds."""
UNSENDABLE: tuple[Any, ...] = (7, 1.5, True, ["x"], {"x": "y"}, object(), "\ud800")


class StdinSuite(SuiteFixtures):
    """Cases of `run(stdin=...)` and `stream(stdin=True)`."""

    @case("STDIN-001", needs=COMMANDS)
    async def test_it_is_closed(self, sandbox: AsyncSandbox) -> None:
        """Unless it is given, stdin is at its end from the start: a command that reads it ends."""
        begin = self.clock.time()
        done = await sandbox.run(["cat"], timeout=60)
        assert (done.exit_code, done.stdout, done.stderr) == (0, "", "")
        assert (await sandbox.run("read x; echo $?", timeout=60)).stdout == "1\n"
        assert (await sandbox.run("wc -c; sh", timeout=60)).stdout.split() == ["0"]
        assert self.clock.time() - begin < 20

    @case("STDIN-002", needs=STREAMS)
    async def test_it_is_closed_for_streams(self, sandbox: AsyncSandbox) -> None:
        """The same for `stream()`."""
        begin = self.clock.time()
        async with sandbox.stream("cat; echo end", timeout=60) as proc:
            assert await collected(proc) == (b"end\n", b"")
        assert self.clock.time() - begin < 20

    @case("STDIN-003", needs=STDIN)
    async def test_bytes_as_input(self, sandbox: AsyncSandbox) -> None:
        """Bytes arrive as they are, each of the 256 values in its place, and then end of file."""
        done = await sandbox.run(CHECK_EVERY_BYTE, stdin=EVERY_BYTE)
        assert done.stdout.split() == ["256", "0"]
        assert done.exit_code == 0

    @case("STDIN-004", needs=STDIN)
    async def test_text_as_input(self, sandbox: AsyncSandbox) -> None:
        """Text arrives as UTF-8, with nothing added and no line end changed."""
        check = (
            r"""cat >f; wc -c <f; [ "$(cat f)" = "$(printf '\303\251\360\237\216\211\r\nx')" ]"""
        )
        done = await sandbox.run(check, stdin="é🎉\r\nx")
        assert (done.exit_code, done.stdout.strip()) == (0, "9")
        assert (await sandbox.run(["cat"], stdin="a\n\nb")).stdout == "a\n\nb"

    @case("STDIN-005", needs=STDIN)
    async def test_nothing_as_input(self, sandbox: AsyncSandbox) -> None:
        """Nothing at all can be given: the command reads end of file at once."""
        for nothing in (b"", ""):
            done = await sandbox.run("cat; echo end", stdin=nothing, timeout=60)
            assert (done.exit_code, done.stdout) == (0, "end\n")

    @case("STDIN-006", needs=STDIN)
    async def test_much_both_ways(self, sandbox: AsyncSandbox) -> None:
        """Some megabytes go in while as many come out; neither waits for the other's end."""
        done = await sandbox.run(["cat"], stdin=LARGE, timeout=80)
        assert done.exit_code == 0
        assert done.stdout == LARGE.decode()

    @case("STDIN-007", needs=STDIN)
    async def test_output_before_input(self, sandbox: AsyncSandbox) -> None:
        """A command may write much before it reads anything of much."""
        done = await sandbox.run("seq 300000; wc -c; seq 3 >&2", stdin=LARGE, timeout=80)
        assert done.stdout.startswith(numbers(300_000).decode())
        assert done.stdout.split()[-1] == str(len(LARGE))
        assert done.stderr == "1\n2\n3\n"

    @case("STDIN-008", needs=STDIN)
    async def test_input_that_nobody_reads(self, sandbox: AsyncSandbox) -> None:
        """A command that does not read its input, or not all of it, ends as it would anyway."""
        begin = self.clock.time()
        assert (await sandbox.run(["true"], stdin=LARGE, timeout=60)).exit_code == 0
        done = await sandbox.run("echo early; exit 4", stdin=LARGE, timeout=60)
        assert (done.exit_code, done.stdout) == (4, "early\n")
        part = await sandbox.run("head -n 2; exit 5", stdin=LARGE, timeout=60)
        assert (part.exit_code, part.stdout) == (5, "1\n2\n")
        assert self.clock.time() - begin < 40

    @case("STDIN-009", needs=STDIN)
    async def test_the_end_of_input_is_not_the_end(self, sandbox: AsyncSandbox) -> None:
        """What a command writes after it has read the end of its input arrives as well."""
        done = await sandbox.run("cat; sleep 1; echo after; echo e >&2; exit 3", stdin="x\n")
        assert (done.exit_code, done.stdout, done.stderr) == (3, "x\nafter\n", "e\n")

    @case("STDIN-010", needs=STDIN)
    async def test_several_readers(self, sandbox: AsyncSandbox) -> None:
        """Input belongs to the commands of a script alone: none of it is taken for the script,
        and the script is no input.
        """
        script = 'read -r a; read -r b; echo "$b $a"; cat'
        done = await sandbox.run(script, stdin="1\necho ran\nrest\n")
        assert done.stdout == "echo ran 1\nrest\n"

    @case("STDIN-011", needs=STDIN)
    async def test_many_inputs_at_once(self, sandbox: AsyncSandbox) -> None:
        """Commands that run at once each get their own input."""
        found: dict[int, str] = {}

        async def one(n: int) -> None:
            done = await sandbox.run("sleep 0.2; cat", stdin=f"{n}\n" * 20_000, timeout=60)
            found[n] = done.stdout

        async with anyio.create_task_group() as tasks:
            for number in range(8):
                tasks.start_soon(one, number)
        assert found == {n: f"{n}\n" * 20_000 for n in range(8)}

    @case("STDIN-012", needs=STDIN)
    async def test_errors_are_not_wrapped(self, sandbox: AsyncSandbox, marker: int) -> None:
        """An error of a call that is given input comes out as it is, in no exception group."""
        with pytest.raises(PathNotFound):
            await sandbox.run(["cat"], stdin=LARGE, cwd="none")
        with pytest.raises(ExecutionTimeout):
            await sandbox.run(self.hang(marker), stdin=LARGE, timeout=2)
        assert (await sandbox.run(["no-such-program"], stdin=LARGE)).exit_code == 127

    @pytest.mark.parametrize("number", range(len(UNSENDABLE)))
    @case("STDIN-013", needs=STDIN)
    async def test_what_cannot_be_sent(self, sandbox: AsyncSandbox, number: int) -> None:
        """Only bytes and text can be sent; all else is refused by name, and nothing runs."""
        with pytest.raises(ConfigurationError, match="stdin"):
            await sandbox.run(["touch", "ran"], stdin=UNSENDABLE[number])
        await self.sh(sandbox, "test ! -e ran")

    @case("STDIN-014", needs=DIALOGUE)
    async def test_a_dialogue(self, sandbox: AsyncSandbox) -> None:
        """`write()` reaches the command while it runs, line by line; `close_stdin()` lets it read
        the end.
        """
        async with sandbox.stream(ECHO, stdin=True, timeout=60) as proc:
            for said in ("one", "é🎉", "two  words"):
                await proc.write(f"{said}\n")
                assert await _line(proc) == f"got {said}\n".encode()
                assert proc.returncode is None
            await proc.close_stdin()
            assert await collected(proc) == (b"bye\n", b"")
            assert (await proc.wait()).exit_code == 0

    @case("STDIN-015", needs=DIALOGUE)
    async def test_written_bytes(self, sandbox: AsyncSandbox) -> None:
        """Written bytes arrive as they are, in order, however they are cut; none of them has a
        meaning on the way.
        """
        async with sandbox.stream(CHECK_EVERY_BYTE, stdin=True, timeout=60) as proc:
            for at in range(0, 256, 5):
                await proc.write(EVERY_BYTE[at : at + 5])
            await proc.close_stdin()
            out, _ = await collected(proc)
            assert (out.split(), proc.returncode) == ([b"256", b"0"], 0)

    @case("STDIN-016", needs=DIALOGUE)
    async def test_writing_nothing(self, sandbox: AsyncSandbox) -> None:
        """Writing nothing sends nothing, and is no end of file."""
        async with sandbox.stream(ECHO, stdin=True, timeout=60) as proc:
            for nothing in (b"", ""):
                await proc.write(nothing)
            await proc.write("x\n")
            assert await _line(proc) == b"got x\n"

    @case("STDIN-017", needs=DIALOGUE)
    async def test_closing_again(self, sandbox: AsyncSandbox) -> None:
        """`close_stdin()` is silent the second time, and lets a command end that waits for it."""
        async with sandbox.stream("cat; echo end", stdin=True, timeout=60) as proc:
            await proc.write("x\n")
            await proc.close_stdin()
            await proc.close_stdin()
            assert (await collected(proc))[0] == b"x\nend\n"
            await proc.close_stdin()

    @case("STDIN-018", needs=DIALOGUE)
    async def test_writing_after_the_end(self, sandbox: AsyncSandbox) -> None:
        """Writing to a command that has ended, or reads no more, is silent."""
        async with sandbox.stream("read -r x; exit 3", stdin=True, timeout=60) as proc:
            await proc.write("x\n")
            await collected(proc)
            assert proc.returncode == 3
            begin = self.clock.time()
            await proc.write("more\n")
            await proc.write(b"x" * 1_000_000)
            await proc.close_stdin()
            assert (await proc.wait()).exit_code == 3
            assert self.clock.time() - begin < 10

    @case("STDIN-019", needs=DIALOGUE)
    async def test_a_write_that_waits(self, sandbox: AsyncSandbox) -> None:
        """A write that waits for its reader is over when the command ends without reading it."""
        begin = self.clock.time()
        async with (
            sandbox.stream("sleep 1; exit 3", stdin=True, timeout=60) as proc,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(proc.write, LARGE * 3)
            assert (await proc.wait()).exit_code == 3
        assert self.clock.time() - begin < 30

    @case("STDIN-020", needs=DIALOGUE)
    async def test_much_written_and_read(self, sandbox: AsyncSandbox) -> None:
        """Some megabytes are written by one task while another reads as many; all is in order."""

        async def write(proc: Process) -> None:
            for at in range(0, len(LARGE), 100_000):
                await proc.write(LARGE[at : at + 100_000])
            await proc.close_stdin()

        out = b""
        async with (
            sandbox.stream(["cat"], stdin=True, timeout=80) as proc,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(write, proc)
            out, _ = await collected(proc)
        assert out == LARGE

    @case("STDIN-021", needs=DIALOGUE)
    async def test_writes_of_several_tasks(self, sandbox: AsyncSandbox) -> None:
        """Each write is sent whole: those of several tasks are not mixed."""
        async with sandbox.stream("cat >f; tr -s ab <f", stdin=True, timeout=60) as proc:
            async with anyio.create_task_group() as tasks:
                for letter in (b"a", b"b"):
                    tasks.start_soon(proc.write, letter * 500_000)
            await proc.close_stdin()
            out, _ = await collected(proc)
        assert out in (b"ab", b"ba")
        assert (await self.sh(sandbox, "wc -c <f")).split() == ["1000000"]

    @case("STDIN-022", needs=STREAMS)
    async def test_writing_without_stdin(self, sandbox: AsyncSandbox) -> None:
        """Writing needs `stream(stdin=True)`; without it, it is refused, and the command reads end
        of file.
        """
        async with sandbox.stream("cat >f; wc -c <f", timeout=60) as proc:
            with pytest.raises((CapabilityNotSupported, ConfigurationError)) as caught:
                await proc.write("x")
            assert caught.value.outcome == "not_started"
            assert (await collected(proc))[0].split() == [b"0"]

    @case("STDIN-023", needs=DIALOGUE)
    async def test_what_cannot_be_written(self, sandbox: AsyncSandbox) -> None:
        """Only bytes and text can be written; all else is refused, and nothing of it arrives."""
        async with sandbox.stream(["cat"], stdin=True, timeout=60) as proc:
            write: Any = proc.write
            for bad in (None, *UNSENDABLE):
                with pytest.raises(ConfigurationError):
                    await write(bad)
            await proc.write("good")
            await proc.close_stdin()
            assert (await collected(proc))[0] == b"good"

    @case("STDIN-024", needs=DIALOGUE)
    async def test_leaving_with_input_open(self, sandbox: AsyncSandbox, marker: int) -> None:
        """A block that is left while the command waits for input ends the command."""
        script = f"{self.hang(marker)} & echo up; cat"
        async with sandbox.stream(script, stdin=True, timeout=60) as proc:
            await proc.write("x")
            await self.until_alive(sandbox, marker)
        await self.until_dead(sandbox, marker)
        assert proc.returncode is not None

    @case("STDIN-025", needs=COMMANDS, lacks=Capability.STDIN)
    async def test_without_stdin(self, sandbox: AsyncSandbox) -> None:
        """A sandbox that takes no input refuses any, also an empty one, and runs nothing;
        without it commands run.
        """
        for data in ("x", b"x", b""):
            with pytest.raises(CapabilityNotSupported) as caught:
                await sandbox.run(["touch", "ran"], stdin=data)
            assert caught.value.outcome == "not_started"
            assert "STDIN" in str(caught.value)
        assert await self.sh(sandbox, "test ! -e ran; cat", stdin=None) == ""

    @case("STDIN-026", needs=STREAMS, lacks=Capability.STDIN)
    async def test_streams_without_stdin(self, sandbox: AsyncSandbox) -> None:
        """The same for `stream(stdin=True)`, before anything is entered."""
        with pytest.raises(CapabilityNotSupported) as caught:
            sandbox.stream(["touch", "ran"], stdin=True)
        assert "STDIN" in str(caught.value)
        async with sandbox.stream("test ! -e ran; cat", stdin=False) as proc:
            assert (await proc.wait()).exit_code == 0


async def _line(proc: Process) -> bytes:
    """Read one line, in however many chunks it comes."""
    line = b""
    while not line.endswith(b"\n"):
        line += (await anext(aiter(proc))).data
    return line
