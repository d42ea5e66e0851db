"""Fixtures of every area. A subclass has no need to override any of them."""

from __future__ import annotations

import inspect
import random
import secrets
from contextlib import AsyncExitStack, suppress
from functools import update_wrapper
from importlib.util import find_spec
from types import FunctionType
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from sandboxio.core.errors import SandboxError
from sandboxio.core.models import Capability, NetworkPolicy
from sandboxio.testing.suite._case import CASES, case_of
from sandboxio.testing.suite.settings import SuiteSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from sandboxio.core.models import ExecResult
    from sandboxio.core.protocols import AsyncSandbox, Backend

ALL_SKIPPED = "sandboxio_area"
"""Name of the report property by which the plugin finds areas that skipped everything."""
DEVIATION = "sandboxio_deviation"
_PORT = ("name", "capabilities", "isolation", "create", "connect")


class Create(Protocol):
    """Creates a sandbox that is removed when the case ends."""

    async def __call__(self, **options: Any) -> AsyncSandbox: ...


class SuiteFixtures(SuiteSettings):
    """What the cases of an area stand on."""

    pytestmark = pytest.mark.anyio

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name, test in inspect.getmembers(cls):
            found, original = case_of(test), getattr(test, "original", test)
            if found is not None and found.number in cls.deviations:
                setattr(cls, name, _deviating(original, found.number, cls.deviations[found.number]))
            elif original is not test:  # a deviation of a class further up, which this one has not
                setattr(cls, name, original)

    @pytest.fixture(params=["asyncio", "trio"])
    def anyio_backend(self, request: pytest.FixtureRequest) -> str:
        """Run each case on both event loops."""
        name = str(request.param)
        if name not in self.loops:
            pytest.skip(reason=f"{type(self).__name__} leaves {name} out of `loops`")
        if find_spec(name) is None:
            pytest.skip(reason=f'{name} is not installed; install it, or set loops = ("asyncio",)')
        return name

    @pytest.fixture(name="backend", autouse=True)
    def contract_backend(self, request: pytest.FixtureRequest) -> Backend:
        """The backend under test; the report hears here which case this is."""
        found = case_of(request.function)
        if found is not None:
            self._note(request, found.number, found.area)
        made = self.make_backend()
        trouble = _unusable(made)
        if trouble is not None:
            pytest.fail(f"{type(self).__name__}: {trouble}", pytrace=False)
        return made

    @pytest.fixture
    def run_id(self) -> str:
        """The value of metadata `contract_run` of every sandbox of this case."""
        return f"contract-{secrets.token_hex(6)}"

    @pytest.fixture
    def marker(self) -> int:
        """A number that no other process carries."""
        return random.randrange(10**6, 10**7)

    @pytest.fixture
    def options(self, backend: Backend, run_id: str) -> dict[str, Any]:
        """Arguments with which `backend.create()` makes an ordinary sandbox for this case."""
        enforced = Capability.NETWORK_POLICY in backend.capabilities
        return {
            "template": self.template,
            "timeout": self.lifetime,
            "user": self.user,
            "metadata": {"contract_run": run_id},
            "network": NetworkPolicy() if enforced else NetworkPolicy(egress="allow"),
        }

    @pytest.fixture
    async def create(
        self,
        request: pytest.FixtureRequest,
        backend: Backend,
        options: dict[str, Any],
        run_id: str,
    ) -> AsyncIterator[Create]:
        """Create sandboxes for this case; the first one is asked whether the case applies.

        Afterwards the provider is asked whether anything of the case is left.
        """
        found = case_of(request.function)
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._assert_none_left, run_id)

            async def create(**changes: Any) -> AsyncSandbox:
                merged: dict[str, Any] = {**options, **changes}
                merged["metadata"] = {**(merged["metadata"] or {}), **options["metadata"]}
                made = await backend.create(**merged)
                stack.push_async_callback(_discard, made)
                unfit = None if found is None else found.unfit(made.capabilities)
                if unfit is not None:
                    pytest.skip(reason=unfit)
                return made

            yield create

    @pytest.fixture
    async def sandbox(self, create: Create) -> AsyncSandbox:
        """A fresh sandbox of the backend's defaults."""
        return await create()

    async def sh(self, sandbox: AsyncSandbox, script: str, **options: Any) -> str:
        """Run a shell script that must succeed, and return what it wrote."""
        done: ExecResult = await sandbox.run(script, **options)
        assert done.exit_code == 0, f"{script!r} failed: {done}"
        return done.stdout

    async def skip_root(self, sandbox: AsyncSandbox) -> None:
        """Skip a case about missing rights where the sandbox's user has all of them."""
        if await self.sh(sandbox, "id -u") == "0\n":
            pytest.skip(reason="the user of this sandbox is root")

    async def eventually(
        self, check: Callable[[], Awaitable[object]], *, within: float = 15.0
    ) -> None:
        """Wait until the check gives something true, for `within` seconds of the suite's clock."""
        until = self.clock.time() + within
        while not await check():
            if self.clock.time() > until:
                pytest.fail(f"this did not come true within {within:g} s: {check}")
            await self.clock.sleep(0.1)

    async def until_alive(self, sandbox: AsyncSandbox, marker: int, count: int = 1) -> None:
        """Wait until that many processes carry the marker."""

        async def there() -> bool:
            return await self.alive(sandbox, marker) >= count

        await self.eventually(there)

    async def until_dead(self, sandbox: AsyncSandbox, marker: int) -> None:
        """Wait until no process carries the marker."""

        async def gone() -> bool:
            return await self.alive(sandbox, marker) == 0

        await self.eventually(gone)

    def _note(self, request: pytest.FixtureRequest, number: str, area: str) -> None:
        suite = request.node.nodeid.rpartition("::")[0]
        size = sum(known.area == area for known in CASES.values())
        request.node.user_properties.append((ALL_SKIPPED, (suite, area, number, size)))
        reason = self.deviations.get(number)
        if reason is not None:
            request.node.user_properties.append((DEVIATION, (suite, number, reason)))

    async def _assert_none_left(self, run_id: str) -> None:
        async def none_left() -> bool:
            return await self.count(run_id) == 0

        if self.has_probe("count"):
            await self.eventually(none_left)


def _unusable(backend: object) -> str | None:
    """Say what to write instead, where something is no backend."""
    name = type(backend).__name__
    if isinstance(backend, type):
        return f"its backend is a class. Write `backend = {backend.__name__}()`."
    if hasattr(backend, "provision"):
        return f"its backend is a driver. Write `backend = DriverBackend({name}())`."
    missing = [member for member in _PORT if not hasattr(backend, member)]
    return f"{name} lacks what `Backend` has: {', '.join(missing)}." if missing else None


def _deviating(test: Any, number: str, reason: str) -> Any:
    """Return a copy of a case that is expected to fail, wherever it does: its fixtures count."""
    made: Any = FunctionType(test.__code__, test.__globals__, closure=test.__closure__)
    made.original = test
    mark = pytest.mark.xfail(reason=f"{number}: {reason}", strict=True)
    return mark(update_wrapper(made, test))


async def _discard(sandbox: AsyncSandbox) -> None:
    with suppress(SandboxError):
        await sandbox.kill()
