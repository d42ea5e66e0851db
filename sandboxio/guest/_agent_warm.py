"""Part of the agent: a Python that has started already, and a fork of it for each piece of code.

It is a process of its own, of root's until a fork has become the user. It never holds the link,
nor anything of a call: what a call needs to know, its fork reads from a pipe of its own.
"""

from __future__ import annotations

import errno
import os
import struct
import sys

from sandboxio.guest._agent_start import NOT_EXECUTABLE, capset, drop, noted
from sandboxio.guest._agent_trust import interpreter
from sandboxio.guest._agent_wire import LENGTH, failed, suppress, unpack

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    import socket
    from collections.abc import Callable
    from typing import Any

    from sandboxio.guest._agent_start import Program
else:  # what they wrap is there already, and they take long to import
    import _signal as signal
    import _socket as socket

WARM_SECONDS = 5.0
STARTED = struct.Struct("!ii")
ENDED = struct.Struct("!iiddq")
BOOT = (
    "import os,sys\n"
    "n,b=int(sys.argv[1]),b''\n"
    "while len(b)<n:\n"
    " p=os.read(0,n-len(b))\n"
    " if not p:os._exit(3)\n"
    " b+=p\n"
    "exec(compile(b,'<sandboxio>','exec'),{'__name__':sys.argv[2],'__source__':b})\n"
)
FRESH = b"""
def load():
    import os
    source = b''.join(iter(lambda: os.read(0, 1 << 20), b''))
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    return source
run(load())
"""
"""Follows the loader where there is no warm interpreter to run it."""


