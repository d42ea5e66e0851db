"""Part of the agent: changing the tree."""

from __future__ import annotations

import errno
import os
import stat

from sandboxio.guest._agent_content import Content
from sandboxio.guest._agent_paths import (
    Place,
    is_below,
    is_same_file,
    is_same_place,
    names_in,
    open_at,
    open_regular,
    refusal,
)
from sandboxio.guest._agent_wire import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable

NEW_DIRECTORY = 0o755


class Trees(Content):
    """The operations on names."""

    def mkdir(self, path: bytes, parents: bytes) -> list[bytes]:
        if parents == b"1":
            return self.mkdirs(path)
        place = self.at(path.rstrip(b"/") or b"/", False)
        try:
            os.mkdir(place.name, NEW_DIRECTORY, dir_fd=place.directory)
        finally:
            place.close()
        return []

    def mkdirs(self, path: bytes) -> list[bytes]:
        whole = path.rstrip(b"/") or b"/"
        at = 1 if whole.startswith(b"/") else 0
        while at >= 0:
            at = whole.find(b"/", at)
            place = self.at(whole if at < 0 else whole[:at] or b"/", True)
            try:
                try:
                    status = place.status()
                except FileNotFoundError:
                    os.mkdir(place.name, NEW_DIRECTORY, dir_fd=place.directory)
                else:
                    if not stat.S_ISDIR(status.st_mode):
                        raise refusal(errno.EEXIST if at < 0 else errno.ENOTDIR)
            finally:
                place.close()
            at = at + 1 if at >= 0 else at
        return []

    def remove(self, path: bytes, recursive: bytes) -> list[bytes]:
        place = self.at(path.rstrip(b"/") or b"/", False)
        try:
            status = place.status()
            if not stat.S_ISDIR(status.st_mode):
                if path.endswith(b"/"):
                    raise refusal(errno.ENOTDIR)
                os.unlink(place.name, dir_fd=place.directory)
            else:
                if recursive == b"1":
                    self.clear(place.directory, place.name)
                os.rmdir(place.name, dir_fd=place.directory)
        finally:
            place.close()
        return []

    def clear(self, directory: int, name: bytes) -> None:
        fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=directory)
        try:
            for inside, status in self.described(fd):
                if stat.S_ISDIR(status.st_mode):
                    self.clear(fd, inside)
                    os.rmdir(inside, dir_fd=fd)
                else:
                    os.unlink(inside, dir_fd=fd)
        finally:
            os.close(fd)

    def move(self, source: bytes, target: bytes) -> list[bytes]:
        self.both(source, target, self.move_to)
        return []

    def copy(self, source: bytes, target: bytes) -> list[bytes]:
        self.both(source, target, self.copy_to)
        return []

    def both(self, source: bytes, target: bytes, act: Callable[[Place, Place], None]) -> None:
        origin = self.at(source.rstrip(b"/") or b"/", False)
        try:
            goal = self.at(target.rstrip(b"/") or b"/", False)
            try:
                self.check(origin, goal, source.endswith(b"/"), target.endswith(b"/"))
                if not is_same_place(origin, goal):
                    act(origin, goal)
            finally:
                goal.close()
        finally:
            origin.close()

    def check(self, origin: Place, goal: Place, from_slash: bool, to_slash: bool) -> None:
        is_directory = stat.S_ISDIR(origin.status().st_mode)
        if from_slash and not is_directory:
            raise refusal(errno.ENOTDIR)
        known = goal.known()
        if known is not None and stat.S_ISDIR(known.st_mode):
            raise refusal(errno.EEXIST if is_directory else errno.EISDIR)
        if (known is not None and is_directory) or (to_slash and not is_directory):
            raise refusal(errno.ENOTDIR)
        if is_directory and is_below(goal.directory, origin.status()):
            raise OSError(errno.EINVAL, "a directory cannot go into itself")

    def move_to(self, origin: Place, goal: Place) -> None:
        known, status = goal.known(), origin.status()
        if known is not None and is_same_file(known, status):
            os.unlink(origin.name, dir_fd=origin.directory)  # the other name is all that is left
            return
        try:
            origin.rename(goal)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            self.copy_to(origin, goal)
            self.discard(origin)

    def copy_to(self, origin: Place, goal: Place) -> None:
        """Copy beside the goal first: only what is complete takes its place."""
        part = Place(goal.directory, b".sandboxio-" + os.urandom(8).hex().encode(), False)
        try:
            self.duplicate(origin, part)
            part.rename(goal)
        except BaseException:
            with suppress(OSError):
                self.open_up(part)
                self.discard(part)
            raise

    def discard(self, place: Place) -> None:
        if stat.S_ISDIR(place.status().st_mode):
            self.clear(place.directory, place.name)
            os.rmdir(place.name, dir_fd=place.directory)
        else:
            os.unlink(place.name, dir_fd=place.directory)

    def open_up(self, place: Place) -> None:
        """Let the directories of a copy be emptied, whatever mode they have got already."""
        if not stat.S_ISDIR(place.status().st_mode):
            return
        os.chmod(place.name, 0o700, dir_fd=place.directory)
        fd = open_at(place, os.O_RDONLY | os.O_DIRECTORY)
        try:
            for name in names_in(fd):
                self.open_up(Place(fd, name, False))
        finally:
            os.close(fd)

    def duplicate(self, origin: Place, goal: Place) -> None:
        self.tick()
        status = origin.status()
        if stat.S_ISLNK(status.st_mode):
            os.symlink(
                os.readlink(origin.name, dir_fd=origin.directory),
                goal.name,
                dir_fd=goal.directory,
            )
        elif stat.S_ISDIR(status.st_mode):
            self.duplicate_directory(origin, goal)
        elif stat.S_ISREG(status.st_mode):
            self.duplicate_file(origin, goal)
        else:
            os.mknod(goal.name, status.st_mode, status.st_rdev, dir_fd=goal.directory)
        if not stat.S_ISLNK(status.st_mode):
            os.chmod(goal.name, stat.S_IMODE(status.st_mode), dir_fd=goal.directory)
        times = (status.st_atime_ns, status.st_mtime_ns)
        os.utime(goal.name, ns=times, dir_fd=goal.directory, follow_symlinks=False)

    def duplicate_file(self, origin: Place, goal: Place) -> None:
        source = open_regular(origin, os.O_RDONLY)
        try:
            fd = open_at(goal, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                self.transfer(source, fd)
            finally:
                os.close(fd)
        finally:
            os.close(source)

    def duplicate_directory(self, origin: Place, goal: Place) -> None:
        os.mkdir(goal.name, 0o700, dir_fd=goal.directory)
        source = open_at(origin, os.O_RDONLY | os.O_DIRECTORY)
        try:
            target = open_at(goal, os.O_RDONLY | os.O_DIRECTORY)
            try:
                for name, _ in self.described(source):
                    self.duplicate(Place(source, name, False), Place(target, name, False))
            finally:
                os.close(target)
        finally:
            os.close(source)

    def chmod(self, path: bytes, mode: bytes) -> list[bytes]:
        place = self.at(path, True)
        try:
            self.existing(place)
            self.set_mode(place, int(mode, 8))
        finally:
            place.close()
        return []
