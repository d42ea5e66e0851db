"""Sending: frames stay whole, whoever is cancelled, and reading goes on meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import pytest

from sandboxio.core.errors import ConfigurationError, LinkLost
from sandboxio.guest import frames
from sandboxio.guest._link_sending import MOST_WAITING
from tests.link.peer import PartStream, WholeStream, conversation

if TYPE_CHECKING:
    from sandboxio.guest.link import Channel

pytestmark = pytest.mark.anyio

LARGE = bytes(range(256)) * 1024


class StuckStream(WholeStream):
    """Its sends never end, once it is stuck, and nobody can end them."""

    stuck = False

    async def send(self, item: bytes) -> None:
        if self.stuck:
            await super().send(item[:5])
            await anyio.sleep_forever()
        await super().send(item)


async def test_sending_in_parts() -> None:
    """Frames arrive whole and in order over a stream that takes seven bytes at a time."""
    async with conversation(room=7) as (link, peer), anyio.create_task_group() as tasks:

        async def call(text: bytes) -> None:
            channel = await link.open(b"exec", text)
            await channel.send(text)
            await channel.send_eof()

        for text in (b"first", b"second", b"third"):
            tasks.start_soon(call, text)
        asked, got = dict[int, bytes](), dict[int, bytes]()
        ended = 0
        while ended < 3:
            channel, kind, payload = await peer.hear()
            ended += kind == frames.EOF
            if kind == frames.OPEN:
                asked[channel] = frames.unpack(payload)[1]
            else:
                got[channel] = got.get(channel, b"") + payload
        assert got == asked
        assert sorted(got.values()) == [b"first", b"second", b"third"]


async def test_cancelled_inside_of_a_frame() -> None:
    """What a cancelled call has begun to send is finished by the next one that sends."""
    async with conversation(room=1000) as (link, peer):
        channel = await link.open(b"exec")
        await peer.expect(frames.OPEN)
        with anyio.move_on_after(0.02):
            await channel.send(LARGE)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(link.open, b"exec", b"next")
            got = b""
            while (heard := await peer.hear())[1] == frames.DATA:
                got += heard[2]
            assert got == LARGE
            assert heard == (2, frames.OPEN, frames.pack([b"exec", b"next"]))


async def test_two_senders_and_one_is_cancelled() -> None:
    """Whoever waits for its frames to be sent takes over from the one that sent them."""
    async with conversation(room=1000) as (link, peer):
        first, second = await link.open(b"exec"), await link.open(b"exec")
        async with anyio.create_task_group() as tasks:
            with anyio.CancelScope() as scope:

                async def leave() -> None:
                    await anyio.wait_all_tasks_blocked()
                    tasks.start_soon(second.send, b"mine")
                    await anyio.wait_all_tasks_blocked()
                    scope.cancel()

                tasks.start_soon(leave)
                await first.send(LARGE)
            assert await peer.expect(frames.DATA, second.number) == b"mine"


async def test_what_a_cancelled_sender_leaves_behind() -> None:
    """What others need to have sent goes out, though nobody but a reader is left."""
    async with conversation(room=400_000) as (link, peer), anyio.create_task_group() as tasks:
        call = await link.open(b"code", data=b"s" * (frames.WINDOW + 10))
        sender = await link.open(b"exec")
        tasks.start_soon(_take_all, call)
        await anyio.wait_all_tasks_blocked()
        with anyio.CancelScope() as scope:

            async def grant() -> None:
                await anyio.wait_all_tasks_blocked()
                await peer.stream.send(frames.credit(call.number, 100))
                await anyio.wait_all_tasks_blocked()
                scope.cancel()

            tasks.start_soon(grant)
            while True:
                await sender.send(LARGE)
        left = frames.WINDOW + 10
        while left:
            left -= len(await peer.expect(frames.DATA, call.number))
        await peer.expect(frames.EOF, call.number)
        await peer.result(call.number)


async def _take_all(channel: Channel) -> None:
    while await channel.receive() is not None:
        pass


@pytest.mark.parametrize("kind", [PartStream, WholeStream])
async def test_reading_while_sending(kind: type[WholeStream]) -> None:
    """A peer that takes nothing before it has said everything is heard meanwhile."""
    async with conversation(kind, room=32 * 1024) as (link, peer):
        quiet = await link.open(b"exec")
        loud = await link.open(b"exec")
        for _ in range(2):
            await peer.expect(frames.OPEN)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(quiet.send, LARGE)
            await anyio.wait_all_tasks_blocked()
            await peer.say(loud.number, frames.DATA, b"x" * 200_000)
            got = 0
            while got < len(LARGE):
                got += len(await peer.expect(frames.DATA, quiet.number))
        assert await loud.receive()


async def test_sends_that_cannot_be_parted(short_grace: None) -> None:
    """A cancelled send of a whole has the grace; after that the link is lost, inside of a frame."""
    async with conversation(StuckStream) as (link, peer):
        channel, other = await link.open(b"exec"), await link.open(b"exec")
        stream = peer.other
        assert isinstance(stream, StuckStream)
        stream.stuck = True
        with anyio.move_on_after(0.01) as scope:
            await channel.send(b"data")
        assert scope.cancelled_caught
        assert link.lost is not None
        with pytest.raises(LinkLost, match="inside of a frame"):
            await other.receive()
        assert stream.closed


async def test_a_whole_send_that_finishes_in_time() -> None:
    """A cancelled send of a whole that ends within the grace leaves the link as it was."""
    async with conversation(WholeStream, room=100_000) as (link, peer):
        channel = await link.open(b"exec")
        await peer.expect(frames.OPEN)
        async with anyio.create_task_group() as tasks:
            with anyio.CancelScope() as scope:

                async def take_later() -> None:
                    await anyio.wait_all_tasks_blocked()
                    scope.cancel()
                    got = 0
                    while got < len(LARGE):
                        got += len(await peer.expect(frames.DATA))

                tasks.start_soon(take_later)
                await channel.send(LARGE)
        assert link.lost is None


async def test_the_buffer_is_bounded() -> None:
    """However many calls send at once, what waits for a slow stream stays near 1 MiB."""
    async with conversation(room=3000) as (link, _), anyio.create_task_group() as tasks:
        channels = [await link.open(b"exec") for _ in range(40)]
        for channel in channels:
            tasks.start_soon(channel.send, LARGE)
        await anyio.wait_all_tasks_blocked()
        assert link.waiting <= MOST_WAITING + 2 * frames.PAYLOAD_MAX
        tasks.cancel_scope.cancel()


async def test_a_request_that_is_too_large() -> None:
    """Arguments and variables beyond 4 MiB are refused, and the link works on."""
    async with conversation() as (link, peer):
        with pytest.raises(ConfigurationError, match="4194304"):
            await link.open(b"exec", b"x" * 2**22)
        await link.open(b"exec")
        assert await peer.expect(frames.OPEN) == frames.pack([b"exec"])


async def test_a_stream_that_is_broken_already() -> None:
    """A request that cannot have left entire was not started."""
    async with conversation() as (link, peer):
        await peer.stream.aclose()
        with pytest.raises(LinkLost) as caught:
            await link.open(b"exec")
        assert caught.value.outcome == "not_started"
