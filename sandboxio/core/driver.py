"""The narrow interface our adapters implement.

A driver does provider work and nothing else: no deadlines, no capability checks, no records,
no redaction. Core wraps every call in those, once, for every backend.

Rules a driver keeps: it may be cancelled at any await; provisioning that fails or is cancelled
leaves nothing behind; starting a call that is cancelled leaves no process behind; every
provider exception leaves as a `SandboxError` with `__cause__`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Awaitable, Callable, Mapping

    from sandboxio.core.errors import SandboxError
    from sandboxio.core.models import (
        Capability,
        FileInfo,
        ManagedSandbox,
        Metrics,
        OutputChunk,
        RichOutput,
    )
    from sandboxio.core.requests import CodeRequest, CreateRequest, ExecRequest
    from sandboxio.core.tiers import IsolationTier


@dataclass(frozen=True)
class ExitStatus:
    """How a call ended by itself."""

    exit_code: int
    results: tuple[RichOutput, ...] | None = None
    cut: bool = False
    """Output was still coming when reading it was given up; it counts as truncated."""
    failure: SandboxError | None = None
    """Why the call ended, where the exit code does not say; it is raised instead of a result."""
    released: bool = False
    """The channel holds nothing on the host any more, so that nobody needs to close it."""


@dataclass(frozen=True)
class KillReport:
    """How a call was ended."""

    complete: bool
    """No process of the call is left. When False, core removes the sandbox."""
    collateral: bool = False
    """Processes of other calls had to be ended too."""


class ExecChannel(Protocol):
    """One running call."""

    async def receive(self) -> OutputChunk | None:
        """Return the next output; `None` once there will be no more.

        Raises `LinkLost` or `SandboxGone` when the end of output is not the end of the call.
        """
        ...

    async def send(self, data: bytes) -> None:
        """Write all of it to stdin; silent when the program no longer reads."""
        ...

    async def close_stdin(self) -> None: ...

    async def wait(self) -> ExitStatus:
        """Return the end of the call; called after `receive()` gave `None`."""
        ...

    async def kill(self) -> KillReport:
        """End the call's whole process tree; may be called when it has ended."""
        ...

    async def aclose(self) -> None:
        """Release what the channel holds on the host; ends no process."""
        ...


class DriverFiles(Protocol):
    """File operations of one sandbox; paths are as the caller wrote them."""

    async def read(
        self,
        path: str,
        *,
        offset: int,
        length: int | None,
        sink: Callable[[bytes], Awaitable[None]],
    ) -> None:
        """Give the content of a regular file to `sink`, piece by piece."""
        ...

    async def write(
        self, path: str, source: AsyncIterable[bytes], *, size: int | None, mode: int | None
    ) -> None:
        """Write exactly `size` bytes; with `None`, what there is until the source ends.

        A source that raises leaves nothing new, and its error goes on as it is.
        """
        ...

    async def stat(self, path: str, *, follow: bool) -> FileInfo: ...
    async def exists(self, path: str) -> bool: ...
    async def ls(self, path: str, *, recursive: bool) -> list[FileInfo]: ...

    async def glob(self, pattern: str) -> list[FileInfo]:
        """Return what matches, sorted by path; `core.patterns` has the rules, and a matcher."""
        ...

    async def mkdir(self, path: str, *, parents: bool) -> None: ...
    async def remove(self, path: str, *, recursive: bool) -> None: ...
    async def move(self, source: str, target: str) -> None: ...
    async def copy(self, source: str, target: str) -> None: ...
    async def chmod(self, path: str, mode: int) -> None: ...

    async def edit(self, path: str, old: bytes, new: bytes, *, count: int | None) -> int:
        """Replace `old`, and return how often; `core.edits` counts, and has the limit."""
        ...


class DriverSandbox(Protocol):
    """One provisioned sandbox."""

    @property
    def id(self) -> str: ...
    @property
    def capabilities(self) -> Capability: ...
    @property
    def isolation(self) -> IsolationTier:
        """The tier read from the running sandbox, not the one hoped for."""
        ...

    @property
    def timeout(self) -> float:
        """Its lifetime in seconds, which calls inherit."""
        ...

    @property
    def metadata(self) -> Mapping[str, str]: ...
    @property
    def native(self) -> object: ...

    def explain(self, capability: Capability) -> str | None:
        """Say why this sandbox lacks a capability, where there is more to say than that."""
        ...

    @property
    def files(self) -> DriverFiles: ...

    async def start(self, request: ExecRequest) -> ExecChannel: ...
    async def start_code(self, request: CodeRequest) -> ExecChannel: ...

    async def metrics(self) -> Metrics:
        """Say what the sandbox uses; `CapabilityNotSupported` where nobody can tell."""
        ...

    async def remove(self) -> None:
        """Remove the sandbox; silent when it is gone."""
        ...


class Driver(Protocol):
    """A source of sandboxes, provider work only."""

    @property
    def name(self) -> str: ...
    @property
    def capabilities(self) -> Capability:
        """What its sandboxes can have at most."""
        ...

    @property
    def isolation(self) -> IsolationTier:
        """What its sandboxes can claim at most; verified once one runs."""
        ...

    def refuse(self, request: CreateRequest) -> None:
        """Raise for what this driver cannot do or enforce; touches nothing."""
        ...

    async def provision(self, request: CreateRequest) -> DriverSandbox: ...
    async def connect(self, sandbox_id: str) -> DriverSandbox: ...
    async def list_managed(self, labels: Mapping[str, str]) -> list[ManagedSandbox]: ...
    async def remove_managed(self, sandbox_id: str) -> bool: ...
