"""Starting a program in a container: one exec, and the raw stream to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from sandboxio.adapters._docker_answers import ContainerDescription

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sandboxio.adapters._docker_engine import Engine
    from sandboxio.adapters._docker_exec import DockerExec
    from sandboxio.adapters._docker_stream import ByteStream
    from sandboxio.core.threads import Lane

ENGINE_WORDS = (b"OCI runtime exec failed", b"cannot exec in a ")
"""How the engine begins when it reports, on the stdout of an exec, that it did not start it."""


@dataclass(frozen=True)
class ExecSpec:
    """What an exec needs to know."""

    argv: tuple[str, ...]
    user: str
    cwd: str
    env: Mapping[str, str] = field(repr=False)
    stdin: bool = False


@dataclass
class Container:
    """The container an exec runs in."""

    engine: Engine
    id: str
    pids_limit: int
    memory_mb: int
    visible: bool = False
    """Whether the engine sees the processes inside as they are."""
    endings: int = 0
    """Endings under way that need more processes than the limit allows."""
    channels: set[DockerExec] = field(default_factory=set["DockerExec"])
    """Calls whose streams are open."""


async def create(container: Container, spec: ExecSpec, *, lane: Lane = "call") -> str:
    """Prepare an exec; nothing runs before `attach()`."""

    def ask(client: Any) -> str:
        made = client.exec_create(
            container.id,
            list(spec.argv),
            stdout=True,
            stderr=True,
            stdin=spec.stdin,
            tty=False,
            user=spec.user,
            workdir=spec.cwd,
            environment=[f"{name}={value}" for name, value in spec.env.items()],
        )
        return str(made["Id"])

    return await container.engine.call("call", ask, lane=lane)


async def attach(container: Container, exec_id: str) -> tuple[ByteStream, bytes]:
    """Start an exec; return its raw stream, and what came with the answer."""
    body = {"Detach": False, "Tty": False}
    return await container.engine.stream("call", f"/exec/{quote(exec_id)}/start", body)


async def inspect(container: Container, exec_id: str) -> dict[str, Any]:
    """Return the engine's state of an exec; `Pid` is a number, 0 before it has started."""

    def ask(client: Any) -> dict[str, Any]:
        state: dict[str, Any] = client.exec_inspect(exec_id)
        return {**state, "Pid": int(state.get("Pid") or 0)}

    return await container.engine.call("call", ask, lane="teardown")


async def describe(container: Container) -> ContainerDescription:
    """Return the engine's description of the container."""
    return await container.engine.call(
        "call",
        lambda client: ContainerDescription(client.inspect_container(container.id)),
        lane="teardown",
    )