class WarmInterpreter:
    """A Python that has started already; each piece of code runs in a fork of it."""

    def __init__(self, loader: bytes) -> None:
        ours, theirs = socket.socketpair()
        source = SOURCE
        reader, writer = os.pipe2(os.O_CLOEXEC)
        self.pid = os.fork()
        if not self.pid:
            try:
                os.dup2(reader, 0)
                unread = os.pipe()[1]  # what Python notes of its output is true of a pipe
                os.dup2(unread, 1)
                os.dup2(unread, 2)
                os.dup2(theirs.fileno(), 3)
                signal.set_wakeup_fd(-1)
                for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD, signal.SIGTERM):
                    signal.signal(number, signal.SIG_DFL)
                arguments = ["-I", "-S", "-u", "-X", "utf8", "-c", BOOT]
                python = interpreter()
                text = [python, *arguments, str(len(source)), "sandboxio warm"]
                os.execve(python, text, WARM_ENVIRONMENT)
            finally:
                os._exit(NOT_EXECUTABLE)
        theirs.close()
        os.close(reader)
        self.sock, self.fd = ours, ours.fileno()
        self.stash: list[tuple[int, int, Any]] = []
        self.buffer = b""
        ours.settimeout(WARM_SECONDS)
        try:
            view = memoryview(source + LENGTH.pack(len(loader)) + loader)
            while view:
                view = view[os.write(writer, view) :]
        finally:
            os.close(writer)

    def start(self, program: Program) -> int:
        """Have a child forked that will read its request from the program's stdin."""
        fds = (
            program.child_stdin,
            program.child_stdout,
            program.child_stderr,
            program.child_report,
        )
        rights = struct.pack("4i", *fds)
        self.sock.sendmsg([b"r"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        while True:
            kind = self.exactly(1)
            if kind == b"p":
                pid, error = STARTED.unpack(self.exactly(STARTED.size))
                if error:
                    raise OSError(error, os.strerror(error))
                return int(pid)
            self.stash.append(self.end())

    def ended(self) -> list[tuple[int, int, Any]]:
        """Return the children that have ended; called when there is something to read."""
        self.sock.setblocking(False)
        try:
            self.buffer += self.sock.recv(65536) or self.nothing()
        except BlockingIOError:
            pass
        finally:
            self.sock.settimeout(WARM_SECONDS)
        while len(self.buffer) > ENDED.size:
            if self.exactly(1) == b"x":
                self.stash.append(self.end())
        found, self.stash = self.stash, []
        return found

    def nothing(self) -> bytes:
        raise EOFError

    def end(self) -> tuple[int, int, Any]:
        pid, status, user, system, resident = ENDED.unpack(self.exactly(ENDED.size))
        return pid, status, Usage(user, system, resident)

    def exactly(self, size: int) -> bytes:
        while len(self.buffer) < size:
            self.buffer += self.sock.recv(65536) or self.nothing()
        taken, self.buffer = self.buffer[:size], self.buffer[size:]
        return taken

    def close(self) -> None:
        self.sock.close()
        with suppress(OSError):
            os.kill(self.pid, signal.SIGKILL)


class Usage:
    """What a child of the warm interpreter used, as `os.wait4` would say it."""

    def __init__(self, user: float, system: float, resident: int) -> None:
        self.ru_utime, self.ru_stime, self.ru_maxrss = user, system, resident


WARM_ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/nonexistent"}
SOURCE: bytes = globals().get("__source__", b"")
"""The agent's own source, where it runs as one."""


def receive(sock: socket.socket) -> list[int] | None:
    """Return the descriptors of the next request; nothing at the end."""
    message, ancillary, _, _ = sock.recvmsg(1, socket.CMSG_SPACE(16))
    if not message or not ancillary:
        return None
    return list(struct.unpack("4i", ancillary[0][2][:16]))


def serve_warm(make_dumpable: Callable[[], object]) -> list[bytes]:
    """Fork for each request; returns, in the child, what its request says."""
    import select

    sock = socket.socket(fileno=3)
    wake, woken = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, noted)
    while True:
        ready = select.select([3, wake], [], [])[0]
        if wake in ready:
            with suppress(BlockingIOError):
                os.read(wake, 4096)
            tell_ended(sock)
        if 3 in ready:
            fds = receive(sock)
            if fds is None:
                os._exit(0)
            try:
                pid = os.fork()
            except OSError as error:
                sock.sendall(b"p" + STARTED.pack(0, error.errno or errno.EAGAIN))
                pid = -1
            if pid == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                sock.detach()
                return become(fds, make_dumpable)
            for fd in fds:
                os.close(fd)
            if pid > 0:
                sock.sendall(b"p" + STARTED.pack(pid, 0))


def tell_ended(sock: socket.socket) -> None:
    while True:
        try:
            pid, status, usage = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        said = ENDED.pack(pid, status, usage.ru_utime, usage.ru_stime, usage.ru_maxrss)
        sock.sendall(b"x" + said)


def become(fds: list[int], make_dumpable: Callable[[], object]) -> list[bytes]:
    """Turn a fork of the warm interpreter into the process of one call."""
    request, stdout, stderr, report = fds
    os.setsid()
    group, user, cwd, *variables = unpack(exactly(request, LENGTH.unpack(exactly(request, 4))[0]))
    null = os.open("/dev/null", os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    uid, gid, groups = user.split(b":")
    try:
        drop((int(uid), int(gid), [int(g) for g in groups.split(b",") if g]), int(group))
        make_dumpable()
        os.chdir(cwd)
    except OSError as error:
        name, words = failed(error)[1:]
        os.write(report, name + b"\0" + words)
        os._exit(NOT_EXECUTABLE)
    source = b"".join(iter(lambda: os.read(request, 1 << 20), b""))
    os.closerange(3, os.sysconf("SC_OPEN_MAX") if os.sysconf("SC_OPEN_MAX") < 65536 else 65536)
    return [source, *variables]


def run_warm() -> None:
    """Serve as the warm interpreter; in a fork of it, run the code it is sent."""
    loader = exactly(0, LENGTH.unpack(exactly(0, 4))[0])
    space: Any = {"__name__": "sandboxio loader"}
    exec(compile(loader, "<sandboxio>", "exec"), space)
    make_dumpable = dumpable()
    look_ordinary()
    capset()
    main = sys.modules["__main__"]
    kept = {name: value for name, value in main.__dict__.items() if name[:2] == "__"}
    coerced = os.environb.get(b"LC_CTYPE")
    settle_memory()
    extra = set(sys.modules) - BASELINE | {"__future__"}
    source, *variables = serve_warm(make_dumpable)
    for name in extra:
        del sys.modules[name]
    os.environb.clear()
    for variable in variables:
        key, _, value = variable.partition(b"=")
        os.environb[key] = value
    if coerced is not None:
        os.environb[b"LC_CTYPE"] = coerced
    # A new one: the collector never looks at what was there before the fork, not at the end either.
    sys.modules["__main__"] = main = type(main)("__main__")
    main.__dict__.update(kept)
    sys.executable = own_path() or sys.executable
    sys.argv[:] = ["-c"]
    import site

    site.main()
    sys.path.insert(0, "")
    space["run"](source)


def own_path() -> str:
    """Return the path by which a command would find this interpreter."""
    for place in os.environ.get("PATH", "").split(":"):
        path = place + "/python3"
        if os.access(path, os.X_OK):
            return path if os.path.realpath(path) == os.path.realpath(sys.executable) else ""
    return ""


def settle_memory() -> None:
    """Keep the collector of each fork from touching, and so copying, what all of them share."""
    import gc

    gc.collect()
    gc.freeze()


BASELINE: set[str] = globals().get("__modules__", set())
"""The modules that were there before any of ours."""


def dumpable() -> Callable[[], object]:
    """Return what lets a process read its own entries of procfs again."""
    import ctypes

    library: Any = ctypes.CDLL(None)
    return lambda: library.prctl(4, 1, 0, 0, 0)


def look_ordinary() -> None:
    """Have the flags say what they say in an interpreter that was started by itself."""
    import ctypes

    names = [part.split("=")[0] for part in repr(sys.flags)[10:-1].split(", ")]
    put = ctypes.pythonapi.PyStructSequence_SetItem
    put.argtypes = [ctypes.py_object, ctypes.c_ssize_t, ctypes.py_object]
    put.restype = None
    for name in ("no_user_site", "no_site", "ignore_environment", "isolated", "safe_path"):
        if name in names:
            at = names.index(name)
            value = type(sys.flags[at])(0)
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(value))
            put(sys.flags, at, value)


def exactly(fd: int, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = os.read(fd, size - len(data))
        if not piece:
            os._exit(NOT_EXECUTABLE)
        data += piece
    return data
