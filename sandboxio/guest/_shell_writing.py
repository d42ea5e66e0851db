"""Writing through a sandbox's shell: what came whole is put in place, and nothing else is left."""

from __future__ import annotations

import secrets
from contextlib import aclosing
from typing import TYPE_CHECKING

from sandboxio.core.errors import FileSystemError
from sandboxio.core.lifecycle import undone
from sandboxio.guest import _shell_answers as answers
from sandboxio.guest import _shell_scripts as scripts
from sandboxio.guest._shell_call import octal

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterable

    from sandboxio.guest._shell_call import End, ShellCalls

BATCH_BYTES = 8 * 1024 * 1024
"""What one call takes of data whose size is unknown: the end of stdin would say too little, since
a connection that breaks looks the same."""


class Writing:
    """One file that is being written."""

    def __init__(self, calls: ShellCalls, path: str, *, mode: int | None) -> None:
        self._calls = calls
        self._path = path
        self._bits = "" if mode is None else f"{mode:o}"
        self._part = new_part()
        self._stored = 0

    async def run(self, source: AsyncIterable[bytes], size: int | None) -> None:
        """Write what the source gives, `size` bytes or to its end."""
        complete = False
        try:
            end = await (self._batches(source) if size is None else self._call(source, size))
            complete = end.exit_code == 0 or end.exit_code in scripts.CODES
        finally:
            if not complete:  # the script was ended, and its part may be there
                await undone(self._forget)
        if end.exit_code != 0:
            raise answers.failure(self._path, *end)

    async def _batches(self, source: AsyncIterable[bytes]) -> End:
        waiting = bytearray()
        async for piece in source:
            waiting += piece
            if len(waiting) >= BATCH_BYTES:
                end = await self._batch(bytes(waiting), more=True)
                if end.exit_code != 0:
                    return end
                waiting.clear()
        return await self._batch(bytes(waiting), more=False)

    async def _batch(self, data: bytes, *, more: bool) -> End:
        async with aclosing(one(data)) as source:
            end = await self._call(source, len(data), more=more)
        self._stored += len(data)
        return end

    async def _call(self, source: AsyncIterable[bytes], size: int, *, more: bool = False) -> End:
        numbers = (str(size), self._bits, self._part, str(self._stored), "more" if more else "")
        async with aclosing(_whole(source, size)) as data:
            return await self._calls.run(scripts.WRITE, octal(self._path), *numbers, source=data)

    async def _forget(self) -> None:
        await self._calls.run(scripts.FORGET, octal(self._path), self._part)


def new_part() -> str:
    """Return a name for what is not complete yet."""
    return f".sandboxio-{secrets.token_hex(8)}"


async def one(data: bytes) -> AsyncGenerator[bytes]:
    """Yield what there is at once."""
    if data:
        yield data


async def _whole(source: AsyncIterable[bytes], size: int) -> AsyncGenerator[bytes]:
    """Yield the source; without this the script would wait for what is missing."""
    async for piece in source:
        size -= len(piece)
        yield piece
    if size > 0:
        raise FileSystemError("The data arrived incomplete.", outcome="done")
