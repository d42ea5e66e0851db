"""The agent: what runs inside a sandbox and serves the link.

One process of root's, of a single thread, which starts commands as the sandbox's users and ends
them exactly. It needs Python 3.8 and no module outside of Debian's python3-minimal. Its source,
`_agent_*.py` before it, travels over the pipe it then serves; `docs/reference/link-protocol.md`
says what is spoken there.
"""

from __future__ import annotations

import os
import select
import struct
import sys
import time

from sandboxio.guest._agent_call import Call, Channel, widen
from sandboxio.guest._agent_link import Link
from sandboxio.guest._agent_loop import Loop
from sandboxio.guest._agent_meters import OomKills, metrics
from sandboxio.guest._agent_prepare import prepare
from sandboxio.guest._agent_start import Command, Program, capset, drop, has_ctypes, noted
from sandboxio.guest._agent_trust import interpreter, is_trusted, is_what_calls_find
from sandboxio.guest._agent_warm import FRESH, WarmInterpreter, run_warm
from sandboxio.guest._agent_wire import (
    LENGTH,
    PAYLOAD_MAX,
    Invalid,
    account,
    failed,
    number,
    pack,
    suppress,
    unpack,
)
from sandboxio.guest._agent_work import Work, Worker

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    import socket
    from collections import deque
    from collections.abc import Callable
    from typing import Any
else:  # what they wrap is there already, and they take long to import
    import _signal as signal
    import _socket as socket
    from _collections import deque

VERSION = b"1"
NO_PLACE = 97
NAME = b"sandboxio-link"
PLACE = "/dev/shm/sandboxio"
FIRST_GROUP = 0x40000000
SO_PEERGROUPS = 59
HELLO_SECONDS = 60.0
ORPHAN_SECONDS = 30.0
DRAINED = 256
WORKERS = 8
IDLE_SECONDS = 0.05


class Agent(Loop):
    """The links, the processes and what bounds them."""

    def __init__(self) -> None:
        super().__init__()
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
        self.oom_kills = OomKills()
        self.listener: socket.socket | None = None

    def before_waiting(self) -> None:
        for link in list(self.dirty):
            link.flush()
        self.dirty.clear()

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
        """Have a socket for later links, in a directory that nobody else can enter."""
        os.mkdir(PLACE, 0o700)
        os.symlink(interpreter(), PLACE + "/python")
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(PLACE + "/link")
        self.listener.listen(64)
        self.listener.setblocking(False)
        self.watch(self.listener.fileno(), select.EPOLLIN, self.accept)

    def accept(self, fd: int, events: int) -> None:
        try:
            listener: Any = self.listener
            end: int = listener._accept()[0]
        except OSError:
            return
        sock = socket.socket(fileno=end)
        if not is_ours(sock):
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
        settings = {
            name: value for name, _, value in (field.partition(b"=") for field in fields[2:])
        }
        if not self.settings:
            self.settings = settings
            self.prepare()
        for other in list(self.links):
            if other is not link and other.name == settings.get(b"instead"):
                other.close()
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
        orders = unpack(settings.get(b"prepare", b""))
        self.facts.append(b"prepared=%d" % prepare(orders, *self.account[:2]))
        self.facts += self.looked()
        self.facts.append(b"warm=%d" % (b"loader" in settings))
        usual = is_what_calls_find(os.environb.get(b"PATH", b"/usr/bin:/bin"))
        self.warmable = b"loader" in settings and shielded and usual and has_ctypes()
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

        def look() -> None:
            drop(self.account, FIRST_GROUP)
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
            own = 1 + len(self.workers) + (self.warm is not None)
            Channel(link, channel).result(metrics(own))
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
            command = Command(argv, variables, cwd)
            try:
                pid = self.fork(lambda: command.run(program))
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
            act()
            os._exit(0)
        finally:
            os._exit(126)

    def reap(self) -> None:
        while True:
            try:
                pid, status, usage = wait()
            except ChildProcessError:
                return
            if not pid:
                return
            self.gone(pid, status, usage)

    def gone(self, pid: int, status: int, usage: Any) -> None:
        call = self.calls.pop(pid, None)
        if call is not None:
            call.exited(status, usage)

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


def is_ours(sock: socket.socket) -> bool:
    """Whether root is at the other end, and no process of a call, which all carry a group."""
    try:
        peer = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        groups = sock.getsockopt(socket.SOL_SOCKET, SO_PEERGROUPS, 1024)
    except OSError:
        return False
    found = struct.unpack("%dI" % (len(groups) // 4), groups)
    return struct.unpack("iii", peer)[1] == 0 and all(group < FIRST_GROUP for group in found)


def has_usage() -> bool:
    """Whether there is what `os.wait4` makes its answers of."""
    try:
        __import__("resource")
    except ImportError:
        return False
    return True


HAS_USAGE = has_usage()


def wait() -> tuple[int, int, Any]:
    """Reap one child, with what it used where Python has a type for that."""
    if HAS_USAGE:
        return os.wait4(-1, os.WNOHANG)
    return (*os.waitpid(-1, os.WNOHANG), None)


def shield(user: tuple[int, int, list[int]]) -> bool:
    """Become what the sandbox's users can neither trace nor read; say whether that holds."""
    other = user[0] or 65534
    os.seteuid(other)
    try:
        return os.stat("/proc/self/environ").st_uid == 0
    finally:
        os.seteuid(0)


def leave() -> None:
    """End the sandbox: its first process takes everything with it."""
    os._exit(0)


def main() -> None:
    if not is_trusted():
        os._exit(NO_PLACE)
    agent = Agent()
    wake, woken = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    for ignored in (signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(ignored, noted)  # a handler is gone in what a child becomes
    for default in (signal.SIGINT, signal.SIGTERM):  # the kernel keeps these from a first process
        signal.signal(default, signal.SIG_DFL)

    def children(fd: int, events: int) -> None:
        with suppress(BlockingIOError):
            os.read(wake, 4096)
        agent.reap()

    agent.watch(wake, select.EPOLLIN, children)
    os.umask(0o022)
    os.chdir("/")
    try:
        agent.listen()
    except OSError:  # no place in memory: a further link could not find the agent
        os._exit(NO_PLACE)
    for fd in (0, 1):
        widen(fd)
    agent.begin(0, 1)
    agent.run()


if __name__ == "sandboxio agent":
    main()
elif __name__ == "sandboxio warm":
    run_warm()
