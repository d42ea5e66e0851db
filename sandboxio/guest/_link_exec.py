"""One call over a link: its output, its end, and ending it exactly."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

import anyio

from sandboxio.core.driver import ExitStatus, KillReport
from sandboxio.core.errors import ConnectError, LinkLost, SandboxError, SandboxGone
from sandboxio.core.lifecycle import undone
from sandboxio.core.models import OutputChunk
from sandboxio.guest import _link_verdicts as verdicts
from sandboxio.guest.frames import DATA, RuleBroken, flag

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sandboxio.guest._link_channel import Channel
    from sandboxio.guest.link import Link

_UNSUPPORTED = [b"error", b"unsupported"]
_FIRST_PAUSE, _LAST_PAUSE = 0.01, 0.25


class Host(Protocol):
    """What a call needs to know of its sandbox."""

    memory_mb: int

    async def link(self) -> Link: ...
    async def explain(self, lost: LinkLost) -> None: ...
    async def gone(self) -> SandboxError | None: ...


class Opened(NamedTuple):
    """A channel, and the link it belongs to."""

    link: Link
    channel: Channel


class LinkExec:
    """An `ExecChannel` over one channel of a link."""

    def __init__(
        self,
        host: Host,
        opened: Opened,
        *,
        timeout: float,
        instead: Callable[[], Awaitable[Opened]] | None = None,
    ) -> None:
        """`instead` opens another channel, where the agent turns out not to have the service."""
        self._host = host
        self._link, self._channel = opened
        self._timeout = timeout
        self._instead = instead
        self._ended = False

    async def receive(self) -> OutputChunk | None:
        while True:
            try:
                piece = await self._channel.receive()
            except LinkLost as exc:
                await self._host.explain(exc)
                raise
            if piece is not None:
                kind, data = piece
                return OutputChunk("stdout" if kind == DATA else "stderr", data)
            if not self._refused():
                return None
            await self._start_instead()

    def _refused(self) -> bool:
        result = self._channel.result or []
        return self._instead is not None and not self._ended and result[:2] == _UNSUPPORTED

    async def _start_instead(self) -> None:
        instead, self._instead = self._instead, None
        if instead is not None:
            self._link, self._channel = await instead()

    async def send(self, data: bytes) -> None:
        await self._channel.send(data)

    async def close_stdin(self) -> None:
        await self._channel.send_eof()

    async def wait(self) -> ExitStatus:
        fields = self._channel.result
        if fields is None:
            raise LinkLost("The end of the call is not known.", outcome="unknown")
        if fields[0] == b"error":
            raise await self._not_started(fields)
        try:
            end = verdicts.verdict(fields)
        except RuleBroken as exc:
            await self._link.close(f"the agent broke its protocol: {exc}")
            raise LinkLost("The end of the call cannot be read.", outcome="unknown") from exc
        failure = await self._failure(end)
        return ExitStatus(end.exit_code, cut=end.cut, failure=failure, released=True)

    async def _not_started(self, fields: list[bytes]) -> SandboxError:
        _, name, words = fields
        error = verdicts.not_started(name, words)
        if isinstance(error, ConnectError):  # a sandbox that is ending starts nothing either
            return await self._host.gone() or error
        return error

    async def _failure(self, end: verdicts.Verdict) -> SandboxError | None:
        if end.ended:
            return None if self._ended else verdicts.overdue(self._timeout)
        if end.exit_code != verdicts.KILLED:
            return None
        if end.out_of_memory:
            return verdicts.out_of_memory(self._host.memory_mb)
        gone = await self._host.gone()
        if gone is not None:
            raise gone
        return None

    async def kill(self) -> KillReport:
        self._ended = True
        fields = self._channel.result
        if fields is None:
            try:
                fields = await self._channel.finish()
            except LinkLost:
                return await self._settled()
        return await self._report(fields)

    async def _report(self, fields: list[bytes]) -> KillReport:
        if fields[0] == b"error":
            return KillReport(complete=True)
        try:
            end = verdicts.verdict(fields)
        except RuleBroken as exc:
            await self._link.close(f"the agent broke its protocol: {exc}")
            return KillReport(complete=False)
        return KillReport(complete=end.complete or not end.ended)

    async def _settled(self) -> KillReport:
        """Learn, over another link, when the agent has ended what the lost one left."""
        pause = _FIRST_PAUSE
        while True:
            try:
                if await self._ask_settled():
                    return KillReport(complete=True)
            except SandboxGone:
                return KillReport(complete=True)
            except ConnectError:
                pass  # asked again: whoever waits bounds it
            await anyio.sleep(pause)
            pause = min(2 * pause, _LAST_PAUSE)

    async def _ask_settled(self) -> bool:
        link = await self._host.link()
        fields = await ask(link, b"settled", self._link.name.encode("utf-8", "surrogateescape"))
        try:
            return len(fields) == 2 and flag(fields[1])
        except RuleBroken as exc:
            await link.close(f"the agent broke its protocol: {exc}")
            return False

    async def aclose(self) -> None:
        if self._channel.result is None and self._link.lost is None:
            await self._channel.abandon()


async def ask(link: Link, *fields: bytes) -> list[bytes]:
    """Use a service that says nothing but its result."""
    channel = await link.open(*fields)
    try:
        if await channel.receive() is not None:
            await link.close("the agent broke its protocol: output came where there is none")
            await link.require()
    except BaseException:
        await undone(channel.abandon)
        raise
    return channel.result or []
