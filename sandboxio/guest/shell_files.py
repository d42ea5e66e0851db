"""File operations through the sandbox's own shell, as the user who owns the request.

Whatever the engine, files then look exactly as commands see them: same mounts, same links, same
rights. A path is never part of a script: it travels as an argument, every byte as an octal
escape, so that any name a file can have survives.
"""

from __future__ import annotations

import re
import secrets
from contextlib import aclosing
from typing import TYPE_CHECKING

from sandboxio.core import patterns
from sandboxio.core.edits import edited, require_editable
from sandboxio.core.errors import NotADirectory, PathNotFound, PermissionDenied
from sandboxio.core.lifecycle import undone
from sandboxio.guest import _shell_answers as answers
from sandboxio.guest import _shell_moving as moving
from sandboxio.guest import _shell_scripts as scripts
from sandboxio.guest._shell_call import ANSWER_LIMIT, ShellCalls, octal, too_long
from sandboxio.guest._shell_writing import Writing, new_part, one

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Awaitable, Callable

    from sandboxio.core.driver import ExecChannel
    from sandboxio.core.models import FileInfo
    from sandboxio.core.requests import ExecRequest

_SIMPLE = re.compile(r"[A-Za-z0-9_.*-]+", re.ASCII)


class ShellFiles:
    """`DriverFiles` over any driver that can start a command."""

    def __init__(
        self,
        start: Callable[[ExecRequest], Awaitable[ExecChannel]],
        *,
        timeout: float,
        give_up: Callable[[], Awaitable[None]],
    ) -> None:
        """`give_up` removes a sandbox in which an operation cannot be ended."""
        self._calls = ShellCalls(start, timeout=timeout, give_up=give_up)

    async def read(
        self,
        path: str,
        *,
        offset: int,
        length: int | None,
        sink: Callable[[bytes], Awaitable[None]],
    ) -> None:
        wanted = "all" if length is None else str(length)
        await self._run(scripts.READ, path, str(offset), wanted, sink=sink)

    async def write(
        self, path: str, source: AsyncIterable[bytes], *, size: int | None, mode: int | None
    ) -> None:
        await Writing(self._calls, path, mode=mode).run(source, size)

    async def stat(self, path: str, *, follow: bool) -> FileInfo:
        mark = _mark()
        said = await self._text(scripts.STAT, path, mark, "follow" if follow else "")
        return answers.described(path, said, mark.encode())

    async def exists(self, path: str) -> bool:
        return bool(await self._text(scripts.EXISTS, path))

    async def ls(self, path: str, *, recursive: bool) -> list[FileInfo]:
        mark = _mark()
        said = await self._text(scripts.LIST, path, mark, "recursive" if recursive else "")
        return answers.listed(path, said, mark.encode(), deep=recursive)

    async def glob(self, pattern: str) -> list[FileInfo]:
        wanted = patterns.parse(pattern)
        if not wanted.parts:
            return [info for info in await self._perhaps(wanted.prefix) if wanted.takes(info)]
        mark, depth = _mark(), wanted.depth
        arguments = (mark, "" if depth is None else str(depth), _name(pattern))
        said = await self._text(scripts.GLOB, wanted.prefix, *arguments)
        found = answers.listed(wanted.prefix, said, mark.encode(), deep=True)
        return [info for info in found if wanted.takes(info)]

    async def mkdir(self, path: str, *, parents: bool) -> None:
        await self._run(scripts.MKDIR, path, "parents" if parents else "")

    async def remove(self, path: str, *, recursive: bool) -> None:
        await self._run(scripts.REMOVE, path, "recursive" if recursive else "")

    async def move(self, source: str, target: str) -> None:
        await self._both(moving.MOVE, source, target)

    async def copy(self, source: str, target: str) -> None:
        await self._both(moving.COPY, source, target)

    async def chmod(self, path: str, mode: int) -> None:
        await self._run(moving.CHMOD, path, f"{mode:05o}")  # five digits clear setgid as well

    async def edit(self, path: str, old: bytes, new: bytes, *, count: int | None) -> int:
        content = bytearray()

        async def keep(piece: bytes) -> None:
            content.extend(piece)
            require_editable(path, len(content))

        await self.read(path, offset=0, length=None, sink=keep)
        changed, found = edited(path, bytes(content), old, new, count)
        async with aclosing(one(changed)) as source:
            await self.write(path, source, size=len(changed), mode=None)
        return found

    async def _both(self, script: str, source: str, target: str) -> None:
        part = new_part()
        complete = False
        try:
            end = await self._calls.run(script, octal(source), octal(target), part)
            complete = end.exit_code == 0 or end.exit_code in scripts.CODES
        finally:
            if not complete:  # the script was ended, and its part may be there
                await undone(lambda: self._run(moving.FORGET, target, part))
        if end.exit_code != 0:
            raise answers.failure(source, *end, target=target)

    async def _perhaps(self, path: str) -> list[FileInfo]:
        """Describe what is at a path, if anything that can be seen is."""
        try:
            return [await self.stat(path, follow=False)]
        except (PathNotFound, NotADirectory, PermissionDenied):
            return []

    async def _text(self, script: str, path: str, *arguments: str) -> bytes:
        answer = bytearray()

        async def keep(piece: bytes) -> None:
            answer.extend(piece)
            if len(answer) > ANSWER_LIMIT:
                raise too_long()

        await self._run(script, path, *arguments, sink=keep)
        return bytes(answer)

    async def _run(
        self,
        script: str,
        path: str,
        *arguments: str,
        sink: Callable[[bytes], Awaitable[None]] | None = None,
    ) -> None:
        end = await self._calls.run(script, octal(path), *arguments, sink=sink)
        if end.exit_code != 0:
            raise answers.failure(path, *end)


def _mark() -> str:
    return f"/{secrets.token_hex(8)}/"


def _name(pattern: str) -> str:
    """Return what `find -name` may leave out by itself, without knowing less than we do."""
    last = pattern.rstrip("/").rpartition("/")[2]
    return last if _SIMPLE.fullmatch(last) else "*"
