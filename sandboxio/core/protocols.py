"""The public ports: what users hold, and what a third party may implement.

Structural, so that an implementation needs no base class. Type checking is necessary and not
sufficient: the contract suite is what proves an implementation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence
    from types import TracebackType
    from typing import Self

    from sandboxio.core.file_protocols import AsyncFileSystem
    from sandboxio.core.models import (
        Capability,
        ExecResult,
        ManagedSandbox,
        Metrics,
        NetworkPolicy,
        OutputChunk,
        Resources,
    )
    from sandboxio.core.tiers import IsolationTier


@runtime_checkable
class Process(Protocol):
    """A command started by `stream()`; starts on `async with`, ends at its exit.

    Iterate to receive output as it is written. Order is kept within stdout and within stderr,
    not between them. A full reader is waited for: output is never dropped.

    Example:
        async with sb.stream(["pytest", "-q"], timeout=300) as proc:
            async for chunk in proc:
                log.write(chunk.data)
            result = await proc.wait()
    """

    async def __aenter__(self) -> Self: ...
    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        """End the command if it still runs, whatever the reason for leaving."""
        ...

    def __aiter__(self) -> AsyncIterator[OutputChunk]:
        """Yield output; raises `ExecutionTimeout` at the deadline, `SandboxGone`, `LinkLost`."""
        ...

    async def write(self, data: bytes | str) -> None:
        """Send bytes (text as UTF-8) to stdin; needs `stream(stdin=True)`.

        Waits for a slow reader. What a command that ends has not read is lost, silently.
        """
        ...

    async def close_stdin(self) -> None:
        """Let the command read end of file."""
        ...

    async def wait(self) -> ExecResult:
        """Return the end of the command, discarding output not yet read.

        May be called again. Texts are empty and `streamed` is True. While another task iterates
        nothing is taken from it: this waits for the end that it finds. After `kill()` the exit
        code is 137.

        Raises:
            ExecutionTimeout: the time was over, reading included.
            SandboxGone, LinkLost: as `run()`.
        """
        ...

    async def kill(self) -> None:
        """End the command and every process it started; silent when it has ended.

        What cannot be ended for certain within the teardown grace (`SBX_TEARDOWN_GRACE`,
        5 seconds) takes the sandbox with it.
        """
        ...

    @property
    def returncode(self) -> int | None:
        """Exit code, or `None` while the command runs."""
        ...


@runtime_checkable
class AsyncSandbox(Protocol):
    """A live sandbox. Leave its `async with` block and it is gone.

    Example:
        async with await sandboxio.create() as sb:
            print((await sb.run(["id", "-un"])).stdout)
    """

    @property
    def id(self) -> str:
        """Unique within its backend."""
        ...

    @property
    def capabilities(self) -> Capability:
        """What this sandbox can do."""
        ...

    @property
    def isolation(self) -> IsolationTier:
        """The verified tier of this sandbox."""
        ...

    @property
    def files(self) -> AsyncFileSystem:
        """Its file system; where there is none, every use raises `CapabilityNotSupported`."""
        ...

    @property
    def native(self) -> object:
        """The provider's own object, outside the stability contract."""
        ...

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
        """Run a command to its end.

        A list reaches the program untouched; a string is read by one `sh -c`. stdin is at end of
        file unless given. `timeout` is in seconds, `None` inherits the sandbox's. `user` is a
        name, `"uid"` or `"uid:gid"` of the sandbox; `None` is its own user. Output beyond
        `max_output_bytes` per stream (`None`: 10 MiB) loses its middle and is marked so.

        Raises:
            ExecutionTimeout: the time was over; the command and all it started were ended.
            SandboxGone: the sandbox no longer exists.
            LinkLost: the connection broke; whether the command ended is unknown.
            ConfigurationError, CapabilityNotSupported: refused, nothing was run.
        """
        ...

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
        """Run source code in a fresh interpreter; errors as `run()`.

        The code is in no argument list and no file. `context_id` keeps state between calls and
        needs `Capability.STATEFUL_CODE`.
        """
        ...

    def stream(
        self,
        cmd: str | Sequence[str],
        *,
        timeout: float | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        user: str | None = None,
        stdin: bool = False,
    ) -> Process:
        """Return a command to be started by `async with`; nothing to await here.

        Arguments as `run()`. `timeout` bounds the whole of it, the reader's own time included.
        `stdin=True` keeps stdin open for `write()`; otherwise it is at end of file.

        Raises:
            CapabilityNotSupported, ConfigurationError: refused, at once.
        """
        ...

    async def metrics(self) -> Metrics:
        """Say what the sandbox uses now: CPU time, memory, processes.

        Example:
            used = await sb.metrics()
            print(f"{used.cpu_seconds:.1f} s, {used.memory_bytes / 2**20:.0f} MiB")

        Raises:
            CapabilityNotSupported: this sandbox has nobody who could tell.
            SandboxGone, LinkLost: as `run()`.
            ExecutionTimeout: there was no answer within the sandbox's timeout.
        """
        ...

    async def kill(self) -> None:
        """Remove the sandbox and all in it. Silent when it is gone; safe to call again.

        Bounded by the teardown grace (`SBX_TEARDOWN_GRACE`, 5 seconds): beyond it,
        `OrphanedSandboxWarning` names the sandbox, whose lifetime still bounds it.

        Raises:
            ConnectError: the engine refused, or did not answer.
        """
        ...

    async def __aenter__(self) -> Self: ...
    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None: ...


@runtime_checkable
class Backend(Protocol):
    """A source of sandboxes.

    Example:
        sandboxio.register("mine", lambda: MyBackend())
        sb = await sandboxio.create("mine://")
    """

    name: str
    capabilities: Capability
    isolation: IsolationTier

    async def create(
        self,
        *,
        template: str | None = None,
        resources: Resources = ...,
        network: NetworkPolicy = ...,
        env: Mapping[str, str] | None = None,
        secrets: Mapping[str, str] | None = None,
        timeout: float = ...,
        metadata: Mapping[str, str] | None = None,
        user: str | None = None,
    ) -> AsyncSandbox:
        """Provision a sandbox, ready for use and under its policy, or raise.

        Arguments and errors as `sandboxio.create()`: `timeout` is in seconds and bounds both
        the creation and the sandbox's life; `template=None` is the backend's own default. Whatever
        cannot be honoured is refused before anything is made; when it raises, nothing is left.
        """
        ...

    async def connect(self, sandbox_id: str) -> AsyncSandbox:
        """Return a handle on a running sandbox; leaving its `async with` block removes it.

        Raises:
            ConnectError: no running sandbox has that id, or the backend did not answer within
                30 seconds; none is ever created.
        """
        ...


@runtime_checkable
class ReapableBackend(Backend, Protocol):
    """A backend that can find and remove the sandboxes it made.

    Example:
        for found in await backend.list_managed(labels={"tenant_id": "t1"}):
            await backend.kill_managed(found.sandbox_id)
    """

    async def list_managed(
        self, *, labels: Mapping[str, str] | None = None
    ) -> list[ManagedSandbox]:
        """List our sandboxes, ended ones included; `labels` narrows by metadata.

        Raises:
            ConnectError: the backend did not answer within 30 seconds.
        """
        ...

    async def kill_managed(self, sandbox_id: str) -> bool:
        """Remove one of ours; False when it is gone already, or is not ours.

        Raises:
            ConnectError: the backend refused, or did not answer within 30 seconds.
        """
        ...
