"""One script in a sandbox: what it is sent, what it says, and how it ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import anyio

from sandboxio.core.errors import FileSystemError
from sandboxio.core.lifecycle import undone
from sandboxio.core.requests import ExecRequest

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Awaitable, Callable

    from sandboxio.core.driver import ExecChannel, KillReport

_KEPT = 2048
ANSWER_LIMIT = 64 * 1024 * 1024
"""Bytes after which a script that talks on is ended."""


class End(NamedTuple):
    """How a script ended, and the first of what it said on stderr."""

    exit_code: int
    complaint: bytes


class ShellCalls:
    """Runs scripts by `/bin/sh` over any driver that can start a command."""

    def __init__(
        self,
        start: Callable[[ExecRequest], Awaitable[ExecChannel]],
        *,
        timeout: float,
        give_up: Callable[[], Awaitable[None]],
    ) -> None:
        self._start = start
        self._timeout = timeout
        self._give_up = give_up

    async def run(
        self,
        script: str,
        *arguments: str,
        sink: Callable[[bytes], Awaitable[None]] | None = None,
        source: AsyncIterable[bytes] | None = None,
    ) -> End:
        """Run a script to its end; it is killed when this is cut short."""
        argv = ("/bin/sh", "-c", script, "sh", *arguments)
        request = ExecRequest(argv, timeout=self._timeout, stdin=source is not None)
        channel = await self._start(request)
        complete = False
        try:
            complaint = await _Talk(channel, source, sink).complaint()
            status = await channel.wait()
            complete = True
        finally:
            await self._leave(channel, complete=complete)
        return End(status.exit_code, complaint)

    async def _leave(self, channel: ExecChannel, *, complete: bool) -> None:
        if not complete:
            reports: list[KillReport] = []

            async def kill() -> None:
                reports.append(await channel.kill())

            await undone(kill)
            if not (reports and reports[0].complete):
                await undone(self._give_up)
        await undone(channel.aclose)


class _Talk:
    """Both directions of a call, beside each other: a script may end before it has read all."""

    def __init__(
        self,
        channel: ExecChannel,
        source: AsyncIterable[bytes] | None,
        sink: Callable[[bytes], Awaitable[None]] | None,
    ) -> None:
        self._channel = channel
        self._source = source
        self._sink = sink
        self._said = b""
        self._unasked = 0
        self._errors: list[Exception] = []
        self._go = anyio.Event()

    async def complaint(self) -> bytes:
        """Read to the end; the source is sent once the script says that it may come."""
        if self._source is None:
            await self._listen()
            return self._said
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._guarded, self._send, tasks.cancel_scope)
            await self._guarded(self._listen, tasks.cancel_scope)
            tasks.cancel_scope.cancel()
        for error in self._errors:
            raise error
        return self._said

    async def _guarded(self, act: Callable[[], Awaitable[None]], both: anyio.CancelScope) -> None:
        """Keep the first error of either direction from being wrapped in a group."""
        try:
            await act()
        except Exception as exc:  # noqa: BLE001  # raised once both have ended
            self._errors.append(exc)
            both.cancel()

    async def _listen(self) -> None:
        while (chunk := await self._channel.receive()) is not None:
            self._go.set()
            if chunk.stream == "stdout" and self._sink is not None:
                await self._sink(chunk.data)
                continue
            self._unasked += len(chunk.data)
            if self._unasked > ANSWER_LIMIT:
                raise too_long()
            if chunk.stream == "stderr":
                self._said = (self._said + chunk.data)[:_KEPT]

    async def _send(self) -> None:
        await self._go.wait()
        if self._source is not None:
            async for piece in self._source:
                await self._channel.send(piece)


def octal(path: str) -> str:
    """Return a path as the scripts take it: every byte as an octal escape."""
    return "".join(f"\\{byte:03o}" for byte in path.encode("utf-8", "surrogateescape"))


def too_long() -> FileSystemError:
    """Return the error for an answer that does not end."""
    return FileSystemError(
        "The sandbox's answer to a file operation is too large.",
        hint="The directory has too many entries, or the image's file tools do not work.",
        outcome="done",
    )
