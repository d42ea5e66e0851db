"""Part of the agent: the process that works on files.

It carries out one operation at a time, with the ids of the user in force and as nobody whom that
user could signal or trace. Paths are walked name by name, each directory held open, so that
nothing can be exchanged between looking and opening.
"""

from __future__ import annotations

import errno
import os
import select
import stat

from sandboxio.guest._agent_wire import (
    CREDIT_MAX,
    DATA,
    END,
    ENTRY,
    EOF,
    HEADER,
    OPEN,
    RESULT,
    Invalid,
    account,
    failed,
    header,
    number,
    pack,
    suppress,
    unpack,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from typing import Callable, Iterator

PIECE = 64 * 1024
HOPS = 40
NEW_FILE, NEW_DIRECTORY = 0o644, 0o755
PATH_ONLY = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
SPARE = b"/tmp"
EDIT_MAX = 64 * 1024 * 1024


class Ended(Exception):
    """Nobody waits for the operation any more."""


class Place:
    """A name in a directory that is held open."""

    def __init__(self, directory: int, name: bytes, slashed: bool) -> None:
        self.directory = directory
        self.name = name or b"."
        self.slashed = slashed

    def status(self) -> os.stat_result:
        return os.stat(self.name, dir_fd=self.directory, follow_symlinks=False)

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
    pending = path.split(b"/")
    if not path.startswith(b"/"):
        pending = base.split(b"/") + pending
    directory, hops = os.open("/", PATH_ONLY | os.O_DIRECTORY), 0
    pending.reverse()
    slashed = path.endswith(b"/")
    try:
        while True:
            while pending and pending[-1] in (b"", b"."):
                pending.pop()
            if not pending:
                return Place(directory, b".", slashed)
            name = pending.pop()
            last = not any(part not in (b"", b".") for part in pending)
            if name == b"..":
                directory = step(directory, name)
                continue
            if last and not follow and not slashed:
                return Place(directory, name, slashed)
            try:
                status = os.stat(name, dir_fd=directory, follow_symlinks=False)
            except FileNotFoundError:
                if last:
                    return Place(directory, name, slashed)
                raise
            if not stat.S_ISLNK(status.st_mode):
                if last:
                    return Place(directory, name, slashed)
                directory = step(directory, name)
                continue
            hops += 1
            if hops > HOPS:
                raise refusal(errno.ELOOP)
            if is_magic(directory, status):
                raise refusal(errno.EACCES)
            target = os.readlink(name, dir_fd=directory)
            if target.startswith(b"/"):
                os.close(directory)
                directory = os.open("/", PATH_ONLY | os.O_DIRECTORY)
            pending.extend(reversed(target.split(b"/")))
            slashed = slashed or (last and target.endswith(b"/"))
    except BaseException:
        os.close(directory)
        raise


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
    moment = int(status.st_mtime // 1)
    return (
        ENTRY.pack(len(path), status.st_mode, status.st_size, moment, len(target)) + path + target
    )


def target_of(directory: int, name: bytes, status: os.stat_result) -> bytes:
    if not stat.S_ISLNK(status.st_mode):
        return b""
    return os.readlink(name, dir_fd=directory)


def names_in(directory: int) -> list[bytes]:
    return [os.fsencode(name) for name in os.listdir(directory)]


class Files:
    """The operations; each returns what follows `ok` in its `RESULT`."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.channel = 0
        self.base = b"/"
        self.incoming = bytearray()
        self.steps = 0
        self.operations: dict[bytes, Callable[..., list[bytes]]] = {
            b"stat": self.stat,
            b"exists": self.exists,
            b"list": self.list,
            b"glob": self.glob,
            b"read": self.read,
            b"write": self.write,
            b"mkdir": self.mkdir,
            b"remove": self.remove,
            b"move": self.move,
            b"copy": self.copy,
            b"chmod": self.chmod,
            b"edit": self.edit,
        }

    def serve(self) -> None:
        while True:
            channel, kind, payload = self.frame()
            if kind == OPEN:
                self.channel = channel
                self.send(RESULT, pack(self.outcome(unpack(payload))))

    def outcome(self, fields: list[bytes]) -> list[bytes]:
        _, operation, user, self.base, _, *arguments = fields
        uid, gid, groups = account(user)
        os.setgroups(groups)
        os.setegid(gid)
        os.seteuid(uid)
        try:
            return [b"ok"] + self.operations[operation](*arguments)
        except Ended:
            return [b"error", b"ended", b"ended"]
        except OSError as error:
            return failed(error)
        except (Invalid, KeyError, TypeError, ValueError):
            return [b"error", b"invalid", b"not an operation"]
        except MemoryError:
            return [b"error", b"busy", b"no memory"]
        except RecursionError:
            return [b"error", b"other", b"the tree is too deep"]
        finally:
            os.seteuid(0)
            os.setegid(0)

    # Talking to the agent.

    def frame(self) -> tuple[int, int, bytes]:
        channel, word = HEADER.unpack(self.exactly(HEADER.size))
        return channel, word >> 24, self.exactly(word & 0xFFFFFF)

    def exactly(self, size: int) -> bytes:
        while len(self.incoming) < size:
            piece = self.sock.recv(max(PIECE, size - len(self.incoming)))
            if not piece:
                os._exit(0)
            self.incoming += piece
        taken = bytes(self.incoming[:size])
        del self.incoming[:size]
        return taken

    def send(self, kind: int, payload: bytes) -> None:
        self.sock.sendall(header(self.channel, kind, len(payload)))
        if payload:
            self.sock.sendall(payload)

    def give(self, data: bytes) -> None:
        self.look()
        for at in range(0, len(data), PIECE):
            self.send(DATA, data[at : at + PIECE])

    def look(self) -> None:
        """Notice, between steps, that the operation was ended."""
        while select.select([self.sock], [], [], 0)[0]:
            channel, kind, _ = self.frame()
            if channel == self.channel and kind == END:
                raise Ended

    def tick(self) -> None:
        self.steps += 1
        if self.steps % 64 == 0:
            self.look()

    def pieces(self) -> Iterator[bytes]:
        """Yield what the host sends, up to its end."""
        while True:
            channel, kind, payload = self.frame()
            if channel != self.channel:
                continue
            if kind == END:
                raise Ended
            if kind == EOF:
                return
            if kind == DATA:
                yield payload

    # Looking.

    def stat(self, path: bytes, follow: bytes) -> list[bytes]:
        place = self.at(path, follow == b"1")
        try:
            status = self.existing(place)
            self.give(entry(path, status, target_of(place.directory, place.name, status)))
        finally:
            place.close()
        return []

    def exists(self, path: bytes) -> list[bytes]:
        try:
            place = self.at(path, True)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EACCES):
                return [b"0"]
            raise
        try:
            self.existing(place)
        except OSError:
            return [b"0"]
        finally:
            place.close()
        return [b"1"]

    def list(self, path: bytes, recursive: bytes) -> list[bytes]:
        directory = self.directory(path)
        self.gather(self.entries(directory, b"", recursive == b"1"))
        return []

    def glob(self, pattern: bytes) -> list[bytes]:
        from re import compile as compiled

        from fnmatch import translate

        parts = [part for part in pattern.split(b"/") if part not in (b"", b".")]
        if not parts or b".." in parts:
            raise Invalid
        start = b"/" if pattern.startswith(b"/") else b""
        tests = [
            None if part == b"**" else compiled(translate(os.fsdecode(part))).match
            for part in parts
        ]
        found = self.matching(self.directory(start or b"."), start, tests)
        self.gather(iter(dict.fromkeys(found)))
        return []

    def matching(
        self, directory: int, prefix: bytes, tests: list[Callable[[str], object] | None]
    ) -> Iterator[bytes]:
        """Yield what matches below a directory; `None` stands for any number of directories."""
        test, rest = tests[0], tests[1:]
        try:
            if test is None and rest:
                yield from self.matching(os.dup(directory), prefix, rest)
            for name, status in self.described(directory):
                if test is not None and not test(os.fsdecode(name)):
                    continue
                if not rest:
                    yield self.one(directory, prefix + name, name, status)
                if stat.S_ISDIR(status.st_mode) and (rest or test is None):
                    with suppress(OSError):
                        below = os.open(
                            name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=directory
                        )
                        further = tests if test is None else rest
                        yield from self.matching(below, prefix + name + b"/", further)
        finally:
            os.close(directory)

    def one(self, directory: int, path: bytes, name: bytes, status: os.stat_result) -> bytes:
        return entry(path, status, target_of(directory, name, status))

    def described(self, directory: int) -> Iterator[tuple[bytes, os.stat_result]]:
        """Yield names and what they are; what vanishes meanwhile is left out."""
        for name in sorted(names_in(directory)):
            self.tick()
            try:
                yield name, os.stat(name, dir_fd=directory, follow_symlinks=False)
            except FileNotFoundError:
                continue

    def entries(self, directory: int, prefix: bytes, recursive: bool) -> Iterator[bytes]:
        try:
            for name, status in self.described(directory):
                try:
                    yield self.one(directory, prefix + name, name, status)
                except FileNotFoundError:
                    continue
                if recursive and stat.S_ISDIR(status.st_mode):
                    below = os.open(
                        name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=directory
                    )
                    yield from self.entries(below, prefix + name + b"/", recursive)
        finally:
            os.close(directory)

    def gather(self, entries: Iterator[bytes]) -> None:
        waiting: list[bytes] = []
        size = 0
        for item in entries:
            waiting.append(item)
            size += len(item)
            if size >= PIECE:
                self.give(b"".join(waiting))
                waiting, size = [], 0
        if waiting:
            self.give(b"".join(waiting))

    # Content.

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

    # Changing the tree.

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

    def set_mode(self, place: Place, mode: int) -> None:
        os.chmod(place.name, mode, dir_fd=place.directory)

    # Places.

    def at(self, path: bytes, follow: bool) -> Place:
        if not path or b"\0" in path:
            raise Invalid
        return walk(path, self.base, follow)

    def existing(self, place: Place) -> os.stat_result:
        status = place.status()
        if place.slashed and not stat.S_ISDIR(status.st_mode):
            raise refusal(errno.ENOTDIR)
        return status

    def directory(self, path: bytes) -> int:
        """Open a directory to list it; the path may end in a link to one."""
        place = self.at(path, True)
        try:
            if not stat.S_ISDIR(place.status().st_mode):
                raise refusal(errno.ENOTDIR)
            return open_at(place, os.O_RDONLY | os.O_DIRECTORY)
        finally:
            place.close()


def serve_files(sock: socket.socket) -> None:
    """Work until the agent is gone."""
    os.umask(0o022)
    Files(sock).serve()
