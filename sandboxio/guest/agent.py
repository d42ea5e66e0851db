"""The agent: what runs inside a sandbox and serves the link.

One process of root's, of a single thread, which starts commands as the sandbox's users and ends
them exactly. It needs Python 3.8 and no module outside of Debian's python3-minimal. Its source,
`_agent_*.py` before it, travels over the pipe it then serves; `docs/reference/link-protocol.md`
says what is spoken there.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import struct
import sys
import time

from sandboxio.guest._agent_start import (
    FRESH,
    Program,
    WarmInterpreter,
    capset,
    has_ctypes,
    run_program,
    run_warm,
)
from sandboxio.guest._agent_wire import (
    CREDIT,
    CREDIT_MAX,
    DATA,
    END,
    EOF,
    ERROUT,
    HEADER,
    HELLO,
    LENGTH,
    OPEN,
    OPEN_MAX,
    PAYLOAD_MAX,
    PING,
    PONG,
    RESULT,
    SIGNAL,
    WINDOW,
    Invalid,
    account,
    failed,
    header,
    number,
    pack,
    suppress,
    unpack,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    import socket
    from collections import deque
    from heapq import heappop, heappush
    from typing import Any, Callable
else:  # what they wrap is there already, and they take long to import
    import _signal as signal
    import _socket as socket
    from _collections import deque
    from _heapq import heappop, heappush

VERSION = b"1"
NAME = b"sandboxio-link"
LISTEN = ("/dev/shm/sandboxio", "/run/sandboxio")
FIRST_GROUP = 0x40000000
FULL, LOW = 1024 * 1024, 256 * 1024
PIPE = 1024 * 1024
HELLO_SECONDS = 60.0
ORPHAN_SECONDS = 30.0
SILENCE = 0.2
LAST_SECONDS, LAST_BYTES = 10.0, 16 * 1024 * 1024
DRAINED = 256
WORKERS = 8
WORKER_SECONDS = 2.0
GRANT = 64 * 1024
SWEEP_SECONDS = 0.05
IDLE_SECONDS = 0.05
F_SETPIPE_SZ = 1031


class Channel:
    """What a host opened; closed by its `RESULT`."""

    def __init__(self, link: Link, channel: int) -> None:
        self.link = link
        self.agent = link.agent
        self.channel = channel
        self.credit = WINDOW
        self.window = WINDOW
        self.over = False
        self.half_closed = False

    def credited(self, count: int) -> None:
        self.credit += count
        if self.credit > CREDIT_MAX:
            raise Invalid
        self.refresh()

    def incoming(self, data: bytes) -> None:
        self.window -= len(data)
        if self.window < 0 or self.half_closed:
            raise Invalid
        self.data(data)

    def give_back(self, count: int) -> None:
        if count and not self.over:
            self.window += count
            self.link.send(self.channel, CREDIT, LENGTH.pack(count))

    def result(self, fields: list[bytes]) -> None:
        if not self.over:
            self.over = True
            self.link.channels.pop(self.channel, None)
            self.agent.bounded.pop(self, None)
            self.link.send(self.channel, RESULT, pack(fields))

    def data(self, data: bytes) -> None:
        raise Invalid

    def closed(self) -> None:
        """The host will send no more."""

    def refresh(self) -> None:
        """Credit, or room in the link, has changed."""

    def signal(self, number: int) -> None:
        """Pass a signal on."""

    def end(self) -> None:
        self.result([b"error", b"ended", b"ended"])


class Call(Channel):
    """One command, or one piece of code, and all processes it leads to."""

    def __init__(self, link: Link, channel: int, deadline: int) -> None:
        super().__init__(link, channel)
        self.group = self.agent.next_group()
        self.pid = self.parent = 0
        self.status: int | None = None
        self.usage: Any = None
        self.stdin = -1
        self.waiting: deque[memoryview] = deque()
        self.unreturned = 0
        self.outputs: dict[int, int] = {}
        self.reading: set[int] = set()
        self.report = -1
        self.widened: set[int] = set()
        self.ended = self.complete = self.cut = False
        self.last = self.until = 0.0
        self.lingered = 0
        self.kills = self.agent.kills()
        self.agent.bounded[self] = deadline / 1000 + time.monotonic()

    def began(self, pid: int, program: Program, parent: int) -> None:
        self.pid = pid
        self.stdin, self.report = program.stdin, program.report
        self.parent = parent
        self.outputs = {program.stdout: DATA, program.stderr: ERROUT}
        for fd in self.outputs:
            self.agent.watch(fd, 0, self.readable)
        if self.stdin >= 0:
            self.agent.watch(self.stdin, 0, self.writable)
            self.writable(self.stdin, 0)
        self.refresh()
        if self.ended:
            self.sweep()

    # Standard input.

    def data(self, data: bytes) -> None:
        self.waiting.append(memoryview(data))
        if self.stdin >= 0:
            self.writable(self.stdin, 0)
        elif self.pid:
            self.forget_input()

    def closed(self) -> None:
        self.half_closed = True
        if self.stdin >= 0:
            self.writable(self.stdin, 0)

    def writable(self, fd: int, events: int) -> None:
        try:
            while self.waiting:
                sent = os.write(fd, self.waiting[0])
                self.unreturned += sent
                rest = self.waiting[0][sent:]
                if rest:
                    self.waiting[0] = rest
                else:
                    self.waiting.popleft()
        except BlockingIOError:
            pass
        except OSError:
            self.forget_input()
            return
        if self.unreturned >= GRANT or not self.waiting:
            self.give_back(self.unreturned)
            self.unreturned = 0
        if self.waiting:
            self.agent.change(fd, select.EPOLLOUT)
        elif self.half_closed:
            self.close_input()
        else:
            self.agent.change(fd, 0)

    def forget_input(self) -> None:
        """Take what nobody will read, so that its sender is not kept waiting."""
        self.close_input()
        self.give_back(self.unreturned + sum(map(len, self.waiting)))
        self.unreturned = 0
        self.waiting.clear()

    def close_input(self) -> None:
        if self.stdin >= 0:
            self.agent.forget(self.stdin)
            os.close(self.stdin)
            self.stdin = -1

    # Output.

    def refresh(self) -> None:
        wanted = self.credit > 0 and not self.link.full
        for fd in self.outputs:
            if wanted != (fd in self.reading):
                self.agent.change(fd, select.EPOLLIN if wanted else 0)
                (self.reading.add if wanted else self.reading.discard)(fd)

    def readable(self, fd: int, events: int) -> None:
        kind = self.outputs.get(fd)
        if kind is None or (not self.ended and (self.credit <= 0 or self.link.full)):
            return
        room = PAYLOAD_MAX if self.ended else min(self.credit, PAYLOAD_MAX)
        try:
            data = os.read(fd, room)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.close_output(fd)
        elif not self.ended:
            self.forward(fd, kind, data)

    def forward(self, fd: int, kind: int, data: bytes) -> None:
        self.credit -= len(data)
        self.link.send(self.channel, kind, data)
        if len(data) >= 0x10000 and fd not in self.widened:
            self.widened.add(fd)
            with suppress(OSError):  # a user's share of pipe buffers is limited
                fcntl.fcntl(fd, F_SETPIPE_SZ, PIPE)
        if self.status is not None:
            self.last = time.monotonic()
            self.lingered += len(data)
            self.cut = self.lingered > LAST_BYTES
            if self.cut:
                self.finish()
                return
        if self.credit <= 0 or self.link.full:
            self.refresh()

    def close_output(self, fd: int) -> None:
        if self.outputs.pop(fd, None) is not None:
            self.reading.discard(fd)
            self.agent.forget(fd)
            os.close(fd)
        if not self.outputs and self.status is not None:
            self.finish()

    # The end.

    def exited(self, status: int, usage: Any) -> None:
        self.status, self.usage = status, usage
        self.forget_input()
        if self.ended:
            return
        for fd in 2 * list(self.outputs):
            self.readable(fd, 0)
        if not self.outputs:
            self.finish()
        if self.over:
            return
        self.last = time.monotonic()
        self.until = self.last + LAST_SECONDS
        self.agent.later(SILENCE / 4, self.linger)

    def linger(self) -> None:
        """Wait until its children have been silent for a while, if the host takes all they say."""
        if self.over or self.ended:
            return
        now = time.monotonic()
        if self.credit <= 0 or self.link.full:
            self.until += now - max(self.last, now - SILENCE / 4)
            self.last = now
        self.cut = now >= self.until
        if self.cut or now - self.last >= SILENCE:
            self.finish()
        else:
            self.agent.later(SILENCE / 4, self.linger)

    def finish(self) -> None:
        if self.over or self.status is None or (self.ended and not self.complete):
            return
        self.forget_input()
        words = b""
        if self.report >= 0:
            with suppress(OSError):
                words = os.read(self.report, 512)
            os.close(self.report)
            self.report = -1
        for fd in list(self.outputs):
            self.outputs.pop(fd)
            self.agent.drain(fd)
        self.agent.calls.pop(self.pid, None)
        if words and not self.ended:
            self.result([b"error"] + words.split(b"\0", 1))
        else:
            self.result(self.verdict())
        self.agent.settle(self)

    def verdict(self) -> list[bytes]:
        status = self.status or 0
        code = 128 + (status & 0x7F) if status & 0x7F else status >> 8
        oom = code == 137 and not self.ended and self.agent.kills() > self.kills
        usage = self.usage
        return [
            b"ok",
            b"%d" % code,
            b"%d" % self.cut,
            b"%d" % oom,
            b"%d" % self.ended,
            b"%d" % self.complete,
            b"%d" % (usage.ru_utime * 1000 if usage else 0),
            b"%d" % (usage.ru_stime * 1000 if usage else 0),
            b"%d" % (usage.ru_maxrss if usage else 0),
        ]

    def failed(self, fields: list[bytes]) -> None:
        """It could not be started."""
        self.forget_input()
        self.complete = True
        self.result(fields)
        self.agent.settle(self)

    def signal(self, number: int) -> None:
        """Send a signal to the command and what shares its process group."""
        if self.pid and self.status is None:
            with suppress(OSError):
                os.killpg(self.pid, number)

    def end(self) -> None:
        if self.over or self.ended:
            return
        self.ended = True
        self.forget_input()
        for fd in list(self.outputs):
            self.agent.change(fd, select.EPOLLIN)
        if self.pid:
            self.sweep()

    def sweep(self) -> None:
        """Kill what belongs to the call until two looks in a row find nothing."""
        if self.status is None and parent_of(self.pid) == self.parent:
            with suppress(OSError):
                os.kill(self.pid, signal.SIGKILL)
        if self.agent.sweep(self.group):
            self.complete = True
            self.agent.reap()
            if self.status is None:
                self.agent.later(0.001, self.sweep)
            else:
                self.finish()
        else:
            self.agent.later(0.001, self.sweep)


class Work(Channel):
    """One operation on files, carried out by a worker."""

    def __init__(self, link: Link, channel: int, request: bytes) -> None:
        super().__init__(link, channel)
        self.worker: Worker | None = None
        self.request = request
        self.early: list[tuple[int, bytes]] = []
        self.ended = False

    def begin(self, worker: Worker) -> None:
        self.worker = worker
        worker.send(self.channel, OPEN, self.request)
        for kind, payload in self.early:
            worker.send(self.channel, kind, payload)
        self.early = []

    def data(self, data: bytes) -> None:
        self.pass_on(DATA, data)

    def closed(self) -> None:
        self.half_closed = True
        self.pass_on(EOF, b"")

    def pass_on(self, kind: int, payload: bytes) -> None:
        if self.worker is None:
            self.early.append((kind, payload))
        else:
            self.worker.send(self.channel, kind, payload)

    def refresh(self) -> None:
        if self.worker is not None:
            self.worker.refresh()

    def end(self) -> None:
        if self.ended or self.over:
            return
        self.ended = True
        if self.worker is None:
            self.agent.queued.remove(self)
            self.result([b"error", b"ended", b"ended"])
        else:
            self.worker.send(self.channel, END, b"")
            self.worker.refresh()
            self.agent.later(WORKER_SECONDS, self.worker.overdue(self))


class Worker:
    """A process that works on files; see `_agent_files`."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.work: Work | None = None
        ours, theirs = socket.socketpair()
        self.pid = agent.fork(lambda: worker_main(theirs))
        theirs.close()
        ours.setblocking(False)
        self.sock = ours
        self.fd = ours.fileno()
        self.out: deque[memoryview] = deque()
        self.sizes: deque[tuple[int, int]] = deque()
        self.buffer = bytearray()
        agent.watch(self.fd, select.EPOLLIN, self.ready)

    def take(self, work: Work) -> None:
        self.work = work
        work.begin(self)

    def send(self, channel: int, kind: int, payload: bytes) -> None:
        self.out.append(memoryview(header(channel, kind, len(payload)) + payload))
        self.sizes.append((len(payload) + HEADER.size, len(payload) if kind == DATA else 0))
        self.flush()

    def flush(self) -> None:
        try:
            while self.out:
                sent = self.sock.send(self.out[0])
                rest = self.out[0][sent:]
                if rest:
                    self.out[0] = rest
                    break
                self.out.popleft()
                _, credit = self.sizes.popleft()
                if self.work is not None:
                    self.work.give_back(credit)
        except BlockingIOError:
            pass
        except OSError:
            self.gone()
            return
        self.refresh()

    def refresh(self) -> None:
        events = select.EPOLLOUT if self.out else 0
        if self.may_read():
            events |= select.EPOLLIN
        self.agent.change(self.fd, events)

    def may_read(self) -> bool:
        work = self.work
        return work is None or work.ended or (work.credit >= GRANT and not work.link.full)

    def ready(self, fd: int, events: int) -> None:
        if events & select.EPOLLOUT:
            self.flush()
        if not events & ~select.EPOLLOUT or not self.may_read():
            return
        try:
            data = self.sock.recv(GRANT + HEADER.size)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.gone()
            return
        self.buffer += data
        self.parse()

    def parse(self) -> None:
        while len(self.buffer) >= HEADER.size and self.may_read():
            channel, word = HEADER.unpack_from(self.buffer)
            end = HEADER.size + (word & 0xFFFFFF)
            if len(self.buffer) < end:
                break
            payload = bytes(self.buffer[HEADER.size : end])
            del self.buffer[:end]
            self.said(channel, word >> 24, payload)
        self.refresh()

    def said(self, channel: int, kind: int, payload: bytes) -> None:
        work = self.work
        if work is None or channel != work.channel:
            return
        if kind == DATA and not work.ended:
            work.credit -= len(payload)
            work.link.send(channel, DATA, payload)
        elif kind == RESULT:
            self.work = None
            self.out.clear()
            self.sizes.clear()
            work.result(unpack(payload))
            self.agent.free(self)

    def overdue(self, work: Work) -> Callable[[], None]:
        def check() -> None:
            if self.work is work:
                with suppress(OSError):
                    os.kill(self.pid, signal.SIGKILL)

        return check

    def gone(self) -> None:
        self.agent.forget(self.fd)
        self.sock.close()
        work, self.work = self.work, None
        if work is not None:
            name = b"ended" if work.ended else b"busy"
            work.result([b"error", name, b"the operation was killed"])
        self.agent.lost(self)


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
        except (Invalid, ValueError, struct.error):
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
            payload = bytes(self.buffer[at + HEADER.size : end])
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


