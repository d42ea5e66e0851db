"""Descriptors other than pipes: files, nothing, and text that is ready to be read."""

from __future__ import annotations

import errno
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sandboxio.testing._disk.handles import Handle
    from sandboxio.testing._machine.process import Fd, Process

_BAD = "Bad file descriptor"
_OWN = re.compile(r"/(?:dev|proc/self)/fd/(\d+)")
_NAMED = {"/dev/stdin": 0, "/dev/stdout": 1, "/dev/stderr": 2}


def bad_descriptor(number: int) -> OSError:
    """Return the error of a descriptor that is not open."""
    return OSError(errno.EBADF, _BAD, str(number))


class NullFd:
    """At its end when it is read; whatever is written is gone."""

    async def read(self, size: int) -> bytes:
        return b""

    async def write(self, data: bytes) -> None:
        return

    def dup(self) -> NullFd:
        return self

    def close(self) -> None:
        return


class ClosedFd:
    """What a standard descriptor is after `>&-`: an error whatever is done with it."""

    async def read(self, size: int) -> bytes:
        raise OSError(errno.EBADF, _BAD)

    async def write(self, data: bytes) -> None:
        raise OSError(errno.EBADF, _BAD)

    def dup(self) -> ClosedFd:
        return self

    def close(self) -> None:
        return


class TextFd:
    """Bytes to be read; its copies go on where the others stopped."""

    def __init__(self, data: bytes) -> None:
        self._data = bytearray(data)

    async def read(self, size: int) -> bytes:
        piece = bytes(self._data[:size])
        del self._data[:size]
        return piece

    async def write(self, data: bytes) -> None:
        raise OSError(errno.EBADF, _BAD)

    def dup(self) -> TextFd:
        return self

    def close(self) -> None:
        return


class FileFd:
    """An open file; its copies share the position, and the last of them closes it."""

    def __init__(self, handle: Handle) -> None:
        self._shared = _Shared(handle)
        self._open = True

    async def read(self, size: int) -> bytes:
        return self._shared.handle.read(size)

    async def write(self, data: bytes) -> None:
        self._shared.handle.write(data)

    def dup(self) -> FileFd:
        copy = FileFd.__new__(FileFd)
        copy._shared = self._shared
        copy._open = True
        self._shared.holders += 1
        return copy

    def close(self) -> None:
        if not self._open:
            return
        self._open = False
        self._shared.holders -= 1
        if self._shared.holders == 0:
            self._shared.handle.close()


class _Shared:
    def __init__(self, handle: Handle) -> None:
        self.handle = handle
        self.holders = 1


def open_fd(
    process: Process,
    path: str,
    *,
    read: bool = False,
    write: bool = False,
    append: bool = False,
    truncate: bool = False,
    create: bool = False,
    exclusive: bool = False,
) -> Fd:
    """Open a file for a process, in its directory and with its rights and umask.

    `/dev/stdin` and its like, and `/dev/fd/N`, are copies of the process's own descriptors.

    Raises:
        OSError: what the file system says.
    """
    number = own_descriptor(path)
    if number is not None:
        if number not in process.fds:
            raise OSError(errno.ENOENT, "No such file or directory", path)
        return process.fds[number].dup()
    handle = process.kernel.fs.open(
        path,
        cwd=process.cwd,
        who=process.who,
        read=read,
        write=write,
        append=append,
        truncate=truncate,
        create=create,
        exclusive=exclusive,
        umask=process.umask,
    )
    return FileFd(handle)


def own_descriptor(path: str) -> int | None:
    """Return the number of the descriptor that a path such as `/dev/stderr` stands for."""
    found = _OWN.fullmatch(path)
    return int(found[1]) if found else _NAMED.get(path)
