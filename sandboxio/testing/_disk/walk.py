"""Following a path through directories and links, as Linux does."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, NamedTuple

from sandboxio.testing._disk.nodes import EXECUTE, ROOT, Directory, Link, allows, encoded, error

if TYPE_CHECKING:
    from sandboxio.testing._disk.nodes import Node, Who

NAME_BYTES = 255
PATH_BYTES = 4095
LINKS = 40


class Place(NamedTuple):
    """Where a path leads, whether something is there or not."""

    parents: tuple[Directory, ...]
    """From the root to the directory that holds it; empty for the root itself."""
    names: tuple[str, ...]
    """The names from the root to it, free of links and dots."""
    last: str
    """The last component as written: a name, `.`, `..`, or nothing for the root."""
    node: Node | None
    slash: bool
    """The path ended in `/`: only a directory will do."""

    @property
    def parent(self) -> Directory:
        return self.parents[-1]

    @property
    def name(self) -> str:
        return self.names[-1]

    @property
    def path(self) -> str:
        return "/" + "/".join(self.names)

    @property
    def is_named(self) -> bool:
        """Whether it can be made, moved and removed: `/`, `.` and `..` cannot."""
        return self.last not in ("", ".", "..")

    def child(self, folder: Directory, name: str, node: Node) -> Place:
        """Return the place of an entry of this place's own node."""
        return Place((*self.parents, folder), (*self.names, name), name, node, slash=False)


def find(
    root: Directory, path: str, *, cwd: str, who: Who, follow: bool, create: bool = False
) -> Place:
    """Return where a path leads; a missing last component is a place without a node.

    A trailing slash follows a link, and refuses what is no directory. With `create`, it refuses
    every name before it: a file is wanted.
    """
    walk = _begin(root, path, cwd, who)
    walk.create = create
    place = walk.to_end(follow=follow or path.endswith("/"))
    if place.slash and not isinstance(place.node, Directory | None):
        raise error(errno.ENOTDIR, path)
    return place


def find_entry(root: Directory, path: str, *, cwd: str, who: Who) -> Place:
    """Return the entry a path names, which is a link itself even before a trailing slash."""
    return _begin(root, path, cwd, who).to_end(follow=False)


def _begin(root: Directory, path: str, cwd: str, who: Who) -> _Walk:
    if not path:
        raise error(errno.ENOENT, path)
    if len(encoded(path)) > PATH_BYTES:
        raise error(errno.ENAMETOOLONG, path)
    trail: list[tuple[str, Node]] = [("", root)]
    if not path.startswith("/"):
        # whoever works in a directory is there already: the way to it is no question of rights
        start = _Walk(trail, cwd, ROOT)
        if not isinstance(start.to_end(follow=True).node, Directory):
            raise error(errno.ENOENT, path)
        trail = start.trail
    return _Walk(trail, path, who)


class _Walk:
    """One way from a directory along the components of a path."""

    def __init__(self, trail: list[tuple[str, Node]], path: str, who: Who) -> None:
        self.trail = trail
        self._path = path
        self._who = who
        self._pending = _components(path)
        self._slash = path.endswith("/")
        self._links = 0
        self.create = False

    def to_end(self, *, follow: bool) -> Place:
        last = ""
        while self._pending:
            last = self._pending.pop()
            if not self._step(last, follow=follow):
                if self._pending:
                    raise error(errno.ENOENT, self._path)
                return self._place(last, missing=True)
        return self._place(last, missing=False)

    def _step(self, name: str, *, follow: bool) -> bool:
        here = self._directory()
        if name == "..":
            del self.trail[max(1, len(self.trail) - 1) :]
        if name in (".", ".."):
            return True
        if self.create and self._slash and not self._pending:
            raise error(errno.EISDIR, self._path)
        if len(encoded(name)) > NAME_BYTES:
            raise error(errno.ENAMETOOLONG, self._path)
        node = here.get(name)
        if isinstance(node, Link) and (follow or self._pending):
            self._expand(node)
        elif node is not None:
            self.trail.append((name, node))
        return node is not None

    def _directory(self) -> Directory:
        here = self.trail[-1][1]
        if not isinstance(here, Directory):
            raise error(errno.ENOTDIR, self._path)
        if not allows(here, self._who, EXECUTE):
            raise error(errno.EACCES, self._path)
        return here

    def _expand(self, link: Link) -> None:
        self._links += 1
        if self._links > LINKS:
            raise error(errno.ELOOP, self._path)
        if link.target.startswith("/"):
            del self.trail[1:]
        if not self._pending:
            self._slash = self._slash or link.target.endswith("/")
        self._pending.extend(_components(link.target))

    def _place(self, last: str, *, missing: bool) -> Place:
        held = self.trail if missing else self.trail[:-1]
        names = tuple(name for name, _ in self.trail[1:])
        return Place(
            tuple(node for _, node in held if isinstance(node, Directory)),
            (*names, last) if missing else names,
            last,
            None if missing else self.trail[-1][1],
            self._slash,
        )


def _components(path: str) -> list[str]:
    return [part for part in reversed(path.split("/")) if part]
