"""Ending one call exactly.

Scripts inside do it, as the user of the call, who alone may signal its processes, and whose code
could cheat them. The engine's own list of processes, before and after, is what counts.
"""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

import anyio

from sandboxio.adapters import _docker_launch as launch
from sandboxio.adapters._docker_failure import failure
from sandboxio.adapters._docker_outside import Processes, look
from sandboxio.adapters._docker_stream import CLOSED, READ_BYTES, ByteStream, FrameDecoder
from sandboxio.core.driver import KillReport
from sandboxio.core.errors import ConnectError, SandboxError, SandboxGone
from sandboxio.guest import shell_kill
from sandboxio.guest.shell_kill import Ending

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from sandboxio.adapters._docker_launch import Container

T = TypeVar("T")

_HEADROOM = (128, 512, 2048)
"""Processes a container is allowed beyond its limit while one of its calls is being ended; more
each time, because a fork bomb takes what it can get before the script does."""
_ANSWER_LIMIT = 4096
_RESTORE_SECONDS = 2.0
_SETTLE_PAUSES = (0.0, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2)
_KILL_PAUSES = (0.1, 0.2, 0.4)
_ABANDON_PAUSES = (0.1, 0.2, 0.4, 0.8, 1.6)
_LOOK_PAUSES = (0.0, 0.05, 0.2)
_KILLED = 137
_UNSEEN = frozenset({-1})
"""Something may be left, and the engine cannot tell what."""


class CallEnding:
    """What is needed to end one call, whoever owns it."""

    def __init__(self, container: Container, exec_id: str, user: str, marker: str) -> None:
        self.container = container
        self.exec_id = exec_id
        self._user = user
        self._marker = marker

    async def end(self) -> KillReport:
        """End the call's tree; when its wrapper was tampered with, what no other call holds."""
        call = await self._pid(self.exec_id)
        before = await look(self.container)
        left = await self._residue(call, before, await self._end_call())
        if not left:
            return KillReport(complete=True)
        outcome = await self._run(shell_kill.END_ORPHANS)
        after = await look(self.container)
        if after is None or left is _UNSEEN:
            complete = outcome is not Ending.BUSY and await self._settled() is not None
        else:
            complete = not (left & after.parents.keys() or after.below(call))
        return KillReport(complete=complete, collateral=outcome is not Ending.ABSENT)

    async def end_late(self) -> None:
        """End a call that nobody will own, also one that the engine comes to only now."""
        for pause in _ABANDON_PAUSES:
            outcome = await self._run(shell_kill.END_CALL)
            state = await launch.inspect(self.container, self.exec_id)
            if outcome is Ending.ENDED or isinstance(state.get("ExitCode"), int):
                return
            await anyio.sleep(pause)

    async def end_survivors(self) -> None:
        """End what carries the marker of a call whose wrapper has ended."""
        await _script(self.container, self._user, shell_kill.END_CALL, self._marker)

    async def _end_call(self) -> Ending:
        outcome = Ending.ABSENT
        for pause in _KILL_PAUSES:
            outcome = await self._run(shell_kill.END_CALL)
            if outcome is not Ending.ABSENT or await self._settled() is not None:
                break
            await anyio.sleep(pause)  # the engine has not come to starting it yet
        return outcome

    async def _residue(
        self, call: int, before: Processes | None, outcome: Ending
    ) -> frozenset[int]:
        """Return what may be left of the call: what lives on below it, or was orphaned since.

        What is gone at the next look was on its way out, or on its way in for another call.
        """
        if before is None:
            return frozenset() if await self._seems_ended(outcome) else _UNSEEN
        if outcome is Ending.ABSENT and not await self._seems_ended(outcome):
            return _UNSEEN  # its wrapper was gone beforehand: its orphans are not new ones
        left: frozenset[int] | None = None
        for pause in _LOOK_PAUSES:
            await anyio.sleep(pause)
            after = await look(self.container)
            if after is None:
                return frozenset() if await self._seems_ended(outcome) else _UNSEEN
            orphans = after.orphans(await self._live_calls())
            new = orphans - before.parents.keys()
            moved = orphans & before.below(call)
            found = new | moved | after.below(call)
            left = found if left is None else left & found
            if not left:
                break
        return left or frozenset()

    async def _seems_ended(self, outcome: Ending) -> bool:
        state = await self._settled()
        return state is not None and (
            outcome is Ending.ENDED
            or (outcome is Ending.ABSENT and state.get("ExitCode") != _KILLED)
        )

    async def _live_calls(self) -> frozenset[int]:
        """Return the wrappers of the other calls, and the scripts of other endings."""
        found = await _again(lambda: launch.describe(self.container))
        return frozenset(
            [await self._pid(exec_id) for exec_id in found.execs if exec_id != self.exec_id]
        ) - {0}

    async def _pid(self, exec_id: str) -> int:
        state = await _again(lambda: launch.inspect(self.container, exec_id))
        return int(state["Pid"])

    async def _settled(self) -> dict[str, Any] | None:
        """Return the state of the exec once it has ended, or nothing if it does not."""
        for pause in _SETTLE_PAUSES:
            await anyio.sleep(pause)
            with suppress(ConnectError):  # asked again
                state = await launch.inspect(self.container, self.exec_id)
                if not state.get("Running"):
                    return state
        return None

    async def _run(self, script: str) -> Ending:
        try:
            return await _script(self.container, self._user, script, self._marker)
        except SandboxGone:
            raise
        except SandboxError:
            return Ending.BUSY


