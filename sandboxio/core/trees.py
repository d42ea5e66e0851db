"""Whole directories, between the host and a sandbox: entry by entry, each file whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandboxio.core import requests, threads
from sandboxio.core.host_trees import Names, Target, listed
from sandboxio.core.models import TreeTransfer
from sandboxio.core.selection import Walk

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from sandboxio.core.driver import DriverFiles
    from sandboxio.core.models import FileInfo
    from sandboxio.core.selection import Selection


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
    send: Callable[[Names, str], Awaitable[int]],
) -> TreeTransfer:
    """Copy a directory of the host; `send` copies one file and returns its size."""
    found = await threads.run(lambda: listed(top, wanted))
    tally, made = Tally(), set[str]()
    base = _base(remote)

    async def make(folder: str) -> None:
        if folder not in made:
            await files.mkdir(folder, parents=True)
            made.add(folder)

    await make(remote)
    for entry in found:
        inside = "/".join(entry.names)
        where = requests.path("local", base + inside)
        if entry.is_dir:
            await make(where)
        elif entry.is_file:
            if len(entry.names) > 1:
                await make(base + "/".join(entry.names[:-1]))
            tally.size += await send(entry.names, where)
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
    found = await files.ls(remote.rstrip("/") or "/", recursive=True)
    base = _base(remote)
    chosen = await threads.run(lambda: _chosen(found, base, wanted))
    tally, target, made = Tally(), Target(top), set[Names]()

    async def make(folder: Names) -> None:
        if folder not in made:
            await threads.run(lambda: target.make_directories(folder))
            made.add(folder)

    await make(())
    for info, names in chosen:
        if info.kind == "file":
            place = target.place(names)
            await make(names[:-1])
            tally.size += await fetch(info.path, place, info.mode)
            tally.files += 1
        elif info.is_dir:
            target.place(names)
            await make(names)
        else:
            tally.skipped.append("/".join(names))
    return tally.result()


def _chosen(found: list[FileInfo], base: str, wanted: Selection) -> list[tuple[FileInfo, Names]]:
    """Return what is wanted, with its names below the top."""
    walk = Walk(wanted)
    chosen: list[tuple[FileInfo, Names]] = []
    for info in found:
        names = tuple(info.path.removeprefix(base).split("/"))
        if walk.spot(names, is_dir=info.is_dir).wanted:
            chosen.append((info, names))
    return chosen


def _base(remote: str) -> str:
    """Return what the paths of all that is below a directory begin with."""
    whole = remote.rstrip("/")
    return "" if whole == "." else whole + "/"
