"""File modes: written as chmod takes them, and shown as ls does."""

from __future__ import annotations

import re

from sandboxio.testing._disk.nodes import Directory, File, Link, Node, Special, VirtualFile

_CLAUSE = re.compile(r"([ugoa]*)((?:[-+=](?:[ugo]|[rwxXst]*))+)")
_ACTION = re.compile(r"([-+=])([ugo]|[rwxXst]*)")
_BITS = {"r": 0o444, "w": 0o222, "x": 0o111}
_WHO = {"u": 0o4700, "g": 0o2070, "o": 0o1007}
_SHIFT = {"u": 6, "g": 3, "o": 0}


def change(mode: int, text: str, *, umask: int, folder: bool) -> int | None:
    """Return what a mode becomes by an octal or symbolic one; `None` where the text is neither."""
    if re.fullmatch(r"[0-7]{1,5}", text) and int(text, 8) <= 0o7777:
        kept = mode & 0o6000 if folder and len(text) < 5 else 0
        return int(text, 8) | kept
    for clause in text.split(","):
        match = _CLAUSE.fullmatch(clause)
        if match is None:
            return None
        who, actions = match[1], match[2]
        for sign, what in _ACTION.findall(actions):
            mode = _apply(mode, (who, sign, what), umask=umask, folder=folder)
    return mode


def _apply(mode: int, action: tuple[str, str, str], *, umask: int, folder: bool) -> int:
    who, sign, what = action
    names = "ugo" if not who or "a" in who else who
    mask = 0
    for name in names:
        mask |= _WHO[name]
    bits = _named(mode, what, folder=folder) & mask
    if not who:
        bits &= ~umask
    if sign == "+":
        return mode | bits
    if sign == "-":
        return mode & ~bits
    kept = 0o6000 if folder else 0
    return mode & (~mask | kept) | bits


def _named(mode: int, what: str, *, folder: bool) -> int:
    if what in _SHIFT:
        return (mode >> _SHIFT[what] & 7) * 0o111
    bits = 0
    for letter in what:
        bits |= _BITS.get(letter, 0)
    if "X" in what and (folder or mode & 0o111):
        bits |= 0o111
    bits |= 0o6000 if "s" in what else 0
    return bits | (0o1000 if "t" in what else 0)


def letters(node: Node) -> str:
    """Return the ten letters of a mode."""
    mode = node.mode
    shown = [
        letter if mode & bit else "-"
        for letter, bit in zip("rwxrwxrwx", (1 << n for n in range(8, -1, -1)), strict=True)
    ]
    for at, bit, letter in ((2, 0o4000, "s"), (5, 0o2000, "s"), (8, 0o1000, "t")):
        if mode & bit:
            shown[at] = letter if shown[at] == "x" else letter.upper()
    return _letter(node) + "".join(shown)


def _letter(node: Node) -> str:
    if isinstance(node, Special):
        return "p" if node.device is None else "c"
    return {"directory": "d", "link": "l"}.get(node.kind, "-")


def raw(node: Node) -> int:
    """Return the mode with its type, as `stat` gives it."""
    kinds = {"-": 0o100000, "d": 0o40000, "l": 0o120000, "p": 0o10000, "c": 0o20000}
    return kinds[_letter(node)] | node.mode


def kind_of(node: Node) -> str:
    """Return the type of a file in the words of stat."""
    if isinstance(node, Directory):
        return "directory"
    if isinstance(node, Link):
        return "symbolic link"
    if isinstance(node, Special):
        return "fifo" if node.device is None else "character special file"
    empty = isinstance(node, File | VirtualFile) and node.size == 0
    return "regular empty file" if empty else "regular file"
