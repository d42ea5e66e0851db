"""One link for each process and each event loop that uses a sandbox."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel

from sandboxio.core.errors import LinkLost
from sandboxio.core.lifecycle import undone
from sandboxio.guest.link import Link

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sandboxio.guest.link import ByteStream

_Place = tuple[int, anyio.lowlevel.EventLoopToken]
_QUIET = 5.0
"""Seconds of silence after which a link is tried before a call depends on it."""


class _Entry:
    def __init__(self, link: Link | None = None) -> None:
        self.link = link
        self.opening = anyio.Lock()


class LinkPool:
    """Opens a link where there is none, or where it is lost."""

    def __init__(
        self, reconnect: Callable[[], Awaitable[ByteStream]], first: Link | None = None
    ) -> None:
        self._reconnect = reconnect
        self._entries: dict[_Place, _Entry] = {}
        if first is not None:
            self._entries[_here()] = _Entry(first)

    async def get(self) -> Link:
        """Return a link that works here; its opener is one at a time.

        Raises:
            SandboxGone: there is no agent any more.
            ConnectError: it cannot be reached.
        """
        entry = self._entries.get(_here())
        if entry is None:
            entry = self._entries[_here()] = _Entry()
        link = entry.link
        if link is not None and await _works(link):
            return link
        async with entry.opening:
            if entry.link is None or entry.link.lost is not None:
                await self._forget()
                entry.link = await Link.begin(await self._reconnect(), _instead_of(entry.link))
            return entry.link

    async def aclose(self) -> None:
        """Close the link of this event loop, and those of loops that have ended."""
        entry = self._entries.pop(_here(), None)
        if entry is not None and entry.link is not None:
            await entry.link.aclose()
        await self._forget()

    async def _forget(self) -> None:
        """Forget links that nobody can use any more; a fork leaves those of its parent alone."""
        for place, entry in list(self._entries.items()):
            pid, token = place
            loop: Any = token.native_token
            if pid != os.getpid():
                del self._entries[place]
            elif getattr(loop, "is_closed", bool)():
                del self._entries[place]
                if entry.link is not None:
                    await undone(entry.link.aclose)


async def _works(link: Link) -> bool:
    """Try a link that has long been idle: its end may not have been noticed by anybody."""
    if link.lost is None and link.is_idle and link.quiet_for > _QUIET:
        try:
            await link.ping()
        except LinkLost:
            return False
    return link.lost is None


def _instead_of(lost: Link | None) -> dict[str, bytes]:
    """Return what tells the agent that a link is lost: an engine that restarts may not."""
    return {} if lost is None else {"instead": lost.name.encode("utf-8", "surrogateescape")}


def _here() -> _Place:
    return os.getpid(), anyio.lowlevel.current_token()
