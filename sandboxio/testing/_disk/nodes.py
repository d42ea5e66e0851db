"""What a file system in memory is made of: its nodes, who may use them, and Linux's errors."""

from __future__ import annotations

import errno
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sandboxio.core.models import FileKind

READ, WRITE, EXECUTE = 4, 2, 1

_WORDS = {
    errno.EACCES: "Permission denied",
    errno.EBADF: "Bad file descriptor",
    errno.EBUSY: "Device or resource busy",
    errno.EEXIST: "File exists",
    errno.EFBIG: "File too large",
    errno.EINVAL: "Invalid argument",
    errno.EISDIR: "Is a directory",
    errno.ELOOP: "Too many levels of symbolic links",
    errno.ENAMETOOLONG: "File name too long",
    errno.ENOENT: "No such file or directory",
    errno.ENOSPC: "No space left on device",
    errno.ENOTDIR: "Not a directory",
    errno.ENOTEMPTY: "Directory not empty",
    errno.ENXIO: "No such device or address",
    errno.EOPNOTSUPP: "Operation not supported",
    errno.EPERM: "Operation not permitted",
    errno.EROFS: "Read-only file system",
}


def error(code: int, path: str) -> OSError:
    """Return the error of a number of `errno`, in the words of Linux whatever the host."""
    return OSError(code, _WORDS[code], path)


class Who(NamedTuple):
    """Whose rights count; uid 0 may do what root may on Linux."""

    uid: int
    gid: int


ROOT = Who(0, 0)


@dataclass(eq=False, kw_only=True)
class Node:
    """What a name leads to. `mode` is the twelve permission bits, `mtime` seconds of the epoch."""

    kind: ClassVar[FileKind] = "other"

    mode: int
    uid: int = 0
    gid: int = 0
    mtime: float = 0.0
    ino: int = 0
    nlink: int = 1

    @property
    def size(self) -> int:
        """What `stat` says, which for a virtual file is 0 whatever it holds."""
        return 0

    def twin(self, mtime: float) -> Self:
        """Return a node like this one, made at that time; what happens to one is not the other's.

        What has several names becomes several.
        """
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__)
        made.mtime = mtime
        return made


@dataclass(eq=False, kw_only=True)
class File(Node):
    """A regular file; what `length` has beyond `data` is a hole, and reads as zeros."""

    kind: ClassVar[FileKind] = "file"

    data: bytearray = field(default_factory=bytearray)
    length: int = 0
    opened: int = 0
    """Handles there are: the data stays until the last of them is closed."""

    @property
    def size(self) -> int:
        return self.length

    def piece(self, offset: int, count: int) -> bytes:
        wanted = max(0, min(count, self.length - offset))
        with memoryview(self.data) as stored:
            piece = stored[offset : offset + wanted].tobytes()
        return piece + bytes(wanted - len(piece))

    def twin(self, mtime: float) -> Self:
        made = super().twin(mtime)
        made.data = bytearray(self.data)
        made.opened = 0
        return made


@dataclass(eq=False, kw_only=True)
class Directory(Node):
    kind: ClassVar[FileKind] = "directory"

    nlink: int = 2
    entries: dict[str, Node] = field(default_factory=dict[str, Node])

    @property
    def size(self) -> int:
        return 4096

    def get(self, name: str) -> Node | None:
        return self.entries.get(name)

    def names(self) -> list[str]:
        """Every name, sorted by its bytes."""
        return sorted(self.entries, key=encoded)

    def twin(self, mtime: float) -> Self:
        made = super().twin(mtime)
        made.entries = {name: node.twin(mtime) for name, node in self.entries.items()}
        return made


@dataclass(eq=False, kw_only=True)
class Link(Node):
    """A symbolic link."""

    kind: ClassVar[FileKind] = "link"

    mode: int = 0o777
    target: str

    @property
    def size(self) -> int:
        return len(encoded(self.target))


@dataclass(eq=False, kw_only=True)
class Special(Node):
    """A FIFO that nobody else has open, or a device."""

    device: Literal["null", "zero", "full"] | None = None
    """How a device behaves; one without is like a terminal that nobody has."""


@dataclass(eq=False, kw_only=True)
class VirtualFile(Node):
    """A file of `/proc`: computed when it is opened, changed by nobody."""

    kind: ClassVar[FileKind] = "file"

    mode: int = 0o444
    content: Callable[[], bytes]


@dataclass(eq=False, kw_only=True)
class VirtualDirectory(Directory):
    """A directory of `/proc`: its entries are computed at every look."""

    mode: int = 0o555
    content: Callable[[], Mapping[str, Node]]

    def get(self, name: str) -> Node | None:
        return self.content().get(name)

    def names(self) -> list[str]:
        return sorted(self.content(), key=encoded)


def encoded(name: str) -> bytes:
    """Return the bytes a name or path stands for."""
    return name.encode("utf-8", "surrogateescape")


def allows(node: Node, who: Who, want: int) -> bool:
    """Say whether the permission bits give all of `want` (`READ | WRITE | EXECUTE`)."""
    if who.uid == 0:
        return not want & EXECUTE or isinstance(node, Directory) or bool(node.mode & 0o111)
    shift = 6 if who.uid == node.uid else 3 if who.gid == node.gid else 0
    return node.mode >> shift & want == want


def drop_set_ids(node: Node, who: Who) -> None:
    """Take setuid and setgid away, as a change of what is no directory does."""
    member = who.uid == 0 or who.gid == node.gid
    node.mode &= ~0o4000
    if node.mode & 0o010 or not member:
        node.mode &= ~0o2000
