"""Part of the agent: what is in files."""

from __future__ import annotations

import errno
import os
import stat

from sandboxio.guest._agent_looking import Looking
from sandboxio.guest._agent_paths import PATH_ONLY, Place, open_at, open_regular, refusal
from sandboxio.guest._agent_talk import PIECE
from sandboxio.guest._agent_wire import CREDIT_MAX, Invalid, number

NEW_FILE = 0o644
SPARE = b"/tmp"
SMALL = 64 * 1024
EDIT_MAX = 64 * 1024 * 1024


def make_room(fd: int, before: int, size: int) -> None:
    try:
        os.posix_fallocate(fd, 0, size)
    except OSError:
        os.ftruncate(fd, before)
        raise


class Content(Looking):
    """The operations on the content of one file."""

    def read(self, path: bytes, offset: bytes, length: bytes) -> list[bytes]:
        place = self.at(path, True)
        try:
            fd = open_regular(place, os.O_RDONLY)
        finally:
            place.close()
        left = number(length) if length else -1
        try:
            os.lseek(fd, number(offset), os.SEEK_SET)
            while left:
                data = os.read(fd, PIECE if left < 0 else min(PIECE, left))
                if not data:
                    break
                left -= len(data) if left > 0 else 0
                self.give(data)
        finally:
            os.close(fd)
        return []

    def write(self, path: bytes, size: bytes, mode: bytes) -> list[bytes]:
        place = self.at(path, True)
        try:
            known = self.writable(place)
            if known is not None and size and number(size) <= SMALL:
                self.overwrite(place, number(size))
                if mode:
                    self.set_mode(place, int(mode, 8))
                return []
            part, spot = self.part(place)
            try:
                self.fill(part, number(size) if size else None)
                if known is not None:
                    self.pour(part, place)
                elif spot is not None and spot.directory == place.directory:
                    os.fchmod(part, NEW_FILE)
                    os.rename(
                        spot.name,
                        place.name,
                        src_dir_fd=spot.directory,
                        dst_dir_fd=place.directory,
                    )
                    spot = None
                else:
                    self.pour(part, place)
            finally:
                os.close(part)
                if spot is not None:
                    os.unlink(spot.name, dir_fd=spot.directory)
            if mode:
                self.set_mode(place, int(mode, 8))
        finally:
            place.close()
        return []

    def overwrite(self, place: Place, size: int) -> None:
        """Exchange the content of a file for what is here, whole, once there is room for it."""
        data = b"".join(self.pieces())
        if len(data) != size:
            raise OSError(errno.EIO, "the data arrived incomplete")
        fd = open_regular(place, os.O_WRONLY)
        try:
            before = os.fstat(fd).st_size
            if size > before:
                make_room(fd, before, size)
            view, at = memoryview(data), 0
            while at < size:
                at += os.pwrite(fd, view[at:], at)
            os.ftruncate(fd, size)
        finally:
            os.close(fd)

    def writable(self, place: Place) -> os.stat_result | None:
        """Return what is there already; refuse, before anything is sent, what cannot be."""
        try:
            status = place.status()
        except FileNotFoundError:
            if place.slashed:
                raise refusal(errno.EISDIR) from None
            if not os.access(".", os.W_OK | os.X_OK, dir_fd=place.directory, effective_ids=True):
                raise refusal(errno.EACCES) from None
            return None
        os.close(open_regular(place, os.O_WRONLY))
        return status

    def part(self, place: Place) -> tuple[int, Place | None]:
        """Open a new file beside the place, or where there is room for one."""
        name = b".sandboxio-" + os.urandom(8).hex().encode()
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL
        try:
            spot = Place(place.directory, name, False)
            return open_at(spot, flags, 0o600), spot
        except OSError:
            spare = os.open(SPARE, PATH_ONLY | os.O_DIRECTORY)
            try:
                fd = open_at(Place(spare, name, False), flags, 0o600)
                os.unlink(name, dir_fd=spare)
            finally:
                os.close(spare)
            return fd, None

    def fill(self, fd: int, size: int | None) -> None:
        told = 0
        for piece in self.pieces():
            told += len(piece)
            if size is not None and told > size:
                raise Invalid
            view = memoryview(piece)
            while view:
                view = view[os.write(fd, view) :]
        if size is not None and told != size:
            raise OSError(errno.EIO, "the data arrived incomplete")

    def pour(self, part: int, place: Place) -> None:
        """Put the whole of a part into a file, which stays the file it is."""
        flags = os.O_WRONLY | os.O_CREAT
        fd = os.open(
            place.name, flags | os.O_NOFOLLOW | os.O_NONBLOCK, NEW_FILE, dir_fd=place.directory
        )
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise OSError(errno.EINVAL, "not a regular file")
            os.lseek(part, 0, os.SEEK_SET)
            os.ftruncate(fd, 0)
            self.transfer(part, fd)
        finally:
            os.close(fd)

    def transfer(self, source: int, target: int) -> None:
        while os.sendfile(target, source, None, CREDIT_MAX):
            self.look()

    def edit(self, path: bytes, old: bytes, new: bytes, count: bytes) -> list[bytes]:
        sizes = number(old), number(new)
        place = self.at(path, True)
        try:
            given = b"".join(self.pieces())
            if len(given) != sum(sizes) or not sizes[0]:
                raise Invalid
            fd = open_regular(place, os.O_RDWR)
            try:
                return self.replaced(place, fd, given[: sizes[0]], given[sizes[0] :], count)
            finally:
                os.close(fd)
        finally:
            place.close()

    def replaced(self, place: Place, fd: int, old: bytes, new: bytes, count: bytes) -> list[bytes]:
        if os.fstat(fd).st_size > EDIT_MAX:
            raise refusal(errno.EFBIG)
        content = b"".join(iter(lambda: os.read(fd, PIECE), b""))
        there = content.count(old)
        if there != number(count) if count else not there:
            raise OSError(errno.EINVAL, "found %d times" % there)
        part, spot = self.part(place)
        try:
            view = memoryview(content.replace(old, new))
            while view:
                view = view[os.write(part, view) :]
            self.pour(part, place)
        finally:
            os.close(part)
            if spot is not None:
                os.unlink(spot.name, dir_fd=spot.directory)
        return [b"%d" % there]

    def set_mode(self, place: Place, mode: int) -> None:
        os.chmod(place.name, mode, dir_fd=place.directory)
