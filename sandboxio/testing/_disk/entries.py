"""Making, moving and removing the entries of directories, in memory."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from sandboxio.testing._disk.nodes import (
    EXECUTE,
    READ,
    WRITE,
    Directory,
    File,
    Link,
    Special,
    VirtualDirectory,
    allows,
    error,
)
from sandboxio.testing._disk.tree import Tree

if TYPE_CHECKING:
    from collections.abc import Callable

    from sandboxio.testing._disk.nodes import Node, Who
    from sandboxio.testing._disk.walk import Place


class Entries(Tree):
    """The part of a file system that changes directories; paths and rights as in `FileSystem`."""

    def mkdir(
        self,
        path: str,
        mode: int = 0o777,
        *,
        cwd: str = "/",
        who: Who,
        umask: int = 0o022,
        parents: bool = False,
    ) -> None:
        """Make a directory; `parents` makes those above and accepts one that exists."""
        if parents:
            self._make_parents(path, mode, cwd, who, umask)
        else:
            place = self._entry(path, cwd, who)
            self._make(place, path, Directory(mode=mode & 0o1777 & ~umask), who)

    def symlink(self, target: str, path: str, *, cwd: str = "/", who: Who) -> None:
        """Make a link to a target, which need not exist."""
        if not target:
            raise error(errno.ENOENT, path)
        self._make(self._entry(path, cwd, who), path, Link(target=target), who)

    def mkfifo(
        self, path: str, mode: int = 0o666, *, cwd: str = "/", who: Who, umask: int = 0o022
    ) -> None:
        """Make a FIFO."""
        self._make(self._entry(path, cwd, who), path, Special(mode=mode & ~umask), who)

    def link(self, old: str, new: str, *, cwd: str = "/", who: Who) -> None:
        """Give a file a second name; a symbolic link is itself what gets one."""
        node = self.resolve(old, cwd=cwd, who=who, follow=False)
        place = self._entry(new, cwd, who)
        self._require_free(place, new, folder=False)
        if not _may_be_linked(node, who):
            raise error(errno.EPERM, old)
        self._require_addable(place, new, who)
        if isinstance(node, Directory):
            raise error(errno.EPERM, old)
        self._put(place.parent, place.name, node)
        node.nlink += 1

    def unlink(self, path: str, *, cwd: str = "/", who: Who) -> None:
        """Remove a name of anything but a directory."""
        place = self._entry(path, cwd, who)
        if not place.is_named:
            raise error(errno.EISDIR, path)
        self._unlink(place, path, who)

    def rmdir(self, path: str, *, cwd: str = "/", who: Who) -> None:
        """Remove an empty directory."""
        place = self._entry(path, cwd, who)
        if not place.is_named:
            codes = {"": errno.EBUSY, ".": errno.EINVAL, "..": errno.ENOTEMPTY}
            raise error(codes[place.last], path)
        self._rmdir(place, path, who)

    def remove_tree(
        self,
        path: str,
        *,
        cwd: str = "/",
        who: Who,
        on_error: Callable[[OSError], None] | None = None,
    ) -> None:
        """Remove whatever a path names and all below it; no link is followed.

        Like `rm -r`, it goes on where something cannot be removed. `on_error` is told of each
        such thing; without it, the first is raised in the end. `/`, `.` and `..` are `EINVAL`.
        """
        place = self._entry(path, cwd, who)
        if not place.is_named:
            raise error(errno.EINVAL, path)
        failures: list[OSError] = []
        self._remove_tree(place, path, who, on_error or failures.append)
        if failures:
            raise failures[0]

    def rename(self, old: str, new: str, *, cwd: str = "/", who: Who) -> None:
        """Move a file over a file or nothing, or a directory over an empty one or nothing."""
        source, target = self._entry(old, cwd, who), self._entry(new, cwd, who)
        if not (source.is_named and target.is_named):
            raise error(errno.EBUSY, old)
        if self._is_read_only(*source.parents, *target.parents):
            raise error(errno.EROFS, old)
        node = self._existing(source, old)
        folder = isinstance(node, Directory)
        if not folder and (source.slash or target.slash):
            raise error(errno.ENOTDIR, old)
        if node in target.parents:
            raise error(errno.EINVAL, old)
        if target.node in source.parents:
            raise error(errno.ENOTEMPTY, new)
        if target.node is not node:
            self._require_removable(source, old, who, folder=folder)
            self._require_replaceable(target, new, who, folder=folder)
            if folder and source.parent is not target.parent:
                self._require(node, who, WRITE, old)
            self._require_empty(target, new)
            self._move(source, target, node)

    def _move(self, source: Place, target: Place, node: Node) -> None:
        if target.node is not None:
            self._drop(target, target.node)
        del source.parent.entries[source.name]
        target.parent.entries[target.name] = node
        if isinstance(node, Directory):
            source.parent.nlink -= 1
            target.parent.nlink += 1
        source.parent.mtime = target.parent.mtime = self._now()

    def _make_parents(self, path: str, mode: int, cwd: str, who: Who, umask: int) -> None:
        way = _prefixes(path)
        for prefix in way:
            last = prefix == way[-1]
            bits = mode & 0o1777 & ~umask if last else (0o777 & ~umask) | 0o300
            try:
                place = self._entry(prefix, cwd, who)
                self._make(place, prefix, Directory(mode=bits), who)
            except FileExistsError:
                self._require_directory(prefix, cwd, who, last=last)

    def _require_directory(self, path: str, cwd: str, who: Who, *, last: bool) -> None:
        """Raise what `mkdir -p` says of something in its way."""
        try:
            found = isinstance(self.resolve(path, cwd=cwd, who=who), Directory)
        except FileNotFoundError:
            raise error(errno.EEXIST, path) from None
        except NotADirectoryError:
            found = False
        if not found:
            raise error(errno.EEXIST if last else errno.ENOTDIR, path)

    def _make(self, place: Place, path: str, node: Node, who: Who) -> Node:
        """Put a new node at a place where nothing is, owned by whoever asks."""
        folder = isinstance(node, Directory)
        self._require_free(place, path, folder=folder)
        self._require_addable(place, path, who)
        inherits = bool(place.parent.mode & 0o2000)
        node.uid, node.gid = who.uid, place.parent.gid if inherits else who.gid
        node.ino, node.mtime = next(self._inodes), self._now()
        if inherits:
            self._inherit_group(node, who)
        self._put(place.parent, place.name, node)
        return node

    def _inherit_group(self, node: Node, who: Who) -> None:
        """Hand setgid on to a directory; a program is not given to a group one is not of."""
        if isinstance(node, Directory):
            node.mode |= 0o2000
        elif node.mode & 0o010 and who.uid != 0 and who.gid != node.gid:
            node.mode &= ~0o2000

    def _put(self, parent: Directory, name: str, node: Node) -> None:
        parent.entries[name] = node
        parent.nlink += isinstance(node, Directory)
        parent.mtime = self._now()

    def _drop(self, place: Place, node: Node) -> None:
        """Take a name away, and with the last one the room that the file took."""
        del place.parent.entries[place.name]
        place.parent.mtime = self._now()
        if isinstance(node, Directory):
            place.parent.nlink -= 1
            node.nlink = 0
            return
        node.nlink -= 1
        if isinstance(node, File):
            self._disk.release(node)

    def _unlink(self, place: Place, path: str, who: Who) -> None:
        self._require_writable_place(place, path)
        if place.slash:
            folder = isinstance(place.node, Directory)
            raise error(errno.EISDIR if folder else errno.ENOTDIR, path)
        self._require_removable(place, path, who, folder=False)
        self._drop(place, self._existing(place, path))

    def _rmdir(self, place: Place, path: str, who: Who) -> None:
        self._require_removable(place, path, who, folder=True)
        self._require_empty(place, path)
        self._drop(place, self._existing(place, path))

    def _require_free(self, place: Place, path: str, *, folder: bool) -> None:
        if place.node is not None:
            raise error(errno.EEXIST, path)
        if place.slash and not folder:
            raise error(errno.ENOENT, path)
        if self._is_read_only(*place.parents):
            raise error(errno.EROFS, path)

    def _require_addable(self, place: Place, path: str, who: Who) -> None:
        if isinstance(place.parent, VirtualDirectory):
            raise error(errno.ENOENT, path)
        self._require(place.parent, who, WRITE | EXECUTE, path)

    def _require_writable_place(self, place: Place, path: str) -> None:
        """Linux refuses a read-only place before it looks for what is to be removed."""
        if self._is_read_only(*place.parents):
            raise error(errno.EROFS, path)
        self._existing(place, path)

    def _require_removable(self, place: Place, path: str, who: Who, *, folder: bool) -> None:
        self._require_writable_place(place, path)
        node, parent = self._existing(place, path), place.parent
        self._require(parent, who, WRITE | EXECUTE, path)
        kept = parent.mode & 0o1000 and who.uid not in (0, node.uid, parent.uid)
        if kept or isinstance(parent, VirtualDirectory):
            raise error(errno.EPERM, path)
        if folder != isinstance(node, Directory):
            raise error(errno.ENOTDIR if folder else errno.EISDIR, path)
        if self._is_read_only(node):
            raise error(errno.EBUSY, path)

    def _require_replaceable(self, place: Place, path: str, who: Who, *, folder: bool) -> None:
        if place.node is None:
            self._require_addable(place, path, who)
        else:
            self._require_removable(place, path, who, folder=folder)

    def _require_empty(self, place: Place, path: str) -> None:
        if isinstance(place.node, Directory) and place.node.names():
            raise error(errno.ENOTEMPTY, path)

    def _remove_tree(
        self, top: Place, path: str, who: Who, report: Callable[[OSError], None]
    ) -> None:
        """Visit a tree depth first, without recursion: it may be deeper than Python's stack."""
        pending = [(top, path, False)]
        kept: set[Node] = set()
        closed: dict[Node, OSError] = {}
        while pending:
            place, at, visited = pending.pop()
            node = self._existing(place, at)
            if isinstance(node, Directory) and not visited:
                pending.append((place, at, True))
                try:
                    pending.extend(self._below(place, node, at, who))
                except OSError as exc:
                    closed[node] = exc
            elif node not in kept:
                try:
                    self._remove(place, at, who)
                except OSError as exc:
                    kept.update(place.parents)
                    report(closed.get(node, exc) if exc.errno == errno.ENOTEMPTY else exc)

    def _below(
        self, place: Place, node: Directory, path: str, who: Who
    ) -> list[tuple[Place, str, bool]]:
        """Return what to remove before a directory, last first."""
        self._require(place.parent, who, EXECUTE, path)
        self._require(node, who, READ, path)
        base = path if path.endswith("/") else f"{path}/"
        found = [(name, node.get(name)) for name in reversed(node.names())]
        return [
            (place.child(node, name, entry), base + name, False) for name, entry in found if entry
        ]

    def _remove(self, place: Place, path: str, who: Who) -> None:
        if isinstance(place.node, Directory):
            self._rmdir(place, path, who)
        else:
            self._unlink(place, path, who)


def _may_be_linked(node: Node, who: Who) -> bool:
    """Linux's `protected_hardlinks`: others' files only where they can be changed anyway."""
    mine = who.uid in (0, node.uid)
    return mine or (isinstance(node, File) and allows(node, who, READ | WRITE))


def _prefixes(path: str) -> list[str]:
    """Return the paths of every directory on the way, the path itself last."""
    parts = path.split("/")
    ends = [end for end in range(1, len(parts)) if parts[end - 1]]
    return [*("/".join(parts[:end]) for end in ends if any(parts[end:])), path]
