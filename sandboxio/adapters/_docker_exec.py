"""One call in a container: its output, its end, and ending it exactly."""

from __future__ import annotations

import contextlib
import secrets
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel

from sandboxio.adapters import _docker_launch as launch
from sandboxio.adapters._docker_ending import CallEnding
from sandboxio.adapters._docker_failure import failure
from sandboxio.adapters._docker_memory import out_of_memory
from sandboxio.adapters._docker_outside import look
from sandboxio.adapters._docker_stream import CLOSED, READ_BYTES, ByteStream, FrameDecoder
from sandboxio.core.driver import ExitStatus, KillReport
from sandboxio.core.errors import (
    ConnectError,
    LinkLost,
    NotADirectory,
    PathNotFound,
    SandboxError,
    SandboxGone,
)
from sandboxio.core.lifecycle import to_its_end, undone

if TYPE_CHECKING:
    from sandboxio.adapters._docker_launch import Container, ExecSpec
    from sandboxio.core.models import OutputChunk

INIT = ("/sbin/docker-init", "-s", "--")
"""The engine's own init, there in every container made with init, as a subreaper of one call."""
MARKER = "SANDBOXIO_CALL"
"""Variable that tells the wrapper of a call from those of others."""

_SIGNALLED, _KILLED = 128, 137
_CHECK_FIRST = 0.25
_CHECK_MAX = 2.0
_GAP_LOCAL, _GAP_REMOTE = 1.0, 2.0
"""Seconds of silence, twice and with the engine answering in between, that end the output of a
command which has ended while a child of its still holds the stream open."""
_LAST_SECONDS = 10.0
_LAST_BYTES = 16 * 1024 * 1024
"""What a chatty child may add after that; all buffers between a command and us hold less."""
_ENDING = 0.5
"""Seconds that an engine may need to notice that a sandbox has ended."""
_WORDS_LIMIT = 2048
_READ_AHEAD = 8 * 1024 * 1024
_ARRIVED = 0.01


async def start(container: Container, spec: ExecSpec) -> DockerExec:
    """Start a command under a wrapper of its own.

    Between asking for the start and holding its stream lies a window in which a cancelled call
    would leave a process that nobody owns: a cancellation waits there, for the grace.
    """
    marker = secrets.token_hex(16)
    environment = {**spec.env, MARKER: marker}
    wrapped = replace(spec, argv=(*INIT, *spec.argv), env=environment)
    exec_id = await launch.create(container, wrapped)
    ending = CallEnding(container, exec_id, spec.user, marker)
    channels: list[DockerExec] = []

    async def attach() -> None:
        stream, early = await launch.attach(container, exec_id)
        channels.append(DockerExec(ending, stream, early))

    try:
        await to_its_end(attach)
    except SandboxGone:
        raise
    except BaseException:
        await _abandon(ending, channels)
        raise
    return channels[0]


async def _abandon(ending: CallEnding, channels: list[DockerExec]) -> None:
    await undone(ending.end_late)
    for channel in channels:
        await undone(channel.aclose)


