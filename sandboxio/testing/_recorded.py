"""The files of a fake sandbox, with every operation noted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandboxio.testing._files import FakeFiles

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable

    from sandboxio.core.models import FileInfo
    from sandboxio.testing._inside import Inside
    from sandboxio.testing.calls import Call


class RecordedFiles:
    """`DriverFiles` of a sandbox: noted, late if the fake is, refused when it is gone."""

    def __init__(self, inside: Inside) -> None:
        self._inside = inside
        self._files = FakeFiles(inside.fs, who=lambda: inside.who, on_step=self._step)

    async def read(
        self,
        path: str,
        *,
        offset: int,
        length: int | None,
        sink: Callable[[bytes], Awaitable[None]],
    ) -> None:
        async def alive(piece: bytes) -> None:
            self._inside.clock.touch()
            await sink(piece)
            self._inside.require_alive()

        await self._begin("read", path)
        await self._files.read(path, offset=offset, length=length, sink=alive)

    async def write(
        self, path: str, source: AsyncIterable[bytes], *, size: int | None, mode: int | None
    ) -> None:
        call = await self._begin("write", path)

        pieces: list[bytes] = []

        async def noted() -> AsyncGenerator[bytes]:
            async for piece in source:
                self._inside.clock.touch()
                pieces.append(piece)
                yield piece

        try:
            await self._files.write(path, noted(), size=size, mode=mode)
        finally:
            call.data = b"".join(pieces)

    async def stat(self, path: str, *, follow: bool) -> FileInfo:
        await self._begin("stat", path)
        return await self._files.stat(path, follow=follow)

    async def exists(self, path: str) -> bool:
        await self._begin("exists", path)
        return await self._files.exists(path)

    async def ls(self, path: str, *, recursive: bool) -> list[FileInfo]:
        await self._begin("ls", path)
        return await self._files.ls(path, recursive=recursive)

    async def glob(self, pattern: str) -> list[FileInfo]:
        await self._begin("glob", pattern)
        return await self._files.glob(pattern)

    async def mkdir(self, path: str, *, parents: bool) -> None:
        await self._begin("mkdir", path)
        await self._files.mkdir(path, parents=parents)

    async def remove(self, path: str, *, recursive: bool) -> None:
        await self._begin("remove", path)
        await self._files.remove(path, recursive=recursive)

    async def move(self, source: str, target: str) -> None:
        (await self._begin("move", source)).target = target
        await self._files.move(source, target)

    async def copy(self, source: str, target: str) -> None:
        (await self._begin("copy", source)).target = target
        await self._files.copy(source, target)

    async def chmod(self, path: str, mode: int) -> None:
        await self._begin("chmod", path)
        await self._files.chmod(path, mode)

    async def edit(self, path: str, old: bytes, new: bytes, *, count: int | None) -> int:
        call = await self._begin("edit", path)
        call.data = new
        return await self._files.edit(path, old, new, count=count)

    def _step(self) -> None:
        self._inside.clock.touch()
        self._inside.require_alive()

    async def _begin(self, op: str, path: str) -> Call:
        call = self._inside.note(op, path=path)
        await self._inside.begin()
        return call
