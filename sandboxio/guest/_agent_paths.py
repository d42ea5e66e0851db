"""Part of the agent: paths, walked name by name, each directory held open.

Nothing can be exchanged between looking and opening, and no link of procfs is followed to where
no path leads.
"""

from __future__ import annotations

import errno
import os
import stat

from sandboxio.guest._agent_wire import ENTRY

HOPS = 40
PATH_ONLY = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC if os.name == "posix" else 0


class Place:
    """A name in a directory that is held open."""

    def __init__(self, directory: int, name: bytes, slashed: bool) -> None:
        self.directory = directory
        self.name = name or b"."
        self.slashed = slashed

    def status(self) -> os.stat_result:
        return os.stat(self.name, dir_fd=self.directory, follow_symlinks=False)

    def known(self) -> os.stat_result | None:
        try:
            return self.status()
        except FileNotFoundError:
            return None

    def rename(self, goal: Place) -> None:
        os.rename(self.name, goal.name, src_dir_fd=self.directory, dst_dir_fd=goal.directory)

    def close(self) -> None:
        os.close(self.directory)


def refusal(number: int) -> OSError:
    return OSError(number, os.strerror(number))


def is_magic(directory: int, status: os.stat_result) -> bool:
    """Whether a link is one of procfs that leads where no path does."""
    return status.st_dev == PROC.device and os.fstat(directory).st_ino != PROC.root


class Proc:
    """What tells procfs from other file systems; its own few links lead nowhere special."""

    def __init__(self) -> None:
        try:
            found = os.stat("/proc")
            self.device, self.root = found.st_dev, found.st_ino
        except OSError:
            self.device = self.root = -1


PROC = Proc()


def walk(path: bytes, base: bytes, follow: bool) -> Place:
    """Resolve a path up to its last name; with `follow`, that is no link any more."""
    walker = Walker(path, base, follow)
    try:
        return walker.place()
    except BaseException:
        os.close(walker.directory)
        raise


class Walker:
    """A walk along a path, standing in one directory at a time."""

    def __init__(self, path: bytes, base: bytes, follow: bool) -> None:
        whole = path if path.startswith(b"/") else base + b"/" + path
        self.pending = whole.split(b"/")[::-1]
        self.slashed = path.endswith(b"/")
        self.follow = follow
        self.hops = 0
        self.directory = self.root()

    def root(self) -> int:
        return os.open("/", PATH_ONLY | os.O_DIRECTORY)

    def place(self) -> Place:
        while True:
            self.skip()
            if not self.pending:
                return Place(self.directory, b".", self.slashed)
            name = self.pending.pop()
            self.skip()
            if not self.pending and name != b"..":
                if not (self.follow or self.slashed) or not self.follow_link(name):
                    return Place(self.directory, name, self.slashed)
            elif name == b".." or not self.follow_link(name):
                self.directory = step(self.directory, name)

    def skip(self) -> None:
        while self.pending and self.pending[-1] in (b"", b"."):
            self.pending.pop()

    def follow_link(self, name: bytes) -> bool:
        """Go on along a link; false where the name is none, or not there."""
        try:
            status = os.stat(name, dir_fd=self.directory, follow_symlinks=False)
        except FileNotFoundError:
            return False
        if not stat.S_ISLNK(status.st_mode):
            return False
        self.hops += 1
        if self.hops > HOPS:
            raise refusal(errno.ELOOP)
        if is_magic(self.directory, status):
            raise refusal(errno.EACCES)
        target = os.readlink(name, dir_fd=self.directory)
        if target.startswith(b"/"):
            os.close(self.directory)
            self.directory = self.root()
        self.slashed = self.slashed or (not self.pending and target.endswith(b"/"))
        self.pending += target.split(b"/")[::-1]
        return True


def step(directory: int, name: bytes) -> int:
    found = os.open(name, PATH_ONLY | os.O_DIRECTORY, dir_fd=directory)
    os.close(directory)
    return found


def open_at(place: Place, flags: int, mode: int = 0) -> int:
    return os.open(place.name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=place.directory)


def open_regular(place: Place, flags: int) -> int:
    """Open a regular file and nothing else; a pipe or a device is not waited for."""
    status = place.status()
    if stat.S_ISDIR(status.st_mode):
        raise refusal(errno.EISDIR)
    if place.slashed:
        raise refusal(errno.ENOTDIR)
    fd = open_at(place, flags | os.O_NONBLOCK | os.O_NOCTTY)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "not a regular file")
    return fd


def entry(path: bytes, status: os.stat_result, target: bytes) -> bytes:
    moment = status.st_mtime_ns // 1000000000
    return (
        ENTRY.pack(len(path), status.st_mode, status.st_size, moment, len(target)) + path + target
    )


def target_of(directory: int, name: bytes, status: os.stat_result) -> bytes:
    if not stat.S_ISLNK(status.st_mode):
        return b""
    return os.readlink(name, dir_fd=directory)


def names_in(directory: int) -> list[bytes]:
    return [os.fsencode(name) for name in os.listdir(directory)]


def is_same_file(one: os.stat_result, other: os.stat_result) -> bool:
    return (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)


def is_same_place(one: Place, other: Place) -> bool:
    """Whether two places are one name in one directory."""
    directories = os.fstat(one.directory), os.fstat(other.directory)
    return one.name == other.name and is_same_file(*directories)


def is_below(directory: int, status: os.stat_result) -> bool:
    """Whether a directory is another one, or somewhere below it."""
    at = os.dup(directory)
    try:
        while True:
            here = os.fstat(at)
            if is_same_file(here, status):
                return True
            above = os.open(b"..", PATH_ONLY | os.O_DIRECTORY, dir_fd=at)
            os.close(at)
            at = above
            if is_same_file(os.fstat(at), here):
                return False
    finally:
        os.close(at)
