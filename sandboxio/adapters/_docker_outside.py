"""The processes of a container as the engine sees them: what nothing inside can forge."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from sandboxio.core.errors import SandboxError, SandboxGone

if TYPE_CHECKING:
    from sandboxio.adapters._docker_launch import Container

_COLUMNS = "-eo pid,ppid,stat"


@dataclass(frozen=True)
class Processes:
    """One look at all processes of a container, by the engine's own numbers."""

    parents: dict[int, int] = field(default_factory=dict[int, int])

    def below(self, root: int) -> frozenset[int]:
        """Return a process, if it lives, and everything it started."""
        found = {root} & self.parents.keys()
        grown = True
        while grown:
            more = {pid for pid, parent in self.parents.items() if parent in found} - found
            found |= more
            grown = bool(more)
        return frozenset(found)

    def orphans(self, calls: frozenset[int]) -> frozenset[int]:
        """Return what no call of `calls` (the pids of their wrappers) holds."""
        held = {pid for call in calls for pid in self.below(call)}
        return frozenset(self.parents.keys() - held)


async def look(container: Container) -> Processes | None:
    """List the processes that live; nothing where the engine cannot tell.

    Only asked of runtimes whose processes the engine sees as they are: of others it would list
    those of its own host.
    """
    if not container.visible:
        return None
    try:
        answer = await container.engine.call(
            "call", lambda client: client.top(container.id, ps_args=_COLUMNS), lane="teardown"
        )
        return _parsed(answer)
    except SandboxGone:
        raise
    except (SandboxError, ValueError, TypeError, LookupError, AttributeError):
        return None


def _parsed(answer: Any) -> Processes:
    rows = cast("list[list[str]]", answer["Processes"])
    return Processes({int(row[0]): int(row[1]) for row in rows if not row[2].startswith("Z")})
