"""The one running call: what `stream()` returns and what `run()` is made of."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

import anyio

from sandboxio.core.driver import KillReport
from sandboxio.core.errors import (
    CapabilityNotSupported,
    ConfigurationError,
    ExecutionTimeout,
    SandboxError,
    SandboxGone,
)
from sandboxio.core.lifecycle import undone, within_grace
from sandboxio.core.mapping import Deadline, DeadlinePassed
from sandboxio.core.models import ExecResult
from sandboxio.core.requests import input_bytes

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from contextlib import AbstractContextManager
    from types import TracebackType
    from typing import Self

    from sandboxio.core.clock import Clock
    from sandboxio.core.driver import ExecChannel, ExitStatus
    from sandboxio.core.models import OutputChunk
    from sandboxio.core.record import OperationRecord

T = TypeVar("T")
_KILLED = 137


class SandboxProcess:
    """A command of a sandbox; starts on `async with` and never outlives it."""

    def __init__(
        self,
        start: Callable[[], Awaitable[ExecChannel]],
        *,
        timeout: float,
        stdin: bool,
        operation: AbstractContextManager[OperationRecord],
        give_up: Callable[[], Awaitable[None]],
        redact: Callable[[SandboxError], None],
        clock: Clock,
    ) -> None:
        self._start = start
        self._timeout = timeout
        self._stdin = stdin
        self._operation = operation
        self._give_up = give_up
        self._redact = redact
        self._clock = clock
        self._entered = False
        self._channel: ExecChannel | None = None
        self._record: OperationRecord | None = None
        self._deadline: Deadline | None = None
        self._drained = False
        self._reading = anyio.Lock(fast_acquire=True)
        self._sending = anyio.Lock(fast_acquire=True)
        self._ending = anyio.Lock()
        self._sends = set[anyio.CancelScope]()
        self._over = anyio.Event()
        self._reader: int | None = None
        self._duration_ms = 0
        self._killed: KillReport | None = None
        self._failure: SandboxError | None = None
        self._status: ExitStatus | None = None
        self._bytes = {"stdout": 0, "stderr": 0}
        self._started = 0.0

    def __repr__(self) -> str:
        if self.returncode is not None:
            return f"<Process ended with {self.returncode}>"
        return f"<Process {'not started' if self._channel is None else 'running'}>"

    async def __aenter__(self) -> Self:
        if self._entered:
            raise ConfigurationError(
                "A process can be entered once.", hint="Call sb.stream() again for another run."
            )
        self._entered = True
        self._started = self._clock.time()
        self._deadline = Deadline(self._timeout, self._clock)
        self._record = self._operation.__enter__()
        try:
            self._channel = await self._bounded(self._start)
        except BaseException as exc:
            self._operation.__exit__(type(exc), exc, exc.__traceback__)
            raise
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        try:
            await self._leave()
        finally:
            if self._record is not None:
                self._complete(self._record)
            self._operation.__exit__(exc_type, exc, tb)

    def _complete(self, record: OperationRecord) -> None:
        record.bytes_out = sum(self._bytes.values())
        if self._failure is not None:
            record.fail(self._failure)
        elif self._killed is not None:
            record.outcome = "killed"

    async def _leave(self) -> None:
        try:
            await self._end()
        finally:
            channel, self._channel = self._channel, None
            released = self._status is not None and self._status.released
            if channel is not None and not released:
                with suppress(SandboxError):
                    await within_grace(channel.aclose, self._clock)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> OutputChunk:
        self._reader = _this_task()
        chunk = await self._next()
        if chunk is None:
            raise StopAsyncIteration
        return chunk

    async def write(self, data: bytes | str) -> None:
        channel = self._live()
        if not self._stdin:
            raise CapabilityNotSupported(
                "stdin of this process is at end of file.",
                hint="Pass stdin=True to sb.stream().",
            )
        if not isinstance(data, bytes | str):
            raise ConfigurationError(f"data must be bytes or text, not {type(data).__name__}.")
        payload = input_bytes(data) or b""

        await self._bounded(lambda: self._send(channel, payload))
        if self._record is not None:
            self._record.bytes_in += len(payload)

    async def close_stdin(self) -> None:
        await self._bounded(self._live().close_stdin)

    async def wait(self) -> ExecResult:
        if self._reader not in (None, _this_task()):
            await self._bounded(self._over.wait)  # that task reads; nothing is taken from it
        while await self._next() is not None:
            pass
        return self._result()

    async def kill(self) -> None:
        await self._end()

    @property
    def returncode(self) -> int | None:
        if self._status is not None:
            return self._status.exit_code
        return None if self._killed is None else _KILLED

    def _live(self) -> ExecChannel:
        if self._channel is None:
            raise ConfigurationError(
                "The process is not running.",
                hint="Use it inside: async with sb.stream(...) as proc:",
            )
        return self._channel

    async def _next(self) -> OutputChunk | None:
        if self._failure is not None:
            raise self._failure
        if self._drained:
            return None
        channel = self._live()
        return await self._bounded(lambda: self._receive(channel))

    async def _send(self, channel: ExecChannel, data: bytes) -> None:
        """Send, but no longer than there is a command that may read it."""
        if self._failure is not None:
            raise self._failure
        if self._over.is_set():
            return
        with anyio.CancelScope() as scope:
            self._sends.add(scope)
            try:
                async with self._sending:
                    await channel.send(data)
            finally:
                self._sends.discard(scope)

    def _stop(self) -> None:
        """Let whoever waits for the end of the command know of it."""
        self._over.set()
        for scope in self._sends:
            scope.cancel()

    async def _receive(self, channel: ExecChannel) -> OutputChunk | None:
        async with self._reading:
            if self._drained:
                return None
            chunk = await channel.receive()
            if chunk is None:
                status = await channel.wait()
                self._finish(status)
                if status.failure is not None:
                    raise status.failure
            else:
                self._bytes[chunk.stream] += len(chunk.data)
            return chunk

    def _finish(self, status: ExitStatus) -> None:
        self._status = status
        self._drained = True
        self._duration_ms = self._elapsed()
        self._stop()
        if self._record is not None:
            self._record.exit_code = status.exit_code

    def _elapsed(self) -> int:
        return round((self._clock.time() - self._started) * 1000)

    def _result(self) -> ExecResult:
        return ExecResult(
            exit_code=_KILLED if self._status is None else self._status.exit_code,
            stdout="",
            stderr="",
            results=None if self._status is None else self._status.results,
            streamed=True,
            stdout_truncated=self._status is not None and self._status.cut,
            stderr_truncated=self._status is not None and self._status.cut,
            stdout_bytes=self._bytes["stdout"],
            stderr_bytes=self._bytes["stderr"],
            duration_ms=self._duration_ms,
        )

    async def _bounded(self, action: Callable[[], Awaitable[T]]) -> T:
        """Await an action under the call's deadline; the first failure is the call's own."""
        if self._deadline is None:
            raise ConfigurationError("The process is not running.")
        try:
            return await self._deadline.bound(action)
        except SandboxError as exc:
            self._redact(exc)
            self._fail(exc)
            raise
        except DeadlinePassed:
            pass
        report = await self._end()
        raise self._fail(_timed_out(self._timeout, report))

    def _fail(self, error: SandboxError) -> SandboxError:
        """Remember how the call failed first; that is what everybody gets to hear."""
        self._failure = self._failure or error
        self._over.set()
        return self._failure

    async def _end(self) -> KillReport | None:
        """End the call unless it has ended; what cannot be ended takes the sandbox with it."""
        if self._channel is None or self._status is not None:
            return self._killed
        with anyio.CancelScope(shield=True):  # as long as whoever ends it already may take
            await self._ending.acquire()
        try:
            if self._killed is None:
                self._killed = await self._kill(self._channel)
                self._duration_ms = self._elapsed()
                self._stop()
        finally:
            self._ending.release()
        return self._killed

    async def _kill(self, channel: ExecChannel) -> KillReport:
        self._drained = True
        if isinstance(self._failure, SandboxGone):
            return KillReport(complete=False)
        reports: list[KillReport] = []

        async def kill() -> None:
            reports.append(await channel.kill())

        try:
            await undone(kill, self._clock)
        finally:
            if not (reports and reports[0].complete):
                await self._give_up()
        return reports[0] if reports else KillReport(complete=False)


def _timed_out(seconds: float, report: KillReport | None) -> ExecutionTimeout:
    how = "and was ended"
    if report is not None and not report.complete:
        how = "and could not be ended for certain, so that the sandbox was removed"
    return ExecutionTimeout(
        f"The call did not end within {seconds:g} s {how}.",
        collateral=report is not None and (report.collateral or not report.complete),
    )


def _this_task() -> int:
    return anyio.get_current_task().id


async def feed(process: SandboxProcess, data: bytes) -> None:
    """Write all of `data` to a process and close its stdin, beside whoever reads its output.

    A failure shows on the reading side too, which is where it is reported.
    """
    try:
        if data:
            await process.write(data)
        await process.close_stdin()
    except SandboxError:
        return
