"""Finding and removing what a backend made: `list_managed()` and `kill_managed()`."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from sandboxio.core.errors import ConfigurationError, SandboxGone
from sandboxio.core.models import Capability, ManagedSandbox
from sandboxio.core.protocols import ReapableBackend
from sandboxio.testing.suite._case import case
from sandboxio.testing.suite._probes import assert_gone, collect
from sandboxio.testing.suite.fixtures import SuiteFixtures

if TYPE_CHECKING:
    from sandboxio.core.errors import SandboxError
    from sandboxio.core.protocols import AsyncSandbox, Backend
    from sandboxio.testing.suite.fixtures import Create

COMMANDS = Capability.RUN_COMMAND
PASSWORD = "hunter2-and-more"  # noqa: S105  # it is what must not show


class ReapingSuite(SuiteFixtures):
    """Cases of reaping; all but the first are for backends that have it."""

    @pytest.fixture
    def reapable(self, backend: Backend) -> ReapableBackend:
        """The backend, where it can list and remove what it made."""
        if not isinstance(backend, ReapableBackend):
            pytest.skip(reason=f"{backend.name} has no list_managed() and kill_managed()")
        return backend

    @case("REAP-001")
    async def test_both_or_neither(self, backend: Backend) -> None:
        """A backend has `list_managed()` and `kill_managed()`, or neither of them."""
        found = [hasattr(backend, name) for name in ("list_managed", "kill_managed")]
        assert found in ([True, True], [False, False])

    @case("REAP-002")
    async def test_a_running_sandbox_is_listed(
        self, reapable: ReapableBackend, create: Create, run_id: str
    ) -> None:
        """A sandbox is listed with its id, its backend, its state, and its metadata as labels."""
        sandbox = await create(metadata={"tenant_id": "t1"})
        (found,) = await reapable.list_managed(labels={"contract_run": run_id})
        assert isinstance(found, ManagedSandbox)
        assert (found.sandbox_id, found.backend) == (sandbox.id, reapable.name)
        assert found.state == "running"
        assert dict(found.labels) == {"contract_run": run_id, "tenant_id": "t1"}

    @case("REAP-003", needs=COMMANDS)
    async def test_when_it_was_made(
        self, reapable: ReapableBackend, sandbox: AsyncSandbox, run_id: str
    ) -> None:
        """`created_at` has a time zone, and is the time of creation by the sandbox's own clock."""
        (found,) = await reapable.list_managed(labels={"contract_run": run_id})
        assert found.created_at is not None
        assert found.created_at.tzinfo is not None
        inside = int(await self.sh(sandbox, "date +%s"))
        assert abs(found.created_at.timestamp() - inside) < 300

    @case("REAP-004")
    async def test_everything_is_listed(self, reapable: ReapableBackend, create: Create) -> None:
        """Without `labels` every sandbox of ours is listed, each once."""
        made = [await create(), await create(metadata={"tenant_id": "t1"})]
        ids = [found.sandbox_id for found in await reapable.list_managed()]
        assert {each.id for each in made} <= set(ids)
        assert len(ids) == len(set(ids))

    @case("REAP-005")
    async def test_labels_narrow(
        self, reapable: ReapableBackend, create: Create, run_id: str
    ) -> None:
        """`labels` narrows to sandboxes that have every one of them."""
        first = await create(metadata={"nr": "1", "tenant_id": "t1"})
        await create(metadata={"nr": "2", "tenant_id": "t1"})
        await create(metadata={"nr": "1", "tenant_id": "t2"})
        wanted = {"contract_run": run_id, "nr": "1", "tenant_id": "t1"}
        assert await _ids(reapable, wanted) == [first.id]

    @pytest.mark.parametrize(
        "other", [{"nr": "1"}, {"nr": "122"}, {"n": "12"}, {"NR": "12"}, {"nr": "*"}, {"nr": "1."}]
    )
    @case("REAP-006")
    async def test_labels_match_exactly(
        self, reapable: ReapableBackend, create: Create, run_id: str, other: dict[str, str]
    ) -> None:
        """`labels` matches keys and values exactly: no prefix, no pattern, no other case."""
        await create(metadata={"nr": "12"})
        assert await _ids(reapable, {"contract_run": run_id, **other}) == []

    @case("REAP-007")
    async def test_awkward_values(
        self, reapable: ReapableBackend, create: Create, run_id: str
    ) -> None:
        """Values that a query could misread come back as they were given, and can be asked for."""
        odd = {"equals": "a=b", "comma": "a,b", "star": "*", "space": " a b ", "accent": "é"}
        sandbox = await create(metadata=odd)
        (found,) = await reapable.list_managed(labels={"contract_run": run_id})
        assert dict(found.labels) == {"contract_run": run_id, **odd}
        for key, value in odd.items():
            assert await _ids(reapable, {"contract_run": run_id, key: value}) == [sandbox.id]

    @case("REAP-008")
    async def test_no_secret_is_listed(
        self, reapable: ReapableBackend, create: Create, run_id: str
    ) -> None:
        """What is listed shows no value of `env` or `secrets`."""
        await create(env={"MODE": PASSWORD}, secrets={"TOKEN": PASSWORD})
        found = await reapable.list_managed(labels={"contract_run": run_id})
        assert len(found) == 1
        assert PASSWORD not in repr(found)

    @pytest.mark.parametrize(
        "bad", [{"nr": 1}, {"nr": None}, {1: "nr"}, {"": "x"}, {"a b": "x"}, ["nr"], "nr"]
    )
    @case("REAP-009")
    async def test_bad_labels(self, reapable: ReapableBackend, bad: Any) -> None:
        """Labels that no sandbox can have are refused, not taken for none."""
        with pytest.raises(ConfigurationError):
            await reapable.list_managed(labels=bad)

    @case("REAP-010")
    async def test_a_killed_sandbox_is_not_listed(
        self, reapable: ReapableBackend, create: Create, run_id: str
    ) -> None:
        """A sandbox that was killed is listed no more, and is not there to be removed."""
        one, other = await create(), await create()
        await one.kill()
        assert await _ids(reapable, {"contract_run": run_id}) == [other.id]
        assert await reapable.kill_managed(one.id) is False

    @case("REAP-011", needs=COMMANDS)
    async def test_an_ended_sandbox_is_listed(
        self, reapable: ReapableBackend, sandbox: AsyncSandbox, run_id: str
    ) -> None:
        """A sandbox whose lifetime is over is listed as stopped, with its labels and its time of
        creation, as long as the provider holds it; `kill_managed()` removes it.
        """
        await self.expire(sandbox)
        held = await self.count(run_id)
        listed = await reapable.list_managed(labels={"contract_run": run_id})
        assert [(found.sandbox_id, found.state) for found in listed] == [
            (sandbox.id, "stopped")
        ] * held
        assert all(dict(found.labels) == {"contract_run": run_id} for found in listed)
        assert all(found.created_at is not None for found in listed)
        assert await reapable.kill_managed(sandbox.id) is (held == 1)
        assert await self.count(run_id) == 0

    @case("REAP-012")
    async def test_kill_managed(
        self, reapable: ReapableBackend, create: Create, run_id: str
    ) -> None:
        """`kill_managed()` removes that sandbox alone and says True; the second time, False."""
        one, other = await create(), await create()
        assert await reapable.kill_managed(one.id) is True
        assert await reapable.kill_managed(one.id) is False
        assert await _ids(reapable, {"contract_run": run_id}) == [other.id]
        assert await self.count(run_id) == 1
        await assert_gone(reapable, one.id)

    @pytest.mark.parametrize(
        "unknown", ["0123456789abcdef", "../../x", "*", "a b", "-a", "x" * 300]
    )
    @case("REAP-013")
    async def test_an_unknown_id(self, reapable: ReapableBackend, unknown: str) -> None:
        """`kill_managed()` of an id that no sandbox has is False, and no error."""
        assert await reapable.kill_managed(unknown) is False

    @case("REAP-014")
    async def test_ids_match_exactly(
        self, reapable: ReapableBackend, sandbox: AsyncSandbox, run_id: str
    ) -> None:
        """`kill_managed()` takes no part of an id for the id."""
        for almost in (sandbox.id[:-1], sandbox.id[:4], f"{sandbox.id}0", f" {sandbox.id}"):
            assert await reapable.kill_managed(almost) is False
        assert await _ids(reapable, {"contract_run": run_id}) == [sandbox.id]

    @pytest.mark.parametrize("value", ["", None, 5, "a\0b"])
    @case("REAP-015")
    async def test_what_is_no_id(
        self, reapable: ReapableBackend, sandbox: AsyncSandbox, run_id: str, value: Any
    ) -> None:
        """`kill_managed()` of what cannot be an id is refused, or False; it removes nothing."""
        with suppress(ConfigurationError):
            assert await reapable.kill_managed(value) is False
        assert await _ids(reapable, {"contract_run": run_id}) == [sandbox.id]

    @case("REAP-016", needs=COMMANDS)
    async def test_the_handle_learns(
        self, reapable: ReapableBackend, sandbox: AsyncSandbox
    ) -> None:
        """After `kill_managed()` the sandbox's own handle raises `SandboxGone`, and its `kill()`
        is silent.
        """
        await reapable.kill_managed(sandbox.id)
        with pytest.raises(SandboxGone):
            await sandbox.run(["true"])
        await sandbox.kill()

    @case("REAP-017", needs=COMMANDS)
    async def test_a_call_under_way_learns(
        self, reapable: ReapableBackend, sandbox: AsyncSandbox, marker: int
    ) -> None:
        """A call under way when its sandbox is reaped raises `SandboxGone`."""
        errors: list[SandboxError] = []
        run = partial(sandbox.run, self.hang(marker))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(collect, run, SandboxGone, errors)
            await self.until_alive(sandbox, marker)
            assert await reapable.kill_managed(sandbox.id) is True
        assert len(errors) == 1

    @case("REAP-018")
    async def test_several_reapers_at_once(
        self, reapable: ReapableBackend, sandbox: AsyncSandbox, run_id: str
    ) -> None:
        """Several `kill_managed()` and `kill()` of one sandbox at once all succeed."""
        answers: list[bool] = []

        async def reap() -> None:
            answers.append(await reapable.kill_managed(sandbox.id))

        async with anyio.create_task_group() as tasks:
            for _ in range(4):
                tasks.start_soon(reap)
                tasks.start_soon(sandbox.kill)
        assert [type(answer) for answer in answers] == [bool] * 4
        assert await self.count(run_id) == 0

    @case("REAP-019")
    async def test_two_reapers_at_once(
        self, reapable: ReapableBackend, sandbox: AsyncSandbox, run_id: str
    ) -> None:
        """When two remove one sandbox at once, one of them at least is told that it was there."""
        answers: list[bool] = []

        async def reap() -> None:
            answers.append(await reapable.kill_managed(sandbox.id))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(reap)
            tasks.start_soon(reap)
        assert any(answers)
        assert await self.count(run_id) == 0

    @case("REAP-020")
    async def test_listing_while_others_end(
        self, reapable: ReapableBackend, create: Create, run_id: str
    ) -> None:
        """Listing is no error while sandboxes are being removed, and shows those that stay."""
        stays, *going = [await create() for _ in range(4)]
        async with anyio.create_task_group() as tasks:
            for each in going:
                tasks.start_soon(each.kill)
            for _ in range(5):
                assert stays.id in await _ids(reapable, {"contract_run": run_id})
        assert await _ids(reapable, {"contract_run": run_id}) == [stays.id]


async def _ids(reapable: ReapableBackend, labels: dict[str, str]) -> list[str]:
    return [found.sandbox_id for found in await reapable.list_managed(labels=labels)]
