"""Running the scripts that end a call, as the user of the call, who alone may signal it."""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import anyio

from sandboxio.adapters import _docker_launch as launch
from sandboxio.adapters._docker_failure import failure
from sandboxio.adapters._docker_stream import CLOSED, READ_BYTES, ByteStream, FrameDecoder
from sandboxio.core.errors import SandboxError, SandboxGone
from sandboxio.guest import shell_kill

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from sandboxio.adapters._docker_launch import Container

_HEADROOM = 64
"""Processes a container is allowed beyond its limit while one of its calls is being ended."""
_ANSWER_LIMIT = 4096
_RESTORE_SECONDS = 2.0


async def end(container: Container, user: str, script: str, marker: str) -> shell_kill.Ending:
    """Run one of the scripts of `guest.shell_kill` and return what it reports."""
    try:
        return await _run(container, user, script, marker)
    except SandboxGone:
        raise
    except SandboxError:
        pass
    # Most likely the call has used up the processes the container may have.
    async with _headroom(container):
        return await _run(container, user, script, marker)


async def _run(container: Container, user: str, script: str, marker: str) -> shell_kill.Ending:
    spec = launch.ExecSpec(("/bin/sh", "-c", script, "sh", marker), user, "/", {})
    exec_id = await launch.create(container, spec, lane="teardown")
    stream, early = await launch.attach(container, exec_id)
    try:
        said = await _answer(stream, early)
    finally:
        with anyio.CancelScope(shield=True), suppress(*CLOSED):
            await stream.aclose()
    if said.startswith(launch.ENGINE_WORDS):
        raise failure("call", None, said.decode("utf-8", "replace"))
    return shell_kill.parse(said)


async def _answer(stream: ByteStream, early: bytes) -> bytes:
    decoder, said, data = FrameDecoder(), b"", early
    with suppress(anyio.EndOfStream, *CLOSED):
        while len(said) < _ANSWER_LIMIT:
            said += b"".join(c.data for c in decoder.feed(data) if c.stream == "stdout")
            data = await stream.receive(READ_BYTES)
    return said


@asynccontextmanager
async def _headroom(container: Container) -> AsyncGenerator[None]:
    """Raise the process limit for as long as at least one ending needs it."""
    container.endings += 1
    try:
        await _limit(container, container.pids_limit + _HEADROOM)
        yield
    finally:
        container.endings -= 1
        if not container.endings:
            with anyio.move_on_after(_RESTORE_SECONDS, shield=True), suppress(SandboxError):
                await _limit(container, container.pids_limit)


async def _limit(container: Container, pids: int) -> None:
    def update(client: Any) -> None:
        url = f"{client.base_url}/v{client.api_version}/containers/{container.id}/update"
        client.post(url, json={"PidsLimit": pids}).raise_for_status()

    await container.engine.call("call", update, lane="teardown")