class DockerExec:
    """An `ExecChannel` over one raw stream."""

    def __init__(self, ending: CallEnding, stream: ByteStream, early: bytes) -> None:
        self._ending = ending
        self._container = container = ending.container
        self._exec_id = ending.exec_id
        self._stream = stream
        self._early = early
        self._reading = anyio.Lock()
        self._preface = b""
        self._decoder = FrameDecoder()
        self._chunks: deque[OutputChunk] = deque()
        self._buffered = 0
        self._first: bytes | None = None
        self._ended = False
        self._linger: _Linger | None = None
        local = container.engine.endpoint.scheme == "unix"
        self._gap = _GAP_LOCAL if local else _GAP_REMOTE
        self._interval = _CHECK_FIRST
        self._next_check = anyio.current_time() + _CHECK_FIRST
        container.channels.add(self)

    def preface(self, data: bytes) -> None:
        """Have data written to stdin before the first output is awaited."""
        self._preface = data

    async def receive(self) -> OutputChunk | None:
        if self._preface:
            data, self._preface = self._preface, b""
            await self.send(data)
        if self._chunks:
            await anyio.lowlevel.checkpoint()
        async with self._reading:
            while not self._chunks:
                data = b"" if self._ended else await self._read()
                if not data:
                    await self._finished()
                    return None
                self._keep(data)
            await self._check_first()
            if self._chunks:
                return self._next()
        return await self.receive()

    async def send(self, data: bytes) -> None:
        with contextlib.suppress(*CLOSED):
            view = memoryview(data)
            for at in range(0, len(view), READ_BYTES):
                await self._stream.send(bytes(view[at : at + READ_BYTES]))

    async def close_stdin(self) -> None:
        with contextlib.suppress(*CLOSED):
            await self._stream.send_eof()

    async def wait(self) -> ExitStatus:
        state = await self._final_state()
        code = int(state["ExitCode"])
        if not state["Pid"]:
            error = _not_started(self._first or b"")
            if isinstance(error, ConnectError):  # a sandbox that is ending starts nothing either
                await anyio.sleep(_ENDING)
            await self._require_running()
            raise error
        if code >= _SIGNALLED:
            await self._require_running()
        killed_for = None
        if code == _KILLED:
            await self._after_a_kill()
            killed_for = await out_of_memory(self._container, self._exec_id)
        cut = self._linger is not None and self._linger.cut
        return ExitStatus(code, cut=cut, failure=killed_for)

    async def kill(self) -> KillReport:
        await self.aclose()  # the engine cannot let go of a call whose output nobody takes
        return await self._ending.end()

    async def aclose(self) -> None:
        self._container.channels.discard(self)
        with contextlib.suppress(*CLOSED):
            await self._stream.aclose()

    async def read_ahead(self, limit: int) -> bool:
        """Take what has arrived for a reader that is busy elsewhere; say whether more may come."""
        if self._reading.locked():
            return False
        async with self._reading:
            while not self._ended and self._buffered < limit:
                with anyio.move_on_after(_ARRIVED) as scope:
                    data = await self._receive()
                    self._ended = not data
                    self._keep(data)
                if scope.cancelled_caught:
                    return False
        return not self._ended

    async def _relieve(self) -> None:
        """Read ahead for the other calls of the container.

        The engine reports the ends of its calls in order, and that of a call whose output nobody
        takes not at all: one slow reader would hold up every other call.
        """
        for other in tuple(self._container.channels - {self}):
            with contextlib.suppress(SandboxError):  # its own reader will meet it too
                if await other.read_ahead(_READ_AHEAD) and await other.has_ended():
                    await other.read_ahead(_READ_AHEAD + _LAST_BYTES)

    async def has_ended(self) -> bool:
        """Whether the engine lists no process of the call, whatever it says of the exec."""
        seen = await look(self._container)
        pid = int((await self._inspect())["Pid"])
        return seen is not None and not seen.below(pid)

    def _keep(self, data: bytes) -> None:
        chunks = self._decoder.feed(data)
        self._chunks.extend(chunks)
        self._buffered += sum(len(chunk.data) for chunk in chunks)

    def _next(self) -> OutputChunk:
        chunk = self._chunks.popleft()
        self._buffered -= len(chunk.data)
        return chunk

    async def _read(self) -> bytes:
        """Return bytes, or nothing at the end of output.

        A child left in the background may hold the stream open for ever, silent or not. So the
        engine is asked from time to time whether the command itself has ended; from then on
        only what is on its way already is waited for.
        """
        if self._early:
            data, self._early = self._early, b""
            return data
        while True:
            now = anyio.current_time()
            until = self._next_check if self._linger is None else now + self._gap
            with anyio.CancelScope(deadline=until):
                data = await self._receive()
                if self._linger is not None and self._linger.enough(len(data)):
                    return b""
                return data
            await self._relieve()
            running = bool((await self._inspect()).get("Running"))
            if self._linger is not None:
                if self._linger.quiet_again() and self._decoder.at_boundary:
                    return b""
            elif running:
                self._interval = min(self._interval * 2, _CHECK_MAX)
                self._next_check = anyio.current_time() + self._interval
            else:
                self._linger = _Linger()

    async def _receive(self) -> bytes:
        try:
            return await self._stream.receive(READ_BYTES)
        except anyio.EndOfStream:
            return b""
        except anyio.ClosedResourceError:  # somebody else ended the call
            self._linger = _Linger(cut=True)
            return b""
        except (anyio.BrokenResourceError, OSError) as exc:
            await self._require_running()
            raise LinkLost("The connection to the engine broke.", outcome="unknown") from exc

    async def _finished(self) -> None:
        self._ended = True
        if self._decoder.at_boundary or (self._linger is not None and self._linger.cut):
            return
        await self._require_running()
        raise LinkLost("The engine's output ended inside a frame.", outcome="unknown")

    async def _check_first(self) -> None:
        """Keep the engine's own words about a failed start from passing for output."""
        if self._first is not None or not self._chunks:
            return
        self._first = self._chunks[0].data[:_WORDS_LIMIT]
        if self._first.startswith(launch.ENGINE_WORDS) and not (await self._inspect())["Pid"]:
            self._next()

    async def _after_a_kill(self) -> None:
        """Tell a program that was killed from a sandbox that is ending and a wrapper that is gone.

        The sandbox's processes end before the engine says that it has ended: an exec that it
        still takes proves that it has not. The same exec ends what a missing wrapper let go.
        """
        try:
            await self._ending.end_survivors()
        except SandboxError:
            await anyio.sleep(_ENDING)
        await self._require_running()

    async def _final_state(self) -> dict[str, Any]:
        pause = 0.002
        while True:
            state = await self._inspect()
            if not state.get("Running") and isinstance(state.get("ExitCode"), int):
                return state
            await self._require_running()
            await anyio.sleep(pause)
            pause = min(pause * 2, 0.2)

    async def _inspect(self) -> dict[str, Any]:
        return await launch.inspect(self._container, self._exec_id)

    async def _require_running(self) -> None:
        found = await launch.describe(self._container)
        if not found.running:
            raise SandboxGone(f"The sandbox has ended ({found.status}).", outcome="unknown")


class _Linger:
    """Reading on after the command has ended: until two silences, or until it is enough."""

    def __init__(self, *, cut: bool = False) -> None:
        self._bytes = _LAST_BYTES
        self._until = anyio.current_time() + _LAST_SECONDS
        self._quiet = False
        self.cut = cut
        """Output was still coming when reading ended."""

    def enough(self, size: int) -> bool:
        self._quiet = False
        self._bytes -= size
        self.cut = self.cut or bool(
            size and (self._bytes < 0 or anyio.current_time() > self._until)
        )
        return self.cut

    def quiet_again(self) -> bool:
        before, self._quiet = self._quiet, True
        return before


def _not_started(words: bytes) -> SandboxError:
    text = words.decode("utf-8", "replace")
    if "chdir to cwd" in text and "not a directory" in text:
        return NotADirectory(
            "The working directory of the call is no directory.", outcome="not_started"
        )
    if "chdir to cwd" in text:
        return PathNotFound(
            "The working directory of the call is not in the sandbox.",
            hint="Make it with sb.files.mkdir(..., parents=True), or pass another cwd=.",
            outcome="not_started",
        )
    error = failure("call", None, text)
    error.outcome = "not_started"
    return error
