"""Part of the agent: operations on files, handed to processes that carry them out."""

from __future__ import annotations

import os
import select

from sandboxio.guest._agent_call import GRANT, Channel
from sandboxio.guest._agent_wire import (
    DATA,
    END,
    EOF,
    HEADER,
    OPEN,
    RESULT,
    header,
    suppress,
    unpack,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    import socket
    from collections import deque
    from collections.abc import Callable

    from sandboxio.guest._agent_link import Link
    from sandboxio.guest.agent import Agent
else:  # what they wrap is there already, and they take long to import
    import _signal as signal
    import _socket as socket
    from _collections import deque

BATCH = 64
WORKER_SECONDS = 2.0
MORE = 768 * 1024
"""Credit for an operation that is being carried out, beyond what every channel begins with."""


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
        if not self.half_closed:
            self.give_back(MORE)
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
        self.credits: deque[tuple[Work | None, int]] = deque()
        self.buffer = bytearray()
        agent.watch(self.fd, select.EPOLLIN, self.ready)

    def take(self, work: Work) -> None:
        self.work = work
        work.begin(self)

    def send(self, channel: int, kind: int, payload: bytes) -> None:
        self.out.append(memoryview(header(channel, kind, len(payload))))
        self.credits.append((None, 0))
        if payload:
            self.out.append(memoryview(payload))
            self.credits.append((self.work, len(payload) if kind == DATA else 0))
        self.flush()

    def flush(self) -> None:
        try:
            while self.out:
                batch = [self.out[i] for i in range(min(len(self.out), BATCH))]
                self.drop(self.sock.sendmsg(batch))
        except BlockingIOError:
            pass
        except OSError:
            self.gone()
            return
        self.refresh()

    def drop(self, sent: int) -> None:
        """Forget what has been sent, and give credit for what was sent whole."""
        while self.out and sent >= len(self.out[0]):
            sent -= len(self.out.popleft())
            work, credit = self.credits.popleft()
            if work is not None:
                work.give_back(credit)
        if sent:
            self.out[0] = self.out[0][sent:]

    def refresh(self) -> None:
        """Go on with what has been read already, then with what has not."""
        self.parse()
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
        self.refresh()

    def parse(self) -> None:
        while len(self.buffer) >= HEADER.size and self.may_read():
            channel, word = HEADER.unpack_from(self.buffer)
            end = HEADER.size + (word & 0xFFFFFF)
            if len(self.buffer) < end:
                break
            with memoryview(self.buffer) as view:
                payload = bytes(view[HEADER.size : end])
            del self.buffer[:end]
            self.said(channel, word >> 24, payload)

    def said(self, channel: int, kind: int, payload: bytes) -> None:
        work = self.work
        if work is None or channel != work.channel:
            return
        if kind == DATA and not work.ended:
            work.credit -= len(payload)
            work.link.send(channel, DATA, payload)
        elif kind == RESULT:
            self.work = None
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


def worker_main(sock: socket.socket) -> None:
    keep = sock.fileno()
    os.closerange(3, keep)
    os.closerange(keep + 1, 4096)
    null = os.open("/dev/null", os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    signal.set_wakeup_fd(-1)
    space = dict(globals())
    exec(compile(FILES, "<sandboxio>", "exec"), space)
    with suppress(EOFError, OSError):
        space["serve_files"](sock)
    os._exit(0)


FILES: bytes = globals().get("__files__", b"")
"""The source of `_agent_files`: only those compile it who need it."""
