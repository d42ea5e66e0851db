"""File operations through the sandbox's own shell, as the user who owns the request.

Whatever the engine, files then look exactly as commands see them: same mounts, same links, same
rights. A path is never part of a script: it travels as an argument, every byte as an octal
escape, so that any name a file can have survives.
"""

from __future__ import annotations

import secrets
from contextlib import aclosing
from typing import TYPE_CHECKING

from sandboxio.core.errors import FileSystemError
from sandboxio.core.lifecycle import undone
from sandboxio.guest import _shell_answers as answers
from sandboxio.guest import _shell_scripts as scripts
from sandboxio.guest._shell_call import ANSWER_LIMIT, ShellCalls, too_long

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable

    from sandboxio.core.driver import ExecChannel
    from sandboxio.core.models import FileInfo
    from sandboxio.core.requests import ExecRequest


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
        self, path: str, source: AsyncIterable[bytes], *, size: int, mode: int | None
    ) -> None:
        bits = "" if mode is None else f"{mode:o}"
        part = f".sandboxio-{secrets.token_hex(8)}"
        complete = False
        try:
            arguments = (_octal(path), str(size), bits, part)
            async with aclosing(_whole(source, size)) as data:
                end = await self._calls.run(scripts.WRITE, *arguments, source=data)
            complete = end.exit_code == 0 or end.exit_code in scripts.CODES
        finally:
            if not complete:  # the script was ended, and its part may be there
                await undone(lambda: self._run(scripts.FORGET, path, part))
        if end.exit_code != 0:
            raise answers.failure(path, *end)

    async def stat(self, path: str, *, follow: bool) -> FileInfo:
        mark = _mark()
        said = await self._text(scripts.STAT, path, mark, "follow" if follow else "")
        return answers.described(path, said, mark.encode())

    async def exists(self, path: str) -> bool:
        return bool(await self._text(scripts.EXISTS, path))

    async def ls(self, path: str) -> list[FileInfo]:
        mark = _mark()
        said = await self._text(scripts.LIST, path, mark)
        return answers.listed(path, said, mark.encode())

    async def mkdir(self, path: str, *, parents: bool) -> None:
        await self._run(scripts.MKDIR, path, "parents" if parents else "")

    async def remove(self, path: str, *, recursive: bool) -> None:
        await self._run(scripts.REMOVE, path, "recursive" if recursive else "")

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
        end = await self._calls.run(script, _octal(path), *arguments, sink=sink)
        if end.exit_code != 0:
            raise answers.failure(path, *end)


async def _whole(source: AsyncIterable[bytes], size: int) -> AsyncGenerator[bytes]:
    """Yield the source; without this the script would wait for what is missing."""
    async for piece in source:
        size -= len(piece)
        yield piece
    if size > 0:
        raise FileSystemError("The data arrived incomplete.", outcome="done")


def _mark() -> str:
    return f"/{secrets.token_hex(8)}/"


def _octal(path: str) -> str:
    return "".join(f"\\{byte:03o}" for byte in path.encode("utf-8", "surrogateescape"))
