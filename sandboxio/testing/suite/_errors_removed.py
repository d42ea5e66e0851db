"""Errors of calls whose sandbox somebody else removes, and what every error carries."""

from __future__ import annotations

import re
import traceback
from functools import partial
from typing import TYPE_CHECKING

import anyio
import pytest

from sandboxio.core.catalog import CATALOG
from sandboxio.core.errors import SandboxError, SandboxGone
from sandboxio.core.models import Capability
from sandboxio.testing.suite._case import case
from sandboxio.testing.suite._errors_shown import ErrorsShown
from sandboxio.testing.suite._probes import BEAT, collect, until_beating

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sandboxio.core.protocols import AsyncSandbox

AREA = "errors"
COMMANDS = Capability.RUN_COMMAND
STREAMS = Capability.RUN_COMMAND | Capability.STREAMING
OUTCOMES = ("not_started", "unknown", "done")


class ErrorsRemoved(ErrorsShown):
    """Cases of an outside removal in mid-call."""

    @case("ERR-014", needs=COMMANDS, area=AREA)
    async def test_removal_is_no_exit_code(self, sandbox: AsyncSandbox, marker: int) -> None:
        """A command whose sandbox somebody else removes raises `SandboxGone`; the kill that ended
        it never passes for its exit code.
        """
        self.require("remove_behind")
        ready = partial(self.until_alive, sandbox, marker)
        await self._removed_in_mid_call(sandbox, partial(sandbox.run, self.hang(marker)), ready)

    @case("ERR-015", needs=COMMANDS | Capability.RUN_CODE, area=AREA)
    async def test_removal_is_no_end_of_code(self, sandbox: AsyncSandbox) -> None:
        """The same for code."""
        self.require("remove_behind")
        ready = partial(until_beating, self, sandbox)
        await self._removed_in_mid_call(sandbox, partial(sandbox.run_code, BEAT), ready)

    @pytest.mark.parametrize("wait", [True, False])
    @case("ERR-016", needs=STREAMS, area=AREA)
    async def test_removal_is_no_end_of_a_stream(
        self, sandbox: AsyncSandbox, marker: int, wait: bool
    ) -> None:
        """The same for a stream, for whoever reads it and for whoever waits for it."""
        self.require("remove_behind")

        async def call() -> None:
            async with sandbox.stream(f"echo x; {self.hang(marker)}") as proc:
                if wait:
                    await proc.wait()
                async for _ in proc:
                    pass

        await self._removed_in_mid_call(sandbox, call, partial(self.until_alive, sandbox, marker))

    @case("ERR-017", needs=COMMANDS | Capability.STDIN, area=AREA)
    async def test_removed_while_input_waits(self, sandbox: AsyncSandbox, marker: int) -> None:
        """The same for a command whose input is still being sent; the error is in no group."""
        self.require("remove_behind")
        call = partial(sandbox.run, self.hang(marker), stdin=b"x" * 8_000_000)
        await self._removed_in_mid_call(sandbox, call, partial(self.until_alive, sandbox, marker))

    @case("ERR-018", needs=COMMANDS, area=AREA)
    async def test_removed_under_several_calls(self, sandbox: AsyncSandbox, marker: int) -> None:
        """Of several calls under way when the sandbox is removed each one raises `SandboxGone`."""
        self.require("remove_behind")
        errors: list[SandboxError] = []
        async with anyio.create_task_group() as tasks:
            for _ in range(4):
                call = partial(sandbox.run, self.hang(marker))
                tasks.start_soon(collect, call, SandboxGone, errors)
            await self.until_alive(sandbox, marker, 4)
            await self.remove_behind(sandbox)
        assert len({id(error) for error in errors}) == 4

    async def _removed_in_mid_call(
        self,
        sandbox: AsyncSandbox,
        call: Callable[[], Awaitable[object]],
        ready: Callable[[], Awaitable[object]],
    ) -> None:
        """Remove the sandbox behind a call under way; it must say so, soon, and completely."""
        errors: list[SandboxError] = []
        removed: list[float] = []
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(collect, call, SandboxGone, errors)
            await ready()
            await self.remove_behind(sandbox)
            removed.append(self.clock.time())
        assert self.clock.time() - removed[0] < 20
        assert_complete(errors[0])
        assert errors[0].outcome == "unknown"


def assert_complete(error: SandboxError) -> None:
    """Fail unless an error carries everything that every error carries."""
    assert re.fullmatch(r"SBX_E\d{4}", error.code)
    assert error.code in CATALOG
    assert error.message
    assert error.hint
    assert error.url.startswith("https://")
    assert error.url.endswith(error.code)
    assert error.outcome in OUTCOMES
    assert isinstance(error.retryable, bool)
    lines = str(error).splitlines()
    assert lines[0].startswith(f"[{error.code}] ")
    assert any(line.startswith("  Fix:  ") for line in lines)
    assert lines[-1] == f"  Docs: {error.url}"
    assert error.message.splitlines()[0] in "".join(traceback.format_exception(error))
