"""Programs that change and show attributes: chmod, chown, stat."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sandboxio.testing._disk.nodes import Directory, Link
from sandboxio.testing._programs import _dates, _modes
from sandboxio.testing._programs._common import (
    Failure,
    here,
    misused,
    put_text,
    quoted,
    say,
    tool,
)
from sandboxio.testing._programs._options import parse
from sandboxio.testing._programs._users import find_group, find_user, group_name, user_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sandboxio.testing._disk.nodes import Node
    from sandboxio.testing._machine.process import Process

_LONG = {"recursive": "R", "quiet": "f", "silent": "f"}
_MINUS_MODE = re.compile(r"-[rwxXst]+(?:[-+=,].*)?")
_DIRECTIVE = re.compile(r"%([-0#]*)(\d*)(?:\.(\d+))?([HL]?[a-zA-Z%])")
_BLOCK = 512
_FULL_TIME = "%Y-%m-%d %H:%M:%S.%N %z"
_DEFAULT = (
    "  File: %N\n  Size: %-10s\tBlocks: %-10b IO Block: %-6o %F\n"
    "Device: %Hd,%Ld\tInode: %-11i Links: %h\n"
    "Access: (%04a/%10.10A)  Uid: (%5u/%8U)   Gid: (%5g/%8G)\n"
    "Access: %x\nModify: %y\nChange: %z\n Birth: %w"
)


@tool("chmod")
async def chmod(process: Process, args: Sequence[str]) -> int:
    """Change permission bits."""
    minus = next((arg for arg in args if _MINUS_MODE.fullmatch(arg)), None)
    rest = [arg for arg in args if arg is not minus]
    options = parse("chmod", rest, "Rfv", {**_LONG, "verbose": "v"})
    words = [minus, *options.operands] if minus is not None else options.operands
    _require("chmod", words)
    text, *names = words
    fs = process.kernel.fs
    if _modes.change(0, text, umask=0, folder=False) is None:
        raise misused("chmod", f"invalid mode: {quoted(text)}")

    def act(path: str, node: Node) -> None:
        folder = isinstance(node, Directory)
        mode = _modes.change(node.mode, text, umask=process.umask, folder=folder)
        fs.chmod(path, node.mode if mode is None else mode, **here(process))

    work = _Change(process, "chmod", "changing permissions of", act, quiet="f" in options)
    return await work.all(names, recursive="R" in options)


@tool("chown")
async def chown(process: Process, args: Sequence[str]) -> int:
    """Change owners."""
    options = parse("chown", args, "Rfh", {**_LONG, "no-dereference": "h"})
    _require("chown", options.operands)
    text, *names = options.operands
    uid, gid = _owners(process, text)

    def act(path: str, node: Node) -> None:
        follow = "h" not in options
        process.kernel.fs.chown(path, uid, gid, **here(process), follow=follow)

    work = _Change(process, "chown", "changing ownership of", act, quiet="f" in options)
    return await work.all(names, recursive="R" in options)


def _require(name: str, words: Sequence[str]) -> None:
    if not words:
        raise misused(name, "missing operand")
    if len(words) == 1:
        raise misused(name, f"missing operand after {quoted(words[0])}")


def _owners(process: Process, text: str) -> tuple[int, int]:
    """Return the numbers of `user:group`, -1 for what is left as it is."""
    owner, colon, group = text.partition(":")
    user = find_user(process, owner)
    if user is None and owner and not owner.isdecimal():
        raise Failure(f"chown: invalid user: {quoted(text)}")
    uid = user.uid if user else int(owner) if owner else -1
    if not group:
        return uid, user.gid if user and colon else -1
    gid = find_group(process, group)
    if gid is None and not group.isdecimal():
        raise Failure(f"chown: invalid group: {quoted(text)}")
    return uid, int(group) if gid is None else gid


class _Change:
    """One change of attributes, for files and all below them."""

    def __init__(
        self,
        process: Process,
        name: str,
        doing: str,
        act: Callable[[str, Node], None],
        *,
        quiet: bool,
    ) -> None:
        self._process = process
        self._name = name
        self._doing = doing
        self._act = act
        self._quiet = quiet
        self._code = 0

    async def all(self, names: Sequence[str], *, recursive: bool) -> int:
        fs, place = self._process.kernel.fs, here(self._process)
        for name in names:
            try:
                node = fs.stat(name, **place)
            except OSError as exc:
                await self._miss(name, exc)
                continue
            await self._one(name, node)
            if recursive and isinstance(node, Directory):
                await self._below(name)
        return self._code

    async def _below(self, top: str) -> None:
        fs, place = self._process.kernel.fs, here(self._process)
        pending = [top]
        while pending:
            folder = pending.pop()
            try:
                names = fs.listdir(folder, **place)
            except OSError as exc:
                await self._fail("cannot read directory", folder, exc)
                continue
            for name in names:
                path = f"{folder.rstrip('/')}/{name}"
                try:
                    node = fs.stat(path, **place, follow=False)
                except OSError as exc:
                    await self._fail("cannot access", path, exc)
                    continue
                if not isinstance(node, Link):
                    await self._one(path, node)
                if isinstance(node, Directory):
                    pending.append(path)

    async def _one(self, path: str, node: Node) -> None:
        await self._process.step()
        try:
            self._act(path, node)
        except OSError as exc:
            await self._fail(self._doing, path, exc)

    async def _miss(self, name: str, exc: OSError) -> None:
        self._code = 1
        dangling = self._process.kernel.fs.exists(name, **here(self._process), follow=False)
        if dangling and isinstance(exc, FileNotFoundError) and not self._quiet:
            shown = f"cannot operate on dangling symlink {quoted(name)}"
            await say(self._process, f"{self._name}: {shown}")
        else:
            await self._fail("cannot access", name, exc)

    async def _fail(self, doing: str, path: str, exc: OSError) -> None:
        self._code = 1
        if not self._quiet:
            await say(self._process, f"{self._name}: {doing} {quoted(path)}: {exc.strerror}")


@tool("stat")
async def stat(process: Process, args: Sequence[str]) -> int:
    """Show attributes, in the given format."""
    long = {"format=": "c", "printf=": "P", "dereference": "L"}
    options = parse("stat", args, "c:L", long)
    if not options.operands:
        raise misused("stat", "missing operand")
    raw = options.last("cP") == "P"
    form = options.get("P") if raw else options.get("c") if "c" in options else _DEFAULT
    form = _unescaped(form) if raw else form + "\n"
    code = 0
    for name in options.operands:
        await process.step()
        try:
            node = process.kernel.fs.stat(name, **here(process), follow="L" in options)
        except OSError as exc:
            await say(process, f"stat: cannot statx {quoted(name)}: {exc.strerror}")
            code = 1
            continue
        await put_text(process, _DIRECTIVE.sub(_Facts(process, name, node).shown, form))
    return code


def _unescaped(text: str) -> str:
    for written, meant in (("\\n", "\n"), ("\\t", "\t"), ("\\0", "\0")):
        text = text.replace(written, meant)
    return text


class _Facts:
    """What stat can say of one file, by the letters of its format."""

    def __init__(self, process: Process, name: str, node: Node) -> None:
        self._process = process
        self._name = name
        self._node = node

    def shown(self, match: re.Match[str]) -> str:
        flags, width, precision, letter = match.groups()
        value = self._value(letter)
        if precision:
            value = value[: int(precision)]
        if "-" in flags:
            return value.ljust(int(width or 0))
        return value.rjust(int(width or 0), "0" if "0" in flags else " ")

    def _value(self, letter: str) -> str:
        node = self._node
        known: dict[str, Callable[[], object]] = {
            "%": lambda: "%",
            "a": lambda: f"{node.mode:o}",
            "A": lambda: _modes.letters(node),
            "b": lambda: -(-node.size // 4096) * 8 if node.kind == "file" else 0,
            "B": lambda: _BLOCK,
            "d": lambda: 50,
            "Hd": lambda: 0,
            "Ld": lambda: 50,
            "f": lambda: f"{_modes.raw(node):x}",
            "F": lambda: _modes.kind_of(node),
            "g": lambda: node.gid,
            "G": lambda: group_name(self._process, node.gid) or "UNKNOWN",
            "h": lambda: node.nlink,
            "i": lambda: node.ino,
            "n": lambda: self._name,
            "N": self._linked,
            "o": lambda: 4096,
            "s": lambda: node.size,
            "u": lambda: node.uid,
            "U": lambda: user_name(self._process, node.uid) or "UNKNOWN",
            "w": lambda: "-",
            "W": lambda: 0,
            **dict.fromkeys("XYZ", lambda: int(node.mtime // 1)),
            **dict.fromkeys("xyz", self._time),
        }
        return str(known[letter]()) if letter in known else "?"

    def _linked(self) -> str:
        if isinstance(self._node, Link):
            return f"{quoted(self._name)} -> {quoted(self._node.target)}"
        return quoted(self._name)

    def _time(self) -> str:
        return _dates.show(_dates.at(self._node.mtime), _FULL_TIME)
