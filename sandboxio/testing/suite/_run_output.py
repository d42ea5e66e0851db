"""What `run()` gives back of what a command writes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from sandboxio.core.errors import ConfigurationError
from sandboxio.core.models import DEFAULT_MAX_OUTPUT_BYTES, Capability
from sandboxio.testing.suite._case import case
from sandboxio.testing.suite._stream_reading import numbers
from sandboxio.testing.suite.fixtures import SuiteFixtures

if TYPE_CHECKING:
    from sandboxio.core.protocols import AsyncSandbox

AREA = "run"
COMMANDS = Capability.RUN_COMMAND
ROW = "0123456789abcde\n"
FLOOD = "yes 0123456789abcde | head -c {}"
ODD: tuple[Any, ...] = (0, -1, True, "5", 1.5, math.inf, math.nan, b"5")


class RunOutput(SuiteFixtures):
    """Cases of the output of `run()`."""

    @case("RUN-028", needs=COMMANDS, area=AREA)
    async def test_characters_in_pieces(self, sandbox: AsyncSandbox) -> None:
        """A character whose bytes are written one by one, stderr in between, arrives whole."""
        script = (
            "for b in 360 237 232 200 303 251; do "
            r'printf "\\$b"; printf err >&2; sleep 0.1; done'
        )
        done = await sandbox.run(script)
        assert (done.stdout, done.stderr) == ("🚀é", "err" * 6)

    @case("RUN-029", needs=COMMANDS, area=AREA)
    async def test_characters_in_pieces_on_both_streams(self, sandbox: AsyncSandbox) -> None:
        """Characters in pieces on both streams at once are put together stream by stream."""
        script = (
            r"printf '\303'; printf '\360\237' >&2; sleep 0.3; printf '\251'; sleep 0.3; "
            r"printf '\232\200' >&2"
        )
        done = await sandbox.run(script)
        assert (done.stdout, done.stderr) == ("é", "🚀")

    @case("RUN-030", needs=COMMANDS, area=AREA)
    async def test_a_long_line(self, sandbox: AsyncSandbox) -> None:
        """A line of 300,000 characters that are not ASCII arrives unchanged."""
        script = r"""yes "$(printf 'a\342\202\254')" | head -n 150000 | tr -d '\n'"""
        done = await sandbox.run(script)
        assert done.stdout == "a€" * 150_000
        assert done.stdout_bytes == 600_000

    @case("RUN-031", needs=COMMANDS, area=AREA)
    async def test_bytes_that_are_not_utf8(self, sandbox: AsyncSandbox) -> None:
        """Bytes that are not UTF-8, and a cut-off character at the end, become U+FFFD; nothing
        raises.
        """
        done = await sandbox.run(r"printf 'a\377\376b\n\342\202'; printf '\300x\345' >&2")
        assert (done.exit_code, done.stdout) == (0, "a\ufffd\ufffdb\n\ufffd")
        assert done.stderr == "\ufffdx\ufffd"
        assert (done.stdout_bytes, done.stderr_bytes) == (7, 3)

    @case("RUN-032", needs=COMMANDS, area=AREA)
    async def test_nothing_is_interpreted(self, sandbox: AsyncSandbox) -> None:
        """NUL, a byte order mark, control characters and blank lines come as they were written."""
        done = await sandbox.run(
            r"printf '\357\273\277\n\n a \000b\033[1m\010\004\032\r \t\n\n'; printf ' \000' >&2"
        )
        assert done.stdout == "\ufeff\n\n a \0b\x1b[1m\x08\x04\x1a\r \t\n\n"
        assert done.stderr == " \0"

    @case("RUN-033", needs=COMMANDS, area=AREA)
    async def test_no_terminal(self, sandbox: AsyncSandbox) -> None:
        """No terminal stands between a command and its caller, on any of the three."""
        script = "for n in 0 1 2; do if [ -t $n ]; then echo $n is one; fi; done; echo none"
        assert await self.sh(sandbox, script) == "none\n"

    @case("RUN-034", needs=COMMANDS, area=AREA)
    async def test_no_last_line_end(self, sandbox: AsyncSandbox) -> None:
        """A last line without an end gets none, and a line end alone stays one."""
        for text in ("x", "x\n", "\n", "x\n\n", "\r\n"):
            assert (await sandbox.run(["printf", "%s", text])).stdout == text

    @case("RUN-035", needs=COMMANDS, area=AREA)
    async def test_a_broken_pipe(self, sandbox: AsyncSandbox) -> None:
        """A command has the usual signals: who writes to a pipe that nobody reads is ended, in
        silence.
        """
        done = await sandbox.run("yes | head -n 2", timeout=30)
        assert (done.exit_code, done.stdout, done.stderr) == (0, "y\ny\n", "")

    @case("RUN-036", needs=COMMANDS, area=AREA)
    async def test_large_output(self, sandbox: AsyncSandbox) -> None:
        """Some megabytes on each stream, written at once, arrive whole and in order."""
        done = await sandbox.run("(seq 400000 >&2) & seq 300000; wait; exit 4", timeout=60)
        assert done.exit_code == 4
        assert done.stdout == _numbers(300_000)
        assert done.stderr == _numbers(400_000)
        assert (done.stdout_truncated, done.stderr_truncated) == (False, False)

    @case("RUN-037", needs=COMMANDS, area=AREA)
    async def test_output_that_ends_at_once(self, sandbox: AsyncSandbox) -> None:
        """The end of the output is not lost, however soon the command ends after it."""
        for number in range(10):
            done = await sandbox.run(f"seq 3000; echo end {number}; echo e{number} >&2")
            assert done.stdout == f"{_numbers(3_000)}end {number}\n"
            assert done.stderr == f"e{number}\n"

    @case("RUN-038", needs=COMMANDS, area=AREA)
    async def test_the_default_cap(self, sandbox: AsyncSandbox) -> None:
        """Of more than 10 MiB the middle is dropped, which the result says; the counts are true,
        and the command runs to its own end.
        """
        size = 12_000_000
        done = await sandbox.run(FLOOD.format(size) + "; printf end; echo e >&2; echo x >f; exit 3")
        assert (done.exit_code, done.stdout_bytes) == (3, size + 3)
        assert (done.stdout_truncated, done.stderr_truncated, done.stderr) == (True, False, "e\n")
        assert len(done.stdout) == DEFAULT_MAX_OUTPUT_BYTES
        assert done.stdout.startswith(ROW * 1000)
        assert done.stdout.endswith("end")
        await self.sh(sandbox, "test -s f")

    @case("RUN-039", needs=COMMANDS, area=AREA)
    async def test_a_raised_cap(self, sandbox: AsyncSandbox) -> None:
        """A raised `max_output_bytes` is honoured: 12 MB come whole."""
        done = await sandbox.run(FLOOD.format(12_000_000), max_output_bytes=16_000_000)
        assert done.stdout == ROW * 750_000
        assert not done.stdout_truncated

    @case("RUN-040", needs=COMMANDS, area=AREA)
    async def test_a_cap(self, sandbox: AsyncSandbox) -> None:
        """Beyond `max_output_bytes` beginning and end are kept, the result says so and counts all
        bytes, and the command runs to its own end.
        """
        done = await sandbox.run("seq 100000; echo x >f; exit 3", max_output_bytes=1000)
        assert (done.exit_code, done.stdout_truncated) == (3, True)
        assert done.stdout_bytes == len(_numbers(100_000))
        assert 900 <= len(done.stdout) <= 1000
        assert done.stdout.startswith(_numbers(100))
        assert done.stdout.endswith("99999\n100000\n")
        await self.sh(sandbox, "test -s f")

    @case("RUN-041", needs=COMMANDS, area=AREA)
    async def test_a_cap_holds_for_each_stream(self, sandbox: AsyncSandbox) -> None:
        """`max_output_bytes` is for each stream by itself."""
        for much, little in (("", ">&2"), (">&2", "")):
            done = await sandbox.run(
                f"(seq 5000 {much}); (printf 0123456789 {little})", max_output_bytes=100
            )
            texts = (done.stdout, done.stderr) if little else (done.stderr, done.stdout)
            flags = (done.stdout_truncated, done.stderr_truncated)
            assert texts[0].endswith("5000\n")
            assert texts[1] == "0123456789"
            assert flags == ((True, False) if little else (False, True))

    @case("RUN-042", needs=COMMANDS, area=AREA)
    async def test_the_edge_of_a_cap(self, sandbox: AsyncSandbox) -> None:
        """Exactly `max_output_bytes` bytes come whole; one more is one too many."""
        exact = await sandbox.run(["printf", "0123456789"], max_output_bytes=10)
        assert (exact.stdout, exact.stdout_truncated) == ("0123456789", False)
        more = await sandbox.run(["printf", "0123456789a"], max_output_bytes=10)
        assert (len(more.stdout), more.stdout_truncated, more.stdout_bytes) == (10, True, 11)
        least = await sandbox.run(["printf", "01"], max_output_bytes=1)
        assert (len(least.stdout), least.stdout_truncated) == (1, True)

    @case("RUN-043", needs=COMMANDS, area=AREA)
    async def test_a_cap_counts_bytes(self, sandbox: AsyncSandbox) -> None:
        """A cap counts bytes, not characters, and one that cuts a character raises nothing."""
        script = r"printf '\303\251\303\251\303\251'"
        whole = await sandbox.run(script, max_output_bytes=6)
        assert (whole.stdout, whole.stdout_bytes, whole.stdout_truncated) == ("ééé", 6, False)
        cut = await sandbox.run(script, max_output_bytes=3)
        assert (cut.exit_code, cut.stdout_bytes, cut.stdout_truncated) == (0, 6, True)
        assert "é" in cut.stdout

    @pytest.mark.parametrize("odd", ODD, ids=repr)
    @case("RUN-044", needs=COMMANDS, area=AREA)
    async def test_odd_caps(self, sandbox: AsyncSandbox, odd: Any) -> None:
        """A cap that is no whole number above 0 is refused by name; nothing runs."""
        with pytest.raises(ConfigurationError, match="max_output_bytes"):
            await sandbox.run(["touch", "ran"], max_output_bytes=odd)
        await self.sh(sandbox, "test ! -e ran")

    @case("RUN-045", needs=COMMANDS, area=AREA)
    async def test_large_outputs_at_once(self, sandbox: AsyncSandbox) -> None:
        """Commands that write much at the same time do not mix, nor keep each other waiting."""
        found: dict[str, str] = {}

        async def one(letter: str) -> None:
            done = await sandbox.run(f"yes {letter} | head -n 300000; echo end", timeout=60)
            found[letter] = done.stdout

        async with anyio.create_task_group() as tasks:
            for letter in "abcde":
                tasks.start_soon(one, letter)
        assert all(found[letter] == f"{letter}\n" * 300_000 + "end\n" for letter in "abcde")


def _numbers(last: int) -> str:
    return numbers(last).decode()
