"""The life of a sandbox: its beginning, its identity, and a second handle on it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from sandboxio.core.errors import (
    CapabilityNotSupported,
    ConfigurationError,
    ConnectError,
    SandboxError,
)
from sandboxio.core.models import Capability
from sandboxio.core.tiers import IsolationTier
from sandboxio.testing.suite._case import case
from sandboxio.testing.suite._lifecycle_end import EndCases

if TYPE_CHECKING:
    from sandboxio.core.protocols import AsyncSandbox, Backend
    from sandboxio.testing.suite.fixtures import Create

COMMANDS = Capability.RUN_COMMAND
FILES = Capability.FILESYSTEM
PASSWORD = "hunter2-and-more"  # noqa: S105  # it is what must not show
CONFIDENTIAL: dict[str, Any] = {
    "env": {"DATABASE_URL": f"postgres://u:{PASSWORD}@h/db"},
    "secrets": {"TOKEN": f"tok-{PASSWORD}"},
}
BAD_VARIABLES = ({"A=B": "x"}, {"": "x"}, {"A": None}, {"A": 1}, {"A": "x\0"}, ["A"])
BAD_ARGUMENTS: list[tuple[str, object]] = [
    *(("timeout", value) for value in (0, -1, math.nan, math.inf, True, "5", None)),
    *(("env", value) for value in BAD_VARIABLES),
    *(("secrets", value) for value in BAD_VARIABLES),
    *(("metadata", {key: "x"}) for key in ("", "a b", "-a", "a" * 64, "a\n")),
    *(("metadata", {"key": value}) for value in (1, None, "", "a\nb", "a\0", "a" * 1025)),
    *(("template", value) for value in ("", 5, "a\0b")),
    *(("user", value) for value in ("", 0, "a b", "-a", "a:b:c")),
]


class LifecycleSuite(EndCases):
    """Cases of the life of a sandbox; those of its end are in the base."""

    @case("LIFE-001", needs=COMMANDS)
    async def test_ready_for_commands(self, create: Create) -> None:
        """A sandbox is ready when `create()` returns: its first command runs at once."""
        sandbox = await create()
        assert await self.sh(sandbox, "echo ready") == "ready\n"

    @case("LIFE-002", needs=COMMANDS | FILES)
    async def test_ready_for_files(self, create: Create) -> None:
        """A sandbox is ready when `create()` returns: its first file can be written at once."""
        sandbox = await create()
        await sandbox.files.write("first", "content")
        assert await self.sh(sandbox, "cat first") == "content"

    @case("LIFE-003")
    async def test_ids_are_unique_and_stable(self, create: Create) -> None:
        """An id is text, different for every sandbox, and the same until after the end."""
        first, second = await create(), await create()
        ids = (first.id, second.id)
        assert all(isinstance(found, str) and found for found in ids)
        assert first.id != second.id
        await first.kill()
        assert (first.id, second.id) == ids

    @case("LIFE-004")
    async def test_what_a_sandbox_says_of_itself(self, sandbox: AsyncSandbox) -> None:
        """Capabilities, tier and the provider's own object belong to the live sandbox."""
        assert isinstance(sandbox.capabilities, Capability)
        assert isinstance(sandbox.isolation, IsolationTier)
        assert sandbox.native is not None
        assert sandbox.capabilities == sandbox.capabilities

    @case("LIFE-005", needs=COMMANDS)
    async def test_several_creations_at_once(self, sandbox: AsyncSandbox, create: Create) -> None:
        """Sandboxes that are created at the same time are different ones, and all of use."""
        made = [sandbox]

        async def make() -> None:
            made.append(await create())

        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(make)
        assert len({each.id for each in made}) == 4
        for number, each in enumerate(made):
            assert await self.sh(each, f"mkdir mine; echo {number}") == f"{number}\n"

    @case("LIFE-006")
    async def test_metadata_reaches_the_provider(self, create: Create, run_id: str) -> None:
        """Metadata is stored at the provider, so that an operator can find what was made."""
        await create()
        await create(metadata={"tenant_id": "t1"})
        assert await self.count(run_id) == 2

    @case("LIFE-007", needs=COMMANDS)
    async def test_environment_of_commands(self, create: Create) -> None:
        """`env` and `secrets` of `create()` reach every command."""
        sandbox = await create(env={"MODE": "fast"}, secrets={"TOKEN": "s3cr3t-value"})
        for _ in range(2):
            script = 'printf %s "$MODE"; printf %s "$TOKEN" | wc -c'
            assert (await self.sh(sandbox, script)).split() == ["fast12"]

    @case("LIFE-008", needs=COMMANDS | Capability.RUN_CODE)
    async def test_environment_of_code(self, create: Create) -> None:
        """`env` and `secrets` of `create()` reach code."""
        sandbox = await create(env={"MODE": "fast"}, secrets={"TOKEN": "s3cr3t-value"})
        code = "import os\nprint(os.environ['MODE'], len(os.environ['TOKEN']))"
        assert (await sandbox.run_code(code)).stdout == "fast 12\n"

    @case("LIFE-009", needs=COMMANDS | Capability.STREAMING)
    async def test_environment_of_streams(self, create: Create) -> None:
        """`env` and `secrets` of `create()` reach streamed commands."""
        sandbox = await create(env={"MODE": "fast"}, secrets={"TOKEN": "s3cr3t-value"})
        async with sandbox.stream('printf %s "$MODE"; printf %s "${#TOKEN}"') as proc:
            assert b"".join([chunk.data async for chunk in proc]) == b"fast12"

    @case("LIFE-010", needs=COMMANDS)
    async def test_arguments_are_taken_when_given(self, create: Create) -> None:
        """What the caller does to a mapping after `create()` does not reach the sandbox."""
        env = {"MODE": "before"}
        sandbox = await create(env=env)
        env.update(MODE="after", MORE="x")
        assert await self.sh(sandbox, 'echo "$MODE$MORE"') == "before\n"

    @case("LIFE-011", needs=COMMANDS)
    async def test_the_default_user(self, create: Create) -> None:
        """Without `user` commands run as an unprivileged user that may write where it starts."""
        sandbox = await create(user=None)
        assert (await self.sh(sandbox, "touch mine && id -u")).strip() != "0"

    @case("LIFE-012", needs=COMMANDS)
    async def test_the_given_user(self, create: Create, run_id: str) -> None:
        """`user` of `create()` is honoured exactly, or refused and then nothing is made."""
        try:
            sandbox = await create(user="4321:8765")
        except (ConfigurationError, CapabilityNotSupported):
            assert await self.count(run_id) == 0
            return
        assert await self.sh(sandbox, "id -u; id -g") == "4321\n8765\n"

    @case("LIFE-013", needs=COMMANDS)
    async def test_an_unknown_user(self, create: Create, run_id: str) -> None:
        """A user that the sandbox does not have is an error of ours, and nothing is left."""
        with pytest.raises(SandboxError):
            await create(user="nobody-by-this-name")
        assert await self.count(run_id) == 0

    @pytest.mark.parametrize(("argument", "value"), BAD_ARGUMENTS, ids=repr)
    @case("LIFE-014")
    async def test_bad_arguments(
        self, create: Create, run_id: str, argument: str, value: object
    ) -> None:
        """An argument that no sandbox can have is refused by name, before anything is made."""
        with pytest.raises(ConfigurationError, match=argument) as caught:
            await create(**{argument: value})
        assert caught.value.outcome == "not_started"
        assert await self.count(run_id) == 0

    @pytest.mark.parametrize("argument", ["env", "secrets"])
    @case("LIFE-015")
    async def test_a_refusal_shows_no_value(self, create: Create, argument: str) -> None:
        """The refusal of a variable names the variable, never its value."""
        for variables in ({"BAD": f"{PASSWORD}\0"}, {f"BAD={PASSWORD}": "x"}):
            with pytest.raises(ConfigurationError, match="BAD") as caught:
                await create(**{argument: variables})
            assert PASSWORD not in str(caught.value) + repr(caught.value)

    @case("LIFE-016", needs=COMMANDS)
    async def test_nothing_printed_shows_a_value(self, create: Create) -> None:
        """No value of `env` or `secrets` shows in what a handle, its files or a process print."""
        sandbox = await create(**CONFIDENTIAL)
        printed: list[object] = [sandbox]
        if FILES in sandbox.capabilities:
            printed.append(sandbox.files)
        if Capability.STREAMING in sandbox.capabilities:
            printed.append(sandbox.stream(["true"], env={"MORE": PASSWORD}))
        assert PASSWORD not in "".join(f"{each!r} {each}" for each in printed)
        assert sandbox.id in repr(sandbox)

    @case("LIFE-017")
    async def test_no_attribute_shows_a_value(self, create: Create) -> None:
        """No value of `env` or `secrets` shows when `vars()` of a handle is printed."""
        sandbox = await create(**CONFIDENTIAL)
        assert PASSWORD not in repr(getattr(sandbox, "__dict__", {}))

    @case("LIFE-018", needs=COMMANDS)
    async def test_files_are_apart(self, create: Create) -> None:
        """No sandbox sees the files of another, in any directory that both can write."""
        one, other = await create(), await create()
        await self.sh(one, "echo x >mine; echo x >/tmp/mine; echo x >$HOME/mine")
        assert await self.sh(other, "ls -A /tmp $HOME . | grep -c mine; true") == "0\n"

    @case("LIFE-019", needs=COMMANDS)
    async def test_processes_are_apart(self, create: Create, marker: int) -> None:
        """No sandbox sees the processes of another."""
        one, other = await create(), await create()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(one.run, self.hang(marker))
            await self.until_alive(one, marker)
            assert await self.alive(other, marker) == 0
            tasks.cancel_scope.cancel()

    @case("LIFE-020", needs=COMMANDS)
    async def test_environments_are_apart(self, create: Create) -> None:
        """No sandbox sees the variables of another."""
        await create(**CONFIDENTIAL)
        other = await create()
        assert await self.sh(other, "env | grep -c hunter2; true") == "0\n"

    @case("LIFE-021", needs=COMMANDS)
    async def test_removing_one_leaves_the_other(self, create: Create, run_id: str) -> None:
        """Removing a sandbox leaves every other one at work."""
        one, other = await create(), await create()
        await one.kill()
        assert await self.sh(other, "echo here") == "here\n"
        assert await self.count(run_id) == 1

    @case("LIFE-022", needs=COMMANDS)
    async def test_connect_reaches_the_same_sandbox(
        self, backend: Backend, sandbox: AsyncSandbox
    ) -> None:
        """`connect()` gives a second handle on the same sandbox: its files, its user, its tier."""
        before = await self.sh(sandbox, "echo seen >note; id -u; pwd")
        second = await backend.connect(sandbox.id)
        assert await self.sh(second, "cat note") == "seen\n"
        assert await self.sh(second, "id -u; pwd") == before
        assert second.id == sandbox.id
        assert (second.capabilities, second.isolation) == (sandbox.capabilities, sandbox.isolation)

    @case("LIFE-023", needs=COMMANDS)
    async def test_connect_knows_no_environment(self, backend: Backend, create: Create) -> None:
        """A second handle knows neither `env` nor `secrets` of whoever created the sandbox."""
        second = await backend.connect((await create(**CONFIDENTIAL)).id)
        assert await self.sh(second, "env | grep -c hunter2; true") == "0\n"

    @case("LIFE-024", needs=COMMANDS)
    async def test_leaving_the_block_of_a_connected_handle(
        self, backend: Backend, sandbox: AsyncSandbox
    ) -> None:
        """Leaving the block of a second handle removes the sandbox, for the first one too."""
        async with await backend.connect(sandbox.id) as second:
            await self.sh(second, "true")
        await self.assert_ended(backend, sandbox)

    @pytest.mark.parametrize(
        "unknown", ["0123456789abcdef", "../../x", "*", "a b", "-a", "x" * 300]
    )
    @case("LIFE-025")
    async def test_connect_to_an_unknown_id(self, backend: Backend, unknown: str) -> None:
        """`connect()` with an id that no sandbox has is `ConnectError`."""
        with pytest.raises(ConnectError):
            await backend.connect(unknown)

    @case("LIFE-026")
    async def test_connect_matches_ids_exactly(
        self, backend: Backend, sandbox: AsyncSandbox, run_id: str
    ) -> None:
        """`connect()` takes no part of an id for the id, and never makes a sandbox."""
        for almost in (sandbox.id[:-1], sandbox.id[:4], f"{sandbox.id}0", f" {sandbox.id}"):
            with pytest.raises(ConnectError):
                await backend.connect(almost)
        assert await self.count(run_id) == 1

    @pytest.mark.parametrize("value", ["", None, 5, "a\0b"])
    @case("LIFE-027")
    async def test_connect_to_what_is_no_id(self, backend: Backend, value: Any) -> None:
        """`connect()` with what cannot be an id is refused by an error of ours."""
        with pytest.raises((ConfigurationError, ConnectError)) as caught:
            await backend.connect(value)
        assert caught.value.outcome == "not_started"
