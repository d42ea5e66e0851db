"""Directories of the host: what is in one, and where what comes from a sandbox may be put."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, NamedTuple

from sandboxio.core.errors import ConfigurationError, FileSystemError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MAX_ENTRIES = 100_000
"""Most entries of a directory of the host that is uploaded: their list is held in memory."""
Names = tuple[str, ...]
"""The way from the top of a tree to something in it."""
_NOT_ON_WINDOWS = frozenset('<>:"\\|?*')
_PORTS = (f"{port}{number}" for port in ("COM", "LPT") for number in range(1, 10))
_DEVICES = frozenset(("CON", "PRN", "AUX", "NUL", *_PORTS))
_WINDOWS: bool = os.name == "nt"
_FOLDS_CASE: bool = sys.platform in ("win32", "darwin")


class HostEntry(NamedTuple):
    """What is somewhere in a tree; neither a file nor a directory: a link, socket or device."""

    names: Names
    is_dir: bool
    is_file: bool


def listed(top: Path) -> list[HostEntry]:
    """List what is below a directory, parents first; links are not followed."""
    try:
        if not top.is_dir():
            raise ConfigurationError(f"local {str(top)!r} is not a directory of this host.")
        found: list[HostEntry] = []
        for entry in _below(top, ()):
            found.append(entry)
            if len(found) > MAX_ENTRIES:
                raise ConfigurationError(
                    f"local {str(top)!r} has more than {MAX_ENTRIES:,} entries."
                )
    except OSError as exc:
        raise ConfigurationError(
            f"local {str(top)!r} cannot be read on this host: {exc.strerror}."
        ) from exc
    return found


def _below(folder: Path, names: Names) -> Iterator[HostEntry]:
    with os.scandir(folder) as entries:
        ordered = sorted(entries, key=lambda entry: entry.name)
    for entry in ordered:
        here = (*names, entry.name)
        is_dir = entry.is_dir(follow_symlinks=False) and not _is_junction(entry)
        yield HostEntry(here, is_dir, entry.is_file(follow_symlinks=False))
        if is_dir:
            yield from _below(folder / entry.name, here)


def _is_junction(entry: os.DirEntry[str]) -> bool:
    is_junction = getattr(entry, "is_junction", None)  # Python 3.12
    return is_junction is not None and bool(is_junction())


class Target:
    """A directory of the host that a tree of a sandbox is put into, and nothing beside it."""

    def __init__(self, top: Path) -> None:
        self._top = top
        self._taken: set[Names] = set()

    def place(self, names: Names) -> Path:
        """Return where something belongs; called once for each.

        Raises:
            FileSystemError: no file of this host can have that name, or another has it already.
        """
        if not all(map(_is_name, names)):
            raise FileSystemError(f"{_shown(names)}: no file of this host can be named so.")
        folded = tuple(map(_folded, names))
        if folded in self._taken:
            raise FileSystemError(f"{_shown(names)}: on this host another entry has that name.")
        self._taken.add(folded)
        return self._top.joinpath(*names)

    def make_directories(self, names: Names) -> None:
        """Make a directory and those on the way; a link below the top leads out, and is refused."""
        place = self._top
        try:
            place.mkdir(parents=True, exist_ok=True)
            for name in names:
                place /= name
                if place.is_symlink():
                    raise FileSystemError(
                        f"{_shown(names)}: {str(place)!r} is a link on this host."
                    )
                place.mkdir(exist_ok=True)
        except OSError as exc:
            raise _unwritable(place, exc) from exc


def _is_name(name: str) -> bool:
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        return False
    return not _WINDOWS or _is_name_on_windows(name)


def _is_name_on_windows(name: str) -> bool:
    stem = name.partition(".")[0].rstrip(" ").upper()
    odd = _NOT_ON_WINDOWS & set(name) or min(name) < " " or name[-1] in ". "
    return not odd and stem not in _DEVICES


def _folded(name: str) -> str:
    """Return what is the same for names that this host takes for one."""
    return name.casefold() if _FOLDS_CASE else name


def _shown(names: Names) -> str:
    return repr("/".join(names))


def _unwritable(place: Path, exc: OSError) -> ConfigurationError:
    return ConfigurationError(
        f"local {str(place)!r} cannot be written on this host: {exc.strerror}."
    )
