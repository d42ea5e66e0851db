"""Part of the agent: changing the tree."""

from __future__ import annotations

import errno
import os
import stat

from sandboxio.guest._agent_content import Content
from sandboxio.guest._agent_paths import PATH_ONLY, Place, open_at, open_regular, refusal

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
        origin = self.at(source.rstrip(b"/") or b"/", False)
        try:
            goal = self.at(target.rstrip(b"/") or b"/", False)
            try:
                self.not_onto(origin, goal)
                try:
                    os.rename(
                        origin.name,
                        goal.name,
                        src_dir_fd=origin.directory,
                        dst_dir_fd=goal.directory,
                    )
                except OSError as error:
                    if error.errno != errno.EXDEV:
                        raise
                    self.duplicate(origin, goal)
                    self.remove(source, b"1")
            finally:
                goal.close()
        finally:
            origin.close()
        return []

    def copy(self, source: bytes, target: bytes) -> list[bytes]:
        origin = self.at(source.rstrip(b"/") or b"/", False)
        try:
            goal = self.at(target.rstrip(b"/") or b"/", False)
            try:
                self.not_onto(origin, goal)
                self.duplicate(origin, goal)
            finally:
                goal.close()
        finally:
            origin.close()
        return []

    def not_onto(self, origin: Place, goal: Place) -> None:
        status = origin.status()
        try:
            known = goal.status()
        except FileNotFoundError:
            known = None
        if known is not None and stat.S_ISDIR(known.st_mode):
            raise refusal(errno.EEXIST if stat.S_ISDIR(status.st_mode) else errno.EISDIR)
        if known is not None and stat.S_ISDIR(status.st_mode):
            raise refusal(errno.ENOTDIR)
        if stat.S_ISDIR(status.st_mode) and self.is_below(goal.directory, status):
            raise OSError(errno.EINVAL, "a directory into itself")

    def is_below(self, directory: int, status: os.stat_result) -> bool:
        at = os.dup(directory)
        try:
            while True:
                here = os.fstat(at)
                if (here.st_dev, here.st_ino) == (status.st_dev, status.st_ino):
                    return True
                above = os.open(b"..", PATH_ONLY | os.O_DIRECTORY, dir_fd=at)
                up = os.fstat(above)
                os.close(at)
                at = above
                if (up.st_dev, up.st_ino) == (here.st_dev, here.st_ino):
                    return False
        finally:
            os.close(at)

    def duplicate(self, origin: Place, goal: Place) -> None:
        self.tick()
        status = origin.status()
        if stat.S_ISLNK(status.st_mode):
            target = os.readlink(origin.name, dir_fd=origin.directory)
            part = Place(goal.directory, b".sandboxio-" + os.urandom(8).hex().encode(), False)
            os.symlink(target, part.name, dir_fd=goal.directory)
            os.rename(part.name, goal.name, src_dir_fd=goal.directory, dst_dir_fd=goal.directory)
        elif stat.S_ISDIR(status.st_mode):
            self.duplicate_directory(origin, goal, status)
        elif stat.S_ISREG(status.st_mode):
            self.duplicate_file(origin, goal, status)
        else:
            raise OSError(errno.EINVAL, "not a file, a directory or a link")

    def duplicate_file(self, origin: Place, goal: Place, status: os.stat_result) -> None:
        source = open_regular(origin, os.O_RDONLY)
        part = Place(goal.directory, b".sandboxio-" + os.urandom(8).hex().encode(), False)
        try:
            fd = open_at(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                self.transfer(source, fd)
                os.fchmod(fd, stat.S_IMODE(status.st_mode) & 0o777)
                os.utime(fd, ns=(status.st_atime_ns, status.st_mtime_ns))
                os.rename(
                    part.name, goal.name, src_dir_fd=part.directory, dst_dir_fd=goal.directory
                )
            except BaseException:
                os.unlink(part.name, dir_fd=part.directory)
                raise
            finally:
                os.close(fd)
        finally:
            os.close(source)

    def duplicate_directory(self, origin: Place, goal: Place, status: os.stat_result) -> None:
        os.mkdir(goal.name, 0o700, dir_fd=goal.directory)
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
        source = os.open(origin.name, flags, dir_fd=origin.directory)
        try:
            target = os.open(goal.name, flags, dir_fd=goal.directory)
            try:
                for name, _ in self.described(source):
                    self.duplicate(Place(source, name, False), Place(target, name, False))
                os.fchmod(target, stat.S_IMODE(status.st_mode) & 0o777)
                os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))
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
