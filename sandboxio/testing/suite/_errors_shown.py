"""What no error shows: secrets, values of variables, code."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING, Any

import pytest

from sandboxio.core.errors import (
    ConfigurationError,
    ExecutionError,
    ExecutionTimeout,
    PathNotFound,
    SandboxError,
)
from sandboxio.core.models import Capability
from sandboxio.testing.suite._case import case
from sandboxio.testing.suite.fixtures import SuiteFixtures

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sandboxio.core.protocols import AsyncSandbox, Backend
    from sandboxio.testing.suite.fixtures import Create

AREA = "errors"
COMMANDS = Capability.RUN_COMMAND
STREAMS = Capability.RUN_COMMAND | Capability.STREAMING
TOKEN = "hunter2-and-more"  # noqa: S105  # it is what must not show
SECRETS = {"TOKEN": TOKEN}
BAD: tuple[Any, ...] = (
    *({"A=B": TOKEN}, {"": TOKEN}, {"A": TOKEN + "\0"}, {"A": TOKEN.encode()}, {"A": [TOKEN]}),
    *({"A": TOKEN * 10_000}, {"A": TOKEN + "\ud800"}, f"A={TOKEN}", [TOKEN], {7: TOKEN}),
)


class ErrorsShown(SuiteFixtures):
    """Cases of what errors must not show."""

    @case("ERR-019", needs=COMMANDS, area=AREA)
    async def test_no_secret_in_errors_of_commands(self, create: Create, marker: int) -> None:
        """No error of a command shows a secret, also not one that the caller put into it."""
        sandbox = await create(secrets=SECRETS)
        late = f"echo {TOKEN} $TOKEN; {self.hang(marker)}"
        await self._error_shows_nothing(
            ExecutionTimeout, lambda: sandbox.run(late, timeout=2, env={"A": TOKEN})
        )
        await self._error_shows_nothing(
            PathNotFound, lambda: sandbox.run(["pwd"], cwd=f"no/{TOKEN}")
        )
        await self._error_shows_nothing(
            ConfigurationError, lambda: sandbox.run(["true"], user=f"a b {TOKEN}")
        )

    @case("ERR-020", needs=COMMANDS, area=AREA)
    async def test_no_secret_in_failures(self, create: Create) -> None:
        """`raise_for_status()` shows neither the command nor what it wrote."""
        sandbox = await create(secrets=SECRETS)
        done = await sandbox.run('echo "$TOKEN" >&2; exit 3')
        with pytest.raises(ExecutionError) as caught:
            done.raise_for_status()
        assert TOKEN not in f"{caught.value} {caught.value!r} {caught.value.args}"

    @case("ERR-021", needs=STREAMS, area=AREA)
    async def test_no_secret_in_errors_of_streams(self, create: Create, marker: int) -> None:
        """No error of a stream shows a secret."""
        sandbox = await create(secrets=SECRETS)

        async def read(command: str, **options: Any) -> None:
            async with sandbox.stream(command, **options) as proc:
                await proc.wait()

        late = f"echo $TOKEN; : {TOKEN}; {self.hang(marker)}"
        await self._error_shows_nothing(ExecutionTimeout, lambda: read(late, timeout=2))
        await self._error_shows_nothing(PathNotFound, lambda: read("pwd", cwd=f"no/{TOKEN}"))

    @case("ERR-022", needs=Capability.RUN_CODE, area=AREA)
    async def test_no_secret_in_errors_of_code(self, create: Create) -> None:
        """No error of code shows a secret, or the code."""
        sandbox = await create(secrets=SECRETS)
        code = f"import time\nx = 'hunter3-{TOKEN}'\nprint(x, flush=True)\ntime.sleep(600)"
        error = await self._error_shows_nothing(
            ExecutionTimeout, lambda: sandbox.run_code(code, timeout=3)
        )
        assert "hunter3" not in f"{error}"
        error = await self._error_shows_nothing(
            SandboxError, lambda: sandbox.run_code(code, language=f"none-{TOKEN}")
        )
        assert "time.sleep" not in f"{error}"

    @case("ERR-023", needs=Capability.FILESYSTEM, area=AREA)
    async def test_no_secret_in_errors_of_files(self, create: Create) -> None:
        """No error of a file operation shows a secret, also not one in a path."""
        files = (await create(secrets=SECRETS)).files
        path = f"no/{TOKEN}"
        await self._error_shows_nothing(PathNotFound, lambda: files.read(path))
        await self._error_shows_nothing(PathNotFound, lambda: files.write(path, TOKEN))
        await self._error_shows_nothing(PathNotFound, lambda: files.ls(path))
        bad: Any = {"value": TOKEN}
        await self._error_shows_nothing(ConfigurationError, lambda: files.write("f", bad))

    @case("ERR-024", area=AREA)
    async def test_no_secret_in_errors_of_creation(
        self, backend: Backend, options: dict[str, Any]
    ) -> None:
        """No error of `create()` shows a secret, also not one in what the provider said."""
        options |= {"secrets": SECRETS, "env": {"A": TOKEN}}
        said = OSError(5, f"cannot set TOKEN={TOKEN}")
        with self.failing_create(said):
            await self._error_shows_nothing(SandboxError, lambda: backend.create(**options))

    @case("ERR-025", area=AREA)
    async def test_no_secret_in_labels(
        self, backend: Backend, options: dict[str, Any], run_id: str
    ) -> None:
        """A secret in `metadata`, which providers show, is refused, and nothing is made."""
        options |= {"secrets": SECRETS, "metadata": {"contract_run": run_id, "a": f"x-{TOKEN}"}}
        await self._error_shows_nothing(ConfigurationError, lambda: backend.create(**options))
        assert await self.count(run_id) == 0

    @pytest.mark.parametrize("parameter", ["env", "secrets"])
    @case("ERR-026", area=AREA)
    async def test_no_value_in_refusals_of_creation(
        self, backend: Backend, options: dict[str, Any], parameter: str
    ) -> None:
        """A refused variable or secret of `create()` is told by its name, never its value, in the
        error and in its causes.
        """
        for bad in BAD:
            options[parameter] = bad
            await self._error_shows_nothing(ConfigurationError, lambda: backend.create(**options))

    @case("ERR-027", needs=COMMANDS, area=AREA)
    async def test_no_value_in_refusals_of_calls(self, sandbox: AsyncSandbox) -> None:
        """The same for variables of commands, code and streams."""
        calls: list[Callable[[Any], Awaitable[object]]] = [
            lambda bad: sandbox.run(["touch", "ran"], env=bad)
        ]
        if Capability.RUN_CODE in sandbox.capabilities:
            calls.append(lambda bad: sandbox.run_code("open('ran', 'w').write('x')", env=bad))
        if Capability.STREAMING in sandbox.capabilities:
            calls.append(lambda bad: _enter(sandbox, bad))
        for call in calls:
            for bad in BAD:
                await self._error_shows_nothing(ConfigurationError, lambda: call(bad))  # noqa: B023
        await self.sh(sandbox, "test ! -e ran")

    async def _error_shows_nothing(
        self, expected: type[SandboxError], call: Callable[[], Awaitable[object]]
    ) -> SandboxError:
        """Await a call that must raise; nothing of the error, causes included, shows the token."""
        with pytest.raises(expected) as caught:
            await call()
        error = caught.value
        parts = [str(error), repr(error), error.message, error.hint, repr(error.args)]
        parts += traceback.format_exception_only(error)
        parts += [repr(value) for value in vars(error).values()]
        cause: BaseException | None = error.__cause__ or error.__context__
        while cause is not None:
            parts += [str(cause), repr(cause)]
            cause = cause.__cause__ or cause.__context__
        assert TOKEN not in "\n".join(parts)
        return error


async def _enter(sandbox: AsyncSandbox, env: Any) -> None:
    async with sandbox.stream(["touch", "ran"], env=env):
        pass
