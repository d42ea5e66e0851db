"""Credit, both ways: what bounds memory, and what keeps one call from stalling another."""

from __future__ import annotations

import itertools
import tracemalloc
from typing import TYPE_CHECKING

import anyio
import pytest

from sandboxio.core.errors import LinkLost
from sandboxio.guest import frames
from sandboxio.guest._link_channel import WINDOW_MAX
from tests.link.peer import conversation

if TYPE_CHECKING:
    from sandboxio.guest.link import Channel, Link
    from tests.link.peer import Peer

pytestmark = pytest.mark.anyio

KIB = 1024


async def answered(link: Link, peer: Peer) -> None:
    """Have one more call answered, which passes over whatever else is under way."""
    channel = await link.open(b"exec")
    await peer.result(channel.number)
    assert await channel.receive() is None


async def taken(channel: Channel, size: int) -> None:
    """Take so many bytes."""
    while size > 0:
        piece = await channel.receive()
        assert piece is not None
        size -= len(piece[1])


async def test_input_stops_at_the_window() -> None:
    """Input beyond the agent's credit waits, and goes on by exactly what is granted."""
    async with conversation() as (link, peer), anyio.create_task_group() as tasks:
        channel = await link.open(b"exec")
        tasks.start_soon(channel.send, b"x" * (frames.WINDOW + 5))
        assert len(await peer.expect(frames.DATA)) == frames.WINDOW
        await anyio.wait_all_tasks_blocked()
        await peer.stream.send(frames.credit(1, 3))
        assert len(await peer.expect(frames.DATA)) == 3
        await peer.stream.send(frames.credit(1, 100))
        assert len(await peer.expect(frames.DATA)) == 2


async def test_input_of_a_call_that_has_ended() -> None:
    """Whoever waits for credit is let go, silently, when the result comes."""
    async with conversation() as (link, peer):
        channel = await link.open(b"exec")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(channel.send, b"x" * (2 * frames.WINDOW))
            await anyio.wait_all_tasks_blocked()
            await peer.result(1)
        await channel.send(b"more")
        await channel.send_eof()


async def test_credit_overflow() -> None:
    """Credit that adds up to more than 2^30 breaks the link."""
    async with conversation() as (link, peer):
        channel = await link.open(b"exec")
        await peer.stream.send(frames.credit(1, 2**30 - frames.WINDOW))
        await answered(link, peer)
        await peer.stream.send(frames.credit(1, 1))
        with pytest.raises(LinkLost, match=r"2\^30"):
            await channel.receive()


async def test_credit_comes_back_in_batches() -> None:
    """Small output is not answered at all; what was taken comes back in quarters of a window."""
    async with conversation() as (link, peer):
        channel = await link.open(b"exec")
        await peer.expect(frames.OPEN)
        for _ in range(64):
            await peer.say(1, frames.DATA, b"x" * KIB)
        await taken(channel, 64 * KIB)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(channel.receive)
            assert frames.credited(await peer.expect(frames.CREDIT)) == 64 * KIB
            await peer.result(1)


async def test_what_is_not_taken_gives_no_credit() -> None:
    """A reader that does not come back stops its own call at the window."""
    async with conversation() as (link, peer):
        channel = await link.open(b"exec")
        for _ in range(4):
            await peer.say(1, frames.DATA, b"x" * (64 * KIB))
        await answered(link, peer)
        await peer.say(1, frames.DATA, b"x")
        await answered_or_lost(link, peer)
        assert link.lost is not None
        await taken(channel, frames.WINDOW)
        with pytest.raises(LinkLost, match="credit"):
            await channel.receive()


async def answered_or_lost(link: Link, peer: Peer) -> None:
    with pytest.raises(LinkLost):
        await answered(link, peer)


async def test_a_reader_that_keeps_up_gets_more() -> None:
    """The window of a call whose reader waits for it grows, up to 1 MiB and no further."""
    async with conversation() as (link, peer):
        channel = await link.open(b"exec")
        granted, grants = frames.WINDOW, [0]

        async def send() -> None:
            nonlocal granted
            sent = 0
            while sent < 8 * WINDOW_MAX:
                while granted - sent < 64 * KIB:
                    grants.append(frames.credited(await peer.expect(frames.CREDIT)))
                    granted += grants[-1]
                    assert granted - sent <= WINDOW_MAX
                await peer.say(1, frames.DATA, b"x" * (64 * KIB))
                sent += 64 * KIB
            await peer.result(1)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(send)
            await taken(channel, 8 * WINDOW_MAX)
            assert await channel.receive() is None
        assert grants[-1] >= WINDOW_MAX // 4


async def test_a_slow_reader_stalls_nobody() -> None:
    """A call whose output nobody takes holds up no other, and loses nothing."""
    async with conversation() as (link, peer):
        slow = await link.open(b"exec")
        for _ in range(256):
            await peer.say(slow.number, frames.DATA, b"x" * KIB)
        for _ in range(20):
            await answered(link, peer)
        await taken(slow, frames.WINDOW)


async def test_what_an_abandoned_call_says_is_dropped() -> None:
    """The agent is told to end it, and gets credit for what nobody will take."""
    async with conversation() as (link, peer):
        channel = await link.open(b"exec")
        await channel.abandon()
        await peer.expect(frames.END)
        for _ in range(3):
            await peer.say(1, frames.DATA, b"x" * (64 * KIB))
            await answered(link, peer)
            assert frames.credited(await peer.expect(frames.CREDIT)) == 64 * KIB
        await peer.result(1)
        await answered(link, peer)
        assert link.is_idle


async def test_memory_for_tiny_pieces() -> None:
    """Many frames of one byte, on both streams in turn, take little more than their bytes."""
    async with conversation() as (link, peer):
        channel = await link.open(b"exec")
        kinds = itertools.cycle((frames.DATA, frames.ERROUT))
        flood = b"".join(frames.frame(1, next(kinds), b"x") for _ in range(20_000))
        await peer.stream.send(flood)
        tracemalloc.start()
        await answered(link, peer)
        kept, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert kept < 200_000
        await taken(channel, 20_000)


async def test_the_order_of_both_streams() -> None:
    """Output comes in the order in which it was said, stdout and stderr alike."""
    async with conversation() as (link, peer):
        channel = await link.open(b"exec")
        said = [(frames.DATA, b"1"), (frames.ERROUT, b"2"), (frames.DATA, b"3")]
        for piece in said:
            await peer.say(1, *piece)
        await answered(link, peer)
        assert [await channel.receive() for _ in said] == said


async def test_pings() -> None:
    """A ping is answered with its own bytes; of many at once, at least the first."""
    async with conversation() as (link, peer):
        for number in range(1000):
            await peer.say(0, frames.PING, b"%d" % number)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(link.ping)
            await peer.say(0, frames.PONG, await peer.expect(frames.PING))
        answers = 0
        with anyio.move_on_after(0.05):
            while await peer.expect(frames.PONG):
                answers += 1
        assert 0 < answers < 1000
