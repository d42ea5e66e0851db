"""Who reads for all: whoever waits, until another one has to."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel
import pytest

from sandboxio.core.errors import LinkLost
from sandboxio.core.lifecycle import undone
from sandboxio.guest import frames
from sandboxio.guest.link import Link
from tests.link.peer import PartStream, WholeStream, conversation, ends
from tests.stepwise import cancel_at_each_await

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sandboxio.guest.link import Channel

pytestmark = pytest.mark.anyio


async def output(channel: Channel) -> bytes:
    """Return all that a call says, and leave it in order if that is cut short."""
    said = b""
    try:
        while (piece := await channel.receive()) is not None:
            said += piece[1]
    finally:
        if channel.result is None:
            await undone(channel.abandon)
    return said


def echo(number: int, _: list[bytes]) -> Mapping[int, bytes]:
    return {frames.DATA: b"%d" % number, frames.ERROUT: b"!"}


async def test_the_leader_has_what_it_wants() -> None:
    """When the call that reads for all is over, another one reads on."""
    async with conversation() as (link, peer), anyio.create_task_group() as tasks:
        first, second = await link.open(b"exec"), await link.open(b"exec")
        said = list[bytes]()

        async def hear(channel: Channel) -> None:
            said.append(await output(channel))

        tasks.start_soon(hear, first)
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(hear, second)
        await anyio.wait_all_tasks_blocked()
        await peer.result(1)
        await anyio.wait_all_tasks_blocked()
        await peer.say(2, frames.DATA, b"late")
        await peer.result(2)
        await anyio.wait_all_tasks_blocked()
        assert said == [b"", b"late"]


async def test_the_leader_is_cancelled() -> None:
    """When the call that reads for all is cancelled, another one reads on."""
    async with conversation() as (link, peer), anyio.create_task_group() as tasks:
        first, second = await link.open(b"exec"), await link.open(b"exec")
        scope = anyio.CancelScope()

        async def lead() -> None:
            with scope:
                await first.receive()

        tasks.start_soon(lead)
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(second.receive)
        await anyio.wait_all_tasks_blocked()
        scope.cancel()
        await anyio.wait_all_tasks_blocked()
        await peer.say(2, frames.DATA, b"x")


async def test_a_successor_that_is_cancelled_as_well() -> None:
    """When whoever was to read on is cancelled before it has begun to, a third one does."""
    async with conversation() as (link, peer), anyio.create_task_group() as tasks:
        channels = [await link.open(b"exec") for _ in range(3)]
        scopes = [anyio.CancelScope(), anyio.CancelScope(), anyio.CancelScope()]

        async def wait(number: int) -> None:
            with scopes[number]:
                await channels[number].receive()

        for number in range(3):
            tasks.start_soon(wait, number)
            await anyio.wait_all_tasks_blocked()
        scopes[0].cancel()
        scopes[1].cancel()
        await anyio.wait_all_tasks_blocked()
        await peer.say(3, frames.DATA, b"x")


@pytest.mark.parametrize("kind", [PartStream, WholeStream])
async def test_cancelled_at_each_await(kind: type[WholeStream]) -> None:
    """A call that is cancelled at any of its awaits leaves every other one as it was."""
    async with conversation(kind) as (link, peer), anyio.create_task_group() as service:
        service.start_soon(peer.serve, echo)
        said = dict[int, bytes]()

        async def other() -> None:
            channel = await link.open(b"exec")
            said[channel.number] = await output(channel)

        async with anyio.create_task_group() as others:

            async def call() -> None:
                others.start_soon(other)
                channel = await link.open(b"exec", data=b"source")
                others.start_soon(other)
                await output(channel)

            assert await cancel_at_each_await(call) >= 2
        assert said == {number: b"%d!" % number for number in said}
        assert len(said) > 4
        assert link.lost is None
        service.cancel_scope.cancel()


async def test_a_cancelled_receive_takes_nothing() -> None:
    """What a reader was about to get when it was cancelled, it gets when it asks again."""
    async with conversation() as (link, peer):
        channel = await link.open(b"exec")
        got = b""

        async def read() -> None:
            nonlocal got
            piece = await channel.receive()
            assert piece is not None
            got += piece[1]

        for number in range(5):
            await peer.say(1, frames.DATA, b"%d" % number)
            await cancel_at_each_await(read)
        assert got == b"01234"


async def test_both_ends_of_one_call_wait() -> None:
    """One task may read a call's output while another waits for credit to send."""
    async with conversation() as (link, peer), anyio.create_task_group() as tasks:
        channel = await link.open(b"exec")
        tasks.start_soon(channel.send, b"x" * 300_000)
        tasks.start_soon(channel.receive)
        await peer.expect(frames.DATA)
        await anyio.wait_all_tasks_blocked()
        await peer.stream.send(frames.credit(1, 100_000))
        assert len(await peer.expect(frames.DATA)) == 300_000 - frames.WINDOW
        await peer.say(1, frames.DATA, b"x")


async def test_everybody_hears_of_the_end() -> None:
    """All who wait, for whatever, hear that the link is lost."""
    async with conversation() as (link, peer):
        lost = list[LinkLost]()

        async def call() -> None:
            channel = await link.open(b"exec")
            try:
                await channel.receive()
            except LinkLost as exc:
                lost.append(exc)

        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(call)
            await anyio.wait_all_tasks_blocked()
            await peer.stream.aclose()
        assert len({id(one) for one in lost}) == 20


async def test_a_link_that_is_closed_here() -> None:
    """Whoever waits when the link is closed hears that it is."""
    async with conversation() as (link, _), anyio.create_task_group() as tasks:
        channel = await link.open(b"exec")

        async def close() -> None:
            await anyio.wait_all_tasks_blocked()
            await link.aclose()

        tasks.start_soon(close)
        with pytest.raises(LinkLost, match="it was closed"):
            await channel.receive()


async def test_where_a_link_belongs() -> None:
    """It is usable in the loop that it was begun in, and in no other."""
    async with conversation() as (link, _):
        assert link.usable_here()
        elsewhere = list[bool]()

        async def ask() -> None:
            await anyio.lowlevel.checkpoint()
            elsewhere.append(link.usable_here())

        thread = threading.Thread(target=anyio.run, args=(ask,))
        thread.start()
        await anyio.to_thread.run_sync(thread.join)
        assert elsewhere == [False]


async def test_after_a_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not usable in another process."""
    async with conversation() as (link, _):
        monkeypatch.setattr(os, "getpid", lambda: -1)
        assert not link.usable_here()
        monkeypatch.undo()


async def test_the_caller_bounds_the_handshake() -> None:
    """A peer that says nothing is waited for as long as the caller wants; then all is closed."""
    stream, _ = ends()
    with anyio.move_on_after(0.01) as scope:
        await Link.begin(stream, {})
    assert scope.cancelled_caught
    assert stream.closed
