"""Whole directories, between the host and a sandbox: entry by entry, each file whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from sandboxio.core import patterns, requests, threads
from sandboxio.core.errors import ConfigurationError
from sandboxio.core.host_trees import Names, Target, listed
from sandboxio.core.models import TreeTransfer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence
    from pathlib import Path

    from sandboxio.core.driver import DriverFiles


class Selection:
    """Which entries of a tree are wanted: those that are included, unless they are excluded."""

    def __init__(self, include: Sequence[str], exclude: Sequence[str]) -> None:
        self._include = _patterns("include", include)
        self._exclude = _patterns("exclude", exclude)

    def takes(self, names: Names, *, is_dir: bool) -> bool:
        """Say whether an entry is wanted, by itself or for a directory that it is in."""
        included = not self._include or _any(self._include, names, is_dir=is_dir)
        return included and not _any(self._exclude, names, is_dir=is_dir)


class Tally:
    """What has been copied so far."""

    def __init__(self) -> None:
        self.files = self.size = 0
        self.skipped: list[str] = []

    def result(self) -> TreeTransfer:
        return TreeTransfer(self.files, self.size, tuple(self.skipped))


async def upload(
    files: DriverFiles,
    top: Path,
    remote: str,
    wanted: Selection,
    send: Callable[[Path, str], Awaitable[int]],
) -> TreeTransfer:
    """Copy a directory of the host; `send` copies one file and returns its size."""
    found = await threads.run(lambda: listed(top))
    tally, made = Tally(), set[str]()
    base = _base(remote)

    async def make(folder: str) -> None:
        if folder not in made:
            await files.mkdir(folder, parents=True)
            made.add(folder)

    await make(remote)
    for entry in found:
        if not wanted.takes(entry.names, is_dir=entry.is_dir):
            continue
        inside = "/".join(entry.names)
        if entry.is_dir:
            await make(base + inside)
        elif entry.is_file:
            if len(entry.names) > 1:
                await make(base + "/".join(entry.names[:-1]))
            tally.size += await send(top.joinpath(*entry.names), base + inside)
            tally.files += 1
        else:
            tally.skipped.append(inside)
    return tally.result()


async def download(
    files: DriverFiles,
    remote: str,
    top: Path,
    wanted: Selection,
    fetch: Callable[[str, Path, int], Awaitable[int]],
) -> TreeTransfer:
    """Copy a directory of a sandbox; `fetch` copies one file by its mode and returns its size."""
    base = _base(remote)
    found = await files.ls(remote.rstrip("/") or "/", recursive=True)
    tally, target, made = Tally(), Target(top), set[Names]()

    async def make(folder: Names) -> None:
        if folder not in made:
            await threads.run(lambda: target.make_directories(folder))
            made.add(folder)

    await make(())
    for info in found:
        inside = info.path.removeprefix(base)
        names = tuple(inside.split("/"))
        if not wanted.takes(names, is_dir=info.is_dir):
            continue
        if info.kind == "file":
            place = target.place(names)
            await make(names[:-1])
            tally.size += await fetch(info.path, place, info.mode)
            tally.files += 1
        elif info.is_dir:
            target.place(names)
            await make(names)
        else:
            tally.skipped.append(inside)
    return tally.result()


def _base(remote: str) -> str:
    """Return what the paths of all that is below a directory begin with."""
    whole = remote.rstrip("/")
    return "" if whole == "." else whole + "/"


def _patterns(name: str, given: object) -> list[patterns.Pattern]:
    if isinstance(given, str) or not isinstance(given, (list, tuple)):
        raise ConfigurationError(
            f"{name} must be a list or tuple of patterns.", hint=f'For instance {name}=("**/*.py",)'
        )
    found: list[patterns.Pattern] = []
    for pattern in cast("Sequence[object]", given):
        text = requests.path(name, pattern)
        if text.startswith("/") or ".." in text.split("/"):
            raise ConfigurationError(f"{name} has patterns of paths below the directory only.")
        found.append(patterns.whole(text))
    return found


def _any(among: Iterable[patterns.Pattern], names: Names, *, is_dir: bool) -> bool:
    ways = [(names[:count], count < len(names) or is_dir) for count in range(1, len(names) + 1)]
    return any(
        pattern.matches(way) and (folder or not pattern.folders)
        for pattern in among
        for way, folder in ways
    )
