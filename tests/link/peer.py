"""The agent's side of a link, scripted; and the stream between both."""

from __future__ import annotations

import math
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel

from sandboxio.guest import frames
from sandboxio.guest.link import Link

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping

DONE = (b"ok", b"0", b"0", b"0", b"0", b"1", b"1", b"2", b"1024")
"""The result of a call that succeeds."""
FACTS = ("link=7.1", "warm=1", "root=1", "interface=lo", "program=python3", "program=bash")


class Pipe:
    """One direction: bytes in order, at most so many under way."""

    def __init__(self, room: float = math.inf) -> None:
        self._data = bytearray()
        self._room = room
        self._ended = False
        self._changed = anyio.Event()

    def _change(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    async def take(self, most: int) -> bytes:
        while not self._data:
            if self._ended:
                raise anyio.EndOfStream
            await self._changed.wait()
        data = bytes(self._data[:most])
        del self._data[:most]
        self._change()
        return data

    async def put(self, view: memoryview) -> int:
        while len(self._data) >= self._room:
            self._require()
            await self._changed.wait()
        self._require()
        count = int(min(len(view), self._room - len(self._data)))
        self._data += view[:count]
        self._change()
        return count

    def _require(self) -> None:
        if self._ended:
            raise anyio.BrokenResourceError

    def end(self) -> None:
        self._ended = True
        self._change()


class WholeStream:
    """One end of a connection, which sends all or waits; what is cancelled in between is lost."""

    def __init__(self, incoming: Pipe, outgoing: Pipe) -> None:
        self._incoming, self._outgoing = incoming, outgoing
        self.closed = False

    async def receive(self, max_bytes: int = 65536) -> bytes:
        await anyio.lowlevel.checkpoint()
        if self.closed:
            raise anyio.ClosedResourceError
        return await self._incoming.take(max_bytes)

    async def send(self, item: bytes) -> None:
        await anyio.lowlevel.checkpoint()
        view = memoryview(item)
        while view:
            view = view[await self._put(view) :]

    async def _put(self, view: memoryview) -> int:
        if self.closed:
            raise anyio.ClosedResourceError
        return await self._outgoing.put(view)

    async def aclose(self) -> None:
        self.closed = True
        self._incoming.end()
        self._outgoing.end()
        await anyio.lowlevel.checkpoint()


class PartStream(WholeStream):
    """The same, which also sends in part."""

    async def send_some(self, view: memoryview) -> int:
        await anyio.lowlevel.checkpoint_if_cancelled()
        return await self._put(view)


class Peer:
    """What a test has the agent hear and say."""

    def __init__(self, stream: WholeStream, other: WholeStream) -> None:
        self.stream = stream
        self.other = other
        """The host's end."""
        self._decoder = frames.Decoder(frames.FROM_HOST)
        self._heard: list[frames.Frame] = []
        self.hello: list[bytes] = []

    async def hear(self) -> frames.Frame:
        """Return the next frame, or piece of `DATA`, from the host."""
        while not self._heard:
            self._heard = list(self._decoder.feed(await self.stream.receive(2**20)))
        return self._heard.pop(0)

    async def expect(self, kind: int, channel: int | None = None) -> bytes:
        """Pass over frames up to one of a kind, and return its payload."""
        while True:
            number, found, payload = await self.hear()
            if found == kind and channel in (None, number):
                return payload

    async def say(self, channel: int, kind: int, payload: bytes = b"") -> None:
        await self.stream.send(frames.frame(channel, kind, payload))

    async def result(self, channel: int, *fields: bytes) -> None:
        await self.say(channel, frames.RESULT, frames.pack(fields or DONE))

    async def greet(self, facts: tuple[str, ...] = FACTS) -> None:
        self.hello = frames.unpack(await self.expect(frames.HELLO))
        fields = [frames.NAME, frames.VERSION, *(fact.encode() for fact in facts)]
        await self.say(0, frames.HELLO, frames.pack(fields))

    async def serve(self, answer: Callable[[int, list[bytes]], Mapping[int, bytes]]) -> None:
        """Answer every `OPEN` with frames and a `RESULT`, until the host is gone."""
        while True:
            try:
                channel, kind, payload = await self.hear()
                if kind == frames.OPEN:
                    for said, data in answer(channel, frames.unpack(payload)).items():
                        await self.say(channel, said, data)
                    await self.result(channel)
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                return


def ends(
    kind: type[WholeStream] = PartStream, *, room: float = math.inf
) -> tuple[WholeStream, Peer]:
    """Return a host's stream and the peer at its other end; `room` bounds what is under way."""
    there, back = Pipe(room), Pipe(room)
    stream = kind(back, there)
    return stream, Peer(PartStream(there, back), stream)


async def linked(stream: WholeStream, peer: Peer) -> Link:
    """Do the handshake."""
    links: list[Link] = []

    async def begin() -> None:
        links.append(await Link.begin(stream, {"lifetime": "300"}))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(begin)
        await peer.greet()
    return links[0]


@asynccontextmanager
async def conversation(
    kind: type[WholeStream] = PartStream, *, room: float = math.inf
) -> AsyncGenerator[tuple[Link, Peer]]:
    """Yield a link that has begun, and its peer; nothing takes longer than ten seconds."""
    stream, peer = ends(kind, room=room)
    with anyio.fail_after(10):
        link = await linked(stream, peer)
        yield link, peer
        await link.aclose()
