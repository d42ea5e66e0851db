"""Scripted answers and simulated faults."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from sandboxio import (
    AuthError,
    ConfigurationError,
    ConnectError,
    CreateTimeout,
    CreationError,
    ExecResult,
    ExecutionTimeout,
    NetworkPolicyViolation,
    OrphanedSandboxWarning,
    RateLimitError,
    ResourceLimitExceeded,
    SandboxError,
    SandboxGone,
)
from sandboxio.core.models import OutputChunk
from sandboxio.testing import FakeBackend

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.anyio

FAILED = ExecResult(1, "", "1 failed")
PASSED = ExecResult(0, "ok\n", "")


@pytest.fixture
def fake() -> FakeBackend:
    return FakeBackend()


def ends_quietly(text: str) -> bool:
    return text.endswith("-q")


@pytest.mark.parametrize("match", ["pytest", re.compile(r"py.est -q$"), ends_quietly, None])
async def test_ways_to_match(
    fake: FakeBackend, match: str | re.Pattern[str] | Callable[[str], bool] | None
) -> None:
    """A substring, a pattern, a predicate, or everything."""
    rule = fake.on_run(match, returns=FAILED)
    assert await fake.sandbox.run(["pytest", "-q"]) == ExecResult(1, "", "1 failed", stderr_bytes=8)
    assert rule.count == 1


async def test_what_does_not_match_goes_to_the_shell(fake: FakeBackend) -> None:
    """A rule answers what it is for and nothing else."""
    fake.on_run("pytest", returns=FAILED)
    assert (await fake.sandbox.run("echo hi")).stdout == "hi\n"
    assert (await fake.sandbox.run(["no-such-program"])).exit_code == 127


async def test_the_last_rule_wins(fake: FakeBackend) -> None:
    """A test overrules what its fixture has said; a rule used up makes way."""
    fake.on_run("x", returns=PASSED)
    fake.on_run("x", returns=FAILED, times=1)
    assert [(await fake.sandbox.run(["x"])).exit_code for _ in range(2)] == [1, 0]


async def test_sequences(fake: FakeBackend) -> None:
    """Each call gets the next outcome, and the last one for ever."""
    fake.on_run("deploy", returns=[ConnectError("lost"), FAILED, PASSED])
    with pytest.raises(ConnectError, match="lost"):
        await fake.sandbox.run("deploy")
    codes = [(await fake.sandbox.run("deploy")).exit_code for _ in range(3)]
    assert codes == [1, 0, 0]


async def test_taking_time(fake: FakeBackend) -> None:
    """A call takes as long as it is told to, on the clock of the fake."""
    fake.on_run("make", takes=250)
    result = await fake.sandbox.run("make")
    assert (result.exit_code, result.duration_ms, fake.clock.time()) == (0, 250_000, 250)


async def test_hanging(fake: FakeBackend) -> None:
    """A call that hangs runs into its own timeout, in virtual time."""
    fake.on_run("hang", hangs=True, streams=["so far\n"])
    with pytest.raises(ExecutionTimeout) as caught:
        await fake.sandbox.run("hang", timeout=120)
    assert caught.value.partial.stdout == "so far\n"
    assert fake.clock.time() == 120


async def test_hanging_code_without_a_timeout_of_its_own(fake: FakeBackend) -> None:
    """A call that inherits the sandbox's timeout meets that, not the end of the sandbox."""
    fake.on_run_code("hang", hangs=True)
    with pytest.raises(ExecutionTimeout):
        await fake.sandbox.run_code("hang()")


async def test_timed_output(fake: FakeBackend) -> None:
    """Each piece of output comes at its second, on its own stream."""
    fake.on_run("build", streams=[(1, "one\n"), (60, OutputChunk("stderr", b"two\n"))])
    seen: list[tuple[float, str, bytes]] = []
    async with fake.sandbox.stream("build") as process:
        async for chunk in process:
            seen += [(fake.clock.time(), chunk.stream, chunk.data)]
    assert seen == [(1, "stdout", b"one\n"), (60, "stderr", b"two\n")]