async def _again(ask: Callable[[], Awaitable[T]]) -> T:
    """Ask the engine, and ask again when an answer was lost: a sandbox depends on it."""
    for pause in _KILL_PAUSES:
        with suppress(ConnectError):
            return await ask()
        await anyio.sleep(pause)
    return await ask()


async def _script(container: Container, user: str, script: str, marker: str) -> Ending:
    """Run a script of `guest.shell_kill`, as the user of the call; return what it reports."""
    try:
        return await _once(container, user, script, marker)
    except SandboxGone:
        raise
    except SandboxError:
        pass
    # Most likely the call has used up the processes the container may have, and goes on forking.
    for more in _HEADROOM[:-1]:
        with suppress(ConnectError):
            async with _headroom(container, more):
                return await _once(container, user, script, marker)
    async with _headroom(container, _HEADROOM[-1]):
        return await _once(container, user, script, marker)


async def _once(container: Container, user: str, script: str, marker: str) -> Ending:
    spec = launch.ExecSpec(("/bin/sh", "-c", script, "sh", marker), user, "/", {})
    exec_id = await launch.create(container, spec, lane="teardown")
    stream, early = await launch.attach(container, exec_id)
    try:
        said = await _answer(stream, early)
    finally:
        with anyio.CancelScope(shield=True), suppress(*CLOSED):
            await stream.aclose()
    if said.startswith(launch.ENGINE_WORDS):
        raise failure("call", None, said.decode("utf-8", "replace"))
    if not said:  # it could not fork, or was killed
        raise failure("call", None, "the script that ends a call said nothing")
    return shell_kill.parse(said)


async def _answer(stream: ByteStream, early: bytes) -> bytes:
    decoder, said, data = FrameDecoder(), b"", early
    with suppress(anyio.EndOfStream, *CLOSED):
        while len(said) < _ANSWER_LIMIT:
            said += b"".join(c.data for c in decoder.feed(data) if c.stream == "stdout")
            data = await stream.receive(READ_BYTES)
    return said


@asynccontextmanager
async def _headroom(container: Container, more: int) -> AsyncGenerator[None]:
    """Raise the process limit for as long as at least one ending needs it."""
    container.endings += 1
    try:
        await _limit(container, container.pids_limit + more)
        yield
    finally:
        container.endings -= 1
        if not container.endings:
            with anyio.move_on_after(_RESTORE_SECONDS, shield=True), suppress(SandboxError):
                await _limit(container, container.pids_limit)


async def _limit(container: Container, pids: int) -> None:
    def update(client: Any) -> None:
        url = f"{client.base_url}/v{client.api_version}/containers/{container.id}/update"
        client.post(url, json={"PidsLimit": pids}).raise_for_status()

    await container.engine.call("call", update, lane="teardown")
