"""What an engine's answer means: one pure table over captured answers."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from sandboxio.core.errors import (
    AuthError,
    ConfigurationError,
    ConnectError,
    CreationError,
    RateLimitError,
    SandboxError,
    SandboxGone,
)

Phase = Literal["connect", "image", "create", "call", "remove"]


class Rule(NamedTuple):
    """An answer, recognised by phase, status and words, and the error it becomes."""

    phases: tuple[Phase, ...]
    statuses: tuple[int, ...]
    """Empty for any status."""
    words: str
    """Searched in the engine's message, ignoring case."""
    error: type[SandboxError]
    hint: str | None = None


MESSAGE_LIMIT = 2048
"""Characters of an engine's message that are shown."""

RULES: tuple[Rule, ...] = (
    Rule(
        (),
        (),
        r"client version .* is too (old|new)|minimum supported api|supported by this library",
        ConnectError,
        "Upgrade the engine, or the docker package: pip install --upgrade docker",
    ),
    Rule(("call", "remove"), (404,), r"no such (container|exec instance)", SandboxGone),
    Rule(
        ("call", "remove"),
        (409,),
        r"is not running|removal .* in progress|dead",
        SandboxGone,
    ),
    Rule(
        ("call",),
        (),
        r"is paused|in a paused state",
        ConnectError,
        "Unpause it: docker unpause sandboxio-<id>",
    ),
    Rule(
        ("call",),
        (),
        r"container .* (not running|is not|stopped)|cannot exec in a (stopped|deleted)"
        r"|task [0-9a-f]{64} not found",
        SandboxGone,
    ),
    Rule(("image", "create"), (429,), "", RateLimitError),
    Rule(("image", "create"), (), r"toomanyrequests|rate limit", RateLimitError),
    Rule(
        ("image", "create"),
        (),
        r"pull access denied|repository does not exist|denied: requested",
        CreationError,
        "Check the image's name; for a private one: docker login",
    ),
    Rule(("image", "create"), (401, 403), "", AuthError, "docker login"),
    Rule(
        ("image",),
        (),
        r"docker-credential-|error getting credentials|credentials store error",
        AuthError,
        "Install the credential helper that config.json names, or take it out there: "
        "${DOCKER_CONFIG:-~/.docker}/config.json",
    ),
    Rule(
        ("image", "create"),
        (),
        r"unauthorized|no basic auth credentials|credentials",
        AuthError,
        "docker login",
    ),
    Rule(
        ("create",),
        (),
        r"docker-init",
        CreationError,
        "Install the engine's init program (docker-init, tini-static).",
    ),
    Rule(
        ("image", "create"),
        (),
        r"not found|manifest unknown|no such image",
        CreationError,
        "Check the image's name and tag, or build it on this engine.",
    ),
    Rule(
        ("create",),
        (),
        r"(exec:|stat) \"?/bin/sh",
        CreationError,
        "Use an image with a shell and sleep, such as docker://python:3.12-slim",
    ),
    Rule(
        ("create",),
        (),
        r"exec format error",
        CreationError,
        "The image is for another platform; use one for the engine's architecture.",
    ),
    Rule(
        ("create",),
        (),
        r"range of cpus|minimum memory limit",
        ConfigurationError,
        "Ask for resources that the engine's host has.",
    ),
    Rule(
        (),
        (),
        r"permission denied",
        ConnectError,
        "Let this user reach the engine: sudo usermod -aG docker $USER, then log in again.",
    ),
)

_HINTS: dict[Phase, str] = {"remove": "sandboxio reap --kill"}
_FALLBACK: dict[Phase, type[SandboxError]] = {
    "connect": ConnectError,
    "image": CreationError,
    "create": CreationError,
    "call": ConnectError,
    "remove": ConnectError,
}


def classify(
    phase: Phase, status: int | None, message: str
) -> tuple[type[SandboxError], str | None]:
    """Return the error an answer stands for, and its hint where the catalogue's is too general.

    Example:
        >>> classify("call", 404, "No such container: abc")[0].__name__
        'SandboxGone'
    """
    for rule in RULES:
        if rule.phases and phase not in rule.phases:
            continue
        if rule.statuses and status not in rule.statuses:
            continue
        if re.search(rule.words, message, re.IGNORECASE):
            return rule.error, rule.hint
    return _FALLBACK[phase], _HINTS.get(phase)


def failure(phase: Phase, status: int | None, message: str) -> SandboxError:
    """Build the error for an engine's answer; its text is bounded and on one line."""
    error, hint = classify(phase, status, message)
    said = " ".join(message.split())[:MESSAGE_LIMIT] or "no message"
    shown = f"The engine answered {status}: {said}" if status else f"The engine failed: {said}"
    if error is SandboxGone:
        shown = f"The sandbox no longer exists. {shown}"
    if issubclass(error, ConfigurationError):
        return error(shown, hint=hint)
    return error(shown, hint=hint, outcome="unknown" if phase == "call" else "not_started")
