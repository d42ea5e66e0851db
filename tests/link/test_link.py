"""Calls over a link: what they hear, in which order, and how they end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import pytest

from sandboxio.core.errors import LinkLost
from sandboxio.guest import frames
from tests.link.peer import DONE, PartStream, WholeStream, conversation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sandboxio.guest.link import Channel

pytestmark = pytest.mark.anyio


async def heard(channel: Channel) -> list[tuple[int, bytes]]:
    """Return all that a channel says."""
    said: list[tuple[int, bytes]] = []
    while (piece := await channel.receive()) is not None:
        said.append(piece)
    return said


@pytest.mark.parametrize("kind", [PartStream, WholeStream])
async def test_a_call(kind: type[WholeStream]) -> None:
    """The agent gets the request and the data as sent; the host gets output and result."""
    async with conversation(kind) as (link, peer):
        channel = await link.open(b"exec", b"", data=b"source")
        assert await peer.hear() == (1, frames.OPEN, frames.pack([b"exec", b""]))
        assert await peer.hear() == (1, frames.DATA, b"source")
        assert await peer.hear() == (1, frames.EOF, b"")
        await peer.say(1, frames.DATA, b"out")
        await peer.say(1, frames.ERROUT, b"err")
        await peer.result(1)
        assert await heard(channel) == [(frames.DATA, b"out"), (frames.ERROUT, b"err")]
        assert channel.result == list(DONE)
        assert link.is_idle


async def test_signals() -> None:
    """A signal goes to a call that runs, and nowhere else."""
    async with conversation() as (link, peer):
        channel = await link.open(b"exec")
        await channel.signal(15)
        assert await peer.expect(frames.SIGNAL, 1) == b"\x0f"
        await peer.result(1)
        await heard(channel)
        await channel.signal(9)
        await link.open(b"exec")
        assert (await peer.hear())[:2] == (2, frames.OPEN)


async def test_facts() -> None:
    """What the agent said of itself is there by name, and what comes often as a set."""
    async with conversation() as (link, _):
        assert (link.name, link.facts["warm"]) == ("7.1", "1")
        assert link.interfaces == frozenset(["lo"])
        assert link.programs == frozenset(["python3", "bash"])


def numbered(number: int, _: list[bytes]) -> Mapping[int, bytes]:
    return {frames.DATA: b"%d" % number}


async def test_500_channels() -> None:
    """Each of many calls at once gets its own output, whoever reads it."""
    async with conversation() as (link, peer):
        said: dict[int, list[tuple[int, bytes]]] = {}

        async def call() -> None:
            channel = await link.open(b"exec")
            said[channel.number] = await heard(channel)

        async with anyio.create_task_group() as service:
            service.start_soon(peer.serve, numbered)
            async with anyio.create_task_group() as tasks:
                for _ in range(500):
                    tasks.start_soon(call)
            service.cancel_scope.cancel()
        assert said == {number: [(frames.DATA, b"%d" % number)] for number in range(1, 501)}


async def test_the_end_of_the_stream() -> None:
    """Every call hears that the link is lost, and so does who comes later."""
    async with conversation() as (link, peer):
        channels = [await link.open(b"exec") for _ in range(3)]
        await peer.stream.aclose()
        for channel in channels:
            with pytest.raises(LinkLost, match="the connection ended") as lost:
                await channel.receive()
            assert lost.value.outcome == "unknown"
        assert link.lost is not None
        with pytest.raises(LinkLost) as late:
            await link.open(b"exec")
        assert late.value.outcome == "not_started"
