"""Who made a sandbox: enough to tell, from the same machine only, whether its maker still lives."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_PLACE = ("machine", "boot", "pidns")
"""What must be equal for a pid to mean the same."""
_PID = re.compile(r"[1-9][0-9]{0,8}")
_sessions: dict[int, str] = {}


def session() -> str:
    """Return the random id of this process; a forked child has its own."""
    return _sessions.setdefault(os.getpid(), secrets.token_hex(8))  # one step: threads agree


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_sessions.clear)


def owner() -> dict[str, str]:
    """Describe this process: machine, boot, pid namespace, pid and start time.

    Values that a host does not tell are empty, and then nobody can judge the owner dead.
    """
    pid = os.getpid()
    return {
        "machine": _read("/etc/machine-id"),
        "boot": _read("/proc/sys/kernel/random/boot_id"),
        "pidns": _pid_namespace(),
        "pid": str(pid),
        "start": _status(pid)[1],
        "session": session(),
    }


def is_dead(other: Mapping[str, str]) -> bool:
    """Say whether the process that `owner()` described is certainly gone.

    Only one of the same machine, boot and pid namespace can be judged; any other is not, and
    counts as alive.
    """
    here = owner()
    if any(not here[name] or other.get(name) != here[name] for name in _PLACE):
        return False
    told, then = other.get("pid", ""), other.get("start")
    if not _PID.fullmatch(told) or not then:
        return False
    pid = int(told)
    state, start = _status(pid)
    if not start:
        return not _is_there(pid)
    return state in ("Z", "X") or start != then


def _is_there(pid: int) -> bool:
    """Say whether a process exists, also where /proc hides those of other users."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return True


def _read(path: str) -> str:
    if sys.platform != "linux":
        return ""
    with contextlib.suppress(OSError):
        return Path(path).read_text(encoding="ascii", errors="replace").strip()
    return ""


def _pid_namespace() -> str:
    """Return the namespace's number; empty where /proc is that of another one."""
    if sys.platform != "linux":
        return ""
    with contextlib.suppress(OSError):
        if str(Path("/proc/self").readlink()) == str(os.getpid()):
            return str(Path("/proc/self/ns/pid").stat().st_ino)
    return ""


def _status(pid: int) -> tuple[str, str]:
    """Return the state letter and the start time of a process; empty where there is none."""
    fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return (fields[0], fields[19]) if len(fields) > 19 else ("", "")
