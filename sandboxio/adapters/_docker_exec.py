"""One exec of a container: its output, its end, and ending it exactly."""

from __future__ import annotations

import contextlib
import secrets
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import anyio

from sandboxio.adapters._docker_answers import ContainerDescription
from sandboxio.adapters._docker_failure import failure
from sandboxio.adapters._docker_stream import READ_BYTES, ByteStream, FrameDecoder
from sandboxio.core.driver import ExitStatus, KillReport
from sandboxio.core.errors import (
    ConfigurationError,
    ExecutionError,
    LinkLost,
    PathNotFound,
    SandboxError,
    SandboxGone,
)
from sandboxio.core.lifecycle import teardown_grace
from sandboxio.guest import shell_kill

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from sandboxio.adapters._docker_engine import Engine
    from sandboxio.core.models import OutputChunk

INIT = ("/sbin/docker-init", "-s", "--")
"""The engine's own init, there in every container made with init, as a subreaper of one call."""
MARKER = "SANDBOXIO_CALL"
"""Variable that tells the wrapper of a call from those of others."""

_CLOSED = (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError)
_SIGNALLED, _KILLED = 128, 137
_CHECK_FIRST = 0.25
_CHECK_MAX = 2.0
_LAST_WORDS = 0.3
"""Seconds of waiting, in all, for output of a command that has ended."""
_LAST_BYTES = 16 * 1024 * 1024
"""More than all buffers between a command and us can hold."""
_ENGINE_WORDS = (b"OCI runtime exec failed", b"cannot exec in a ")
"""How the engine begins when it reports, on the stdout of a call, that it did not start it."""
_ENGINE_CODES = (126, 127, 128)
_WORDS_LIMIT = 2048
_ENDING = 0.5
"""Seconds that an engine may need to notice that a sandbox has ended."""
_SETTLE_PAUSES = (0.0, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2)
_KILL_PAUSES = (0.1, 0.2, 0.4)
_KILL_HEADROOM = 64
"""Processes a container is allowed beyond its limit while one of its calls is being ended."""


@dataclass(frozen=True)
class ExecSpec:
    """What an exec needs to know."""

    argv: tuple[str, ...]
    user: str
    cwd: str
    env: Mapping[str, str] = field(repr=False)
    stdin: bool = False


@dataclass
class Container:
    """The container an exec runs in."""

    engine: Engine
    id: str
    pids_limit: int
    sweeps: int = 0
    """How often everything of a user had to be ended, innocent calls included."""


async def start(container: Container, spec: ExecSpec) -> DockerExec:
    """Start a command under a wrapper of its own."""
    marker = secrets.token_hex(16)
    wrapped = ExecSpec(
        (*INIT, *spec.argv), spec.user, spec.cwd, {**spec.env, MARKER: marker}, spec.stdin
    )
    exec_id = await _create(container, wrapped)
    # Between asking for the start and holding its stream lies a window in which a cancelled
    # call would leave a process that nobody owns: shielded, and bounded.
    started: list[tuple[ByteStream, bytes]] = []
    with anyio.move_on_after(teardown_grace(), shield=True):
        started.append(await _attach(container, exec_id))
    if not started:
        await _end(container, spec.user, shell_kill.END_CALL, marker)
        raise LinkLost("The engine did not start the command in time.", outcome="unknown")
    return DockerExec(container, exec_id, spec.user, marker, *started[0])


async def _create(container: Container, spec: ExecSpec) -> str:
    def create(client: Any) -> str:
        made = client.exec_create(
            container.id,
            list(spec.argv),
            stdout=True,
            stderr=True,
            stdin=spec.stdin,
            tty=False,
            user=spec.user,
            workdir=spec.cwd,
            environment=[f"{name}={value}" for name, value in spec.env.items()],
        )
        return str(made["Id"])

    return await container.engine.call("call", create)


async def _attach(container: Container, exec_id: str) -> tuple[ByteStream, bytes]:
    body = {"Detach": False, "Tty": False}
    return await container.engine.stream("call", f"/exec/{quote(exec_id)}/start", body)


