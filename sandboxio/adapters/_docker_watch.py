"""What the watcher's process does: wait for the end of its program, then remove what it left.

It also removes, when it starts, the sandboxes of programs that are certainly dead.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from sandboxio.adapters import _docker_container as containers
from sandboxio.adapters._docker_answers import labels_of
from sandboxio.adapters._docker_endpoint import Endpoint
from sandboxio.adapters._docker_engine import connected
from sandboxio.core import owner

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sandboxio.adapters._docker_answers import Answer

SECONDS = 30.0
"""How long after the end of its program a creation may still land that it had asked for."""
_PAUSE = 2.0
_CALL_SECONDS = 20
_IGNORED = ("SIGINT", "SIGTERM", "SIGHUP")


def main(*, endpoint: str, tls_directory: str | None, session: str | None) -> None:
    """Watch over the sandboxes of a session, whose program is at the other end of stdin."""
    for name in _IGNORED:
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    client = connected(
        Endpoint(endpoint, "the program", tls_directory), pool=1, seconds=_CALL_SECONDS
    )
    with suppress(OSError):  # the program may have ended already, and has sandboxes all the same
        sys.stdout.buffer.write(b"armed\n")
        sys.stdout.buffer.flush()
    _silence()
    if session is not None:
        remove(client, owner.is_dead)
    births = 0
    for line in sys.stdin.buffer:
        births += {b"+\n": 1, b"-\n": -1}.get(line, 0)
    if session is not None:
        clear(client, lambda labels: labels.get("session") == session, births)


def _silence() -> None:
    """Hold nothing of the program's any more but the pipe."""
    null = os.open(os.devnull, os.O_RDWR)
    for number in (1, 2):
        os.dup2(null, number)
    os.close(null)


def clear(client: Any, theirs: Callable[[Mapping[str, str]], bool], births: int) -> None:
    """Remove what is there, and for a while what the engine still makes, were births under way."""
    until = time.monotonic() + SECONDS
    while not remove(client, theirs) or births > 0:
        if time.monotonic() > until:
            return
        time.sleep(_PAUSE)


def remove(client: Any, theirs: Callable[[Mapping[str, str]], bool]) -> bool:
    """Remove the sandboxes of ours whose owner is meant; False unless all of them are gone."""
    with suppress(Exception):  # the engine may be away for a moment
        found: list[Answer] = client.containers(
            all=True, filters={"label": [f"{containers.PREFIX}managed=true"]}
        )
        left = [entry for entry in found if _is_meant(entry, theirs)]
        for entry in left:
            with suppress(Exception):  # whatever it is, the others are to be tried
                client.remove_container(entry["Id"], force=True, v=True)
        return not left
    return False


def _is_meant(entry: Answer, theirs: Callable[[Mapping[str, str]], bool]) -> bool:
    labels = labels_of(entry)
    names = [str(name) for name in entry.get("Names") or ()]
    return any(containers.is_ours(name, labels) for name in names) and theirs(
        containers.owner_of(labels)
    )
