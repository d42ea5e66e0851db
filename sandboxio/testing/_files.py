"""The file API of the fake: what `guest/shell_files.py` does by shell, done in memory.

Each check stands where the scripts have it, so that an obstacle gives the same error there and
here, also where several are in the way.
"""

from __future__ import annotations

import errno
import math
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import anyio.lowlevel

from sandboxio.core.errors import (
    FileSystemError,
    IsADirectory,
    NotADirectory,
    PathExists,
    PathNotFound,
    PermissionDenied,
)
from sandboxio.core.models import FileInfo
from sandboxio.testing._disk.fs import Directory, Link, Who, allows
from sandboxio.testing._disk.nodes import error

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Awaitable, Callable

    from sandboxio.testing._disk.fs import FileSystem, Node

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


class FakeFiles:
    """`DriverFiles` over a file system in memory, with the rights of one user."""

    def __init__(self, fs: FileSystem, *, who: Who | Callable[[], Who], cwd: str = "/work") -> None:
        """`who` is asked at every operation when it can be called; `cwd` is absolute."""
        self._fs = fs
        self._given = who
        self._cwd = cwd

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
            raise _failure(PermissionDenied, path, "permission denied")
        with self._fs.open(path, cwd=self._cwd, who=self._who, read=True) as handle:
            handle.seek(offset)
            left = math.inf if length is None else length
            while left > 0 and (piece := handle.read(int(min(left, _PIECE)))):
                left -= len(piece)
                await sink(piece)
                await anyio.lowlevel.checkpoint()

    async def write(
        self, path: str, source: AsyncIterable[bytes], *, size: int, mode: int | None
    ) -> None:
        await anyio.lowlevel.checkpoint()
        self._require_writable(path)
        data = bytearray()
        async for piece in source:
            data += piece[: size - len(data)]
            await anyio.lowlevel.checkpoint()
        if len(data) < size:
            raise _failure(FileSystemError, path, "the data arrived incomplete")
        self._store(path, bytes(data))
        if mode is not None:
            self._set_mode(path, mode)

    async def stat(self, path: str, *, follow: bool) -> FileInfo:
        await anyio.lowlevel.checkpoint()
        return _info(path, self._found(path, follow=follow))

    async def exists(self, path: str) -> bool:
        await anyio.lowlevel.checkpoint()
        return self._node(path) is not None

    async def ls(self, path: str) -> list[FileInfo]:
        await anyio.lowlevel.checkpoint()
        self._found(path, follow=False)
        folder = self._node(path)
        if not isinstance(folder, Directory):
            raise _failure(NotADirectory, path, "not a directory")
        if not allows(folder, self._who, 4 | 1):
            raise _failure(PermissionDenied, path, "permission denied")
        base = path if path.endswith("/") else f"{path}/"
        base = "" if path == "." else base
        entries = [(base + name, folder.get(name)) for name in folder.names()]
        found = [_info(place, node) for place, node in entries if node is not None]
        return sorted(found, key=lambda info: info.path)

    async def mkdir(self, path: str, *, parents: bool) -> None:
        await anyio.lowlevel.checkpoint()
        if self._node(path, follow=False) is not None:
            if parents and isinstance(self._node(path), Directory):
                return
            raise _failure(PathExists, path, "exists already")
        try:
            self._fs.mkdir(path, cwd=self._cwd, who=self._who, parents=parents)
        except OSError as exc:
            raise _mapped(_MKDIR, path, exc) from exc

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
            raise _mapped(_REMOVE, path, exc) from exc

    @property
    def _who(self) -> Who:
        return self._given if isinstance(self._given, Who) else self._given()

    def _node(self, path: str, *, follow: bool = True) -> Node | None:
        """Return what a path leads to, or nothing, whatever the reason: `[ -e "$p" ]`."""
        try:
            return self._fs.resolve(path, cwd=self._cwd, who=self._who, follow=follow)
        except OSError:
            return None

    def _found(self, path: str, *, follow: bool = True) -> Node:
        try:
            return self._fs.resolve(path, cwd=self._cwd, who=self._who, follow=follow)
        except OSError as exc:
            if exc.errno == errno.ELOOP and self._is_link(path):
                raise _failure(FileSystemError, path, "too many levels of links") from exc
            raise self._absent(path) from exc

    def _is_link(self, path: str) -> bool:
        return isinstance(self._node(path, follow=False), Link)

    def _absent(self, path: str) -> FileSystemError:
        """Return why nothing is at a path: what the nearest thing on the way to it is."""
        place = path if path.startswith("/") else f"./{path}"
        while place not in (".", "/"):
            place = _above(place)
            node = self._node(place)
            if node is None:
                continue
            if not isinstance(node, Directory):
                return _failure(NotADirectory, path, "not a directory")
            if not allows(node, self._who, 1):
                return _failure(PermissionDenied, path, "permission denied")
            break
        return _failure(PathNotFound, path, "no such file or directory")

    def _require_file(self, path: str, node: Node) -> None:
        if isinstance(node, Directory):
            raise _failure(IsADirectory, path, "is a directory")
        if node.kind != "file":
            raise _failure(FileSystemError, path, "not a regular file")

    def _require_writable(self, path: str) -> None:
        node = self._node(path)
        if node is not None:
            self._require_file(path, node)
            self._require_right(path, path)
        elif not self._is_link(path):
            above = _above(path if path.startswith("/") else f"./{path}")
            folder = self._node(above)
            if folder is None:
                raise self._absent(path)
            if not isinstance(folder, Directory):
                raise _failure(NotADirectory, path, "not a directory")
            self._require_right(path, above, execute=True)

    def _require_right(self, path: str, place: str, *, execute: bool = False) -> None:
        right = self._fs.access(place, cwd=self._cwd, who=self._who, write=True, execute=execute)
        if not right:
            raise _failure(PermissionDenied, path, "permission denied")

    def _store(self, path: str, data: bytes) -> None:
        try:
            self._overwrite(path, data)
        except OSError as exc:
            said = f"{exc.strerror}: the data could not be stored"
            raise _failure(FileSystemError, path, said) from exc

    def _overwrite(self, path: str, data: bytes) -> None:
        """Write all or nothing: the guest has collected the data on the same disk before."""
        if len(data) > self._fs.room:
            raise error(errno.ENOSPC, path)
        who, cwd = self._who, self._cwd
        with self._fs.open(
            path, cwd=cwd, who=who, write=True, create=True, truncate=True
        ) as handle:
            handle.write(data)

    def _set_mode(self, path: str, mode: int) -> None:
        try:
            self._fs.chmod(path, mode, cwd=self._cwd, who=self._who)
        except OSError as exc:
            raise _failure(PermissionDenied, path, "permission denied") from exc


def _above(path: str) -> str:
    """Return a path without its last component, as text: `${d%/*}`."""
    return path.rpartition("/")[0] or "/"


def _info(path: str, node: Node) -> FileInfo:
    return FileInfo(
        path=path,
        size=node.size,
        is_dir=node.kind == "directory",
        kind=node.kind,
        mode=node.mode,
        mtime=datetime.fromtimestamp(math.floor(node.mtime), UTC),
        target=node.target if isinstance(node, Link) else None,
    )


def _mapped(
    table: dict[int | None, type[FileSystemError]], path: str, exc: OSError
) -> FileSystemError:
    return _failure(table.get(exc.errno, FileSystemError), path, str(exc.strerror))


def _failure(kind: type[FileSystemError], path: str, said: str) -> FileSystemError:
    return kind(f"{path!r}: {said}", outcome="done")