class Agent:
    """The loop, the processes and what bounds them."""

    def __init__(self) -> None:
        self.poll = select.epoll()
        self.handlers: dict[int, Callable[[int, int], None]] = {}
        self.masks: dict[int, int] = {}
        self.timers: list[tuple[float, int, Callable[[], None]]] = []
        self.order = 0
        self.links: set[Link] = set()
        self.dirty: set[Link] = set()
        self.calls: dict[int, Call] = {}
        self.bounded: dict[Channel, float] = {}
        self.checked = 0.0
        self.unsettled: dict[bytes, int] = {}
        self.group = FIRST_GROUP
        self.serial = 0
        self.workers: set[Worker] = set()
        self.idle: list[Worker] = []
        self.queued: list[Work] = []
        self.drained: deque[int] = deque()
        self.warm: WarmInterpreter | None = None
        self.warmable = False
        self.settings: dict[bytes, bytes] = {}
        self.facts: list[bytes] = []
        self.account: tuple[int, int, list[int]] = (65534, 65534, [])
        self.user = b""
        self.alone = 0.0
        self.orphan = ORPHAN_SECONDS
        self.end_at = time.monotonic() + HELLO_SECONDS
        self.counters = [path for path in OOM_COUNTERS if os.path.exists(path)]
        self.listener: socket.socket | None = None

    # The loop.

    def watch(self, fd: int, events: int, handler: Callable[[int, int], None]) -> None:
        self.handlers[fd] = handler
        self.masks[fd] = events
        self.poll.register(fd, events)

    def change(self, fd: int, events: int) -> None:
        if fd in self.masks and self.masks[fd] != events:
            self.masks[fd] = events
            self.poll.modify(fd, events)

    def forget(self, fd: int) -> None:
        if self.handlers.pop(fd, None) is not None:
            self.masks.pop(fd, None)
            with suppress(OSError):
                self.poll.unregister(fd)

    def later(self, seconds: float, act: Callable[[], None]) -> None:
        self.order += 1
        heappush(self.timers, (time.monotonic() + seconds, self.order, act))

    def run(self) -> None:
        before = time.monotonic()
        while True:
            for link in list(self.dirty):
                link.flush()
            self.dirty.clear()
            wait = 1.0
            if self.timers:
                wait = min(wait, max(0.0, self.timers[0][0] - time.monotonic()))
            for fd, events in self.poll.poll(wait, 64):
                handler = self.handlers.get(fd)
                if handler is not None:
                    if not self.masks.get(fd) and events & (select.EPOLLHUP | select.EPOLLERR):
                        self.idle_hangup(fd)
                    handler(fd, events)
            now = time.monotonic()
            while self.timers and self.timers[0][0] <= now:
                heappop(self.timers)[2]()
            self.bound(now, min(now - before, 2.0))
            before = now

    def idle_hangup(self, fd: int) -> None:
        """A descriptor that nobody wants to read has been hung up: it is not to wake us again."""
        with suppress(OSError):
            self.poll.modify(fd, select.EPOLLIN | select.EPOLLET)

    def bound(self, now: float, passed: float) -> None:
        """End the sandbox when its time, or the patience with no link at all, is over."""
        self.alone = 0.0 if self.links else self.alone + passed
        if now >= self.end_at or self.alone >= self.orphan:
            leave()
        if now - self.checked >= 1.0:
            self.checked = now
            for channel in [channel for channel, at in self.bounded.items() if at <= now]:
                channel.end()

    # Links.

    def listen(self) -> None:
        for place in LISTEN:
            try:
                os.mkdir(place, 0o700)
                made = os.stat(place, follow_symlinks=False)
                if made.st_uid != 0 or made.st_mode & 0o77:
                    continue
                listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                listener.bind(place + "/link")
                listener.listen(64)
            except OSError:
                continue
            listener.setblocking(False)
            self.listener = listener
            self.watch(listener.fileno(), select.EPOLLIN, self.accept)
            return

    def accept(self, fd: int, events: int) -> None:
        assert self.listener is not None
        try:
            end: int = self.listener._accept()[0]  # type: ignore[attr-defined]
        except OSError:
            return
        sock = socket.socket(fileno=end)
        peer = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        if struct.unpack("iii", peer)[1] != 0:
            sock.close()
            return
        self.begin(sock.detach(), end)

    def begin(self, rfd: int, wfd: int) -> None:
        self.serial += 1
        self.links.add(Link(self, rfd, wfd, b"%d.%d" % (os.getpid(), self.serial)))

    def left(self, link: Link) -> None:
        self.links.discard(link)
        self.dirty.discard(link)

    def greet(self, link: Link, fields: list[bytes]) -> list[bytes]:
        if len(fields) < 2 or fields[0] != NAME or number(fields[1]) < 1:
            raise Invalid
        if not self.settings:
            self.settings = dict(
                (name, value) for name, _, value in (f.partition(b"=") for f in fields[2:])
            )
            self.prepare()
        return [NAME, VERSION, b"link=" + link.name] + self.facts

    def prepare(self) -> None:
        """Learn, from the first host, for whom and how long this is."""
        settings = self.settings
        self.end_at = time.monotonic() + float(settings.get(b"lifetime", b"3600"))
        self.orphan = float(settings.get(b"orphan", b"%d" % ORPHAN_SECONDS))
        self.user = settings.get(b"user", b"65534:65534:")
        self.account = account(self.user)
        shielded = shield(self.account)
        self.facts = [
            b"python=%d.%d.%d" % sys.version_info[:3],
            b"pid=%d" % os.getpid(),
            b"dumpable=%d" % (not shielded),
            b"root=%d" % has_ctypes(),
        ]
        self.facts += self.looked()
        self.facts.append(b"warm=%d" % (b"loader" in settings))
        self.warmable = b"loader" in settings and shielded and has_ctypes()
        self.later(IDLE_SECONDS, self.foresee)

    def foresee(self) -> None:
        """Have ready what is likely to be asked for."""
        self.start_warm()
        with suppress(OSError):
            self.add_worker()

    def start_warm(self) -> None:
        if self.warm is None and self.warmable:
            try:
                self.warm = WarmInterpreter(self.settings[b"loader"])
            except OSError:
                return
            self.watch(self.warm.fd, select.EPOLLIN, self.warm_said)

    def looked(self) -> list[bytes]:
        """Say what a process of the user has, seen by one."""
        reader, writer = os.pipe()
        uid, gid, groups = self.account

        def look() -> None:
            os.setgroups(groups)
            os.setresgid(gid, gid, gid)
            os.setresuid(uid, uid, uid)
            with open("/proc/self/status", "rb") as status:
                os.write(writer, status.read())

        self.fork(look)
        os.close(writer)
        said = b"".join(iter(lambda: os.read(reader, 65536), b""))
        os.close(reader)
        lines = [line.partition(b":") for line in said.splitlines()]
        facts = [
            b"status." + name + b"=" + value.strip()
            for name, _, value in lines
            if name[:3] == b"Cap" or name in (b"NoNewPrivs", b"Seccomp")
        ]
        with suppress(OSError), open("/proc/net/dev", "rb") as devices:
            facts += [
                b"interface=" + line.partition(b":")[0].strip()
                for line in devices.read().splitlines()[2:]
            ]
        places = os.environb.get(b"PATH", b"/usr/bin:/bin").split(b":")
        for program in (b"python3", b"python", b"bash"):
            if any(os.access(place + b"/" + program, os.X_OK) for place in places):
                facts.append(b"program=" + program)
        return facts

    # Services.

    def serve(self, link: Link, channel: int, payload: bytes) -> None:
        fields = unpack(payload)
        service = fields[0] if fields else b""
        if service == b"exec" and len(fields) >= 6:
            self.serve_exec(link, channel, fields)
        elif service == b"code" and len(fields) >= 4:
            self.serve_code(link, channel, fields)
        elif service == b"file" and len(fields) >= 5:
            self.serve_file(link, channel, fields, payload)
        elif service == b"metrics":
            Channel(link, channel).result(metrics())
        elif service == b"settled" and len(fields) == 2:
            settled = not self.unsettled.get(fields[1])
            Channel(link, channel).result([b"ok", b"%d" % settled])
        else:
            Channel(link, channel).result([b"error", b"unsupported", b"no such service"])

    def call(self, link: Link, channel: int, deadline: bytes) -> Call:
        call = Call(link, channel, number(deadline))
        link.channels[channel] = call
        self.unsettled[link.name] = self.unsettled.get(link.name, 0) + 1
        return call

    def settle(self, call: Call) -> None:
        name = call.link.name
        self.unsettled[name] -= 1
        if not self.unsettled[name]:
            del self.unsettled[name]

    def serve_exec(self, link: Link, channel: int, fields: list[bytes]) -> None:
        user, cwd, deadline, flags = fields[1:5]
        count = number(fields[5])
        argv, variables = fields[6 : 6 + count], fields[6 + count :]
        if len(argv) != count or not argv:
            raise Invalid
        call = self.call(link, channel, deadline)
        call.half_closed = b"i" not in flags
        self.execute(call, account(user), cwd, argv, variables, stdin=b"i" in flags)

    def execute(
        self,
        call: Call,
        user: tuple[int, int, list[int]],
        cwd: bytes,
        argv: list[bytes],
        variables: list[bytes],
        *,
        stdin: bool,
    ) -> None:
        try:
            if user[0] == 0:
                capset()  # once, here, and not in each child
            program = Program(user, call.group, stdin=stdin)
            try:
                pid = self.fork(lambda: run_program(program, argv, variables, cwd))
            except OSError:
                program.close_all()
                raise
            program.close_inner()
        except OSError as error:
            call.failed(failed(error))
            return
        self.calls[pid] = call
        call.began(pid, program, os.getpid())

    def serve_code(self, link: Link, channel: int, fields: list[bytes]) -> None:
        user, cwd, deadline = fields[1:4]
        call = self.call(link, channel, deadline)
        if user == self.user:
            self.start_warm()
        if user != self.user or not self.run_warm(call, user, cwd, fields[4:]):
            loader = self.settings.get(b"loader", b"") + FRESH
            argv = [b"python3", b"-u", b"-X", b"utf8", b"-c", loader]
            self.execute(call, account(user), cwd, argv, fields[4:], stdin=True)

    def run_warm(self, call: Call, user: bytes, cwd: bytes, variables: list[bytes]) -> bool:
        warm = self.warm
        if warm is None:
            return False
        program: Program | None = None
        try:
            program = Program(self.account, call.group, stdin=True)
            pid = warm.start(program)
        except (OSError, EOFError, struct.error):
            if program is not None:
                program.close_all()
            self.warm_lost()
            return False
        program.close_inner()
        self.calls[pid] = call
        request = pack([b"%d" % call.group, user, cwd] + variables)
        call.waiting.append(memoryview(LENGTH.pack(len(request)) + request))
        call.unreturned = -len(request) - 4
        call.began(pid, program, warm.pid)
        self.later(0, lambda: self.warm_said(0, 0))
        return True

    def warm_said(self, fd: int, events: int) -> None:
        warm = self.warm
        if warm is None:
            return
        try:
            for pid, status, usage in warm.ended():
                self.gone(pid, status, usage)
        except (OSError, EOFError, struct.error):
            self.warm_lost()

    def warm_lost(self) -> None:
        """Let it go; the next call starts another."""
        warm, self.warm = self.warm, None
        if warm is None:
            return
        self.forget(warm.fd)
        warm.close()

    def serve_file(self, link: Link, channel: int, fields: list[bytes], payload: bytes) -> None:
        work = Work(link, channel, payload)
        link.channels[channel] = work
        if fields[1] not in (b"write", b"edit"):
            work.half_closed = True
        self.bounded[work] = number(fields[4]) / 1000 + time.monotonic()
        self.queued.append(work)
        self.assign()

    def assign(self) -> None:
        while self.queued:
            try:
                if not self.idle and len(self.workers) < WORKERS:
                    self.add_worker()
            except OSError as error:
                if not self.workers:
                    self.queued.pop(0).result(failed(error))
                    continue
            if not self.idle:
                return
            self.idle.pop().take(self.queued.pop(0))

    def add_worker(self) -> None:
        worker = Worker(self)
        self.workers.add(worker)
        self.idle.append(worker)

    def free(self, worker: Worker) -> None:
        self.idle.append(worker)
        self.assign()

    def lost(self, worker: Worker) -> None:
        self.workers.discard(worker)
        if worker in self.idle:
            self.idle.remove(worker)
        self.assign()

    # Processes.

    def next_group(self) -> int:
        self.group += 1
        return self.group

    def fork(self, act: Callable[[], object]) -> int:
        """Run something in a child, which never comes back from it."""
        pid = os.fork()
        if pid:
            return pid
        try:
            signal.set_wakeup_fd(-1)
            act()
            os._exit(0)
        finally:
            os._exit(126)

    def reap(self) -> None:
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            self.gone(pid, status, usage)

    def gone(self, pid: int, status: int, usage: Any) -> None:
        call = self.calls.pop(pid, None)
        if call is not None:
            call.exited(status, usage)

    def sweep(self, group: int) -> bool:
        """Kill the processes of a call; true when two looks in a row found none."""
        until = time.monotonic() + SWEEP_SECONDS
        quiet = 0
        while quiet < 2:
            found = members(group)
            for sent in (signal.SIGSTOP, signal.SIGKILL):
                for pid in found:
                    with suppress(OSError):
                        os.kill(pid, sent)
            quiet = 0 if found else quiet + 1
            if found and time.monotonic() > until:
                return False
            if found:
                self.reap()
        return True

    def drain(self, fd: int) -> None:
        """Go on taking what a child in the background writes, so that writing does not end it."""
        while len(self.drained) >= DRAINED:
            self.close_drained(self.drained[0])
        self.drained.append(fd)
        self.handlers[fd] = self.drain_more
        self.change(fd, select.EPOLLIN)

    def drain_more(self, fd: int, events: int) -> None:
        try:
            data = os.read(fd, PAYLOAD_MAX)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.close_drained(fd)

    def close_drained(self, fd: int) -> None:
        self.drained.remove(fd)
        self.forget(fd)
        os.close(fd)

    def kills(self) -> int:
        """Return how often the memory cap has killed here."""
        for path in self.counters:
            with suppress(OSError, ValueError):
                with open(path, "rb") as counter:
                    for line in counter:
                        name, _, value = line.partition(b" ")
                        if name == b"oom_kill":
                            return int(value)
        return 0


