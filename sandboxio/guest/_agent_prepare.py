"""Part of the agent: what a sandbox's user finds in it, made before that user runs anything."""

from __future__ import annotations

import os

from sandboxio.guest._agent_wire import Invalid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable

SPARE = "/tmp"


def prepare(orders: list[bytes], uid: int, gid: int) -> bool:
    """Carry out orders, of three fields each; false where that takes what the agent may not do."""
    try:
        for at in range(0, len(orders), 3):
            kind, path, text = orders[at : at + 3]
            if kind == b"directory":
                give_directory(path, uid, gid)
            elif kind in (b"append", b"write"):
                put(path, text, os.O_APPEND if kind == b"append" else os.O_TRUNC)
            else:
                raise Invalid
    except OSError:
        return False
    return True


def give_directory(path: bytes, uid: int, gid: int) -> None:
    """Make a directory that is the user's, without the right to change owners.

    The user makes it, where everybody may; root moves it, which takes that it can be written to.
    """
    if uid == 0:
        os.mkdir(path, 0o755)
        return
    made = os.path.join(SPARE.encode(), b".sandboxio-" + os.urandom(8).hex().encode())
    as_user(uid, gid, lambda: new_directory(made))
    try:
        os.rename(made, path)
    except OSError:
        os.rmdir(made)
        raise
    as_user(uid, gid, lambda: os.chmod(path, 0o755))


def new_directory(path: bytes) -> None:
    os.mkdir(path)
    os.chmod(path, 0o777)


def as_user(uid: int, gid: int, act: Callable[[], None]) -> None:
    os.setegid(gid)
    os.seteuid(uid)
    try:
        act()
    finally:
        os.seteuid(0)
        os.setegid(0)


def put(path: bytes, text: bytes, flag: int) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | flag, 0o644)
    try:
        os.write(fd, text)
    finally:
        os.close(fd)
