"""Looking at sandboxes from outside, past the library: the engine's own answers and /proc."""

from __future__ import annotations

import contextlib
import os
import random
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import anyio
import anyio.to_thread
from docker.errors import NotFound

if TYPE_CHECKING:
    from collections.abc import Callable

    import docker
    from docker.models.containers import Container

    from sandboxio.protocols import AsyncSandbox

IMAGE = os.environ.get("SANDBOXIO_TEST_IMAGE", "sandboxio-test/python")
TARGET = f"docker://{IMAGE}"
RUN = f"run-{secrets.token_hex(6)}"
"""Metadata that every sandbox of this run carries, children of the tests included."""
METADATA = {"test_run": RUN}


class Seen(NamedTuple):
    """One process, as the engine's host sees it."""

    pid: int
    parent: int
    state: str
    args: str


class Outside:
    """The engine, asked directly."""

    def __init__(self, client: docker.DockerClient) -> None:
        self.client = client

    def container(self, sandbox: AsyncSandbox) -> Container:
        return self.client.containers.get(f"sandboxio-{sandbox.id}")

    def inspect(self, sandbox: AsyncSandbox) -> dict[str, Any]:
        described: dict[str, Any] = self.container(sandbox).attrs
        return described

    def processes(self, sandbox: AsyncSandbox) -> list[Seen]:
        top: Any = self.container(sandbox).top(ps_args="-eo pid,ppid,stat,args")
        return [
            Seen(int(pid), int(parent), state, args)
            for pid, parent, state, args in top["Processes"]
        ]

    def keepers(self, sandbox: AsyncSandbox) -> list[Seen]:
        """The container's own two: its init, and the sleeper that ends the lifetime."""
        state = self.inspect(sandbox)
        first, seconds = state["State"]["Pid"], state["Config"]["Cmd"][-1]
        return [
            seen
            for seen in self.processes(sandbox)
            if seen.pid == first or (seen.parent, seen.args) == (first, f"sleep {seconds}")
        ]

    def calls(self, sandbox: AsyncSandbox) -> list[Seen]:
        """Every other process of the container, zombies included."""
        keepers = {seen.pid for seen in self.keepers(sandbox)}
        return [seen for seen in self.processes(sandbox) if seen.pid not in keepers]

    def discard(self, sandbox: AsyncSandbox) -> None:
        """Remove a sandbox past the library; silent when it is gone."""
        with contextlib.suppress(NotFound):
            self.container(sandbox).remove(force=True)

    def names(self) -> list[str]:
        """Names of all containers, in any state."""
        found = self.client.containers.list(all=True, ignore_removed=True)
        return [str(container.name) for container in found]

    def containers(self, **metadata: str) -> list[str]:
        """Names of containers in any state that carry the metadata."""
        wanted = [f"io.sandboxio.meta.{key}={value}" for key, value in metadata.items()]
        found = self.client.containers.list(
            all=True, ignore_removed=True, filters={"label": wanted}
        )
        return [str(container.name) for container in found]


def unique_seconds() -> str:
    """A duration for `sleep` that no other process has: it marks the process."""
    return f"{random.randint(3000, 3999)}.{random.randint(10**8, 10**9)}"


def host_processes(text: str) -> list[int]:
    """Pids on this host, containers included, whose arguments hold the text."""
    return [pid for pid, args in host_arguments() if text in args]


def host_arguments() -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            args = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        found.append((int(folder.name), args.replace(b"\0", b" ").decode("utf-8", "replace")))
    return found


async def eventually(check: Callable[[], object], *, within: float = 5.0) -> None:
    """Wait until a look from outside gives something true."""
    with anyio.fail_after(within):
        while not await anyio.to_thread.run_sync(check):
            await anyio.sleep(0.1)