OOM_COUNTERS = (
    "/sys/fs/cgroup/memory/memory.oom_control",
    "/sys/fs/cgroup/memory.events",
)


def members(group: int) -> list[int]:
    """Return the living processes that carry a group."""
    mark = b"%d" % group
    found: list[int] = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            fd = os.open("/proc/" + name + "/status", os.O_RDONLY)
            try:
                status = os.read(fd, 8192)
            finally:
                os.close(fd)
        except OSError:
            continue
        if mark not in status:
            continue
        lines = dict(
            (key, value) for key, _, value in (l.partition(b":") for l in status.splitlines())
        )
        if mark in lines.get(b"Groups", b"").split() and lines.get(b"State", b"").split()[
            :1
        ] not in (
            [b"Z"],
            [b"X"],
        ):
            found.append(int(name))
    return found


def parent_of(pid: int) -> int:
    """Return the parent of a process, 0 where there is none: a number may be another's by now."""
    with suppress(OSError, ValueError, IndexError):
        with open("/proc/%d/stat" % pid, "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    return 0


def shield(user: tuple[int, int, list[int]]) -> bool:
    """Become what the sandbox's users can neither trace nor read; say whether that holds."""
    other = user[0] or 65534
    os.seteuid(other)
    try:
        return os.stat("/proc/self/environ").st_uid == 0
    finally:
        os.seteuid(0)


def metrics() -> list[bytes]:
    """Return what the sandbox uses, from its control groups."""

    def value(*paths: str) -> int:
        for path in paths:
            try:
                with open("/sys/fs/cgroup/" + path, "rb") as file:
                    return int(file.read(64))
            except (OSError, ValueError):
                continue
        return -1

    cpu = value("cpuacct/cpuacct.usage") / 1e9
    if cpu < 0:
        cpu = 0.0
        with suppress(OSError, ValueError):
            with open("/sys/fs/cgroup/cpu.stat", "rb") as file:
                cpu = int(dict(line.split() for line in file)[b"usage_usec"]) / 1e6
    memory = value("memory/memory.usage_in_bytes", "memory.current")
    limit = value("memory/memory.limit_in_bytes", "memory.max")
    processes = sum(name.isdigit() for name in os.listdir("/proc"))
    return [
        b"ok",
        b"%.6f" % max(cpu, 0.0),
        b"%d" % max(memory, 0),
        b"" if limit < 0 or limit >= 1 << 60 else b"%d" % limit,
        b"%d" % processes,
    ]


def worker_main(sock: socket.socket) -> None:
    keep = sock.fileno()
    os.closerange(3, keep)
    os.closerange(keep + 1, 4096)
    null = os.open("/dev/null", os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    space = dict(globals())
    exec(compile(FILES, "<sandboxio>", "exec"), space)
    with suppress(EOFError, OSError):
        space["serve_files"](sock)
    os._exit(0)


FILES: bytes = globals().get("__files__", b"")
"""The source of `_agent_files`: only those compile it who need it."""


def leave(*_: object) -> None:
    """End the sandbox: its first process takes everything with it."""
    os._exit(0)


def main() -> None:
    agent = Agent()
    wake, woken = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGTERM, leave)

    def children(fd: int, events: int) -> None:
        with suppress(BlockingIOError):
            os.read(wake, 4096)
        agent.reap()

    agent.watch(wake, select.EPOLLIN, children)
    os.umask(0o022)
    os.chdir("/")
    agent.listen()
    agent.begin(0, 1)
    agent.run()


if __name__ == "sandboxio agent":
    main()
elif __name__ == "sandboxio warm":
    run_warm()
