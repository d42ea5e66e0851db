"""What every file operation of the fake begins with: what a path leads to, and who may."""

from __future__ import annotations

import errno
import math
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from sandboxio.core.errors import (
    FileSystemError,
    IsADirectory,
    NotADirectory,
    PathNotFound,
    PermissionDenied,
)
from sandboxio.core.models import FileInfo
from sandboxio.testing._disk.fs import Directory, Link, Who, allows

if TYPE_CHECKING:
    from collections.abc import Callable

    from sandboxio.testing._disk.fs import FileSystem, Node


class Places:
    """A file system in memory as one user sees it; a path's obstacles are named as a shell would.

    Each check stands where the scripts of `guest` have it, so that an obstacle gives the same
    error there and here, also where several are in the way.
    """

    def __init__(
        self,
        fs: FileSystem,
        *,
        who: Who | Callable[[], Who],
        cwd: str = "/work",
        on_step: Callable[[], None] = lambda: None,
    ) -> None:
        """`who` is asked at every operation when it can be called; `cwd` is absolute.

        `on_step` hears of every step of what takes many.
        """
        self._on_step = on_step
        self._fs = fs
        self._given = who
        self._cwd = cwd

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
                raise failure(FileSystemError, path, "too many levels of links") from exc
            raise self._absent(path) from exc

    def _is_link(self, path: str) -> bool:
        return isinstance(self._node(path, follow=False), Link)

    def _absent(self, path: str) -> FileSystemError:
        """Return why nothing is at a path: what the nearest thing on the way to it is."""
        place = path if path.startswith("/") else f"./{path}"
        while place not in (".", "/"):
            place = above(place)
            node = self._node(place)
            if node is None:
                continue
            if not isinstance(node, Directory):
                return failure(NotADirectory, path, "not a directory")
            if not allows(node, self._who, 1):
                return failure(PermissionDenied, path, "permission denied")
            break
        return failure(PathNotFound, path, "no such file or directory")

    def _require_file(self, path: str, node: Node) -> None:
        if isinstance(node, Directory):
            raise failure(IsADirectory, path, "is a directory")
        if node.kind != "file":
            raise failure(FileSystemError, path, "not a regular file")

    def _require_right(self, path: str, place: str, *, execute: bool = False) -> None:
        right = self._fs.access(place, cwd=self._cwd, who=self._who, write=True, execute=execute)
        if not right:
            raise failure(PermissionDenied, path, "permission denied")


def above(path: str) -> str:
    """Return a path without its last component, as text: `${d%/*}`."""
    return path.rpartition("/")[0] or "/"


def described(path: str, node: Node) -> FileInfo:
    """Return what `stat` says of a node."""
    return FileInfo(
        path=path,
        size=node.size,
        is_dir=node.kind == "directory",
        kind=node.kind,
        mode=node.mode,
        mtime=datetime.fromtimestamp(math.floor(node.mtime), UTC),
        target=node.target if isinstance(node, Link) else None,
    )


def mapped(
    table: dict[int | None, type[FileSystemError]], path: str, exc: OSError
) -> FileSystemError:
    return failure(table.get(exc.errno, FileSystemError), path, str(exc.strerror))


def failure(kind: type[FileSystemError], path: str, said: str) -> FileSystemError:
    return kind(f"{path!r}: {said}", outcome="done")
