"""Part of the agent: whether the Python it runs in can be anybody's but root's.

It is started again later, as root, when the sandbox's user has long run code.
"""

from __future__ import annotations

import os
import sys

from sandboxio.guest._agent_wire import suppress


def interpreter() -> str:
    """Return the path of this Python without any link, nor the folder of a virtual environment."""
    return os.path.realpath(sys.executable)


def is_roots(path: str) -> bool:
    """Whether nobody but root can exchange a file or directory, nor any above it."""
    while True:
        status = os.stat(path)
        sticky = status.st_mode & 0o1000
        if status.st_uid != 0 or (status.st_mode & 0o022 and not sticky):
            return False
        if path == "/":
            return True
        path = os.path.dirname(path)


def is_trusted() -> bool:
    """Whether this Python and its library are root's alone."""
    places = [interpreter()] + [os.path.realpath(place) for place in sys.path]
    try:
        return all(is_roots(place) for place in places if os.path.exists(place))
    except OSError:
        return False


def is_what_calls_find(path: bytes) -> bool:
    """Whether `python3` of a search path is this one, and of no virtual environment."""
    for place in path.split(b":"):
        found = os.path.join(os.fsdecode(place), "python3")
        if os.access(found, os.X_OK):
            around = os.path.dirname(os.path.dirname(found))
            with suppress(OSError):
                venv = os.path.exists(os.path.join(around, "pyvenv.cfg"))
                return not venv and os.path.realpath(found) == interpreter()
            return False
    return False
