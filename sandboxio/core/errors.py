"""The error tree.

SandboxError
├── ConfigurationError            SBX_E1000
│   ├── BackendNotFound           SBX_E1001
│   └── BackendNotInstalled       SBX_E1002
├── CapabilityNotSupported        SBX_E1101
├── CreationError                 SBX_E1201
│   └── CreateTimeout             SBX_E1203   also a SandboxTimeout
├── ConnectError                  SBX_E1202
│   └── LinkLost                  SBX_E1205
├── SandboxGone                   SBX_E1204   not a timeout
├── ExecutionError                SBX_E1301
├── SandboxTimeout                            base only
│   └── ExecutionTimeout          SBX_E1302
├── ProcessNotFound               SBX_E1303
├── OutputLimit                   SBX_E1304
├── ContextNotFound               SBX_E1305
├── NetworkPolicyViolation        SBX_E1401
├── ResourceLimitExceeded         SBX_E1402
├── EgressDenied                  SBX_E1403
├── AuthError                     SBX_E1501
├── RateLimitError                SBX_E1502
├── AuditSinkError                SBX_E1601
├── FileSystemError               SBX_E1700
│   ├── PathNotFound              SBX_E1701
│   ├── PathExists                SBX_E1702
│   ├── PermissionDenied          SBX_E1703
│   ├── NotADirectory             SBX_E1704
│   └── IsADirectory              SBX_E1705
└── PolicyRefused                 SBX_E1801

None of them inherits a builtin exception other than `Exception`, and none shadows one:
`except TimeoutError` never catches a sandbox timeout, so a caller's own deadline and the
sandbox's limit stay apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from sandboxio.core.catalog import CATALOG, url_for
from sandboxio.core.models import PartialOutput

if TYPE_CHECKING:
    from sandboxio.core.models import ExecResult

Outcome = Literal["not_started", "unknown", "done"]


class SandboxError(Exception):
    """Base of every error of this package.

    `message` states the fact. `hint` is the exact fix and defaults to the catalogue's.
    `outcome` says whether the operation took effect.

    Example:
        >>> error = PathNotFound("No such file: 'a.txt'.", outcome="not_started")
        >>> error.code, error.outcome
        ('SBX_E1701', 'not_started')
    """

    code: ClassVar[str] = ""

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        outcome: Outcome = "unknown",
        retryable: bool | None = None,
    ) -> None:
        super().__init__(message)
        entry = CATALOG.get(self.code)
        self.message = message
        self.hint = hint if hint is not None else (entry.hint if entry else "")
        self.outcome: Outcome = outcome
        self.retryable = (
            retryable if retryable is not None else bool(entry is not None and entry.retryable)
        )

    @property
    def url(self) -> str:
        """The documentation page of this error's code."""
        return url_for(self.code)

    def __str__(self) -> str:
        lines = [f"[{self.code}] {self.message}" if self.code else self.message]
        if self.hint:
            lines.append(f"  Fix:  {self.hint}")
        if self.code:
            lines.append(f"  Docs: {self.url}")
        return "\n".join(lines)


class ConfigurationError(SandboxError):
    """An argument, DSN or configuration value is not acceptable; nothing was done."""

    code = "SBX_E1000"

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint, outcome="not_started")


class BackendNotFound(ConfigurationError):
    """No backend of that name is known."""

    code = "SBX_E1001"


class BackendNotInstalled(ConfigurationError):
    """The backend is known, but its SDK is missing or cannot be loaded."""

    code = "SBX_E1002"


class CapabilityNotSupported(SandboxError):
    """The sandbox cannot do, or cannot enforce, what was asked; nothing was done."""

    code = "SBX_E1101"

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint, outcome="not_started")


class CreationError(SandboxError):
    """The sandbox could not be created."""

    code = "SBX_E1201"


class ConnectError(SandboxError):
    """The engine or the sandbox could not be reached."""

    code = "SBX_E1202"


class LinkLost(ConnectError):
    """The connection broke while a call was running."""

    code = "SBX_E1205"


