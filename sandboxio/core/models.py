"""Value objects of the public API: frozen, compared by value."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Flag, auto
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

Egress = Literal["deny", "allow", "learn"]
StreamName = Literal["stdout", "stderr"]
FileKind = Literal["file", "directory", "link", "other"]

DEFAULT_TIMEOUT = 300.0
"""Seconds a sandbox lives, and a call may take, unless the caller says otherwise."""
DEFAULT_MAX_OUTPUT_BYTES = 10 * 1024 * 1024
"""Bytes of stdout, and of stderr, that `run()` keeps."""


class Capability(Flag):
    """What one live sandbox can do.

    Ask the sandbox (`Capability.STREAMING in sb.capabilities`), never the backend's name.
    Using a capability that is not declared raises `CapabilityNotSupported`.

    Example:
        >>> Capability.STDIN in (Capability.RUN_COMMAND | Capability.STDIN)
        True
    """

    RUN_COMMAND = auto()
    RUN_CODE = auto()
    STATEFUL_CODE = auto()
    STREAMING = auto()
    FILESYSTEM = auto()
    UPLOAD_DOWNLOAD = auto()
    PTY = auto()
    PAUSE_RESUME = auto()
    SNAPSHOT_FORK = auto()
    GPU = auto()
    LSP = auto()
    GIT = auto()
    NETWORK_POLICY = auto()
    TUNNELS = auto()
    COST_REPORTING = auto()
    STDIN = auto()
    BACKGROUND = auto()
    EGRESS_ALLOWLIST = auto()
    EGRESS_RULES = auto()
    HOST_TOOLS = auto()
    MOUNTS = auto()
    RICH_OUTPUT = auto()


@dataclass(frozen=True)
class Resources:
    """Caps of one sandbox. `None` means the backend's own modest default, never "unlimited".

    Example:
        >>> Resources(memory_mb=1024).memory_mb
        1024
    """

    cpu: float | None = None
    """CPU time, in cores."""
    memory_mb: int | None = None
    """Memory and swap together, in MiB."""
    disk_mb: int | None = None
    """Writable disk, in MiB; refused where it cannot be enforced."""
    gpu: str | None = None
    """Accelerator, by the provider's name for it (`"T4"`)."""


@dataclass(frozen=True)
class NetworkPolicy:
    """What a sandbox may reach. The default reaches nothing.

    A backend that cannot enforce a policy refuses it with `CapabilityNotSupported`.

    Example:
        >>> NetworkPolicy().egress
        'deny'
    """

    egress: Egress = "deny"
    """`"deny"`, `"allow"` (everything) or `"learn"` (everything, recorded)."""
    allow: tuple[str, ...] = ()
    """Host names and CIDR ranges reachable although egress is denied."""
    ingress_ports: tuple[int, ...] = ()
    """Ports inside the sandbox that the host may reach."""


@dataclass(frozen=True)
class RichOutput:
    """One display output of a code cell.

    Example:
        >>> RichOutput("text/html", "<b>1</b>").mime_type
        'text/html'
    """

    mime_type: str
    data: str
    """Text, or base64 where the type is binary."""


@dataclass(frozen=True)
class ExecResult:
    """The outcome of a command or of code that ran to its end.

    Example:
        >>> ExecResult(0, "hello\\n", "").ok
        True
    """

    exit_code: int
    """Status of the command; 128 + N when signal N ended it, 127 when it was not found."""
    stdout: str
    """Decoded as UTF-8; bytes that are not UTF-8 become U+FFFD."""
    stderr: str
    results: tuple[RichOutput, ...] | None = None
    """Rich outputs; `None` where the backend has none."""
    streamed: bool = False
    """True for the result of a stream: its output went to the caller, the texts are empty."""
    stdout_bytes: int = 0
    """Bytes the command wrote, whether kept or not."""
    stderr_bytes: int = 0
    stdout_truncated: bool = False
    """True when the middle of the output was dropped to stay under `max_output_bytes`."""
    stderr_truncated: bool = False
    duration_ms: int = 0
    """From asking for the start to the end of the output, in milliseconds."""

    @property
    def ok(self) -> bool:
        """Whether the exit code is 0."""
        return self.exit_code == 0

    def raise_for_status(self) -> ExecResult:
        """Return this result, or raise `ExecutionError` when the exit code is not 0."""
        if not self.ok:
            from sandboxio.core.errors import ExecutionError

            raise ExecutionError(
                f"The command ended with exit code {self.exit_code}.", result=self, outcome="done"
            )
        return self


@dataclass(frozen=True)
class OutputChunk:
    """Bytes a running command wrote, exactly as written.

    Example:
        >>> OutputChunk("stdout", b"hello").data.decode()
        'hello'
    """

    stream: StreamName
    data: bytes


@dataclass(frozen=True)
class PartialOutput:
    """What a command had written when its time ran out: bounded, redacted, never a result.

    Example:
        try:
            await sb.run("echo one; sleep 60", timeout=2)
        except sandboxio.ExecutionTimeout as exc:
            print(exc.partial.stdout)
    """

    stdout: str = ""
    stderr: str = ""
    stdout_truncated: bool = False
    stderr_truncated: bool = False


@dataclass(frozen=True)
class FileInfo:
    """One entry of a sandbox's file system; links are described, not followed.

    Example:
        >>> FileInfo("data.csv", size=12, is_dir=False, mode=0o644).kind
        'file'
    """

    path: str
    """Path inside the sandbox. Bytes that are not UTF-8 are kept as surrogate escapes."""
    size: int
    is_dir: bool
    kind: FileKind = "file"
    mode: int = 0
    """Permission bits, as in `0o644`."""
    mtime: datetime | None = None
    """Last change, with its time zone; `None` where it is beyond what a `datetime` can hold."""
    target: str | None = None
    """Where a link points, as written in the link; `None` for everything else."""


@dataclass(frozen=True)
class TreeTransfer:
    """What `upload_dir()` or `download_dir()` copied.

    Example:
        >>> TreeTransfer(files=2, size=100).skipped
        ()
    """

    files: int
    """Regular files; directories are not counted."""
    size: int
    """Bytes of their content."""
    skipped: tuple[str, ...] = ()
    """What is neither file nor directory, by its path below the top: links, sockets, devices."""


@dataclass(frozen=True)
class Metrics:
    """What a sandbox uses at one moment. No number is negative.

    Example:
        >>> Metrics(0.25, 40_000_000, 536_870_912, 3).memory_limit_bytes
        536870912
    """

    cpu_seconds: float
    """CPU time used since its creation, on all cores together, in seconds."""
    memory_bytes: int
    """Memory in use, in bytes, without what the kernel can drop at any time."""
    memory_limit_bytes: int | None
    """Most it may use, in bytes; `None` where there is no such limit or it cannot be read."""
    processes: int
    """Processes there are, those of the measurement not counted."""


@dataclass(frozen=True)
class ManagedSandbox:
    """A sandbox of ours that an engine still holds; nothing can be run through it.

    Example:
        >>> ManagedSandbox("3f9c2a7b51d04e86", "docker", "stopped").labels
        {}
    """

    sandbox_id: str
    backend: str
    state: Literal["running", "stopped", "paused"]
    created_at: datetime | None = None
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    """The caller's `metadata`, as the provider stored it."""
