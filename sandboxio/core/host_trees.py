"""Directories of the host: what is in one, and where what comes from a sandbox may be put."""

from __future__ import annotations

import os
import stat
import sys
import unicodedata
from typing import IO, TYPE_CHECKING, NamedTuple

from sandboxio.core.errors import ConfigurationError, FileSystemError

if TYPE_CHECKING:
    from pathlib import Path

    from sandboxio.core.selection import Selection, Spot

MAX_ENTRIES = 100_000
"""Most entries of a directory of the host that is uploaded: their list is held in memory."""
Names = tuple[str, ...]
"""The way from the top of a tree to something in it."""
_NOT_ON_WINDOWS = frozenset('<>:"\\|?*')
_PORTS = (f"{port}{number}" for port in ("COM", "LPT") for number in "123456789¹²³")
_DEVICES = frozenset(("CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$", *_PORTS))
_WINDOWS: bool = os.name == "nt"
_FOLDS_NAMES: bool = sys.platform in ("win32", "darwin")
_LINK_TAGS = (0xA000000C, 0xA0000003)
"""Of symbolic links and of junctions, as Windows has them."""


class HostEntry(NamedTuple):
    """What is somewhere in a tree; neither a file nor a directory: a link, socket or device."""

    names: Names
    is_dir: bool
    is_file: bool


def listed(top: Path, wanted: Selection) -> list[HostEntry]:
    """List what is wanted of a directory, parents first; links are not followed.

    What is excluded is not entered.
    """
    found: list[HostEntry] = []
    try:
        if not top.is_dir():
            raise ConfigurationError(f"local {str(top)!r} is not a directory of this host.")
        waiting: list[tuple[Names, Spot]] = [((), wanted.top)]
        while waiting:
            names, spot = waiting.pop()
            for entry in _entries(top.joinpath(*names), names):
                here = wanted.below(spot, entry.names[-1], is_dir=entry.is_dir)
                if here.excluded:
                    continue
                if entry.is_dir:
                    waiting.append((entry.names, here))
                if here.wanted:
                    found.append(entry)
                if len(found) + len(waiting) > MAX_ENTRIES:
                    said = f"has more than {MAX_ENTRIES:,} entries"
                    raise ConfigurationError(f"local {str(top)!r} {said}.")
    except OSError as exc:
        place = os.fspath(exc.filename or top)
        raise ConfigurationError(
            f"local {place!r} cannot be read on this host: {exc.strerror}."
        ) from exc
    return sorted(found)


def _entries(folder: Path, names: Names) -> list[HostEntry]:
    with os.scandir(folder) as entries:
        return [_described(entry, names) for entry in entries]


def _described(entry: os.DirEntry[str], names: Names) -> HostEntry:
    here = (*names, entry.name)
    if _leads_away(entry.stat(follow_symlinks=False)):
        return HostEntry(here, is_dir=False, is_file=False)
    is_dir, is_file = (ask(follow_symlinks=False) for ask in (entry.is_dir, entry.is_file))
    return HostEntry(here, is_dir, is_file)


def opened(top: Path, names: Names) -> IO[bytes]:
    """Open a regular file of a tree; what has become a link since it was listed is refused."""
    place = top.joinpath(*names)
    try:
        file = _open(top, names) if os.open in os.supports_dir_fd else _open_checked(place)
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            return file
    except OSError as exc:
        raise ConfigurationError(
            f"local {str(place)!r} cannot be read on this host: {exc.strerror}."
        ) from exc
    file.close()
    raise ConfigurationError(f"local {str(place)!r} is no regular file of this host any more.")


def _open(top: Path, names: Names) -> IO[bytes]:
    """Open name by name, so that no directory on the way can be exchanged for a link."""
    at = os.open(top, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for name in names[:-1]:
            before = at
            at = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=before)
            os.close(before)
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
        return os.fdopen(os.open(names[-1], flags, dir_fd=at), "rb")
    finally:
        os.close(at)


def _open_checked(place: Path) -> IO[bytes]:
    if _leads_away(place.lstat()):
        raise ConfigurationError(f"local {str(place)!r} is no regular file of this host any more.")
    return place.open("rb")


class Target:
    """A directory of the host that a tree of a sandbox is put into, and nothing beside it."""

    def __init__(self, top: Path) -> None:
        self._top = top
        self._taken: dict[Names, Names] = {}

    def place(self, names: Names) -> Path:
        """Return where something belongs.

        Raises:
            FileSystemError: no file of this host can have that name, or another has it already.
        """
        if not all(map(_is_name, names)):
            raise FileSystemError(f"{_shown(names)}: no file of this host can be named so.")
        if _FOLDS_NAMES:
            for count in range(1, len(names) + 1):
                way = names[:count]
                if self._taken.setdefault(tuple(map(_folded, way)), way) != way:
                    raise FileSystemError(
                        f"{_shown(way)}: on this host another entry has that name."
                    )
        return self._top.joinpath(*names)

    def make_directories(self, names: Names) -> None:
        """Make a directory and those on the way; a link below the top leads out, and is refused."""
        place = self._top
        try:
            place.mkdir(parents=True, exist_ok=True)
            for name in names:
                place /= name
                place.mkdir(exist_ok=True)
                if _leads_away(place.lstat()):
                    said = f"{str(place)!r} is a link on this host."
                    raise FileSystemError(f"{_shown(names)}: {said}")
        except OSError as exc:
            raise ConfigurationError(
                f"local {str(place)!r} cannot be written on this host: {exc.strerror}."
            ) from exc


def _leads_away(status: os.stat_result) -> bool:
    """Say whether it is a link, or what Windows has like it."""
    return stat.S_ISLNK(status.st_mode) or getattr(status, "st_reparse_tag", 0) in _LINK_TAGS


def _is_name(name: str) -> bool:
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        return False
    try:
        os.fsencode(name)
    except UnicodeEncodeError:
        return False
    return not _WINDOWS or _is_name_on_windows(name)


def _is_name_on_windows(name: str) -> bool:
    stem = name.partition(".")[0].rstrip(" ").upper()
    odd = _NOT_ON_WINDOWS & set(name) or min(name) < " " or name[-1] in ". "
    return not odd and stem not in _DEVICES


def _folded(name: str) -> str:
    """Return what is the same for names that this host takes for one."""
    return unicodedata.normalize("NFD", unicodedata.normalize("NFD", name).casefold())


def _shown(names: Names) -> str:
    return repr("/".join(names))