class SandboxGone(SandboxError):
    """The sandbox no longer exists."""

    code = "SBX_E1204"


class ExecutionError(SandboxError):
    """`raise_for_status()` met an exit code other than 0; `result` is what it met."""

    code = "SBX_E1301"

    def __init__(
        self,
        message: str,
        *,
        result: ExecResult | None = None,
        hint: str | None = None,
        outcome: Outcome = "unknown",
    ) -> None:
        super().__init__(message, hint=hint, outcome=outcome)
        self.result = result


class SandboxTimeout(SandboxError):
    """Catches every timeout of this package; never raised itself."""


class CreateTimeout(CreationError, SandboxTimeout):
    """The sandbox was not ready in time."""

    code = "SBX_E1203"


class ExecutionTimeout(SandboxTimeout):
    """The call did not end in time; its processes were ended.

    `partial` is what it had written. `collateral` is True when other processes of the
    sandbox had to be ended too, because those of the call could not be told apart.
    """

    code = "SBX_E1302"

    def __init__(
        self,
        message: str,
        *,
        partial: PartialOutput | None = None,
        collateral: bool = False,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint, outcome="unknown")
        self.partial = partial if partial is not None else PartialOutput()
        self.collateral = collateral


class ProcessNotFound(SandboxError):
    """The sandbox has no such background process."""

    code = "SBX_E1303"


class OutputLimit(SandboxError):
    """The command wrote more than the caller allowed."""

    code = "SBX_E1304"


class ContextNotFound(SandboxError):
    """The sandbox has no such code context."""

    code = "SBX_E1305"


class NetworkPolicyViolation(SandboxError):
    """The sandbox tried to reach what its policy forbids."""

    code = "SBX_E1401"


class ResourceLimitExceeded(SandboxError):
    """The sandbox reached one of its caps; `partial` is what the call had written by then."""

    code = "SBX_E1402"

    def __init__(
        self, message: str, *, hint: str | None = None, outcome: Outcome = "unknown"
    ) -> None:
        super().__init__(message, hint=hint, outcome=outcome)
        self.partial = PartialOutput()


class EgressDenied(SandboxError):
    """A connection out of the sandbox was refused by its allowlist."""

    code = "SBX_E1403"


class AuthError(SandboxError):
    """Credentials were missing or refused."""

    code = "SBX_E1501"


class RateLimitError(SandboxError):
    """The provider asked us to slow down."""

    code = "SBX_E1502"


class AuditSinkError(SandboxError):
    """An audit sink failed and the configuration makes that fatal."""

    code = "SBX_E1601"


class FileSystemError(SandboxError):
    """A file operation inside the sandbox failed."""

    code = "SBX_E1700"


class PathNotFound(FileSystemError):
    """The path does not exist inside the sandbox."""

    code = "SBX_E1701"


class PathExists(FileSystemError):
    """The path exists already inside the sandbox."""

    code = "SBX_E1702"


class PermissionDenied(FileSystemError):
    """The sandbox user may not do that."""

    code = "SBX_E1703"


class NotADirectory(FileSystemError):
    """The path, or a part of it, is not a directory."""

    code = "SBX_E1704"


class IsADirectory(FileSystemError):
    """The path is a directory where a file is needed."""

    code = "SBX_E1705"


class PolicyRefused(SandboxError):
    """The policy in force does not allow the request."""

    code = "SBX_E1801"


class SandboxWarning(UserWarning):
    """Base of every warning of this package."""


class OrphanedSandboxWarning(SandboxWarning):
    """Teardown did not finish within its grace; the sandbox may still exist."""


class CrashCleanupWarning(SandboxWarning):
    """Nothing will remove this program's sandboxes if it is killed, but their lifetime."""


class UnverifiedIsolationWarning(SandboxWarning):
    """A sandbox was created whose isolation nobody has verified."""


class UnenforcedLimitWarning(SandboxWarning):
    """The kernel or engine cannot apply one of the caps."""
