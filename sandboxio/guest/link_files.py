"""File operations over a link, carried out by the agent with the rights of the sandbox's user."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from sandboxio.core import patterns
from sandboxio.core.edits import MAX_EDIT_BYTES, require_editable
from sandboxio.core.errors import (
    FileSystemError,
    IsADirectory,
    LinkLost,
    NotADirectory,
    PathExists,
    PathNotFound,
    PermissionDenied,
)
from sandboxio.core.lifecycle import undone
from sandboxio.guest import _link_entries as entries
from sandboxio.guest._link_verdicts import words_of
from sandboxio.guest._shell_call import ANSWER_LIMIT, too_long
from sandboxio.guest.frames import DATA, RuleBroken, flag, number

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable

    from sandboxio.core.models import FileInfo
    from sandboxio.guest._link_exec import Opened
    from sandboxio.guest.link import Channel, Link

T = TypeVar("T")

_ERRORS: dict[bytes, type[FileSystemError]] = {
    b"not-found": PathNotFound,
    b"permission": PermissionDenied,
    b"not-a-directory": NotADirectory,
    b"is-a-directory": IsADirectory,
    b"exists": PathExists,
}
_MARGIN = 10.0
"""Seconds after the host's deadline at which the agent gives an operation up by itself."""
_LONGEST = 10**15


class Host(Protocol):
    """What file operations need to know of their sandbox."""

    def account(self, user: str | None) -> bytes: ...
    def directory(self, cwd: str | None) -> bytes: ...
    async def open(self, *fields: bytes, data: bytes | None = None) -> Opened: ...
    async def explain(self, lost: LinkLost) -> None: ...


class _Asked(NamedTuple):
    """An operation, and what it is about, for messages."""

    operation: bytes
    path: str
    target: str | None = None

    @property
    def paths(self) -> list[bytes]:
        given = [self.path] if self.target is None else [self.path, self.target]
        return [path.encode("utf-8", "surrogateescape") for path in given]

    @property
    def where(self) -> str:
        return f"{self.path!r}" if self.target is None else f"{self.path!r} to {self.target!r}"

    def failure(self, name: bytes, words: bytes) -> FileSystemError:
        said = words_of(words) or name.decode()
        hint = None
        if self.operation == b"edit" and words.startswith(b"found "):
            hint = "Pass more of the text around it, or count= with the number expected."
        return _ERRORS.get(name, FileSystemError)(
            f"{self.where}: {said}", hint=hint, outcome="done"
        )


