"""What an engine's answer means: captured answers against the table."""

from __future__ import annotations

import pytest

from sandboxio import (
    AuthError,
    ConfigurationError,
    ConnectError,
    CreationError,
    RateLimitError,
    SandboxError,
    SandboxGone,
)
from sandboxio.adapters import _docker_failure
from sandboxio.adapters._docker_failure import MESSAGE_LIMIT, RULES, Phase, classify, failure

TOO_NEW = "client version 1.53 is too new. Maximum supported API version is 1.41"
TOO_OLD = "client version 1.24 is too old. Minimum supported API version is 1.44, please upgrade"
TOO_OLD_ENGINE = "API versions below 1.24 are no longer supported by this library."
DENIED = (
    "pull access denied for nope, repository does not exist or may require 'docker login': "
    "denied: requested access to the resource is denied"
)
LIMIT = "toomanyrequests: You have reached your unauthenticated pull rate limit."
NO_AUTH = 'Head "https://registry.example/v2/x/manifests/1": no basic auth credentials'
HELPER = (
    'error getting credentials - err: exec: "docker-credential-nope": executable file not found in '
    "$PATH, out: ``"
)
NO_HELPER = "docker-credential-nope not installed or not available in PATH"
SOCKET = "Got permission denied while trying to connect to the Docker daemon socket"
NO_INIT = 'exec: "docker-init": executable file not found in $PATH'
ANSWERS: list[tuple[Phase, int | None, str, type[SandboxError]]] = [
    ("connect", 400, TOO_NEW, ConnectError),
    ("create", 400, TOO_OLD, ConnectError),
    ("connect", None, TOO_OLD_ENGINE, ConnectError),
    ("call", 404, "No such container: sandboxio-3f9c2a7b51d04e86", SandboxGone),
    ("remove", 404, "No such container: 3f9c", SandboxGone),
    ("call", 404, "No such exec instance: 3f9c", SandboxGone),
    ("call", 409, "container 3f9c is not running", SandboxGone),
    ("call", 409, "Container 3f9c is paused, unpause the container before exec", ConnectError),
    ("remove", 409, "removal of container 3f9c is already in progress", SandboxGone),
    ("call", 500, "container 3f9c is not running: exited", SandboxGone),
    ("call", 500, "cannot exec in a stopped state: unknown", SandboxGone),
    ("image", 429, "slow down", RateLimitError),
    ("image", None, LIMIT, RateLimitError),
    ("image", 500, LIMIT, RateLimitError),
    ("image", 404, DENIED, CreationError),
    ("image", None, DENIED, CreationError),
    ("image", 401, "authentication required", AuthError),
    ("create", 403, "forbidden", AuthError),
    ("image", 500, NO_AUTH, AuthError),
    ("image", None, "unauthorized: incorrect username or password", AuthError),
    ("image", 500, HELPER, AuthError),
    ("image", None, f"Credentials store error: StoreError('{NO_HELPER}')", AuthError),
    ("image", None, f"UserWarning: {NO_HELPER}", AuthError),
    ("image", 404, "manifest for python:nope not found: manifest unknown", CreationError),
    ("create", 404, "No such image: nope:latest", CreationError),
    ("create", 400, 'exec: "/bin/sh": stat /bin/sh: no such file or directory', CreationError),
    ("create", 400, "exec /bin/sh: exec format error", CreationError),
    ("create", 400, "/sbin/docker-init: no such file or directory: unknown", CreationError),
    (
        "create",
        400,
        "Range of CPUs is from 0.01 to 2.00, as only 2 are available",
        ConfigurationError,
    ),
    ("create", 400, "Minimum memory limit allowed is 6MB", ConfigurationError),
    ("connect", None, SOCKET, ConnectError),
    ("connect", 500, "anything", ConnectError),
    ("image", 500, "anything", CreationError),
    ("create", 500, "anything", CreationError),
    ("call", 500, "anything", ConnectError),
    ("remove", 500, "anything", ConnectError),
    ("call", 404, "page not found", ConnectError),
    ("create", 409, "Conflict. The container name is already in use", CreationError),
    ("remove", 500, "driver failed to remove root filesystem", ConnectError),
]


@pytest.mark.parametrize(("phase", "status", "message", "error"), ANSWERS)
def test_an_answer_becomes_its_error(
    phase: Phase, status: int | None, message: str, error: type[SandboxError]
) -> None:
    """Each captured answer is the error a caller can act on, letters of any case."""
    assert classify(phase, status, message)[0] is error
    assert classify(phase, status, message.upper())[0] is error


def test_every_rule_is_met_by_a_captured_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule that no answer reaches is dead, or shadowed by one above it."""
    marked = [rule._replace(hint=f"rule {number}") for number, rule in enumerate(RULES)]
    monkeypatch.setattr(_docker_failure, "RULES", tuple(marked))
    hit = {classify(phase, status, message)[1] for phase, status, message, _ in ANSWERS}
    assert {rule.hint for rule in marked} <= hit


def test_a_missing_init_program_has_its_own_hint() -> None:
    """The engine's own words about its init lead to the hint that installs it."""
    error = failure("create", 500, NO_INIT)
    assert "init program" in error.hint


def test_a_failure_says_status_and_words_on_one_line() -> None:
    """Line ends go, length is bounded, the status is told."""
    error = failure("create", 500, "two\nlines\r\n" + "x" * 10_000)
    assert error.message.startswith("The engine answered 500: two lines xxx")
    assert "\n" not in error.message
    assert len(error.message) < MESSAGE_LIMIT + 100


def test_a_failure_without_words() -> None:
    """An empty answer is still a sentence."""
    assert failure("call", None, " \n ").message == "The engine failed: no message"


def test_a_gone_sandbox_is_said_first() -> None:
    """The fact comes before the engine's words."""
    assert failure("call", 404, "No such container: x").message.startswith(
        "The sandbox no longer exists."
    )


@pytest.mark.parametrize(
    ("phase", "outcome"),
    [("create", "not_started"), ("image", "not_started"), ("call", "unknown")],
)
def test_what_took_effect(phase: Phase, outcome: str) -> None:
    """Only a call may have begun; a refused creation left nothing."""
    assert failure(phase, 500, "oops").outcome == outcome
    assert failure("create", 400, "Minimum memory limit allowed is 6MB").outcome == "not_started"