class DockerExec:
    """An `ExecChannel` over one raw stream."""

    def __init__(
        self,
        container: Container,
        exec_id: str,
        user: str,
        marker: str,
        stream: ByteStream,
        early: bytes,
    ) -> None:
        self._container = container
        self._exec_id = exec_id
        self._user = user
        self._marker = marker
        self._stream = stream
        self._decoder = FrameDecoder()
        self._chunks: deque[OutputChunk] = deque(self._decoder.feed(early))
        self._received = False
        self._first = b""
        self._suspect: OutputChunk | None = None
        self._ended = False
        self._sweeps = container.sweeps
        self._preface = b""
        self._over = False
        """The command has ended; its output may not have arrived whole."""
        self._patience = _LAST_WORDS
        self._allowance = _LAST_BYTES
        self._interval = _CHECK_FIRST
        self._next_check = anyio.current_time() + _CHECK_FIRST

    def preface(self, data: bytes) -> None:
        """Have data written to stdin before the first output is awaited."""
        self._preface = data

    async def receive(self) -> OutputChunk | None:
        if self._preface:
            data, self._preface = self._preface, b""
            await self.send(data)
        while not self._chunks:
            data = b"" if self._ended else await self._read()
            if not data:
                self._ended = True
                return await self._last()
            self._chunks.extend(self._decoder.feed(data))
        chunk = self._chunks.popleft()
        if not self._received:
            self._received = True
            self._first = chunk.data[:_WORDS_LIMIT]
            if chunk.stream == "stdout" and chunk.data.startswith(_ENGINE_WORDS):
                self._suspect = chunk
                return await self.receive()
        elif self._suspect is not None:
            self._chunks.appendleft(chunk)
            chunk, self._suspect = self._suspect, None
        return chunk

    async def send(self, data: bytes) -> None:
        with contextlib.suppress(*_CLOSED):
            view = memoryview(data)
            for start in range(0, len(view), READ_BYTES):
                await self._stream.send(bytes(view[start : start + READ_BYTES]))

    async def close_stdin(self) -> None:
        with contextlib.suppress(*_CLOSED):
            await self._stream.send_eof()

    async def wait(self) -> ExitStatus:
        code = await self._exit_code()
        if code in _ENGINE_CODES and not (await self._inspect()).get("Pid"):
            raise _not_started(self._first)
        if code >= _SIGNALLED:
            await self._require_running()
        if code == _KILLED:
            await self._after_a_kill()
        return ExitStatus(code)

    async def _after_a_kill(self) -> None:
        """Tell a program that was killed from a sandbox that is ending and a wrapper that is gone.

        The sandbox's processes end before the engine says that it has ended: an exec that it
        still takes proves that it has not. The same exec ends what a missing wrapper let go.
        """
        try:
            await _end(self._container, self._user, shell_kill.END_CALL, self._marker)
        except SandboxError:
            await anyio.sleep(_ENDING)
        await self._require_running()
        if self._container.sweeps != self._sweeps:
            raise ExecutionError(
                "The call was ended together with another one that could not be ended alone.",
                hint="Look at what it left behind, then repeat the call.",
            )

    async def kill(self) -> KillReport:
        """End the call's tree; when its wrapper was tampered with, everything of its user."""
        await self.aclose()  # the engine cannot let go of a call whose output nobody takes
        outcome = shell_kill.Ending.ABSENT
        state: dict[str, Any] | None = None
        for pause in _KILL_PAUSES:
            outcome = await _end(self._container, self._user, shell_kill.END_CALL, self._marker)
            state = await self._settled()
            if state is not None or outcome is not shell_kill.Ending.ABSENT:
                break
            await anyio.sleep(pause)  # the engine has not come to starting it yet
        if state is not None and (
            outcome is shell_kill.Ending.ENDED or state.get("ExitCode") != _KILLED
        ):
            return KillReport(complete=True)
        self._container.sweeps += 1
        outcome = await _end(self._container, self._user, shell_kill.END_ALL)
        complete = outcome is shell_kill.Ending.ENDED and await self._settled() is not None
        return KillReport(complete=complete, collateral=True)

    async def aclose(self) -> None:
        with contextlib.suppress(*_CLOSED):
            await self._stream.aclose()

    async def _read(self) -> bytes:
        """Return bytes, or nothing at the end of output.

        A child left in the background may hold the stream open for ever, silent or not. So the
        engine is asked from time to time whether the command itself has ended; from then on
        only what is on its way already is waited for.
        """
        while True:
            before = anyio.current_time()
            until = before + self._patience if self._over else self._next_check
            with anyio.CancelScope(deadline=until):
                data = await self._receive()
                return data if self._accept(data, anyio.current_time() - before) else b""
            if self._over:
                return b""
            await self._check()

    def _accept(self, data: bytes, waited: float) -> bool:
        if self._over:
            self._patience -= waited
            self._allowance -= len(data)
        return self._allowance > 0

    async def _check(self) -> None:
        self._over = not (await self._inspect()).get("Running")
        self._interval = min(self._interval * 2, _CHECK_MAX)
        self._next_check = anyio.current_time() + self._interval

    async def _receive(self) -> bytes:
        try:
            return await self._stream.receive(READ_BYTES)
        except anyio.EndOfStream:
            return b""
        except anyio.ClosedResourceError:  # somebody else ended the call
            self._over = True
            return b""
        except anyio.BusyResourceError as exc:
            raise ConfigurationError(
                "Two tasks read the output of one process.", hint="Read it in one task."
            ) from exc
        except (anyio.BrokenResourceError, OSError) as exc:
            await self._require_running()
            raise LinkLost("The connection to the engine broke.", outcome="unknown") from exc

    async def _last(self) -> OutputChunk | None:
        if not self._over and not self._decoder.at_boundary:
            await self._require_running()
            raise LinkLost("The engine's output ended inside a frame.", outcome="unknown")
        if self._suspect is None:
            return None
        chunk, self._suspect = self._suspect, None
        await self._exit_code()
        if not (await self._inspect()).get("Pid"):
            return None  # wait() says it
        return chunk

    async def _exit_code(self) -> int:
        pause = 0.002
        while True:
            state = await self._inspect()
            code = state.get("ExitCode")
            if not state.get("Running") and isinstance(code, int):
                return code
            await self._require_running()
            await anyio.sleep(pause)
            pause = min(pause * 2, 0.2)

    async def _settled(self) -> dict[str, Any] | None:
        """Return the state of the exec once it has ended, or nothing if it does not."""
        for pause in _SETTLE_PAUSES:
            await anyio.sleep(pause)
            state = await self._inspect(urgent=True)
            if not state.get("Running"):
                return state
        return None

    async def _inspect(self, *, urgent: bool = False) -> dict[str, Any]:
        state: dict[str, Any] = await self._container.engine.call(
            "call", lambda client: client.exec_inspect(self._exec_id), urgent=urgent
        )
        return state

    async def _require_running(self) -> None:
        found = await self._container.engine.call(
            "call",
            lambda client: ContainerDescription(client.inspect_container(self._container.id)),
        )
        if not found.running:
            raise SandboxGone(f"The sandbox has ended ({found.status}).", outcome="unknown")


