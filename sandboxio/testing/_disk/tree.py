"""Looking at the file system in memory: what is where, and who may."""

from __future__ import annotations

import errno
from itertools import count
from typing import TYPE_CHECKING

from sandboxio.testing._disk import glob
from sandboxio.testing._disk.handles import LARGEST_FILE, Disk, Handle
from sandboxio.testing._disk.nodes import (
    EXECUTE,
    READ,
    WRITE,
    Directory,
    File,
    Link,
    Special,
    allows,
    encoded,
    error,
)
from sandboxio.testing._disk.walk import find, find_entry

if TYPE_CHECKING:
    from collections.abc import Callable

    from sandboxio.testing._disk.nodes import Node, Who
    from sandboxio.testing._disk.walk import Place


class Tree:
    """The half of a file system that changes nothing; paths and rights as in `FileSystem`."""

    def __init__(self, *, now: Callable[[], float], capacity: int | None = None) -> None:
        self._now = now
        self._disk = Disk(capacity)
        self._inodes = count(2)
        self._root = Directory(mode=0o755, mtime=now(), ino=1)
        self._read_only: set[Node] = set()

    @property
    def used(self) -> int:
        """Bytes of all regular files, those without a name that are still open included."""
        return self._disk.used

    @property
    def capacity(self) -> int | None:
        """Most that `used` can be; `None` is without end."""
        return self._disk.capacity

    @property
    def room(self) -> int:
        """Bytes that can still be stored."""
        return self._disk.room

    def resolve(self, path: str, *, cwd: str = "/", who: Who, follow: bool = True) -> Node:
        """Return what a path leads to; `follow=False` stops at a link that it names."""
        return self._existing(self._find(path, cwd, who, follow=follow), path)

    def stat(self, path: str, *, cwd: str = "/", who: Who, follow: bool = True) -> Node:
        """Return what a path leads to, to be described."""
        return self.resolve(path, cwd=cwd, who=who, follow=follow)

    def realpath(self, path: str, *, cwd: str = "/", who: Who) -> str:
        """Return the absolute path, free of links and dots, of something that exists."""
        place = self._find(path, cwd, who)
        self._existing(place, path)
        return place.path

    def exists(self, path: str, *, cwd: str = "/", who: Who, follow: bool = True) -> bool:
        """Say whether `resolve()` would succeed."""
        try:
            self.resolve(path, cwd=cwd, who=who, follow=follow)
        except OSError:
            return False
        return True

    def access(
        self,
        path: str,
        *,
        cwd: str = "/",
        who: Who,
        read: bool = False,
        write: bool = False,
        execute: bool = False,
    ) -> bool:
        """Say whether something is there and gives every right asked for."""
        try:
            place = self._find(path, cwd, who)
            node = self._existing(place, path)
        except OSError:
            return False
        if (
            write
            and isinstance(node, File | Directory)
            and self._is_read_only(node, *place.parents)
        ):
            return False
        return allows(node, who, READ * read | WRITE * write | EXECUTE * execute)

    def listdir(self, path: str, *, cwd: str = "/", who: Who) -> list[str]:
        """Return the names in a directory, sorted by their bytes, without `.` and `..`."""
        node = self.resolve(path, cwd=cwd, who=who)
        if not isinstance(node, Directory):
            raise error(errno.ENOTDIR, path)
        self._require(node, who, READ, path)
        return node.names()

    def readlink(self, path: str, *, cwd: str = "/", who: Who) -> str:
        """Return where a link points, as written in it."""
        node = self.resolve(path, cwd=cwd, who=who, follow=False)
        if not isinstance(node, Link):
            raise error(errno.EINVAL, path)
        return node.target

    def read(
        self,
        path: str,
        offset: int = 0,
        length: int | None = None,
        *,
        cwd: str = "/",
        who: Who,
    ) -> bytes:
        """Return the bytes of a file; `length=None` reads to the end, which there must be."""
        node = self.resolve(path, cwd=cwd, who=who)
        self._require(node, who, READ, path)
        with self._opened(node, path, who, read=True) as handle:
            handle.seek(offset)
            return handle.read(self._length(node, path) if length is None else length)

    def glob(self, pattern: str, *, cwd: str = "/", who: Who) -> list[str]:
        """Return what a pattern matches, sorted by bytes; nothing where nothing does.

        The rules are those of `sh`: `*`, `?` and `[...]` match within one name, and a leading
        dot only where the component begins with one; then `.` and `..` count as names. A
        backslash makes the character after it stand for itself.
        """
        found = [""]
        for piece in glob.pieces(pattern):
            if piece.startswith("/") or not glob.is_pattern(piece):
                found = [prefix + glob.literal(piece) for prefix in found]
            else:
                found = [
                    prefix + name
                    for prefix in found
                    for name in self._candidates(prefix, cwd, who)
                    if glob.matches(name, piece)
                ]
        there = {path for path in found if self.exists(path, cwd=cwd, who=who, follow=False)}
        return sorted(there, key=encoded)

    def _candidates(self, prefix: str, cwd: str, who: Who) -> list[str]:
        try:
            return [".", "..", *self.listdir(prefix or ".", cwd=cwd, who=who)]
        except OSError:
            return []

    def _find(
        self, path: str, cwd: str, who: Who, *, follow: bool = True, create: bool = False
    ) -> Place:
        return find(self._root, path, cwd=cwd, who=who, follow=follow, create=create)

    def _entry(self, path: str, cwd: str, who: Who) -> Place:
        return find_entry(self._root, path, cwd=cwd, who=who)

    def _existing(self, place: Place, path: str) -> Node:
        if place.node is None:
            raise error(errno.ENOENT, path)
        return place.node

    def _is_read_only(self, *nodes: Node | None) -> bool:
        return any(node in self._read_only for node in nodes)

    def _require(self, node: Node, who: Who, want: int, path: str) -> None:
        if not allows(node, who, want):
            raise error(errno.EACCES, path)

    def _opened(
        self,
        node: Node,
        path: str,
        who: Who,
        *,
        read: bool,
        write: bool = False,
        append: bool = False,
    ) -> Handle:
        """Open what the rights have been checked for."""
        if isinstance(node, Directory):
            raise error(errno.EISDIR, path)
        if isinstance(node, Special) and node.device is None:
            raise error(errno.ENXIO, path)
        return Handle(
            node,
            path,
            disk=self._disk,
            now=self._now,
            who=who,
            read=read,
            write=write,
            append=append,
        )

    def _length(self, node: Node, path: str) -> int:
        if isinstance(node, Special) and node.device != "null":
            raise error(errno.EINVAL, path)
        if node.size > LARGEST_FILE:
            raise error(errno.EFBIG, path)
        return LARGEST_FILE
