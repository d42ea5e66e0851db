"""ls, as it lists for a pipe: one name a line."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from sandboxio.testing._disk.nodes import Directory, Link, Node, encoded
from sandboxio.testing._programs import _dates, _modes
from sandboxio.testing._programs._common import here, put_text, quoted, quoted_if_needed, say, tool
from sandboxio.testing._programs._options import parse
from sandboxio.testing._programs._users import group_name, user_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sandboxio.testing._machine.process import Process

_LONG = {
    "all": "a",
    "almost-all": "A",
    "directory": "d",
    "recursive": "R",
    "human-readable": "h",
    "reverse": "r",
    "numeric-uid-gid": "n",
    "classify": "F",
    "inode": "i",
    "dereference": "L",
    "color?": "",
}
_HALF_YEAR = 31556952 / 2


class _Entry(NamedTuple):
    name: str
    path: str
    node: Node


@tool("ls", trouble=2)
async def ls(process: Process, args: Sequence[str]) -> int:
    """List directories and files."""
    options = parse("ls", args, "aAl1dRhrtSnFpiL", _LONG, code=2)
    flags = {name for name, _ in options.given}
    return await _Listing(process, flags | ({"l"} if "n" in flags else set())).run(
        options.operands or ["."]
    )


class _Listing:
    def __init__(self, process: Process, flags: set[str]) -> None:
        self._process = process
        self._fs = process.kernel.fs
        self._flags = flags
        self._code = 0
        self._printed = False

    async def run(self, names: Sequence[str]) -> int:
        entries = [entry for name in names if (entry := await self._operand(name))]
        folders = [] if "d" in self._flags else [e for e in entries if _is_folder(e.node)]
        files = [entry for entry in entries if entry not in folders]
        if files:
            await self._print(files)
        titled = len(names) > 1 or "R" in self._flags
        for entry in self._sorted(folders):
            await self._folder(entry.path, titled=titled, top=True)
        return self._code

    async def _operand(self, name: str) -> _Entry | None:
        follow = not ({"l", "d", "F"} & self._flags) or "L" in self._flags
        try:
            node = self._look(name, follow=follow)
        except OSError as exc:
            await self._fail("cannot access", name, exc, code=2)
            return None
        return _Entry(name, name, node)

    async def _fail(self, doing: str, name: str, exc: OSError, *, code: int) -> None:
        self._code = max(self._code, code)
        await say(self._process, f"ls: {doing} {quoted(name)}: {exc.strerror}")

    async def _folder(self, path: str, *, titled: bool, top: bool) -> None:
        """List a directory, and with -R those below it, in the order of ls."""
        pending = [(path, top)]
        while pending:
            at, top = pending.pop()
            await self._process.step()
            try:
                entries = self._entries(at)
            except OSError as exc:
                await self._fail("cannot open directory", at, exc, code=2 if top else 1)
                continue
            if titled:
                gap = "\n" if self._printed else ""
                await put_text(self._process, f"{gap}{quoted_if_needed(at)}:\n")
            self._printed = True
            await self._print(entries, total=True)
            if "R" in self._flags:
                below = [e for e in entries if isinstance(e.node, Directory)]
                pending += [(e.path, False) for e in reversed(below) if e.name not in (".", "..")]

    def _entries(self, path: str) -> list[_Entry]:
        place = here(self._process)
        names = self._fs.listdir(path, **place)
        if "a" in self._flags:
            names = [".", "..", *names]
        elif "A" not in self._flags:
            names = [name for name in names if not name.startswith(".")]
        base = path if path.endswith("/") else f"{path}/"
        folder = self._fs.stat(path, **place)
        follow = "L" in self._flags
        found: list[_Entry] = []
        for name in names:
            # a directory that may be read and not entered still tells what it holds
            known = None if follow or not isinstance(folder, Directory) else folder.get(name)
            node = known or self._look(base + name, follow=follow)
            found.append(_Entry(name, base + name, node))
        return self._sorted(found)

    def _look(self, path: str, *, follow: bool) -> Node:
        """Return what a path leads to, or a dangling link itself."""
        place = here(self._process)
        try:
            return self._fs.stat(path, **place, follow=follow)
        except FileNotFoundError:
            return self._fs.stat(path, **place, follow=False)

    def _sorted(self, entries: list[_Entry]) -> list[_Entry]:
        found = sorted(entries, key=lambda entry: encoded(entry.name))
        if "S" in self._flags:
            found.sort(key=lambda entry: -entry.node.size)
        elif "t" in self._flags:
            found.sort(key=lambda entry: -entry.node.mtime)
        return found[::-1] if "r" in self._flags else found

    async def _print(self, entries: Sequence[_Entry], *, total: bool = False) -> None:
        self._printed = True
        entries = entries if total else self._sorted(list(entries))
        if "l" not in self._flags:
            rows = [self._inode(entry) + self._name(entry) for entry in entries]
        else:
            rows = self._long(entries)
            if total:
                rows.insert(0, f"total {self._size(sum(_blocks(e.node) for e in entries), 1024)}")
        await put_text(self._process, "".join(f"{row}\n" for row in rows))

    def _inode(self, entry: _Entry) -> str:
        return f"{entry.node.ino} " if "i" in self._flags else ""

    def _name(self, entry: _Entry) -> str:
        node = entry.node
        if "F" not in self._flags and "p" not in self._flags:
            return entry.name
        mark = "/" if isinstance(node, Directory) else ""
        if "F" in self._flags and not mark:
            executable = node.kind == "file" and node.mode & 0o111
            mark = {"l": "@", "p": "|"}.get(_modes.letters(node)[0], "*" if executable else "")
            mark = "" if mark == "@" and "l" in self._flags else mark
        return entry.name + mark

    def _long(self, entries: Sequence[_Entry]) -> list[str]:
        now = self._process.kernel.clock.wall().timestamp()
        columns = [self._columns(entry.node) for entry in entries]
        widths = [max(map(len, column)) for column in zip(*columns, strict=True)]
        rows: list[str] = []
        for entry, (links, owner, group, size) in zip(entries, columns, strict=True):
            rows.append(
                f"{self._inode(entry)}{_modes.letters(entry.node)} {links:>{widths[0]}} "
                f"{owner:<{widths[1]}} {group:<{widths[2]}} {size:>{widths[3]}} "
                f"{_date(entry.node.mtime, now)} {self._name(entry)}"
                + (f" -> {entry.node.target}" if isinstance(entry.node, Link) else "")
            )
        return rows

    def _columns(self, node: Node) -> tuple[str, str, str, str]:
        numeric = "n" in self._flags
        owner = None if numeric else user_name(self._process, node.uid)
        group = None if numeric else group_name(self._process, node.gid)
        return (
            str(node.nlink),
            owner or str(node.uid),
            group or str(node.gid),
            self._size(node.size, 1),
        )

    def _size(self, count: int, unit: int) -> str:
        """Return a number of units, or with -h a size in the largest unit that it fills."""
        if "h" not in self._flags:
            return str(count)
        value, suffix = float(count * unit), ""
        for larger in "KMGT":
            if value < 1024:
                break
            value, suffix = value / 1024, larger
        tenths = math.ceil(value * 10)
        exact = suffix and tenths < 100
        return f"{tenths / 10:.1f}{suffix}" if exact else f"{math.ceil(value)}{suffix}"


def _is_folder(node: Node) -> bool:
    return isinstance(node, Directory)


def _blocks(node: Node) -> int:
    """Return the KiB that something takes on a disk with blocks of 4 KiB."""
    if isinstance(node, Directory):
        return 4
    return -(-node.size // 4096) * 4 if node.kind == "file" else 0


def _date(mtime: float, now: float) -> str:
    recent = now - _HALF_YEAR < mtime <= now
    form = "%b %e %H:%M" if recent else "%b %e  %Y"
    return _dates.show(_dates.at(mtime), form)