class LinkFiles:
    """`DriverFiles` over the service `file`."""

    def __init__(self, host: Host, *, timeout: float) -> None:
        self._host = host
        self._deadline = b"%d" % min(int((timeout + _MARGIN) * 1000), _LONGEST)

    async def read(
        self,
        path: str,
        *,
        offset: int,
        length: int | None,
        sink: Callable[[bytes], Awaitable[None]],
    ) -> None:
        asked = _Asked(b"read", path)
        if length is None:
            await self._done(asked, b"%d" % offset, b"", sink=sink)
            return
        left = length

        async def take(piece: bytes) -> None:
            nonlocal left
            left -= len(piece)
            if left < 0:
                raise RuleBroken("read gave more than it was asked for")
            await sink(piece)

        await self._done(asked, b"%d" % offset, b"%d" % length, sink=take)

    async def write(
        self, path: str, source: AsyncIterable[bytes], *, size: int | None, mode: int | None
    ) -> None:
        wanted = b"" if size is None else b"%d" % size
        bits = b"" if mode is None else b"%o" % mode
        async with aclosing(_whole(source, size)) as data:
            await self._done(_Asked(b"write", path), wanted, bits, source=data)

    async def stat(self, path: str, *, follow: bool) -> FileInfo:
        return await self._parsed(
            _Asked(b"stat", path), _bit(follow), read=lambda said: entries.one(said, path)
        )

    async def exists(self, path: str) -> bool:
        return await self._answered(_Asked(b"exists", path), read=flag)

    async def ls(self, path: str, *, recursive: bool) -> list[FileInfo]:
        return await self._parsed(
            _Asked(b"list", path),
            _bit(recursive),
            read=lambda said: entries.below(said, path, recursive=recursive),
        )

    async def glob(self, pattern: str) -> list[FileInfo]:
        wanted = patterns.parse(pattern)
        found = await self._parsed(
            _Asked(b"glob", pattern),
            read=lambda said: entries.matching(said, wanted.prefix, exact=not wanted.parts),
        )
        return [info for info in found if wanted.takes(info)]

    async def mkdir(self, path: str, *, parents: bool) -> None:
        await self._done(_Asked(b"mkdir", path), _bit(parents))

    async def remove(self, path: str, *, recursive: bool) -> None:
        await self._done(_Asked(b"remove", path), _bit(recursive))

    async def move(self, source: str, target: str) -> None:
        await self._done(_Asked(b"move", source, target))

    async def copy(self, source: str, target: str) -> None:
        await self._done(_Asked(b"copy", source, target))

    async def chmod(self, path: str, mode: int) -> None:
        await self._done(_Asked(b"chmod", path), b"%o" % mode)

    async def edit(self, path: str, old: bytes, new: bytes, *, count: int | None) -> int:
        require_editable(path, max(len(old), len(new)))

        def read(field: bytes) -> int:
            found = number(field, MAX_EDIT_BYTES)
            if not found or count not in (None, found):
                raise RuleBroken("edit replaced another number of times than it was asked to")
            return found

        wanted = b"" if count is None else b"%d" % count
        numbers = b"%d" % len(old), b"%d" % len(new), wanted
        async with aclosing(_both(old, new)) as data:
            return await self._answered(_Asked(b"edit", path), *numbers, source=data, read=read)

    async def _parsed(self, asked: _Asked, *arguments: bytes, read: Callable[[bytes], T]) -> T:
        """Gather the data of an answer, and read it."""
        said = bytearray()

        async def keep(piece: bytes) -> None:
            said.extend(piece)
            if len(said) > ANSWER_LIMIT:
                raise too_long()

        return await self._run(asked, *arguments, sink=keep, read=lambda _: read(bytes(said)))

    async def _answered(
        self,
        asked: _Asked,
        *arguments: bytes,
        source: AsyncGenerator[bytes] | None = None,
        read: Callable[[bytes], T],
    ) -> T:
        """Read the one field of a result."""

        def one(fields: list[bytes]) -> T:
            if len(fields) != 1:
                raise RuleBroken("a RESULT has another number of fields")
            return read(fields[0])

        return await self._run(asked, *arguments, source=source, read=one)

    async def _done(
        self,
        asked: _Asked,
        *arguments: bytes,
        sink: Callable[[bytes], Awaitable[None]] | None = None,
        source: AsyncGenerator[bytes] | None = None,
    ) -> None:
        await self._run(asked, *arguments, sink=sink, source=source, read=lambda _: None)

    async def _run(
        self,
        asked: _Asked,
        *arguments: bytes,
        sink: Callable[[bytes], Awaitable[None]] | None = None,
        source: AsyncGenerator[bytes] | None = None,
        read: Callable[[list[bytes]], T],
    ) -> T:
        """Carry out one operation; when it is cut short the agent ends it."""
        host = self._host
        link, channel = await host.open(
            b"file",
            asked.operation,
            host.account(None),
            host.directory(None),
            self._deadline,
            *asked.paths,
            *arguments,
        )
        try:
            if source is not None:
                await _feed(channel, source)
            await _listen(channel, sink)
            result = channel.result or []
            if result[0] == b"error":
                raise asked.failure(*result[1:])
            return read(result[1:])
        except RuleBroken as exc:
            await link.close(f"the agent broke its protocol: {exc}")
            raise LinkLost(f"{asked.where}: the answer cannot be read.") from exc
        except LinkLost as exc:
            await host.explain(exc)
            raise
        finally:
            if channel.result is None:
                await _leave(link, channel)


async def _feed(channel: Channel, source: AsyncGenerator[bytes]) -> None:
    """Send the source, unless the operation is over before that."""
    async for piece in source:
        if channel.result is not None:
            return
        await channel.send(piece)
    await channel.send_eof()


async def _listen(channel: Channel, sink: Callable[[bytes], Awaitable[None]] | None) -> None:
    while (said := await channel.receive()) is not None:
        kind, piece = said
        if kind != DATA or sink is None:
            raise RuleBroken("output came where there is none")
        await sink(piece)


async def _leave(link: Link, channel: Channel) -> None:
    """End an operation whose caller does not wait for it; without an answer the link is closed."""
    answered = False
    try:
        answered = await undone(channel.finish)
    finally:
        if not answered:
            await link.close("the agent did not end an operation")


async def _whole(source: AsyncIterable[bytes], size: int | None) -> AsyncGenerator[bytes]:
    """Yield the source; what is cut off by accident is not to be taken for its end."""
    told = 0
    async for piece in source:
        told += len(piece)
        yield piece
    if size is not None and told < size:
        raise FileSystemError("The data arrived incomplete.", outcome="done")


async def _both(old: bytes, new: bytes) -> AsyncGenerator[bytes]:
    for piece in (old, new):
        if piece:
            yield piece


def _bit(value: bool) -> bytes:
    return b"1" if value else b"0"
