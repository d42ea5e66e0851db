"""Part of the agent: how a program comes to run as somebody else."""

from __future__ import annotations

import errno
import os
import sys

from sandboxio.guest._agent_wire import failed, suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

OOM_SCORE = b"500"
NOT_FOUND, NOT_EXECUTABLE = 127, 126


class Program:
    """The pipes of one call: ours do not block, those of the child belong to its user."""

    def __init__(self, user: tuple[int, int, list[int]], group: int, *, stdin: bool) -> None:
        self.user, self.group = user, group
        self.inner: set[int] = set()
        self.stdin = self.child_stdin = -1
        os.setegid(user[1])
        os.seteuid(user[0])
        try:
            self.pipes(stdin)
        except OSError:
            self.close_all()
            raise
        finally:
            os.seteuid(0)
            os.setegid(0)

    def pipes(self, stdin: bool) -> None:
        self.ours: list[int] = []
        if stdin:
            self.child_stdin, self.stdin = self.pipe()
        else:
            self.child_stdin = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
            self.inner.add(self.child_stdin)
        self.stdout, self.child_stdout = self.pipe(reading=True)
        self.stderr, self.child_stderr = self.pipe(reading=True)
        self.report, self.child_report = self.pipe(reading=True)

    def pipe(self, *, reading: bool = False) -> tuple[int, int]:
        ends = os.pipe2(os.O_CLOEXEC)
        ours, theirs = ends if reading else (ends[1], ends[0])
        self.ours.append(ours)
        self.inner.add(theirs)
        os.set_blocking(ours, False)
        return ends

    def close_inner(self) -> None:
        for fd in self.inner:
            os.close(fd)
        self.inner.clear()

    def close_all(self) -> None:
        self.close_inner()
        for fd in self.ours:
            os.close(fd)


def settle(program: Program) -> None:
    """Become the child that a caller's program runs in, up to its ids."""
    os.setsid()
    os.dup2(program.child_stdin, 0)
    os.dup2(program.child_stdout, 1)
    os.dup2(program.child_stderr, 2)


def drop(user: tuple[int, int, list[int]], group: int) -> None:
    """Take the ids of a user, the group that marks a call, and no capability."""
    with suppress(OSError):
        fd = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
        os.write(fd, OOM_SCORE)
        os.close(fd)
    uid, gid, groups = user
    os.setgroups(groups + [group])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    if uid == 0:
        shed = capset()
        if shed is None:
            raise OSError(errno.EPERM, "uid 0 cannot be given empty capability sets here")
        shed()


_shed: list[Callable[[], None] | None] = []


def capset() -> Callable[[], None] | None:
    """Return what empties the capability sets of uid 0, where Python can do that."""
    if not _shed:
        _shed.append(_capset())
    return _shed[0]


def has_ctypes() -> bool:
    """Whether ctypes is there; importing it, only to see, would take too long."""
    for place in sys.path:
        with suppress(OSError):
            if any(name.startswith("_ctypes.") for name in os.listdir(place)):
                return True
    return "_ctypes" in sys.builtin_module_names


def _capset() -> Callable[[], None] | None:
    try:
        import ctypes
    except ImportError:
        return None
    library: Any = ctypes.CDLL(None, use_errno=True)
    if not hasattr(library, "capset"):
        return None
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    empty = (ctypes.c_uint32 * 6)()

    def shed() -> None:
        if library.capset(header, empty) != 0:
            raise OSError(ctypes.get_errno(), "capset")

    return shed


class Command:
    """A command, made ready before the fork: a child has copies to pay for all it touches."""

    def __init__(self, argv: list[bytes], variables: list[bytes], cwd: bytes) -> None:
        self.argv, self.cwd = argv, cwd
        self.environment = {name: value for name, _, value in map(halves, variables)}
        self.paths = [argv[0]]
        if b"/" not in argv[0]:
            places = self.environment.get(b"PATH", b"/usr/bin:/bin").split(b":")
            self.paths = [place.rstrip(b"/") + b"/" + argv[0] for place in places]

    def run(self, program: Program) -> None:
        """Run in this child; does not return."""
        try:
            settle(program)
            drop(program.user, program.group)
            os.chdir(self.cwd)
        except OSError as error:
            name, words = failed(error)[1:]
            os.write(program.child_report, name + b"\0" + words)
            os._exit(NOT_EXECUTABLE)
        code, words = self.execute()
        os.write(2, b"sandboxio: " + self.argv[0][:256] + b": " + words + b"\n")
        os._exit(code)

    def execute(self) -> tuple[int, bytes]:
        """Become the program; return, as its exit code and words, why that cannot be."""
        refused: OSError | None = None
        for path in self.paths:
            try:
                os.execve(path, self.argv, self.environment)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                refused = refused or error
        if refused is None:
            return NOT_FOUND, b"not found"
        return NOT_EXECUTABLE, (refused.strerror or "cannot be executed").encode()


def halves(variable: bytes) -> tuple[bytes, bytes, bytes]:
    return variable.partition(b"=")


def noted(number: int, frame: Any) -> None:
    """Have a signal do no more than wake the loop."""
