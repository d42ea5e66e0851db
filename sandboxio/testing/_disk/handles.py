"""Open files of the file system in memory, and the disk their bytes take room on."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Self

from sandboxio.testing._disk.nodes import File, Special, VirtualFile, drop_set_ids, error

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from sandboxio.testing._disk.nodes import Node, Who

LARGEST_FILE = 1024**3
"""Most bytes that one file holds: they are in this process's memory. A hole may be larger."""


class Disk:
    """Counts the bytes of every regular file against a capacity; `None` is without end."""

    def __init__(self, capacity: int | None) -> None:
        self.capacity = capacity
        self.used = 0

    @property
    def room(self) -> int:
        return LARGEST_FILE if self.capacity is None else max(0, self.capacity - self.used)

    def write(self, file: File, position: int, data: bytes) -> int:
        """Store what fits, from the front, and return how much that was."""
        end = position + len(data)
        lacking = max(0, end - len(file.data) - self.room, end - LARGEST_FILE)
        part = data[: max(0, len(data) - lacking)]
        if part:
            before = len(file.data)
            file.data.extend(bytes(max(0, position - before)))
            if position >= before:
                file.data += part
            else:
                file.data[position : position + len(part)] = part
            file.length = max(file.length, len(file.data))
            self.used += len(file.data) - before
        return len(part)

    def resize(self, file: File, size: int) -> None:
        """Cut a file, or lengthen it with a hole, which takes no room."""
        self.used -= max(0, len(file.data) - size)
        del file.data[size:]
        file.length = size

    def release(self, file: File) -> None:
        """Give the room of a file back, once it has neither a name nor a handle."""
        if file.nlink == 0 and file.opened == 0:
            self.resize(file, 0)


class Handle:
    """An open file. It outlives the file's name; `close()` it, or use it with `with`."""

    def __init__(
        self,
        node: Node,
        path: str,
        *,
        disk: Disk,
        now: Callable[[], float],
        who: Who,
        read: bool,
        write: bool,
        append: bool,
    ) -> None:
        self.node = node
        self.path = path
        self.position = 0
        self.closed = False
        self._disk = disk
        self._now = now
        self._who = who
        self._readable, self._writable, self._append = read, write or append, append
        self._content = node.content() if isinstance(node, VirtualFile) else b""
        if isinstance(node, File):
            node.opened += 1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.close()

    def read(self, n: int) -> bytes:
        """Return up to `n` bytes; empty at the end, which `/dev/zero` does not have."""
        self._require(self._readable)
        piece = self._piece(n)
        self.position += len(piece)
        return piece

    def write(self, data: bytes) -> int:
        """Write all of it and return its length; `ENOSPC` keeps the part that fits."""
        self._require(self._writable)
        if isinstance(self.node, File):
            self._store(self.node, data)
        elif data and isinstance(self.node, Special) and self.node.device == "full":
            raise error(errno.ENOSPC, self.path)
        return len(data)

    def seek(self, position: int) -> None:
        """Move to a byte, which may lie beyond the end."""
        self._require(True)
        if position < 0:
            raise error(errno.EINVAL, self.path)
        self.position = position

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes, or lengthen it with zeros that take no room."""
        self._require(self._writable)
        if not isinstance(self.node, File) or size < 0:
            raise error(errno.EINVAL, self.path)
        self.clear(size)

    def clear(self, size: int = 0) -> None:
        """Do what `truncate()` does, without asking how this was opened."""
        if isinstance(self.node, File):
            self._disk.resize(self.node, size)
            self._changed(self.node)

    def close(self) -> None:
        """Let the file go; may be called again."""
        if not self.closed and isinstance(self.node, File):
            self.node.opened -= 1
            self._disk.release(self.node)
        self.closed = True

    def _require(self, right: bool) -> None:
        if self.closed or not right:
            raise error(errno.EBADF, self.path)

    def _piece(self, n: int) -> bytes:
        if isinstance(self.node, File):
            return self.node.piece(self.position, n)
        if isinstance(self.node, Special):
            return b"" if self.node.device == "null" else bytes(n)
        return self._content[self.position : self.position + n]

    def _store(self, file: File, data: bytes) -> None:
        if self._append:
            self.position = file.length
        if not data:
            return
        written = self._disk.write(file, self.position, data)
        self.position += written
        if written:
            self._changed(file)
        if written < len(data):
            too_long = self.position >= LARGEST_FILE
            raise error(errno.EFBIG if too_long else errno.ENOSPC, self.path)

    def _changed(self, file: File) -> None:
        file.mtime = self._now()
        if self._who.uid != 0:
            drop_set_ids(file, self._who)
