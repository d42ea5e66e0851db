"""Faults of file operations that know two places, a part of a file, or many files."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING

from sandboxio.core.errors import FileSystemError, PathExists
from tests.contract.around import FilesAround, SandboxAround

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterable

    from sandboxio.core.models import FileInfo, Metrics


class LosesTheMode(FilesAround):
    """A copy has the mode of any new file."""

    async def copy(self, source: str, target: str) -> None:
        await super().copy(source, target)
        info = await self.stat(target, follow=False)
        if info.kind == "file":
            await self.chmod(target, 0o644)


class CopiesWhatLinksLeadTo(FilesAround):
    """A link is copied as the file that it leads to."""

    async def copy(self, source: str, target: str) -> None:
        info = await self.stat(source, follow=False)
        await super().copy(info.target or source, target)


class EntersDirectories(FilesAround):
    """A directory at the target takes in what is moved, as `mv` has it."""

    async def move(self, source: str, target: str) -> None:
        try:
            await super().move(source, target)
        except PathExists:
            await super().move(source, f"{target}/{source.rpartition('/')[2]}")


class EditsTheFirst(FilesAround):
    """Of several occurrences the first is replaced, and nobody is told of the others."""

    async def edit(self, path: str, old: bytes, new: bytes, *, count: int | None) -> int:
        try:
            return await super().edit(path, old, new, count=count)
        except FileSystemError:
            content = await self._content(path)
            if count is None or content.count(old) < count:
                raise
            async with aclosing(_one(content.replace(old, new, count))) as source:
                await self.write(path, source, size=None, mode=None)
            return count

    async def _content(self, path: str) -> bytes:
        pieces: list[bytes] = []

        async def keep(piece: bytes) -> None:
            pieces.append(piece)

        await self.read(path, offset=0, length=None, sink=keep)
        return b"".join(pieces)


class GlobsThroughLinks(FilesAround):
    """A search goes on in the directories that links lead to."""

    async def glob(self, pattern: str) -> list[FileInfo]:
        found = {info.path: info for info in await super().glob(pattern)}
        above, _, rest = pattern.partition("/")
        for info in await super().glob(above) if rest else ():
            if info.kind == "link" and await self.exists(info.path):
                found |= {one.path: one for one in await self.glob(f"{info.path}/{rest}")}
        return sorted(found.values(), key=lambda info: info.path)


class HidesDotfiles(FilesAround):
    """A wildcard matches no leading dot, as in a shell."""

    async def glob(self, pattern: str) -> list[FileInfo]:
        found = await super().glob(pattern)
        return [info for info in found if "/." not in f"/{info.path}"]


class PublishesHalves(FilesAround):
    """What a source gave before it broke is the file."""

    async def write(
        self, path: str, source: AsyncIterable[bytes], *, size: int | None, mode: int | None
    ) -> None:
        kept: list[bytes] = []

        async def noted() -> AsyncGenerator[bytes]:
            async for piece in source:
                kept.append(piece)
                yield piece

        try:
            async with aclosing(noted()) as data:
                await super().write(path, data, size=size, mode=mode)
        except ZeroDivisionError:
            async with aclosing(_one(b"".join(kept))) as data:
                await super().write(path, data, size=None, mode=mode)
            raise


class CountsNoProcesses(SandboxAround):
    """Metrics are those of an idle sandbox, whatever it does."""

    first: Metrics | None = None

    async def metrics(self) -> Metrics:
        self.first = self.first or await super().metrics()
        return self.first


async def _one(data: bytes) -> AsyncGenerator[bytes]:
    yield data
