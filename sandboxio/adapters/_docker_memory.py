"""Whether a call was killed for memory: exit code 137 alone does not tell."""

from __future__ import annotations

import itertools
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

from sandboxio.adapters._docker_answers import section
from sandboxio.core.errors import ResourceLimitExceeded, SandboxError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sandboxio.adapters._docker_answers import Answer
    from sandboxio.adapters._docker_launch import Container

_MOST_EVENTS = 512
"""Events that are read at most; an engine keeps 256."""


async def out_of_memory(container: Container, exec_id: str) -> ResourceLimitExceeded | None:
    """Return the error of a call, now over, that the kernel killed for memory, if it was that."""

    def ask(client: Any) -> bool:
        # No clock is compared: the engine's kept events are read up to the end of the call.
        events = client.events(since=0, filters={"container": [container.id]}, decode=True)
        with closing(events):
            return verdict(itertools.islice(events, _MOST_EVENTS), exec_id)

    killed = False
    with suppress(SandboxError):  # that it was killed is true, and all that is known
        killed = await container.engine.call("call", ask, lane="teardown")
    if not killed:
        return None
    limit = container.memory_mb
    return ResourceLimitExceeded(
        f"The call went beyond the memory limit of {limit} MiB and was killed.",
        hint=f"Create the sandbox with resources=Resources(memory_mb={2 * limit}).",
        outcome="done",
    )


def verdict(events: Iterable[Answer], exec_id: str) -> bool:
    """Look for `oom` between the start of an exec and its end; a start forgotten is the first."""
    killed = False
    for event in events:
        action = str(event.get("Action", ""))
        attributes = section(section(event, "Actor"), "Attributes")
        if action == "oom":
            killed = True
        elif attributes.get("execID") == exec_id:
            if action.startswith("exec_start"):
                killed = False
            elif action == "exec_die":
                break
    return killed
