"""The file API of the fake: what `guest/shell_files.py` does by shell, done in memory.

Each check stands where the scripts have it, so that an obstacle gives the same error there and
here, also where several are in the way.
"""

from __future__ import annotations

import errno
import math
from contextlib import aclosing
from typing import TYPE_CHECKING

import anyio.lowlevel

from sandboxio.core import patterns
from sandboxio.core.edits import edited, require_editable
from sandboxio.core.errors import (
    FileSystemError,
    IsADirectory,
    NotADirectory,
    PathExists,
    PathNotFound,
    PermissionDenied,
)
from sandboxio.testing._disk.fs import Directory, allows
from sandboxio.testing._disk.nodes import error
from sandboxio.testing._file_places import above, described, failure, mapped
from sandboxio.testing._files_moving import Moving

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Iterator

    from sandboxio.core.models import FileInfo
    from sandboxio.testing._disk.fs import Node

_PIECE = 256 * 1024
_MKDIR: dict[int | None, type[FileSystemError]] = {
    errno.EACCES: PermissionDenied,
    errno.EROFS: PermissionDenied,
    errno.ENOTDIR: NotADirectory,
    errno.EEXIST: PathExists,
    errno.ENOENT: PathNotFound,
}
_REMOVE: dict[int | None, type[FileSystemError]] = {
    errno.ENOTEMPTY: IsADirectory,
    errno.EACCES: PermissionDenied,
    errno.EPERM: PermissionDenied,
    errno.EROFS: PermissionDenied,
}


