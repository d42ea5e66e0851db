"""Users and groups, as `/etc/passwd` and `/etc/group` of the fake sandbox name them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sandboxio.testing._disk.nodes import ROOT

if TYPE_CHECKING:
    from sandboxio.testing._machine.process import Process


class User(NamedTuple):
    name: str
    uid: int
    gid: int


def user_name(process: Process, uid: int) -> str | None:
    """Return the name of a user; `None` where it has none."""
    return next((user.name for user in _users(process) if user.uid == uid), None)


def group_name(process: Process, gid: int) -> str | None:
    """Return the name of a group; `None` where it has none."""
    return next((name for name, number in _groups(process) if number == gid), None)


def find_user(process: Process, name: str) -> User | None:
    """Return the user of a name."""
    return next((user for user in _users(process) if user.name == name), None)


def find_group(process: Process, name: str) -> int | None:
    """Return the number of a group."""
    return next((number for known, number in _groups(process) if known == name), None)


def _users(process: Process) -> list[User]:
    rows = [row for row in _rows(process, "/etc/passwd") if len(row) >= 4]
    return [
        User(row[0], int(row[2]), int(row[3]))
        for row in rows
        if row[2].isdecimal() and row[3].isdecimal()
    ]


def _groups(process: Process) -> list[tuple[str, int]]:
    rows = [row for row in _rows(process, "/etc/group") if len(row) >= 3]
    return [(row[0], int(row[2])) for row in rows if row[2].isdecimal()]


def _rows(process: Process, path: str) -> list[list[str]]:
    try:
        data = process.kernel.fs.read(path, who=ROOT)
    except OSError:
        return []
    return [line.split(":") for line in data.decode("utf-8", "replace").splitlines()]
