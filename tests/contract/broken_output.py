"""Faults of commands: what they are given, what they write, how they end."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from sandboxio.core.models import OutputChunk
from tests.contract.around import ChannelAround, HandleAround, SandboxAround

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sandboxio.core.driver import ExecChannel, ExitStatus
    from sandboxio.core.models import ExecResult, StreamName
    from sandboxio.core.requests import CodeRequest, ExecRequest

MUCH = 100_000
"""Bytes of output after which some faults show."""
USUAL = {"HOME", "PATH", "USER", "LOGNAME"}
"""Variables that every command has."""


class LosesTheLastByte(ChannelAround):
    """The last byte of a long output is lost."""

    seen = 0
    held = b""

    async def receive(self) -> OutputChunk | None:
        chunk = await self.inner.receive()
        if chunk is None or self.is_stream or chunk.stream == "stderr":
            return chunk
        self.seen += len(chunk.data)
        if self.seen <= MUCH:
            return chunk
        data = self.held + chunk.data
        self.held = data[-1:]
        return OutputChunk("stdout", data[:-1]) if data[:-1] else await self.receive()


class SwapsTheStreams(ChannelAround):
    """What a streamed command writes to stdout arrives as stderr, and the reverse."""

    async def receive(self) -> OutputChunk | None:
        chunk = await self.inner.receive()
        if chunk is None or not self.is_stream:
            return chunk
        other: StreamName = "stdout" if chunk.stream == "stderr" else "stderr"
        return replace(chunk, stream=other)


class MergesTheStreams(ChannelAround):
    """What a command writes to stderr is part of its stdout."""

    async def receive(self) -> OutputChunk | None:
        chunk = await self.inner.receive()
        apart = self.is_code or self.is_stream
        return chunk if chunk is None or apart else replace(chunk, stream="stdout")


class HidesTheExitCode(ChannelAround):
    """Code ends with 0, whatever it ends with."""

    async def wait(self) -> ExitStatus:
        status = await self.inner.wait()
        return replace(status, exit_code=0) if self.is_code else status


class HidesTheSignal(ChannelAround):
    """A command that a signal ended has the exit code 0."""

    async def wait(self) -> ExitStatus:
        status = await self.inner.wait()
        return replace(status, exit_code=0) if status.exit_code > 128 else status


class TranslatesLineEnds(ChannelAround):
    """Line ends of Windows arrive as those of Unix."""

    async def receive(self) -> OutputChunk | None:
        chunk = await self.inner.receive()
        return chunk and replace(chunk, data=chunk.data.replace(b"\r\n", b"\n"))


class StumblesOverBytes(HandleAround):
    """Output that is not UTF-8 raises what Python raises of it."""

    async def ran(self, act: Callable[[], Awaitable[ExecResult]]) -> ExecResult:
        done = await act()
        done.stdout.replace("\ufffd", "\udcff").encode()
        return done


class HidesWhatWasCut(HandleAround):
    """Output that was cut passes for whole."""

    async def ran(self, act: Callable[[], Awaitable[ExecResult]]) -> ExecResult:
        return replace(await act(), stdout_truncated=False, stderr_truncated=False)


class RunsAgain(HandleAround):
    """A command that failed is run once more."""

    async def ran(self, act: Callable[[], Awaitable[ExecResult]]) -> ExecResult:
        done = await act()
        return done if done.ok else await act()


class LetsAShellReadLists(SandboxAround):
    """A list of words is joined to a line that a shell reads."""

    async def start(self, request: ExecRequest) -> ExecChannel:
        cmd = request.cmd if isinstance(request.cmd, str) else " ".join(request.cmd)
        return await super().start(replace(request, cmd=cmd))


class LeaksTheHost(SandboxAround):
    """A command sees the host's environment besides its own."""

    async def start(self, request: ExecRequest) -> ExecChannel:
        host = {name: value for name, value in os.environ.items() if name not in USUAL}
        return await super().start(replace(request, env={**host, **request.env}))


class RemembersNames(SandboxAround):
    """Names that code sets are known to the code that comes after it."""

    known = ""

    async def start_code(self, request: CodeRequest) -> ExecChannel:
        before, names = self.known, re.findall(r"^\w+ = \w+$", request.code, re.MULTILINE)
        self.known = "".join(f"{name}; " for name in names)
        return await super().start_code(replace(request, code=before + request.code))


class NeverEndsInput(ChannelAround):
    """stdin of a stream stays open when it is closed."""

    async def close_stdin(self) -> None:
        if not self.is_stream:
            await self.inner.close_stdin()


class DropsInput(ChannelAround):
    """Input that `run()` is given is declared, taken and thrown away."""

    async def send(self, data: bytes) -> None:
        if self.is_stream:
            await self.inner.send(data)
