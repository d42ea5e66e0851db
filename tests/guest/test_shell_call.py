"""One script of the file API: both directions at once, and an end in any case."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel
import pytest

from sandboxio import FileSystemError, LinkLost
from sandboxio.core.driver import ExitStatus, KillReport
from sandboxio.core.models import OutputChunk, StreamName
from sandboxio.guest._shell_call import ShellCalls

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from sandboxio.core.requests import ExecRequest

pytestmark = pytest.mark.anyio


class Played:
    """A channel that says one thing so many times, and whose input may never be taken."""

    def __init__(self, stream: StreamName, said: bytes, times: int, *, deaf: bool = False) -> None:
        self._chunk = OutputChunk(stream, said)
        self._left = times
        self._deaf = deaf
        self.log: list[str] = []

    async def receive(self) -> OutputChunk | None:
        await anyio.lowlevel.checkpoint()
        self._left -= 1
        return self._chunk if self._left >= 0 else None

    async def send(self, data: bytes) -> None:
        if self._deaf:
            await anyio.sleep_forever()

    async def close_stdin(self) -> None: ...

    async def wait(self) -> ExitStatus:
        return ExitStatus(70)

    async def kill(self) -> KillReport:
        self.log.append("kill")
        return KillReport(complete=True)

    async def aclose(self) -> None:
        self.log.append("aclose")


def calls(channel: Played) -> ShellCalls:
    async def start(request: ExecRequest) -> Played:
        return channel

    return ShellCalls(start, timeout=5, give_up=anyio.lowlevel.checkpoint)


async def pieces() -> AsyncIterator[bytes]:
    await anyio.lowlevel.checkpoint()
    yield b"piece"


async def test_a_script_that_ends_before_it_has_read_all() -> None:
    """Its end is heard while the source is still being sent, and ends the sending."""
    channel = Played("stderr", b"no space", 1, deaf=True)
    with anyio.fail_after(5):
        assert await calls(channel).run("script", source=pieces()) == (70, b"no space")
    assert channel.log == ["aclose"]


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
@pytest.mark.parametrize("deaf", [False, True])
async def test_a_script_that_talks_without_end(stream: StreamName, deaf: bool) -> None:
    """What nobody asked for is bounded: `FileSystemError`, and the script is killed."""
    channel = Played(stream, b"x" * 1024 * 1024, 10**9, deaf=deaf)
    with anyio.fail_after(5), pytest.raises(FileSystemError, match="too large"):
        await calls(channel).run("script", source=pieces() if deaf else None)
    assert channel.log == ["kill", "aclose"]


async def test_a_source_that_fails() -> None:
    """The source's own error is what the caller gets, in no group, and the script is killed."""

    async def broken() -> AsyncIterator[bytes]:
        yield b"half"
        raise LinkLost("the source is gone")

    channel = Played("stdout", b"go", 10**9)
    with pytest.raises(LinkLost, match="the source is gone"):
        await calls(channel).run("script", source=broken())
    assert channel.log == ["kill", "aclose"]
