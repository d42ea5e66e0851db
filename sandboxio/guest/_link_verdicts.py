"""What the end of a call says: the fields of its `RESULT`, and the errors they stand for."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sandboxio.core.errors import (
    CapabilityNotSupported,
    ConnectError,
    ExecutionTimeout,
    NotADirectory,
    PathNotFound,
    PermissionDenied,
    ResourceLimitExceeded,
)
from sandboxio.core.models import Metrics
from sandboxio.guest.frames import RuleBroken, flag, number

if TYPE_CHECKING:
    from sandboxio.core.errors import SandboxError

KILLED = 137
_FIELDS = 9
_LARGEST = 2**63 - 1
_WORDS_LIMIT = 2048


class Verdict(NamedTuple):
    """How a command ended."""

    exit_code: int
    cut: bool
    out_of_memory: bool
    ended: bool
    """It was ended, by the host or by the agent's own deadline."""
    complete: bool
    """None of its processes is left; only known of a call that was ended."""


def verdict(fields: list[bytes]) -> Verdict:
    """Read the result of `exec` or `code`."""
    if len(fields) != _FIELDS:
        raise RuleBroken("a RESULT has another number of fields")
    for field in fields[6:]:
        number(field, _LARGEST)
    return Verdict(number(fields[1], 255), *map(flag, fields[2:6]))


def metrics(fields: list[bytes]) -> Metrics:
    """Read the result of `metrics`."""
    if len(fields) != 5:
        raise RuleBroken("a RESULT has another number of fields")
    seconds, _, fraction = fields[1].partition(b".")
    _, memory, limit, processes = (field or b"0" for field in fields[1:])
    return Metrics(
        cpu_seconds=number(seconds, _LARGEST)
        + number(fraction or b"0", _LARGEST) / 10 ** len(fraction),
        memory_bytes=number(memory, _LARGEST),
        memory_limit_bytes=number(limit, _LARGEST) if fields[3] else None,
        processes=number(processes, _LARGEST),
    )


def words_of(field: bytes) -> str:
    """Return the sandbox's own words as one line that can be shown."""
    said = " ".join(field[:_WORDS_LIMIT].decode("utf-8", "replace").split())
    return "".join(sign if sign.isprintable() else "?" for sign in said)


def not_started(name: bytes, words: bytes) -> SandboxError:
    """Return the error of a call of which nothing ran."""
    if name == b"not-found":
        return PathNotFound(
            "The working directory of the call is not in the sandbox.",
            hint="Make it with sb.files.mkdir(..., parents=True), or pass another cwd=.",
            outcome="not_started",
        )
    if name == b"not-a-directory":
        return NotADirectory(
            "The working directory of the call is no directory.", outcome="not_started"
        )
    said = words_of(words) or name.decode()
    if name == b"permission":
        return PermissionDenied(
            f"The working directory of the call may not be entered: {said}.",
            outcome="not_started",
        )
    if name == b"busy":
        return ResourceLimitExceeded(
            f"The sandbox has no room for another call: {said}.",
            hint="End what still runs in it, or raise its caps with create(resources=...).",
            outcome="not_started",
        )
    return ConnectError(f"The sandbox did not start the call: {said}.", outcome="not_started")


def out_of_memory(limit: int) -> ResourceLimitExceeded:
    """Return the error of a call that the memory cap, in MiB, has ended."""
    return ResourceLimitExceeded(
        f"The call went beyond the memory limit of {limit} MiB and was killed.",
        hint=f"Create the sandbox with resources=Resources(memory_mb={2 * limit}).",
        outcome="done",
    )


def overdue(timeout: float) -> ExecutionTimeout:
    """Return the error of a call that the agent ended, its host having been late to."""
    return ExecutionTimeout(f"The call did not end within {timeout:g} s and was ended.")


def root_refused() -> CapabilityNotSupported:
    """Return the error for `user="root"` where its calls would keep capabilities."""
    return CapabilityNotSupported(
        "This sandbox cannot start a call as root without leaving it capabilities: the Python in "
        "its image has no ctypes.",
        hint="Call without user=, or use an image with a whole Python, such as "
        "docker://python:3.12-slim",
    )
