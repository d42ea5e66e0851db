"""Part of the agent: one stream to a host."""

from __future__ import annotations

import os
import select
import struct

from sandboxio.guest._agent_wire import (
    CREDIT,
    DATA,
    END,
    EOF,
    HEADER,
    HELLO,
    LENGTH,
    OPEN,
    OPEN_MAX,
    PAYLOAD_MAX,
    PING,
    PONG,
    SIGNAL,
    Invalid,
    header,
    pack,
    unpack,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections import deque
    from typing import Any

    from sandboxio.guest._agent_call import Channel
    from sandboxio.guest.agent import Agent
else:  # what they wrap is there already, and they take long to import
    from _collections import deque

FULL, LOW = 1024 * 1024, 256 * 1024


class Link:
    """One stream to a host, and the channels it has opened."""

    def __init__(self, agent: Agent, rfd: int, wfd: int, name: bytes) -> None:
        self.agent = agent
        self.rfd, self.wfd = rfd, wfd
        self.name = name
        self.greeted = False
        self.gone = False
        self.last = 0
        self.channels: dict[int, Channel] = {}
        self.buffer = bytearray()
        self.out: deque[Any] = deque()
        self.size = 0
        self.full = False
        self.flushing = False
        os.set_blocking(rfd, False)
        os.set_blocking(wfd, False)
        agent.watch(rfd, select.EPOLLIN, self.ready)
        if wfd != rfd:
            agent.watch(wfd, 0, self.ready)

    # Sending: gathered during a turn of the loop, written at its end.

    def send(self, channel: int, kind: int, payload: bytes) -> None:
        if self.gone:
            return
        self.out.append(header(channel, kind, len(payload)))
        if payload:
            self.out.append(payload)
        self.size += HEADER.size + len(payload)
        self.full = self.full or self.size >= FULL
        self.agent.dirty.add(self)

    def flush(self) -> None:
        try:
            while self.out:
                batch = [self.out[i] for i in range(min(len(self.out), 64))]
                sent = os.writev(self.wfd, batch)
                self.size -= sent
                self.drop(sent)
        except BlockingIOError:
            pass
        except OSError:
            self.close()
            return
        if bool(self.out) != self.flushing:
            self.flushing = bool(self.out)
            self.interest()
        if self.full and self.size <= LOW:
            self.full = False
            for channel in list(self.channels.values()):
                channel.refresh()

    def drop(self, sent: int) -> None:
        while sent:
            size = len(self.out[0])
            if size > sent:
                self.out[0] = memoryview(self.out[0])[sent:]
                return
            self.out.popleft()
            sent -= size

    def interest(self) -> None:
        write = select.EPOLLOUT if self.flushing else 0
        if self.wfd == self.rfd:
            self.agent.change(self.rfd, select.EPOLLIN | write)
        else:
            self.agent.change(self.wfd, write)

    # Receiving.

    def ready(self, fd: int, events: int) -> None:
        if fd == self.wfd and events & (select.EPOLLOUT | select.EPOLLERR):
            self.flush()
        if self.gone or fd != self.rfd or not events & ~select.EPOLLOUT:
            return
        try:
            data = os.read(self.rfd, PAYLOAD_MAX)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.close()
            return
        self.buffer += data
        try:
            self.parse()
        except (Invalid, IndexError, ValueError, struct.error):
            self.close()

    def parse(self) -> None:
        at = 0
        while len(self.buffer) - at >= HEADER.size:
            channel, word = HEADER.unpack_from(self.buffer, at)
            kind, length = word >> 24, word & 0xFFFFFF
            if length > (OPEN_MAX if kind == OPEN else PAYLOAD_MAX):
                raise Invalid
            end = at + HEADER.size + length
            if len(self.buffer) < end:
                break
            with memoryview(self.buffer) as view:
                payload = bytes(view[at + HEADER.size : end])
            at = end
            self.said(channel, kind, payload)
            if self.gone:
                return
        del self.buffer[:at]

    def said(self, channel: int, kind: int, payload: bytes) -> None:
        if kind == HELLO and not self.greeted and channel == 0:
            self.greeted = True
            self.send(0, HELLO, pack(self.agent.greet(self, unpack(payload))))
        elif not self.greeted:
            raise Invalid
        elif kind == PING and channel == 0:
            self.send(0, PONG, payload[:64])
        elif kind == OPEN:
            if channel <= self.last:
                raise Invalid
            self.last = channel
            self.agent.serve(self, channel, payload)
        elif channel in self.channels:
            self.told(self.channels[channel], kind, payload)
        elif channel == 0 or channel > self.last:
            raise Invalid

    def told(self, channel: Channel, kind: int, payload: bytes) -> None:
        if kind == DATA:
            channel.incoming(payload)
        elif kind == EOF:
            channel.closed()
        elif kind == CREDIT:
            channel.credited(*LENGTH.unpack(payload))
        elif kind == SIGNAL:
            channel.signal(payload[0])
        elif kind == END:
            channel.end()
        else:
            raise Invalid

    def close(self) -> None:
        """The stream has ended, or has to: nobody waits for what is under way."""
        if self.gone:
            return
        self.gone = True
        self.out.clear()
        self.size, self.full = 0, False
        for fd in {self.rfd, self.wfd}:
            self.agent.forget(fd)
            os.close(fd)
            if fd < 3:  # these numbers are never given to anything else
                os.open("/dev/null", os.O_RDWR)
        for channel in list(self.channels.values()):
            channel.end()
        self.agent.left(self)
