"""What a provider does wrong on demand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sandboxio.core.errors import (
    AuthError,
    ConnectError,
    CreationError,
    NetworkPolicyViolation,
    RateLimitError,
    ResourceLimitExceeded,
    SandboxError,
    SandboxGone,
)

if TYPE_CHECKING:
    import random

CREDENTIAL = "SBX_FAKE_TOKEN"
FOR_EVER = 10.0**9


@dataclass(frozen=True, kw_only=True)
class Faults:
    """Everything that goes wrong; the default is nothing. See `FakeBackend.simulate()`."""

    create_takes: float = 0.0
    create_fails: Exception | None = None
    kill_takes: float = 0.0
    kill_hangs: bool = False
    auth_missing: bool = False
    rate_limited: bool = False
    gone: bool = False
    flaky: float = 0.0
    network_violation: bool = False
    memory_limit: bool = False

    def of_create(self, dice: random.Random) -> SandboxError | None:
        """Return the error of a creation, if it is to fail."""
        if self.auth_missing:
            return AuthError(
                f"The fake backend needs a key: {CREDENTIAL} is not set.",
                hint=f"export {CREDENTIAL}=…",
                outcome="not_started",
            )
        if self.rate_limited:
            return RateLimitError(
                "The fake provider allows no more sandboxes.", outcome="not_started"
            )
        if self.create_fails is not None:
            return _creation_error(self.create_fails)
        return self._of_chance(dice)

    def of_call(self, dice: random.Random) -> SandboxError | None:
        """Return the error of any call in a sandbox, if it is to fail."""
        if self.gone:
            return SandboxGone("The provider took the sandbox away.", outcome="unknown")
        return self._of_chance(dice)

    def of_exec(self, memory_mb: int) -> SandboxError | None:
        """Return the error with which a command or code ends, if it is to fail."""
        if self.memory_limit:
            return ResourceLimitExceeded(
                f"The call went beyond the memory limit of {memory_mb} MiB and was ended.",
                hint=f"Create the sandbox with resources=Resources(memory_mb={2 * memory_mb}).",
                outcome="done",
            )
        if self.network_violation:
            return NetworkPolicyViolation(
                "The call tried to reach what its network policy forbids.", outcome="done"
            )
        return None

    def _of_chance(self, dice: random.Random) -> SandboxError | None:
        if self.flaky and dice.random() < self.flaky:
            return ConnectError("The fake provider did not answer.", outcome="not_started")
        return None


def _creation_error(cause: Exception) -> SandboxError:
    if isinstance(cause, SandboxError):
        return cause
    error = CreationError(
        f"The fake provider could not create the sandbox: {type(cause).__name__}.",
        outcome="not_started",
    )
    error.__cause__ = cause
    return error
