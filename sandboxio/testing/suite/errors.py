"""Errors: what each carries, what none of them shows, and that nothing else gets out."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from sandboxio.core.catalog import CATALOG
from sandboxio.core.errors import (
    AuthError,
    CapabilityNotSupported,
    ConfigurationError,
    ConnectError,
    CreateTimeout,
    CreationError,
    ExecutionError,
    ExecutionTimeout,
    FileSystemError,
    PathNotFound,
    SandboxError,
    SandboxGone,
    SandboxTimeout,
)
from sandboxio.core.models import Capability, NetworkPolicy, Resources
from sandboxio.testing.suite._case import case
from sandboxio.testing.suite._errors_removed import ErrorsRemoved, assert_complete
from sandboxio.testing.suite._probes import collect

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from sandboxio.core.protocols import AsyncSandbox, Backend
    from sandboxio.testing.suite.fixtures import Create

COMMANDS = Capability.RUN_COMMAND
STREAMS = Capability.RUN_COMMAND | Capability.STREAMING
PROVIDERS: tuple[tuple[type[Exception], tuple[Any, ...]], ...] = (
    (RuntimeError, ("the provider's own words",)),
    (TimeoutError, ("the provider took too long",)),
    (ConnectionRefusedError, (111, "refused")),
    (OSError, (5, "input/output error")),
    (KeyError, ("status",)),
    (ValueError, ("no JSON",)),
)
"""What SDKs raise when they mean it, and when they do not."""
BAD_OPTIONS: tuple[dict[str, Any], ...] = (
    *({"template": bad} for bad in ("", 7, "a\0b")),
    *({"resources": bad} for bad in (None, {"cpu": 1}, Resources(memory_mb=-1))),
    *({"network": bad} for bad in (None, "deny", NetworkPolicy(egress="open"))),  # type: ignore[arg-type]
    *({"env": bad} for bad in ({"": "x"}, {"A": 1}, "A=x")),
    *({"secrets": bad} for bad in ({"": "x"}, {"A": None}, ["A"])),
    *({"timeout": bad} for bad in (None, 0, -1, "5", True)),
    *({"metadata": bad} for bad in ({"": "x"}, {"a": 1}, {"a": ""}, "a=x", {"a b": "x"})),
    *({"user": bad} for bad in ("", "a b", 0)),
)
UNSUPPORTED: dict[Capability, dict[str, Any]] = {
    Capability.EGRESS_ALLOWLIST: {"network": NetworkPolicy(allow=("example.org",))},
    Capability.TUNNELS: {"network": NetworkPolicy(ingress_ports=(8080,))},
    Capability.GPU: {"resources": Resources(gpu="T4")},
    Capability.NETWORK_POLICY: {"network": NetworkPolicy()},
}


class ErrorsSuite(ErrorsRemoved):
    """Cases of errors; those of a sandbox that is removed, and of what no error shows, are in
    bases.
    """

    @case("ERR-001", needs=COMMANDS)
    async def test_what_an_error_carries(
        self, sandbox: AsyncSandbox, backend: Backend, marker: int
    ) -> None:
        """Every error has its code, the fact, the fix, the page, the outcome, and whether to call
        again; its text holds the first four.
        """
        gone = await backend.connect(sandbox.id)
        fail = (await sandbox.run("exit 3")).raise_for_status
        calls: dict[type[SandboxError], Callable[[], Awaitable[object]]] = {
            ConfigurationError: partial(sandbox.run, []),
            PathNotFound: partial(sandbox.run, ["pwd"], cwd="none"),
            ExecutionTimeout: partial(sandbox.run, self.hang(marker), timeout=1),
            ConnectError: partial(backend.connect, "no-such-sandbox"),
            SandboxGone: partial(gone.run, ["true"]),
        }
        with pytest.raises(ExecutionError) as failed:
            fail()
        errors: list[SandboxError] = [failed.value]
        for expected, call in calls.items():
            if expected is SandboxGone:
                await gone.kill()
            await collect(call, expected, errors)
        for error in errors:
            assert_complete(error)

    @case("ERR-002")
    async def test_what_a_refusal_carries(
        self, backend: Backend, options: dict[str, Any], run_id: str
    ) -> None:
        """A refused `create()` is a complete error too, made nothing, and is nothing to repeat."""
        for bad in BAD_OPTIONS:
            with pytest.raises(ConfigurationError, match=next(iter(bad))) as caught:
                await backend.create(**{**options, **bad})
            assert_complete(caught.value)
            assert (caught.value.outcome, caught.value.retryable) == ("not_started", False)
        assert await self.count(run_id) == 0

    @case("ERR-003")
    async def test_unsupported_options(
        self, backend: Backend, options: dict[str, Any], run_id: str
    ) -> None:
        """An option that cannot be honoured is refused before anything is made; none is accepted
        and ignored.
        """
        refused = [
            changes for flag, changes in UNSUPPORTED.items() if flag not in backend.capabilities
        ]
        refused.append({"network": NetworkPolicy(egress="learn")})
        for changes in refused:
            with pytest.raises((CapabilityNotSupported, ConfigurationError)) as caught:
                await backend.create(**{**options, **changes})
            assert_complete(caught.value)
        assert await self.count(run_id) == 0

    @case("ERR-004")
    async def test_unknown_options(
        self, backend: Backend, options: dict[str, Any], run_id: str
    ) -> None:
        """Every option of `create()` has a name of its own: an unknown keyword is a `TypeError`,
        and nothing is made.
        """
        create: Any = backend.create
        for unknown in ({"image": "x"}, {"privileged": True}, {"api_key": "x"}):
            with pytest.raises(TypeError):
                await create(**options, **unknown)
        with pytest.raises(TypeError):
            await create("x", **options)
        assert await self.count(run_id) == 0

    @case("ERR-005")
    async def test_the_tree(self, backend: Backend) -> None:
        """Every exception of the library and of the backend is a `SandboxError` of a known code,
        and inherits no builtin one but `Exception`.
        """
        ours = {"sandboxio", type(backend).__module__.partition(".")[0]}
        for error in _subclasses(SandboxError):
            if error.__module__.partition(".")[0] in ours:
                builtin = {base for base in error.__mro__ if base.__module__ == "builtins"}
                assert builtin == {Exception, BaseException, object}, error
                assert error.code in CATALOG or error is SandboxTimeout, error
        assert not issubclass(SandboxGone, SandboxTimeout)
        assert issubclass(CreateTimeout, CreationError)

    @pytest.mark.parametrize("number", range(len(PROVIDERS)))
    @case("ERR-006")
    async def test_a_provider_that_fails(
        self, backend: Backend, options: dict[str, Any], run_id: str, number: int
    ) -> None:
        """What a provider raises while it creates surfaces as an error of ours, with the original
        as its cause, and leaves nothing.
        """
        kind, words = PROVIDERS[number]
        original = kind(*words)
        with self.failing_create(original), pytest.raises(SandboxError) as caught:
            await backend.create(**options)
        assert_complete(caught.value)
        assert not isinstance(caught.value, ConfigurationError | ExecutionError | FileSystemError)
        assert original in list(_causes(caught.value))
        assert await self.count(run_id) == 0

    @case("ERR-007")
    async def test_after_a_failure(
        self, backend: Backend, options: dict[str, Any], create: Create
    ) -> None:
        """A failed creation is not remembered: the next one is tried, and works."""
        error = ConnectionRefusedError(111, "refused")
        with self.failing_create(error), pytest.raises(SandboxError):
            await backend.create(**options)
        assert (await create()).id

    @case("ERR-008")
    async def test_a_missing_key(
        self, backend: Backend, options: dict[str, Any], run_id: str
    ) -> None:
        """A missing key is an `AuthError` that names the variable to set; nothing is made."""
        if self.credential is None:
            pytest.skip(reason=f"{type(self).__name__} says that the provider needs no key")
        with self.unauthenticated(), pytest.raises(AuthError) as caught:
            await backend.create(**options)
        assert_complete(caught.value)
        assert self.credential in str(caught.value)
        assert caught.value.outcome == "not_started"

    @case("ERR-009", needs=COMMANDS)
    async def test_gone_is_no_timeout(self, sandbox: AsyncSandbox) -> None:
        """A sandbox that is gone is `SandboxGone`, which no handler of timeouts catches; its hint
        names the lifetime's `timeout=`.
        """
        await sandbox.kill()
        with pytest.raises(SandboxGone) as caught:
            await sandbox.run(["true"])
        assert not isinstance(caught.value, SandboxTimeout | TimeoutError | ConnectError)
        assert "timeout=" in caught.value.hint

    @case("ERR-010", needs=COMMANDS)
    async def test_outcomes_of_errors(self, sandbox: AsyncSandbox, marker: int) -> None:
        """`outcome` tells what happened: nothing was started, it is unknown, or it was done."""
        with pytest.raises(PathNotFound) as caught:
            await sandbox.run(["true"], cwd="none")
        assert caught.value.outcome == "not_started"
        with pytest.raises(ExecutionTimeout) as late:
            await sandbox.run(self.hang(marker), timeout=1)
        assert late.value.outcome == "unknown"
        with pytest.raises(ExecutionError) as failed:
            (await sandbox.run("exit 3")).raise_for_status()
        assert failed.value.outcome == "done"

    @case("ERR-011", needs=COMMANDS)
    async def test_errors_in_task_groups(self, sandbox: AsyncSandbox, marker: int) -> None:
        """Errors that leave a task group keep all that they carry, each its own."""

        async def call(cwd: str) -> None:
            await sandbox.run(["pwd"], cwd=cwd)

        with pytest.raises(ExceptionGroup) as caught:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(partial(sandbox.run, self.hang(marker), timeout=30))
                tasks.start_soon(call, "none")
        errors = [error for error in caught.value.exceptions if isinstance(error, PathNotFound)]
        assert len(errors) == len(caught.value.exceptions) == 1
        assert_complete(errors[0])
        await self.until_dead(sandbox, marker)
        assert await self.sh(sandbox, "echo ok") == "ok\n"

    @case("ERR-012", needs=COMMANDS)
    async def test_errors_of_their_own(self, sandbox: AsyncSandbox) -> None:
        """Each call that fails raises an error of its own; none is raised twice by two calls."""
        errors: list[SandboxError] = []
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                call = partial(sandbox.run, ["pwd"], cwd="none")
                tasks.start_soon(collect, call, PathNotFound, errors)
        assert len({id(error) for error in errors}) == 3

    @case("ERR-013", needs=STREAMS)
    async def test_the_callers_own_errors(self, sandbox: AsyncSandbox, marker: int) -> None:
        """An exception of the caller's in a block comes out as it was raised, whatever it is; none
        is taken for one of the sandbox.
        """
        for error in (TimeoutError("mine"), OSError("mine"), SandboxError("mine"), KeyError("x")):
            with pytest.raises(type(error)) as caught:
                async with sandbox.stream(self.hang(marker)):
                    raise error
            assert caught.value is error
        await self.until_dead(sandbox, marker)


def _subclasses(error: type[SandboxError]) -> Iterator[type[SandboxError]]:
    for below in error.__subclasses__():
        yield below
        yield from _subclasses(below)


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause = error.__cause__
    while cause is not None:
        yield cause
        cause = cause.__cause__
