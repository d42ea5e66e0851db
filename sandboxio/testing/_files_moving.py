"""Moving, copying, rights and edits in the fake: what the scripts of `guest` do by shell."""

from __future__ import annotations

import errno
import secrets
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
from sandboxio.testing._disk.fs import Directory, Link
from sandboxio.testing._file_places import Places, above, failure, mapped
from sandboxio.testing._files_copying import Copying

if TYPE_CHECKING:
    from sandboxio.testing._disk.fs import Node

_MOVED: dict[int | None, type[FileSystemError]] = {
    errno.EACCES: PermissionDenied,
    errno.EPERM: PermissionDenied,
    errno.EROFS: PermissionDenied,
    errno.EEXIST: PathExists,
    errno.ENOTEMPTY: PathExists,
    errno.ENOENT: PathNotFound,
}


class Moving(Places):
    """The operations that know two places, or change what is at one."""

    async def move(self, source: str, target: str) -> None:
        await anyio.lowlevel.checkpoint()
        node, goal = self._both(source, target)
        if self._node(goal, follow=False) is node:
            self._move_onto_itself(source, goal)
            return
        try:
            self._fs.rename(source.rstrip("/") or "/", goal, cwd=self._cwd, who=self._who)
        except OSError as exc:
            raise mapped(_MOVED, source, exc) from exc

    async def copy(self, source: str, target: str) -> None:
        await anyio.lowlevel.checkpoint()
        _, goal = self._both(source, target)
        who, cwd = self._who, self._cwd
        part = f"{above(goal)}/.sandboxio-{secrets.token_hex(8)}"
        try:
            copying = Copying(self._fs, who=who, cwd=cwd, on_step=self._on_step)
            await copying.run(source.rstrip("/") or "/", part)
            self._fs.rename(part, goal, cwd=cwd, who=who)
        except OSError as exc:
            raise mapped(_MOVED, source, exc) from exc

    async def chmod(self, path: str, mode: int) -> None:
        await anyio.lowlevel.checkpoint()
        self._found(path)
        self._set_mode(path, mode)

    def _set_mode(self, path: str, mode: int) -> None:
        try:
            self._fs.chmod(path, mode, cwd=self._cwd, who=self._who)
        except OSError as exc:
            raise failure(PermissionDenied, path, "permission denied") from exc

    def _both(self, source: str, target: str) -> tuple[Node, str]:
        """Return what is to go, and where to, once nothing that can be seen is in the way."""
        node = self._found(source, follow=False)
        bare = source.rstrip("/")
        if bare != source and isinstance(self._node(bare, follow=False), Link):
            raise failure(FileSystemError, source, "a link, and then a slash")
        folder = isinstance(node, Directory)
        if isinstance(self._node(target, follow=target.endswith("/")), Directory):
            raise failure(PathExists if folder else IsADirectory, target, "is a directory")
        goal = target.rstrip("/")
        if goal != target and not folder:
            raise failure(NotADirectory, target, "not a directory")
        goal = goal if goal.startswith("/") else f"./{goal}"
        self._require_parent(target, above(goal))
        if folder and self._node(goal, follow=False) is not None:
            raise failure(NotADirectory, target, "not a directory")
        self._require_right(target, above(goal), execute=True)
        if folder:
            self._refuse_itself(node, source, above(goal))
        return node, goal

    def _require_parent(self, path: str, place: str) -> None:
        parent = self._node(place)
        if parent is None:
            raise self._absent(path)
        if not isinstance(parent, Directory):
            raise failure(NotADirectory, path, "not a directory")

    def _refuse_itself(self, node: Node, source: str, parent: str) -> None:
        way = self._fs.realpath(parent, cwd=self._cwd, who=self._who)
        while True:
            if self._node(way) is node:
                raise failure(FileSystemError, source, "a directory cannot go into itself")
            if way == "/":
                return
            way = above(way)

    def _move_onto_itself(self, source: str, goal: str) -> None:
        """A file that has both names loses the first, unless the two are one."""
        ours = source if source.startswith("/") else f"./{source}"
        if self._node(above(ours)) is self._node(above(goal)) and (
            ours.rpartition("/")[2] == goal.rpartition("/")[2]
        ):
            return
        try:
            self._fs.unlink(source, cwd=self._cwd, who=self._who)
        except OSError as exc:
            raise mapped(_MOVED, source, exc) from exc