def _not_started(words: bytes) -> SandboxError:
    text = words.decode("utf-8", "replace")
    if "chdir to cwd" in text:
        return PathNotFound(
            "The working directory of the call is not in the sandbox, or is no directory.",
            hint="Make it with sb.files.mkdir(..., parents=True), or pass another cwd=.",
            outcome="not_started",
        )
    return failure("call", None, text)


async def _end(container: Container, user: str, script: str, *words: str) -> shell_kill.Ending:
    """Run one of the ending scripts as the user of the call, which alone may signal it."""
    try:
        return await _run_ending(container, user, script, *words)
    except SandboxGone:
        raise
    except SandboxError:
        pass
    # Most likely the call has used up the processes the container may have.
    async with _headroom(container):
        return await _run_ending(container, user, script, *words)


async def _run_ending(
    container: Container, user: str, script: str, *words: str
) -> shell_kill.Ending:
    spec = ExecSpec(("/bin/sh", "-c", script, "sh", *words), user, "/", {})
    exec_id = await _create(container, spec)
    stream, early = await _attach(container, exec_id)
    decoder, said = FrameDecoder(), b""
    try:
        data = early
        while len(said) < 4096:
            said += b"".join(c.data for c in decoder.feed(data) if c.stream == "stdout")
            data = await stream.receive(READ_BYTES)
    except anyio.EndOfStream:
        pass
    finally:
        with (
            anyio.CancelScope(shield=True),
            contextlib.suppress(OSError, anyio.BrokenResourceError),
        ):
            await stream.aclose()
    if said.startswith(_ENGINE_WORDS):
        raise failure("call", None, said.decode("utf-8", "replace"))
    return shell_kill.parse(said)


@contextlib.asynccontextmanager
async def _headroom(container: Container) -> AsyncGenerator[None]:
    def limit(client: Any, pids: int) -> None:
        url = f"{client.base_url}/v{client.api_version}/containers/{container.id}/update"
        client.post(url, json={"PidsLimit": pids}).raise_for_status()

    high = container.pids_limit + _KILL_HEADROOM
    await container.engine.call("call", lambda client: limit(client, high), urgent=True)
    try:
        yield
    finally:
        with anyio.CancelScope(shield=True):
            low = container.pids_limit
            await container.engine.call("call", lambda client: limit(client, low), urgent=True)