@pytest.mark.parametrize("raises", [SandboxGone("taken away"), SandboxGone])
async def test_raising(fake: FakeBackend, raises: SandboxError | type[SandboxError]) -> None:
    """An error of ours, made or by class; another one each time it is raised."""
    fake.on_run("x", raises=ConnectError("lost"))
    errors: list[SandboxError] = []
    for _ in range(2):
        with pytest.raises(ConnectError) as caught:
            await fake.sandbox.run("x")
        errors.append(caught.value)
    assert errors[0] is not errors[1]
    fake.on_run_code("x", raises=raises if isinstance(raises, SandboxError) else ConnectError("y"))
    with pytest.raises(SandboxError):
        await fake.sandbox.run_code("x")


@pytest.mark.parametrize(
    "arguments",
    [
        {"raises": RuntimeError("x")},
        {"hangs": True, "returns": PASSED},
        {"raises": SandboxGone("x"), "returns": PASSED},
    ],
)
def test_contradictions(fake: FakeBackend, arguments: dict[str, Any]) -> None:
    """What cannot be meant is refused when it is written down."""
    with pytest.raises(ConfigurationError):
        fake.on_run("x", **arguments)


@pytest.mark.parametrize(
    ("faults", "error"),
    [
        ({"create_takes": 3600}, CreateTimeout),
        ({"create_fails": RuntimeError("x")}, CreationError),
        ({"create_fails": RateLimitError("x")}, RateLimitError),
        ({"auth_missing": True}, AuthError),
        ({"rate_limited": True}, RateLimitError),
        ({"flaky": 1.0}, ConnectError),
    ],
)
async def test_creations_that_fail(
    fake: FakeBackend, faults: dict[str, Any], error: type[SandboxError]
) -> None:
    """Each fault is the error a provider's would be, leaves nothing, and ends on demand."""
    fake.simulate(**faults)
    with pytest.raises(error):
        await fake.create()
    assert fake.sandboxes == []
    fake.simulate()
    await (await fake.create()).kill()


async def test_what_is_missing_is_named(fake: FakeBackend) -> None:
    """The hint of missing credentials names the variable."""
    fake.simulate(auth_missing=True)
    with pytest.raises(AuthError, match="SBX_FAKE_TOKEN"):
        await fake.create()


async def test_the_provider_s_exception_is_the_cause(fake: FakeBackend) -> None:
    """Whatever a provider raises can be found."""
    original = RuntimeError("boom")
    fake.simulate(create_fails=original)
    with pytest.raises(CreationError) as caught:
        await fake.create()
    assert caught.value.__cause__ is original


@pytest.mark.parametrize(
    ("faults", "error"),
    [
        ({"gone": True}, SandboxGone),
        ({"flaky": 1.0}, ConnectError),
        ({"memory_limit": True}, ResourceLimitExceeded),
        ({"network_violation": True}, NetworkPolicyViolation),
    ],
)
async def test_calls_that_fail(
    fake: FakeBackend, faults: dict[str, Any], error: type[SandboxError]
) -> None:
    """Each fault meets commands and code alike."""
    sandbox = await fake.create()
    fake.simulate(**faults)
    with pytest.raises(error):
        await sandbox.run("true")
    other = await FakeBackend().create()
    assert (await other.run("true")).ok


async def test_a_removal_that_hangs(fake: FakeBackend) -> None:
    """It is given up after the grace, with a warning, in virtual time."""
    sandbox = await fake.create()
    fake.simulate(kill_hangs=True)
    with pytest.warns(OrphanedSandboxWarning, match=sandbox.id):
        await sandbox.kill()
    assert fake.clock.time() == 5


def test_chances_are_chances(fake: FakeBackend) -> None:
    """A chance lies between 0 and 1."""
    with pytest.raises(ConfigurationError):
        fake.simulate(flaky=20)
