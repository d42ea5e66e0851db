"""One secure Python API for running AI-agent code in any sandbox.

    async with await sandboxio.create() as sb:
        print((await sb.run_code("print('hello')")).stdout)

Importing this module loads nothing else: names are resolved on first use.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sandboxio import errors as errors
    from sandboxio import protocols as protocols
    from sandboxio._api import connect as connect
    from sandboxio._api import create as create
    from sandboxio._api import create_sync as create_sync
    from sandboxio.core.config import BackendConfig as BackendConfig
    from sandboxio.core.errors import AuditSinkError as AuditSinkError
    from sandboxio.core.errors import AuthError as AuthError
    from sandboxio.core.errors import BackendNotFound as BackendNotFound
    from sandboxio.core.errors import BackendNotInstalled as BackendNotInstalled
    from sandboxio.core.errors import CapabilityNotSupported as CapabilityNotSupported
    from sandboxio.core.errors import ConfigurationError as ConfigurationError
    from sandboxio.core.errors import ConnectError as ConnectError
    from sandboxio.core.errors import ContextNotFound as ContextNotFound
    from sandboxio.core.errors import CrashCleanupWarning as CrashCleanupWarning
    from sandboxio.core.errors import CreateTimeout as CreateTimeout
    from sandboxio.core.errors import CreationError as CreationError
    from sandboxio.core.errors import EgressDenied as EgressDenied
    from sandboxio.core.errors import ExecutionError as ExecutionError
    from sandboxio.core.errors import ExecutionTimeout as ExecutionTimeout
    from sandboxio.core.errors import FileSystemError as FileSystemError
    from sandboxio.core.errors import IsADirectory as IsADirectory
    from sandboxio.core.errors import LinkLost as LinkLost
    from sandboxio.core.errors import NetworkPolicyViolation as NetworkPolicyViolation
    from sandboxio.core.errors import NotADirectory as NotADirectory
    from sandboxio.core.errors import OrphanedSandboxWarning as OrphanedSandboxWarning
    from sandboxio.core.errors import OutputLimit as OutputLimit
    from sandboxio.core.errors import PathExists as PathExists
    from sandboxio.core.errors import PathNotFound as PathNotFound
    from sandboxio.core.errors import PermissionDenied as PermissionDenied
    from sandboxio.core.errors import PolicyRefused as PolicyRefused
    from sandboxio.core.errors import ProcessNotFound as ProcessNotFound
    from sandboxio.core.errors import RateLimitError as RateLimitError
    from sandboxio.core.errors import ResourceLimitExceeded as ResourceLimitExceeded
    from sandboxio.core.errors import SandboxError as SandboxError
    from sandboxio.core.errors import SandboxGone as SandboxGone
    from sandboxio.core.errors import SandboxTimeout as SandboxTimeout
    from sandboxio.core.errors import SandboxWarning as SandboxWarning
    from sandboxio.core.errors import UnenforcedLimitWarning as UnenforcedLimitWarning
    from sandboxio.core.errors import UnverifiedIsolationWarning as UnverifiedIsolationWarning
    from sandboxio.core.models import Capability as Capability
    from sandboxio.core.models import ExecResult as ExecResult
    from sandboxio.core.models import FileInfo as FileInfo
    from sandboxio.core.models import ManagedSandbox as ManagedSandbox
    from sandboxio.core.models import Metrics as Metrics
    from sandboxio.core.models import NetworkPolicy as NetworkPolicy
    from sandboxio.core.models import OutputChunk as OutputChunk
    from sandboxio.core.models import PartialOutput as PartialOutput
    from sandboxio.core.models import Resources as Resources
    from sandboxio.core.models import RichOutput as RichOutput
    from sandboxio.core.models import TreeTransfer as TreeTransfer
    from sandboxio.core.registry import register as register
    from sandboxio.core.registry import unregister as unregister
    from sandboxio.core.sync import SyncSandbox as SyncSandbox
    from sandboxio.core.tiers import IsolationTier as IsolationTier
    from sandboxio.doctor import doctor as doctor

_HOMES = {
    "sandboxio._api": "connect create create_sync",
    "sandboxio.core.config": "BackendConfig",
    "sandboxio.core.errors": (
        "AuditSinkError AuthError BackendNotFound BackendNotInstalled CapabilityNotSupported "
        "ConfigurationError ConnectError ContextNotFound CrashCleanupWarning CreateTimeout "
        "CreationError EgressDenied "
        "ExecutionError ExecutionTimeout FileSystemError IsADirectory LinkLost "
        "NetworkPolicyViolation NotADirectory OrphanedSandboxWarning OutputLimit PathExists "
        "PathNotFound PermissionDenied PolicyRefused ProcessNotFound RateLimitError "
        "ResourceLimitExceeded SandboxError SandboxGone SandboxTimeout SandboxWarning "
        "UnenforcedLimitWarning UnverifiedIsolationWarning"
    ),
    "sandboxio.core.models": (
        "Capability ExecResult FileInfo ManagedSandbox Metrics NetworkPolicy OutputChunk "
        "PartialOutput Resources RichOutput TreeTransfer"
    ),
    "sandboxio.core.registry": "register unregister",
    "sandboxio.core.sync": "SyncSandbox",
    "sandboxio.core.tiers": "IsolationTier",
    "sandboxio.doctor": "doctor",
}
_WHERE = {name: module for module, names in _HOMES.items() for name in names.split()}
_MODULES = ("errors", "protocols")

__all__ = sorted((*_WHERE, *_MODULES))  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_WHERE[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
