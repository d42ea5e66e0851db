"""The one sandbox handle: what is the same on every backend lives here, once."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import anyio

from sandboxio.core import requests
from sandboxio.core.errors import (
    CapabilityNotSupported,
    ExecutionTimeout,
    ResourceLimitExceeded,
    SandboxError,
    SandboxGone,
)
from sandboxio.core.files import SandboxFiles
from sandboxio.core.lifecycle import warn_orphaned, within_grace
from sandboxio.core.mapping import Deadline, DeadlinePassed
from sandboxio.core.models import Capability, ExecResult, PartialOutput
from sandboxio.core.output import OutputCapture
from sandboxio.core.process import SandboxProcess, feed
from sandboxio.core.record import redact_error

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType
    from typing import Self

    from sandboxio.core.clock import Clock
    from sandboxio.core.driver import DriverSandbox
    from sandboxio.core.models import Metrics
    from sandboxio.core.record import Recorder
    from sandboxio.core.redaction import Redactor
    from sandboxio.core.tiers import IsolationTier


class Sandbox:
    """A live sandbox; see `protocols.AsyncSandbox`.

    Example:
        async with await sandboxio.create() as sb:
            print((await sb.run_code("print('hello')")).stdout)
    """

    def __init__(
        self,
        driver: DriverSandbox,
        *,
        backend: str,
        env: Mapping[str, str],
        recorder: Recorder,
        redactor: Redactor,
        clock: Clock,
    ) -> None:
        self._driver = driver
        self._backend = backend
        self._variables = dict(env).items  # a method shows no values to vars() or repr()
        self._recorder = recorder
        self._redactor = redactor
        self._clock = clock
        self._gone = False
        self._removed = False
        self._pid = os.getpid()

    def __repr__(self) -> str:
        state = "gone" if self._gone else "running"
        flags = "|".join(flag.name or "" for flag in self.capabilities)
        return f"<Sandbox {self._backend}:{self.id} {self.isolation.value} {state} caps={flags}>"

    @property
    def id(self) -> str:
        return self._driver.id

    @property
    def capabilities(self) -> Capability:
        return self._driver.capabilities

    @property
    def isolation(self) -> IsolationTier:
        return self._driver.isolation

    @property
    def native(self) -> object:
        return self._driver.native

    @property
    def files(self) -> SandboxFiles:
        return SandboxFiles(
            self._driver, recorder=self._recorder, require=self._require, clock=self._clock
        )

    async def run(
        self,
        cmd: str | Sequence[str],
        *,
        timeout: float | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        user: str | None = None,
        stdin: bytes | str | None = None,
        max_output_bytes: int | None = None,
    ) -> ExecResult:
        data = requests.input_bytes(stdin)
        limit = requests.output_limit(max_output_bytes)
        request = self._exec_request(
            cmd, timeout, env, cwd, user, stdin=data is not None, limit=limit
        )
        process = SandboxProcess(
            lambda: self._driver.start(request),
            timeout=request.timeout,
            stdin=data is not None,
            operation=self._recorder.operation("exec", argv=request.argv),
            give_up=self._let_go,
            redact=self._redact,
            clock=self._clock,
        )
        return await self._collect(process, data, limit)

    async def run_code(
        self,
        code: str,
        *,
        language: str = "python",
        context_id: str | None = None,
        timeout: float | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        max_output_bytes: int | None = None,
    ) -> ExecResult:
        self._require(Capability.RUN_CODE)
        if context_id is not None:
            self._require(Capability.STATEFUL_CODE)
        request = requests.CodeRequest.build(
            code,
            language=language,
            context_id=context_id,
            timeout=requests.call_timeout(timeout, self._driver.timeout),
            env=self._environment(env),
            cwd=cwd,
            max_output_bytes=requests.output_limit(max_output_bytes),
        )
        process = SandboxProcess(
            lambda: self._driver.start_code(request),
            timeout=request.timeout,
            stdin=False,
            operation=self._recorder.operation("run_code", code=request.code),
            give_up=self._let_go,
            redact=self._redact,
            clock=self._clock,
        )
        return await self._collect(process, None, request.max_output_bytes)

    def stream(
        self,
        cmd: str | Sequence[str],
        *,
        timeout: float | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        user: str | None = None,
        stdin: bool = False,
    ) -> SandboxProcess:
        self._require(Capability.STREAMING)
        request = self._exec_request(cmd, timeout, env, cwd, user, stdin=stdin)
        return SandboxProcess(
            lambda: self._driver.start(request),
            timeout=request.timeout,
            stdin=stdin,
            operation=self._recorder.operation("stream", argv=request.argv),
            give_up=self._let_go,
            redact=self._redact,
            clock=self._clock,
        )

    async def metrics(self) -> Metrics:
        self._require_alive()
        timeout = self._driver.timeout
        with self._recorder.operation("metrics"):
            try:
                return await Deadline(timeout, self._clock).bound(self._driver.metrics)
            except DeadlinePassed:
                raise ExecutionTimeout(f"There were no metrics within {timeout:g} s.") from None

    async def kill(self) -> None:
        with self._recorder.operation("kill") as record:
            await self._remove()
            if not self._removed:
                record.outcome = "error"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        if self._pid != os.getpid():  # a forked child leaves its parent's block
            return
        try:
            await self.kill()
        except SandboxError:
            warn_orphaned(self._backend, self.id, self._driver.metadata)
            if exc is None:
                raise

    def _exec_request(
        self,
        cmd: str | Sequence[str],
        timeout: float | None,
        env: Mapping[str, str] | None,
        cwd: str | None,
        user: str | None,
        *,
        stdin: bool,
        limit: int | None = None,
    ) -> requests.ExecRequest:
        self._require(Capability.RUN_COMMAND)
        if stdin:
            self._require(Capability.STDIN)
        return requests.ExecRequest.build(
            cmd,
            timeout=requests.call_timeout(timeout, self._driver.timeout),
            env=self._environment(env),
            cwd=cwd,
            user=user,
            stdin=stdin,
            max_output_bytes=limit,
        )

    def _environment(self, env: Mapping[str, str] | None) -> dict[str, str]:
        return {**dict(self._variables()), **requests.environment("env", env)}

    async def _collect(self, process: SandboxProcess, data: bytes | None, limit: int) -> ExecResult:
        capture = OutputCapture(limit)
        error: SandboxError | None = None
        async with process:
            if data is None:
                error = await self._drain(process, capture)
            else:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(feed, process, data)
                    error = await self._drain(process, capture)
                    tasks.cancel_scope.cancel()
            if error is not None:
                raise error
            end = await process.wait()
        return ExecResult(
            exit_code=end.exit_code,
            stdout=capture.stdout.text(),
            stderr=capture.stderr.text(),
            results=end.results,
            stdout_bytes=end.stdout_bytes,
            stderr_bytes=end.stderr_bytes,
            stdout_truncated=capture.stdout.truncated or end.stdout_truncated,
            stderr_truncated=capture.stderr.truncated or end.stderr_truncated,
            duration_ms=end.duration_ms,
        )

    async def _drain(self, process: SandboxProcess, capture: OutputCapture) -> SandboxError | None:
        """Read all output; an error is returned, so that no task group wraps it."""
        try:
            async for chunk in process:
                capture.add(chunk)
        except (ExecutionTimeout, ResourceLimitExceeded) as exc:
            exc.partial = self._partial(capture)
            return exc
        except SandboxError as exc:
            return exc
        return None

    def _partial(self, capture: OutputCapture) -> PartialOutput:
        return PartialOutput(
            stdout=self._redactor.redact_halves(*capture.stdout.halves()),
            stderr=self._redactor.redact_halves(*capture.stderr.halves()),
            stdout_truncated=capture.stdout.truncated,
            stderr_truncated=capture.stderr.truncated,
        )

    def _require_alive(self) -> None:
        if self._gone:
            raise SandboxGone("This sandbox has been removed.", outcome="not_started")

    def _require(self, capability: Capability) -> None:
        self._require_alive()
        if capability not in self.capabilities:
            reason = self._driver.explain(capability)
            raise CapabilityNotSupported(
                f"This {self._backend} sandbox does not support {capability.name}."
                + (f" {reason}" if reason else ""),
                hint=f"It declares: {', '.join(f.name or '' for f in self.capabilities)}.",
            )

    def _redact(self, error: SandboxError) -> None:
        if isinstance(error, SandboxGone):
            self._gone = True  # for its users; what is left of it is still to be removed
        redact_error(error, self._redactor)

    async def _let_go(self) -> None:
        """Remove the sandbox because a call in it cannot be ended; the call's error goes first."""
        try:
            await self._remove()
        except SandboxError:
            warn_orphaned(self._backend, self.id, self._driver.metadata)

    async def _remove(self) -> None:
        """Remove the sandbox, shielded and bounded; warn when that could not be finished."""
        if self._removed:
            return
        if await within_grace(self._driver.remove, self._clock):
            self._gone = self._removed = True
        else:
            warn_orphaned(self._backend, self.id, self._driver.metadata)
