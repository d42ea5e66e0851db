"""Part of the agent: looking at files."""

from __future__ import annotations

import errno
import os
import stat

from sandboxio.guest._agent_paths import entry, names_in, target_of
from sandboxio.guest._agent_talk import PIECE, Talk
from sandboxio.guest._agent_wire import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


WILD = set(b"*?[")
NOWHERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EACCES)


class Looking(Talk):
    """The operations that change nothing."""

    def describe(self, path: bytes, follow: bytes) -> list[bytes]:
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
            if error.errno in NOWHERE:
                return [b"0"]
            raise
        try:
            self.existing(place)
        except OSError:
            return [b"0"]
        finally:
            place.close()
        return [b"1"]

    def entries_of(self, path: bytes, recursive: bytes) -> list[bytes]:
        directory = self.directory(path)
        self.gather(self.entries(directory, b"", recursive == b"1"))
        return []

    def glob(self, pattern: bytes) -> list[bytes]:
        """Follow links up to the first wildcard, and none from there on."""
        parts = [part for part in pattern.split(b"/") if part not in (b"", b".")]
        plain = next((at for at, part in enumerate(parts) if set(part) & WILD), len(parts))
        root = b"/" if pattern.startswith(b"/") else b""
        prefix = root + b"/".join(parts[:plain]) or b"."
        tests: list[Callable[[str], object] | None] = [
            None if part == b"**" else self.matcher(part) for part in parts[plain:]
        ]
        try:
            if not tests:
                return self.describe(prefix, b"0")
            directory = self.directory(prefix)
        except OSError as error:
            if error.errno in NOWHERE:
                return []
            raise
        before = b"" if prefix == b"." else prefix.rstrip(b"/") + b"/"
        self.gather(iter(dict.fromkeys(self.matching(directory, before, tests))))
        return []

    def matcher(self, part: bytes) -> Callable[[str], object]:
        import re
        from fnmatch import translate

        return re.compile(translate(os.fsdecode(part))).match

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
            self.steps += 1
            if not self.steps & 63:
                self.look()
            try:
                yield name, os.stat(name, dir_fd=directory, follow_symlinks=False)
            except FileNotFoundError:
                continue

    def entries(self, directory: int, prefix: bytes, recursive: bool) -> Iterator[bytes]:
        try:
            for name, status in self.described(directory):
                kind = status.st_mode & 0o170000
                target = b""
                if kind == stat.S_IFLNK:
                    try:
                        target = os.readlink(name, dir_fd=directory)
                    except OSError:
                        continue
                yield entry(prefix + name, status, target)
                if recursive and kind == stat.S_IFDIR:
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
