"""A POSIX-like file system in memory: pure, synchronous, the same on every host.

It does what Linux does, errors included: each is the `OSError` of the call's `errno`, in Linux's
own words. Names are text; bytes that are not UTF-8 are surrogate escapes.
"""

from __future__ import annotations

import errno
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

from sandboxio.testing._disk.entries import Entries
from sandboxio.testing._disk.handles import Handle
from sandboxio.testing._disk.nodes import (
    READ,
    ROOT,
    WRITE,
    Directory,
    File,
    Link,
    Node,
    Special,
    VirtualDirectory,
    VirtualFile,
    Who,
    allows,
    drop_set_ids,
    error,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sandboxio.testing._disk.walk import Place

__all__ = [
    "ROOT",
    "Directory",
    "File",
    "FileSystem",
    "Handle",
    "Link",
    "Node",
    "Snapshot",
    "Special",
    "VirtualDirectory",
    "VirtualFile",
    "Who",
    "allows",
]


class Snapshot(NamedTuple):
    """All that a file system held once."""

    root: Directory
    used: int
    next_inode: int


class FileSystem(Entries):
    """Files, directories, links and devices, with owners and permissions.

    `now` gives the time of changes, in seconds of the epoch. `capacity` is the most bytes that
    all regular files hold together; `None` is without end. Every call takes `who` asks, whose
    rights it then has, and `cwd`, an absolute path at which relative ones begin.

    Example:
        >>> fs = FileSystem(now=lambda: 0.0)
        >>> with fs.open("/hello", write=True, create=True, who=ROOT) as file:
        ...     file.write(b"hello")
        5
        >>> fs.read("/hello", who=ROOT), fs.used
        (b'hello', 5)
    """

    def open(
        self,
        path: str,
        *,
        cwd: str = "/",
        who: Who,
        read: bool = False,
        write: bool = False,
        append: bool = False,
        truncate: bool = False,
        create: bool = False,
        exclusive: bool = False,
        mode: int = 0o666,
        umask: int = 0o022,
    ) -> Handle:
        """Open a file; `create` makes a missing one, the target of a dangling link included.

        `append` writes, each time at the end. `exclusive` refuses what exists, links too.
        Directories cannot be opened; a FIFO is `ENXIO`, since nobody has its other end.
        """
        place = self._find(path, cwd, who, follow=not (create and exclusive), create=create)
        if place.node is not None or not create:
            want = READ * read | WRITE * (write or append or truncate)
            node = self._existing(place, path)
            if create and exclusive:
                raise error(errno.EEXIST, path)
            self._require_content(place, path, who, want, create=create)
        else:
            node = self._make(place, path, File(mode=mode & ~umask), who)
        handle = self._opened(node, path, who, read=read, write=write, append=append)
        if truncate and isinstance(node, File):
            handle.clear()
        return handle

    def touch(self, path: str, *, cwd: str = "/", who: Who, umask: int = 0o022) -> None:
        """Make an empty file, or set the time of what exists to now."""
        place = self._find(path, cwd, who)
        if place.node is None:
            self._make(place, path, File(mode=0o666 & ~umask), who)
            return
        self._require_changeable(place, place.node, path)
        if who.uid not in (0, place.node.uid):
            self._require(place.node, who, WRITE, path)
        place.node.mtime = self._now()

    def utime(
        self, path: str, mtime: float, *, cwd: str = "/", who: Who, follow: bool = True
    ) -> None:
        """Set the time of the last change, in seconds of the epoch; the owner and root may."""
        self._owned(path, cwd, who, follow=follow).mtime = mtime

    def chmod(self, path: str, mode: int, *, cwd: str = "/", who: Who, follow: bool = True) -> None:
        """Set the twelve permission bits; the owner and root may."""
        node = self._owned(path, cwd, who, follow=follow)
        if isinstance(node, Link):
            raise error(errno.EOPNOTSUPP, path)
        foreign = who.uid != 0 and node.gid != who.gid
        node.mode = mode & (0o5777 if foreign else 0o7777)

    def chown(
        self, path: str, uid: int, gid: int, *, cwd: str = "/", who: Who, follow: bool = True
    ) -> None:
        """Set owner and group, -1 for the same; root may, owners only to their own group."""
        node = self._owned(path, cwd, who, follow=follow)
        if who.uid != 0 and (uid not in (-1, node.uid) or gid not in (-1, node.gid, who.gid)):
            raise error(errno.EPERM, path)
        if not isinstance(node, Directory):
            drop_set_ids(node, who)
        node.uid = node.uid if uid == -1 else uid
        node.gid = node.gid if gid == -1 else gid

    def mount_read_only(self, path: str) -> None:
        """Refuse every change at and below a directory from now on, root's too."""
        self._read_only.add(self.resolve(path, who=ROOT))

    def populate(
        self, path: str, data: bytes | None = None, *, mode: int, uid: int = 0, gid: int = 0
    ) -> Node:
        """Put a file, or with `None` a directory, at an absolute path of an image.

        Directories above are made as `0755` of root. No rights are asked and no capacity is
        kept to; a directory that exists gets this mode and these owners.
        """
        self._populate_above(path)
        place = self._find(path, "/", ROOT)
        if data is None and isinstance(place.node, Directory):
            place.node.mode, place.node.uid, place.node.gid = mode, uid, gid
            return place.node
        if data is None:
            return self.attach(path, Directory(mode=mode, uid=uid, gid=gid))
        self._disk.used += len(data)
        content = bytearray(data)
        return self.attach(path, File(mode=mode, uid=uid, gid=gid, data=content, length=len(data)))

    def fill(self, path: str, files: Mapping[str, bytes], *, mode: int) -> None:
        """Put many files of root into a new directory of an image."""
        above = Directory(mode=0o755)
        self.attach(path, above)
        for name, data in files.items():
            content = bytearray(data)
            node = File(mode=mode, data=content, length=len(data), mtime=self._now())
            node.ino = next(self._inodes)
            self._put(above, name, node)
            self._disk.used += len(data)

    def attach(self, path: str, node: Node) -> Node:
        """Put a node of any type at an absolute path of an image, in place of what was there."""
        self._populate_above(path)
        place = self._entry(path, "/", ROOT)
        if not place.is_named:
            raise error(errno.EBUSY, path)
        if place.node is not None:
            self._drop(place, place.node)
        node.ino, node.mtime = next(self._inodes), self._now()
        self._put(place.parent, place.name, node)
        return node

    def snapshot(self) -> Snapshot:
        """Return all that an image without virtual files holds, for `restore()` to copy."""
        return Snapshot(self._root.twin(self._now()), self.used, next(self._inodes))

    def restore(self, held: Snapshot) -> None:
        """Hold what another file system held, as if it were made now, in place of everything."""
        self._root = held.root.twin(self._now())
        self._disk.used = held.used
        self._inodes = count(held.next_inode)
        self._read_only.clear()

    def _populate_above(self, path: str) -> None:
        above = path.rstrip("/").rpartition("/")[0]
        if above and not self.exists(above, who=ROOT):
            self.populate(above, mode=0o755)

    def _require_content(
        self, place: Place, path: str, who: Who, want: int, *, create: bool
    ) -> None:
        """Raise unless the content of something that exists may be read or changed."""
        node = self._existing(place, path)
        change = bool(want & WRITE)
        if isinstance(node, Directory) and (change or create):
            raise error(errno.EISDIR, path)
        if change and isinstance(node, File) and self._is_read_only(*place.parents):
            raise error(errno.EROFS, path)
        if change and isinstance(node, VirtualFile):
            raise error(errno.EACCES, path)
        self._require(node, who, want, path)

    def _owned(self, path: str, cwd: str, who: Who, *, follow: bool) -> Node:
        """Return something whose attributes these credentials may change."""
        place = self._find(path, cwd, who, follow=follow)
        node = self._existing(place, path)
        self._require_changeable(place, node, path)
        if who.uid not in (0, node.uid):
            raise error(errno.EPERM, path)
        return node

    def _require_changeable(self, place: Place, node: Node, path: str) -> None:
        if self._is_read_only(node, *place.parents):
            raise error(errno.EROFS, path)
        if isinstance(node, VirtualFile | VirtualDirectory):
            raise error(errno.EPERM, path)
