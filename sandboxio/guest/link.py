"""The host's side of the link: many calls over one byte stream to the agent in a sandbox.

There is no task in the background. Whoever waits for something reads the stream for all others
meanwhile, and leaves that to another one when it has what it wants, or goes away. Everything that
arrives is taken for the words of an attacker: what breaks a rule closes the link.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Self

import anyio
import anyio.lowlevel

from sandboxio.core.errors import ConfigurationError, LinkLost
from sandboxio.core.lifecycle import undone
from sandboxio.guest import _link_facts as greeting
from sandboxio.guest import frames
from sandboxio.guest._link_channel import Channel
from sandboxio.guest._link_sending import CLOSED, ByteStream, Outgoing
from sandboxio.guest._link_turns import Turns, Waiter
from sandboxio.guest.frames import RuleBroken

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sandboxio.core.errors import Outcome

__all__ = ["ByteStream", "Channel", "Link"]

READ_BYTES = 256 * 1024
_LOOK_SECONDS = 0.05


class Link:
    """One stream to an agent, after its handshake; made by `begin()`."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._out = Outgoing(stream, self._lose)
        self._reading = Turns()
        self._decoder = frames.Decoder()
        self._channels: dict[int, Channel] = {}
        self._number = 0
        self._token = anyio.lowlevel.current_token()
        self._pid = os.getpid()
        self._greeting: greeting.Facts | None = None
        self._beginners: list[Waiter] = []
        self._pong_at = 0
        self._pings: list[bytes] = []
        self._cause: Exception | None = None
        self._buried = False
        self._heard = 0.0
        self.lost: LinkLost | None = None
        """Why the link is closed, once it is."""

    @classmethod
    async def begin(cls, stream: ByteStream, settings: Mapping[str, str | bytes]) -> Self:
        """Say hello, and wait for the agent's answer.

        When this fails or is cancelled, the stream is closed.

        Raises:
            LinkLost: there is no agent at the other end, or none that keeps to the protocol.
        """
        link = cls(stream)
        try:
            link.put(0, frames.HELLO, greeting.hello(settings))
            await link.flush()
            await link.until(lambda: link._greeting is not None, link._beginners)
            if link._greeting is None:
                await link.require("not_started")
        except BaseException:
            await link.aclose()
            raise
        return link

    # What the agent said of itself.

    @property
    def facts(self) -> Mapping[str, str]:
        return self._said.single

    @property
    def interfaces(self) -> frozenset[str]:
        """The network interfaces of the sandbox."""
        return self._said.interfaces

    @property
    def programs(self) -> frozenset[str]:
        """The interpreters there are."""
        return self._said.programs

    @property
    def name(self) -> str:
        """The agent's name for this link."""
        return self._said.single["link"]

    @property
    def _said(self) -> greeting.Facts:
        if self._greeting is None:
            raise ConfigurationError("The link has not begun yet.")
        return self._greeting

    def usable_here(self) -> bool:
        """Whether this is the process and the event loop that it belongs to."""
        return self._pid == os.getpid() and self._token == anyio.lowlevel.current_token()

    @property
    def quiet_for(self) -> float:
        """Seconds since something arrived; nothing is missing while no channel is open."""
        return time.monotonic() - self._heard

    @property
    def is_idle(self) -> bool:
        """Whether no channel is open."""
        return not self._channels

    @property
    def waiting(self) -> int:
        """Bytes that have not been sent yet."""
        return self._out.told - self._out.sent

    # Channels.

    async def open(self, *fields: bytes, data: bytes | None = None) -> Channel:
        """Ask for a service; `data` and its end follow at once, as far as credit reaches.

        Raises:
            ConfigurationError: the request is larger than a frame can be.
        """
        payload = frames.pack(fields)
        if len(payload) > frames.OPEN_MAX:
            raise ConfigurationError(
                f"The arguments and variables of a call are more than {frames.OPEN_MAX} bytes.",
                hint="Pass data with stdin=, or in a file with sb.files.write().",
            )
        await self.room()
        await self.require("not_started")
        channel = self._new_channel()
        self.put(channel.number, frames.OPEN, payload)
        needed = self._out.told
        if data is not None:
            channel.offer(data)
        try:
            await self.flush()
        except BaseException:
            await undone(channel.finish)
            raise
        if self._out.sent < needed:
            await self.require("not_started")  # a part of a frame starts nothing
        return channel

    def _new_channel(self) -> Channel:
        self._number += 1
        if self._number >= frames.CHANNEL_MAX:
            self._lose("its channels are used up", None)
        channel = self._channels[self._number] = Channel(self, self._number)
        return channel

    async def ping(self) -> None:
        """Return once the agent has answered; raises `LinkLost` where nobody is left."""
        payload = os.urandom(8)
        self._pings.append(payload)
        self.put(0, frames.PING, payload)
        await self.flush()
        await self.until(lambda: payload not in self._pings, self._beginners)
        if payload in self._pings:
            await self.require("not_started")

    async def aclose(self) -> None:
        """Close the stream; the agent ends what is still under way."""
        self._lose("it was closed", None)
        await self._bury()

    async def close(self, reason: str) -> None:
        """Close the link because the agent does not do what it has to."""
        self._lose(reason, None)
        await self._bury()

    # For channels: sending.

    def put(self, channel: int, kind: int, payload: bytes | memoryview = b"") -> None:
        """Add a frame to what is to be sent; nothing goes out before a flush."""
        header = frames.header(channel, kind, len(payload))
        self._out.put(header, payload) if payload else self._out.put(header)

    def put_whole(self, frame: bytes) -> None:
        self._out.put(frame)

    async def room(self) -> None:
        """Wait until the buffer takes more."""
        while self._out.full and self.lost is None:
            await self.flush()

    async def flush(self) -> None:
        """Return once all that is in the buffer now has been sent, by whomever, or can never be."""
        out = self._out
        target = out.told
        try:
            while not out.reached(target):
                if out.turns.busy:
                    await out.turns.wait(lambda: out.reached(target))
                elif not await out.attempt(target):
                    await self._send_and_receive(target)
        finally:
            out.turns.pass_on()

    async def _send_and_receive(self, target: int) -> None:
        """Send while reading: the other side may take nothing before it has said something."""
        self._out.turns.busy = True
        try:
            async with anyio.create_task_group() as tasks:

                async def send() -> None:
                    await self._out.drain(target)
                    tasks.cancel_scope.cancel()

                tasks.start_soon(send)
                await self.until(lambda: self._out.reached(target), [])
        finally:
            self._out.turns.busy = False

    # For channels: receiving.

    async def until(self, ready: Callable[[], bool], among: list[Waiter]) -> None:
        """Return once something holds, or the link is lost; read for all while waiting.

        `among` is where waiters are looked for when something arrives that may concern them.
        """
        if ready():
            return

        def over() -> bool:
            return self.lost is not None or ready()

        try:
            while not over():
                if self._out.idle:
                    await self.flush()
                elif self._reading.busy:
                    await self._reading.wait(over, among)
                else:
                    await self._read()
            if self._out.idle:  # answers to what was read for others
                await self._out.attempt(self._out.told)
        finally:
            self._reading.pass_on()
        if self.lost is not None:
            await self._bury()

    async def _read(self) -> None:
        self._reading.busy = True
        data = b""
        try:
            if not self.waiting:
                data = await self._stream.receive(READ_BYTES)
            else:  # whoever sends it may be cancelled, and leave that to us
                with anyio.move_on_after(_LOOK_SECONDS):
                    data = await self._stream.receive(READ_BYTES)
        except anyio.EndOfStream:
            self._lose("the connection ended", None)
        except CLOSED as exc:
            self._lose("the connection broke", exc)
        else:
            if data:
                self._take(data)
        finally:
            self._reading.busy = False

    def _take(self, data: bytes) -> None:
        try:
            for number, kind, payload in self._decoder.feed(data):
                if self.lost is not None:
                    return
                self._dispatch(number, kind, payload)
        except RuleBroken as exc:
            self._lose(f"the agent broke its protocol: {exc}", None)
        self._heard = time.monotonic()

    def _dispatch(self, number: int, kind: int, payload: bytes) -> None:
        if self._greeting is None and kind != frames.HELLO:
            raise RuleBroken("something came before HELLO")
        if not number:
            self._hear(kind, payload)
            return
        channel = self._channels.get(number)
        if channel is None:
            raise RuleBroken("a frame came on a channel that is not open")
        channel.incoming(kind, payload)
        if kind == frames.RESULT:
            del self._channels[number]
        self._wake(channel.watchers)

    def _hear(self, kind: int, payload: bytes) -> None:
        if kind == frames.HELLO:
            if self._greeting is not None:
                raise RuleBroken("HELLO came twice")
            self._greeting = greeting.read(payload)
        elif kind == frames.PONG:
            if payload not in self._pings:
                raise RuleBroken("PONG came without its PING")
            self._pings.remove(payload)
        elif self._out.reached(self._pong_at):  # one answer waits at most, whoever asks again
            self.put(0, frames.PONG, payload)
            self._pong_at = self._out.told
        self._wake(self._beginners)

    def _wake(self, watchers: list[Waiter]) -> None:
        for waiter in watchers:
            if waiter.ready():
                self._reading.wake(waiter)

    # The end.

    async def require(self, outcome: Outcome = "unknown") -> None:
        """Raise what has become of the link, if it is lost."""
        if self.lost is not None:
            await self._bury()
            raise LinkLost(self.lost.message, outcome=outcome) from self._cause

    def _lose(self, reason: str, cause: Exception | None) -> None:
        if self.lost is None:
            self.lost = LinkLost(f"The link to the sandbox is closed: {reason}.", outcome="unknown")
            self._cause = cause
            self._out.close()
            self._reading.wake_all()

    async def _bury(self) -> None:
        if not self._buried:
            self._buried = True
            await undone(self._stream.aclose)