class FakeFiles(Moving):
    """`DriverFiles` over a file system in memory, with the rights of one user."""

    async def read(
        self,
        path: str,
        *,
        offset: int,
        length: int | None,
        sink: Callable[[bytes], Awaitable[None]],
    ) -> None:
        await anyio.lowlevel.checkpoint()
        node = self._found(path)
        self._require_file(path, node)
        if not allows(node, self._who, 4):
            raise failure(PermissionDenied, path, "permission denied")
        with self._fs.open(path, cwd=self._cwd, who=self._who, read=True) as handle:
            handle.seek(offset)
            left = math.inf if length is None else length
            while left > 0 and (piece := handle.read(int(min(left, _PIECE)))):
                left -= len(piece)
                await sink(piece)
                await anyio.lowlevel.checkpoint()

    async def write(
        self, path: str, source: AsyncIterable[bytes], *, size: int | None, mode: int | None
    ) -> None:
        await anyio.lowlevel.checkpoint()
        self._require_writable(path)
        pieces: list[bytes] = []
        async for piece in source:
            pieces.append(piece)
            await anyio.lowlevel.checkpoint()
        data = b"".join(pieces)[:size]
        if size is not None and len(data) < size:
            raise failure(FileSystemError, path, "the data arrived incomplete")
        self._store(path, data)
        if mode is not None:
            self._set_mode(path, mode)

    async def stat(self, path: str, *, follow: bool) -> FileInfo:
        await anyio.lowlevel.checkpoint()
        return described(path, self._found(path, follow=follow))

    async def exists(self, path: str) -> bool:
        await anyio.lowlevel.checkpoint()
        return self._node(path) is not None

    async def ls(self, path: str, *, recursive: bool) -> list[FileInfo]:
        await anyio.lowlevel.checkpoint()
        self._found(path, follow=False)
        folder = self._node(path)
        if not isinstance(folder, Directory):
            raise failure(NotADirectory, path, "not a directory")
        if not self._is_open(folder):
            raise failure(PermissionDenied, path, "permission denied")
        found: list[FileInfo] = []
        for place, node in self._below(folder, _base(path), None if recursive else 1):
            if recursive and isinstance(node, Directory) and not self._is_open(node):
                raise failure(PermissionDenied, path, "permission denied below it")
            found.append(described(place, node))
        return sorted(found, key=lambda info: info.path)

    async def glob(self, pattern: str) -> list[FileInfo]:
        await anyio.lowlevel.checkpoint()
        wanted = patterns.parse(pattern)
        top = self._node(wanted.prefix, follow=bool(wanted.parts))
        if not wanted.parts:
            found = [] if top is None else [described(wanted.prefix, top)]
        elif isinstance(top, Directory) and self._is_open(top):
            below = self._below(top, _base(wanted.prefix), wanted.depth)
            found = [described(place, node) for place, node in below]
        else:
            found = []
        return sorted(filter(wanted.takes, found), key=lambda info: info.path)

    async def edit(self, path: str, old: bytes, new: bytes, *, count: int | None) -> int:
        content = bytearray()

        async def keep(piece: bytes) -> None:
            content.extend(piece)
            require_editable(path, len(content))

        await self.read(path, offset=0, length=None, sink=keep)
        changed, found = edited(path, bytes(content), old, new, count)
        async with aclosing(_one(changed)) as source:
            await self.write(path, source, size=len(changed), mode=None)
        return found

    async def mkdir(self, path: str, *, parents: bool) -> None:
        await anyio.lowlevel.checkpoint()
        if self._node(path, follow=False) is not None:
            if parents and isinstance(self._node(path), Directory):
                return
            raise failure(PathExists, path, "exists already")
        try:
            self._fs.mkdir(path, cwd=self._cwd, who=self._who, parents=parents)
        except OSError as exc:
            raise mapped(_MKDIR, path, exc) from exc

    async def remove(self, path: str, *, recursive: bool) -> None:
        await anyio.lowlevel.checkpoint()
        node = self._found(path, follow=False)
        act = self._fs.unlink
        if recursive:
            act = self._fs.remove_tree
        elif isinstance(node, Directory):
            act = self._fs.rmdir
        try:
            act(path, cwd=self._cwd, who=self._who)
        except OSError as exc:
            raise mapped(_REMOVE, path, exc) from exc

    def _below(self, top: Directory, base: str, depth: int | None) -> Iterator[tuple[str, Node]]:
        """Yield what is below a directory, as far down as `depth`; no link is followed."""
        pending = [(base, top, 1)]
        while pending:
            at, folder, level = pending.pop()
            for name in folder.names():
                node = folder.get(name)
                if node is None:
                    continue
                yield at + name, node
                deeper = depth is None or level < depth
                if deeper and isinstance(node, Directory) and self._is_open(node):
                    pending.append((f"{at}{name}/", node, level + 1))

    def _is_open(self, folder: Directory) -> bool:
        return allows(folder, self._who, 4 | 1)

    def _require_writable(self, path: str) -> None:
        node = self._node(path)
        if node is not None:
            self._require_file(path, node)
            self._require_right(path, path)
        elif not self._is_link(path):
            parent = above(path if path.startswith("/") else f"./{path}")
            folder = self._node(parent)
            if folder is None:
                raise self._absent(path)
            if not isinstance(folder, Directory):
                raise failure(NotADirectory, path, "not a directory")
            self._require_right(path, parent, execute=True)

    def _store(self, path: str, data: bytes) -> None:
        try:
            self._overwrite(path, data)
        except OSError as exc:
            said = f"{exc.strerror}: the data could not be stored"
            raise failure(FileSystemError, path, said) from exc

    def _overwrite(self, path: str, data: bytes) -> None:
        """Write all or nothing: the guest has collected the data on the same disk before."""
        if len(data) > self._fs.room:
            raise error(errno.ENOSPC, path)
        who, cwd = self._who, self._cwd
        with self._fs.open(
            path, cwd=cwd, who=who, write=True, create=True, truncate=True
        ) as handle:
            handle.write(data)


def _base(path: str) -> str:
    """Return what comes before the names in a directory."""
    return "" if path == "." else path if path.endswith("/") else f"{path}/"


async def _one(data: bytes) -> AsyncGenerator[bytes]:
    if data:
        yield data
