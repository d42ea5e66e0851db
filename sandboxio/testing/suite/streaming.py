"""`stream()`: output while the command runs."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from sandboxio.core.errors import (
    CapabilityNotSupported,
    ConfigurationError,
    PathNotFound,
)
from sandboxio.core.models import Capability, ExecResult, OutputChunk
from sandboxio.core.protocols import Process
from sandboxio.testing.suite._case import case
from sandboxio.testing.suite._stream_end import StreamEnd
from sandboxio.testing.suite._stream_reading import collected

if TYPE_CHECKING:
    from sandboxio.core.protocols import AsyncSandbox
    from sandboxio.testing.suite.fixtures import Create

STREAMS = Capability.RUN_COMMAND | Capability.STREAMING
EVERY_BYTE = bytes(range(256))


class StreamingSuite(StreamEnd):
    """Cases of `stream()`; those of reading and of its end are in bases."""

    @case("STREAM-001", needs=STREAMS)
    async def test_it_is_not_awaited(self, sandbox: AsyncSandbox) -> None:
        """`stream()` is a plain function and gives a `Process`, which cannot be awaited: leaving
        out `async with` fails at once.
        """
        stream: Any = sandbox.stream
        assert not inspect.iscoroutinefunction(stream)
        proc = stream(["true"])
        assert not inspect.isawaitable(proc)
        assert not hasattr(proc, "__await__")
        assert isinstance(proc, Process)

    @case("STREAM-002", needs=STREAMS)
    async def test_it_starts_with_the_block(self, sandbox: AsyncSandbox) -> None:
        """The command starts with `async with`, not before; one never entered never runs."""
        proc = sandbox.stream("echo x >ran")
        sandbox.stream("echo x >never")
        await self.clock.sleep(1)
        assert await self.sh(sandbox, "echo *") == "*\n"
        async with proc:
            await proc.wait()
        assert await self.sh(sandbox, "echo *") == "ran\n"

    @case("STREAM-003", lacks=Capability.STREAMING)
    async def test_without_streaming(self, sandbox: AsyncSandbox) -> None:
        """A sandbox without streaming says so from `stream()` itself, before anything is entered;
        nothing runs.
        """
        with pytest.raises(CapabilityNotSupported) as caught:
            sandbox.stream("echo x >ran")
        assert caught.value.outcome == "not_started"
        assert "STREAMING" in str(caught.value)
        if Capability.RUN_COMMAND in sandbox.capabilities:
            await self.sh(sandbox, "test ! -e ran")

    @case("STREAM-004", needs=STREAMS)
    async def test_output_arrives_at_once(self, sandbox: AsyncSandbox) -> None:
        """Output arrives while the command runs, as soon as it is written, whole line or not."""
        script = "printf one; until [ -e go ]; do sleep 0.1; done; printf two >&2"
        async with sandbox.stream(script, timeout=40) as proc:
            first = await anext(aiter(proc))
            assert (first.stream, first.data, proc.returncode) == ("stdout", b"one", None)
            await self.sh(sandbox, "echo x >go")
            rest = [chunk async for chunk in proc]
        assert [(chunk.stream, chunk.data) for chunk in rest] == [("stderr", b"two")]

    @case("STREAM-005", needs=STREAMS)
    async def test_order_within_a_stream(self, sandbox: AsyncSandbox) -> None:
        """The order is kept within stdout and within stderr, and each chunk tells which it is."""
        script = "for i in $(seq 500); do echo o$i; echo e$i >&2; done"
        async with sandbox.stream(script) as proc:
            out, err = await collected(proc)
        assert out.decode() == "".join(f"o{i}\n" for i in range(1, 501))
        assert err.decode() == "".join(f"e{i}\n" for i in range(1, 501))

    @case("STREAM-006", needs=STREAMS)
    async def test_chunks(self, sandbox: AsyncSandbox) -> None:
        """Output comes as `OutputChunk`s, none of them empty."""
        async with sandbox.stream("echo a; echo b >&2; seq 1000") as proc:
            chunks = [chunk async for chunk in proc]
        assert all(isinstance(chunk, OutputChunk) for chunk in chunks)
        assert all(type(chunk.data) is bytes and chunk.data for chunk in chunks)
        assert {chunk.stream for chunk in chunks} == {"stdout", "stderr"}

    @case("STREAM-007", needs=STREAMS)
    async def test_exact_bytes(self, sandbox: AsyncSandbox) -> None:
        """Bytes come exactly as they were written, UTF-8 or not, on both streams."""
        octal = "".join(f"\\{byte:03o}" for byte in EVERY_BYTE)
        script = rf"printf '{octal}'; printf '\r\n{octal}\342\202' >&2"
        async with sandbox.stream(script) as proc:
            out, err = await collected(proc)
        assert out == EVERY_BYTE
        assert err == b"\r\n" + EVERY_BYTE + b"\xe2\x82"

    @case("STREAM-008", needs=STREAMS)
    async def test_the_result_of_a_stream(self, sandbox: AsyncSandbox) -> None:
        """`wait()` gives an `ExecResult` with `streamed` set, no text, and the bytes counted."""
        async with sandbox.stream(r"printf '\303\251'; echo abc >&2; exit 3") as proc:
            assert await collected(proc) == ("é".encode(), b"abc\n")
            end = await proc.wait()
        assert isinstance(end, ExecResult)
        assert (end.exit_code, end.streamed, end.stdout, end.stderr) == (3, True, "", "")
        assert (end.stdout_bytes, end.stderr_bytes) == (2, 4)
        assert (end.stdout_truncated, end.stderr_truncated, end.results) == (False, False, None)

    @case("STREAM-009", needs=STREAMS)
    async def test_streams_without_output(self, sandbox: AsyncSandbox) -> None:
        """A command that writes nothing gives no chunk, and its end."""
        async with sandbox.stream(["true"]) as proc:
            assert [chunk async for chunk in proc] == []
            end = await proc.wait()
        assert (end.exit_code, end.stdout_bytes, end.stderr_bytes) == (0, 0, 0)

    @case("STREAM-010", needs=STREAMS)
    async def test_lists_and_strings(self, sandbox: AsyncSandbox) -> None:
        """As for `run()`, no shell looks at a list, and one shell reads a string."""
        async with sandbox.stream(["printf", "%s|", "$HOME", "&&", "a b", "'", ""]) as proc:
            assert (await collected(proc))[0] == b"$HOME|&&|a b|'||"
        async with sandbox.stream("x='a b'; cd /; echo \"$x\"; pwd") as proc:
            assert (await collected(proc))[0] == b"a b\n/\n"

    @case("STREAM-011", needs=STREAMS)
    async def test_options_of_streams(self, create: Create) -> None:
        """Variables, secrets, directory and user are those of `run()`."""
        sandbox = await create(env={"A": "sandbox", "B": "stays"}, secrets={"TOKEN": "abcdef"})
        here, uid = (await self.sh(sandbox, "mkdir d; pwd; id -u")).split()
        script = 'echo "$A $B ${#TOKEN} $(pwd) $(id -u)"'
        async with sandbox.stream(script, env={"A": "call"}, cwd="d", user=uid) as proc:
            assert (await collected(proc))[0].decode() == f"call stays 6 {here}/d {uid}\n"

    @case("STREAM-012", needs=STREAMS)
    async def test_streams_that_cannot_start(self, sandbox: AsyncSandbox) -> None:
        """A command that cannot start ends as in `run()`: 127 or 126, the reason on stderr."""
        for command, code in ((["no-such-program"], 127), (["/etc/passwd"], 126)):
            async with sandbox.stream(command) as proc:
                out, err = await collected(proc)
                assert (out, (await proc.wait()).exit_code) == (b"", code)
            assert err.strip()

    @case("STREAM-013", needs=STREAMS)
    async def test_a_directory_of_a_stream_that_is_none(self, sandbox: AsyncSandbox) -> None:
        """A `cwd` that is not there is `PathNotFound`, by the time the output would end."""
        with pytest.raises(PathNotFound):
            async with sandbox.stream(["pwd"], cwd="none") as proc:
                await collected(proc)

    @case("STREAM-014", needs=STREAMS)
    async def test_what_streams_refuse(self, sandbox: AsyncSandbox) -> None:
        """What cannot be is refused by `stream()` itself, with `ConfigurationError`."""
        stream: Any = sandbox.stream
        for bad in ("", [], None, 7, b"touch ran", ["touch", 7], "touch ran\0"):
            with pytest.raises(ConfigurationError):
                stream(bad)
        for option in ({"env": {"A=B": ""}}, {"cwd": ""}, {"user": "a b"}, {"timeout": 0}):
            with pytest.raises(ConfigurationError, match=next(iter(option))):
                stream(["touch", "ran"], **option)
        await self.sh(sandbox, "test ! -e ran")

    @case("STREAM-015", needs=STREAMS)
    async def test_keywords_of_streams(self, sandbox: AsyncSandbox) -> None:
        """Every option has a name of its own: an unknown keyword is a `TypeError`."""
        stream: Any = sandbox.stream
        for unknown in ({"max_output_bytes": 5}, {"text": True}, {"bufsize": 1}):
            with pytest.raises(TypeError):
                stream(["true"], **unknown)
        with pytest.raises(TypeError):
            stream(["true"], 5)

    @case("STREAM-016", needs=STREAMS)
    async def test_it_is_entered_once(self, sandbox: AsyncSandbox) -> None:
        """A process can be entered once: again, while it runs or after, is `ConfigurationError`,
        and the command has run once.
        """
        proc = sandbox.stream("echo x >>runs")
        async with proc:
            with pytest.raises(ConfigurationError):
                await proc.__aenter__()
            await proc.wait()
        with pytest.raises(ConfigurationError):
            async with proc:
                pass
        assert await self.sh(sandbox, "cat runs") == "x\n"

    @case("STREAM-017", needs=STREAMS)
    async def test_before_the_block(self, sandbox: AsyncSandbox) -> None:
        """Before `async with` there is nothing to read or wait for: both are refused."""
        proc = sandbox.stream(["touch", "ran"])
        assert proc.returncode is None
        with pytest.raises(ConfigurationError):
            await proc.wait()
        with pytest.raises(ConfigurationError):
            await anext(aiter(proc))
        await self.sh(sandbox, "test ! -e ran")

    @case("STREAM-018", needs=STREAMS)
    async def test_several_streams_at_once(self, sandbox: AsyncSandbox) -> None:
        """Streams of one sandbox run beside each other; each gets its own output and exit code."""
        ends: dict[int, tuple[bytes, int]] = {}

        async def one(n: int) -> None:
            script = f"echo a{n}; sleep 0.5; seq {n} {n + 2000}; exit {n}"
            async with sandbox.stream(script, timeout=60) as proc:
                out, _ = await collected(proc)
                ends[n] = (out, (await proc.wait()).exit_code)

        async with anyio.create_task_group() as tasks:
            for number in range(8):
                tasks.start_soon(one, number)
        for n in range(8):
            numbers = "".join(f"{i}\n" for i in range(n, n + 2001))
            assert ends[n] == (f"a{n}\n{numbers}".encode(), n)

    @case("STREAM-019", needs=STREAMS)
    async def test_one_within_another(self, sandbox: AsyncSandbox) -> None:
        """Two streams can be read in turns, and a command run between them."""
        script = "until [ -e {0} ]; do sleep 0.1; done; cat {0}"
        async with (
            sandbox.stream(script.format("one"), timeout=40) as first,
            sandbox.stream(script.format("two"), timeout=40) as second,
        ):
            await self.sh(sandbox, "echo 2 >t; mv t two")
            assert (await collected(second))[0] == b"2\n"
            assert first.returncode is None
            await self.sh(sandbox, "echo 1 >t; mv t one")
            assert (await collected(first))[0] == b"1\n"

    @case("STREAM-020", needs=STREAMS)
    async def test_signals_in_streams(self, sandbox: AsyncSandbox) -> None:
        """A command that a signal ended has the exit code 128 + N."""
        for number in (9, 15):
            async with sandbox.stream(f"echo x; kill -{number} $$; sleep 5") as proc:
                assert (await collected(proc))[0] == b"x\n"
                assert (await proc.wait()).exit_code == 128 + number

    @case("STREAM-021", needs=STREAMS)
    async def test_a_process_shows_no_secret(self, create: Create) -> None:
        """The `repr` of a process tells how it is, and shows neither secrets nor variables."""
        sandbox = await create(secrets={"TOKEN": "hunter2-and-more"})
        shown: list[str] = []
        proc = sandbox.stream(["true", "hunter2-and-more"], env={"A": "open-hunter2-and-more"})
        shown += (repr(proc), str(proc))
        async with proc:
            shown.append(repr(proc))
            shown.append(repr(await proc.wait()))
        assert "hunter2" not in " ".join([*shown, repr(proc)])
