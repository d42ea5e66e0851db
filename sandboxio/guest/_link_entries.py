"""Reading how a link describes files: nothing of it is believed that no file could have."""

from __future__ import annotations

import re
import struct
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from sandboxio.core.models import FileInfo
from sandboxio.guest._shell_call import too_long
from sandboxio.guest.frames import RuleBroken

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sandboxio.core.models import FileKind

_HEAD = struct.Struct("!IIQqI")
_PATH_LIMIT = 128 * 1024
"""Longer than a path that one call can name: a tree may be deeper than that."""
_TARGET_LIMIT = 4096
_SIZE_LIMIT = 2**63
_MOST_ENTRIES = 1_000_000
_NAME = rb"(?!\.{1,2}(?:/|\Z))[^/\0]{1,255}"
_BELOW = re.compile(_NAME + rb"(?:/" + _NAME + rb")*+\Z")
_KINDS: dict[int, FileKind] = {0o100000: "file", 0o040000: "directory", 0o120000: "link"}


class Entry:
    """One entry, as it came."""

    def __init__(self, path: bytes, numbers: tuple[int, int, int], target: bytes) -> None:
        self.path = path
        self._mode, self._size, self._seconds = numbers
        self._target = target

    def described(self, path: str) -> FileInfo:
        """Return what it says of a file, under the path that a caller knows it by."""
        kind: FileKind = _KINDS.get(self._mode & 0o170000, "other")
        return FileInfo(
            path=path,
            size=self._size,
            is_dir=kind == "directory",
            kind=kind,
            mode=self._mode & 0o7777,
            mtime=_time(self._seconds),
            target=_decoded(self._target) if kind == "link" else None,
        )


def entries(said: bytes) -> Iterator[Entry]:
    """Read one entry after the other; raises `RuleBroken`."""
    at, end, count = 0, len(said), 0
    while at < end:
        count += 1
        if count > _MOST_ENTRIES:
            raise too_long()
        if end - at < _HEAD.size:
            raise RuleBroken("an entry is incomplete")
        length, mode, size, seconds, target_length = _HEAD.unpack_from(said, at)
        start = at + _HEAD.size
        middle = start + length
        at = middle + target_length
        if not 0 < length <= _PATH_LIMIT or target_length > _TARGET_LIMIT or at > end:
            raise RuleBroken("an entry is incomplete, or longer than any can be")
        path, target = said[start:middle], said[middle:at]
        if size >= _SIZE_LIMIT or b"\0" in path or b"\0" in target:
            raise RuleBroken("an entry describes what no file can be")
        yield Entry(path, (mode, size, seconds), target)


def one(said: bytes, path: str) -> FileInfo:
    """Read the answer of `stat`."""
    found = list(entries(said))
    if [entry.path for entry in found] != [path.encode("utf-8", "surrogateescape")]:
        raise RuleBroken("stat did not describe the path it was asked for")
    return found[0].described(path)


def below(said: bytes, path: str, *, recursive: bool) -> list[FileInfo]:
    """Read the answer of `list`, sorted by path."""
    base = "" if path == "." else path if path.endswith("/") else f"{path}/"
    found: dict[str, FileInfo] = {}
    for entry in entries(said):
        if not _BELOW.match(entry.path) or (b"/" in entry.path and not recursive):
            raise RuleBroken("list named what is not below its path")
        where = base + _decoded(entry.path)
        if where in found:
            raise RuleBroken("list named a path twice")
        found[where] = entry.described(where)
    return _sorted(found)


def matching(said: bytes, prefix: str, *, exact: bool) -> list[FileInfo]:
    """Read the answer of `glob`: what is below a prefix or, with `exact`, the prefix itself."""
    base = b"" if prefix == "." else prefix.rstrip("/").encode("utf-8", "surrogateescape") + b"/"
    found: dict[str, FileInfo] = {}
    for entry in entries(said):
        if exact:
            fits = entry.path == prefix.encode("utf-8", "surrogateescape")
        else:
            fits = entry.path.startswith(base) and bool(_BELOW.match(entry.path, len(base)))
        where = _decoded(entry.path)
        if not fits or where in found:
            raise RuleBroken("glob named what is not below its pattern, or a path twice")
        found[where] = entry.described(where)
    return _sorted(found)


def _sorted(found: dict[str, FileInfo]) -> list[FileInfo]:
    return sorted(found.values(), key=lambda info: info.path)


def _time(seconds: int) -> datetime | None:
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return None  # a file can carry any number, also beyond the year 9999


def _decoded(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")
