"""What stands for a provider in the local adapter: it runs one command, and ends all of it.

The parent of a call. It ends all that the command started when it is told to (SIGTERM), when the
sandbox's lifetime is over, also if the program that uses this library is gone by then, and when
nobody reads on. What the command says goes to stdout in pieces, and last how it ended.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import struct
import sys
import time

HEAD = struct.Struct("!cI")
"""Before each piece: `o`, `e` or, for the end, `x`; and how many bytes follow."""
DONE = (0, -signal.SIGTERM)
"""How a keeper ends that leaves nothing; by the signal itself where nothing had begun."""
PIECE = 64 * 1024
SILENCE, LAST_SECONDS, TURN = 0.1, 2.0, 0.01
"""How long output may pause, and go on, once its command has ended; what one piece counts."""
SUBREAPER, DEATH_SIGNAL = 36, 1


def command(record: str, seconds: float, argv: tuple[str, ...]) -> tuple[str, ...]:
    """Return how to start a keeper; `record` is the file without which its sandbox is none."""
    return (sys.executable, "-I", "-S", os.path.abspath(__file__), record, str(seconds), *argv)


def find(record: str) -> list[int]:
    """Return the keepers of a sandbox, whichever program started them."""
    mark, found = b"\0%s\0" % os.fsencode(record), list[int]()
    for name in filter(str.isdecimal, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/cmdline", "rb") as line:
                if mark in line.read():
                    found.append(int(name))
        except OSError:
            continue
    return found


def stop(*pids: int) -> bool:
    """Tell keepers to end; also one that something in its sandbox has stopped."""
    for pid in pids:
        try:
            os.kill(pid, signal.SIGTERM)
            os.kill(pid, signal.SIGCONT)
        except ProcessLookupError:
            continue
    return bool(pids)


def main(record: str, seconds: str, *command: str) -> None:
    prctl = ctypes.CDLL(None).prctl
    prctl(SUBREAPER, 1)  # whatever loses its parent becomes our child
    for number in (signal.SIGTERM, signal.SIGALRM):
        signal.signal(number, end)
    signal.setitimer(signal.ITIMER_REAL, max(float(seconds), 0.001))
    if not os.path.exists(record):
        return
    (out, out_end), (err, err_end) = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        prctl(DEATH_SIGNAL, signal.SIGKILL)  # it does not outlive us
        become(command, out_end, err_end)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.close(out_end)
    os.close(err_end)
    try:
        cut = relay(child, {out: b"o", err: b"e"})
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        say(b"x", b"%d %d" % (code if code >= 0 else 128 - code, cut))
    except BrokenPipeError:
        end()
    for fd in (1, out, err):
        os.dup2(null, fd)
    while True:  # some of it may go on in the background
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            os._exit(0)


def become(command: tuple[str, ...], out: int, err: int) -> None:
    """Turn into the command."""
    os.dup2(out, 1)
    os.dup2(err, 2)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        os.write(2, f"{command[0]}: {error.strerror}\n".encode(errors="replace"))
        os._exit(127 if isinstance(error, FileNotFoundError | NotADirectoryError) else 126)


def relay(child: int, streams: dict[int, bytes]) -> bool:
    """Pass output on, to its end or to a little after the command's; was some of it left?"""
    ended, over, left = os.pidfd_open(child), False, LAST_SECONDS
    while not over or (streams and left > 0):
        began = time.monotonic()
        wanted = [*streams] if over else [*streams, ended]
        ready, _, _ = select.select(wanted, [], [], SILENCE if over else None)
        if over and not ready:  # something in the background holds it open, and is silent
            return False
        if over:
            left -= max(time.monotonic() - began, TURN)
        for fd in ready:
            if fd == ended:
                over = True
            elif piece := os.read(fd, PIECE):
                say(streams[fd], piece)
            else:
                del streams[fd]
    return bool(streams)


def say(kind: bytes, data: bytes) -> None:
    sys.stdout.buffer.write(HEAD.pack(kind, len(data)) + data)
    sys.stdout.buffer.flush()


def end(*_: object) -> None:
    """Kill children until there are none: those of whom we kill become ours."""
    while True:
        with open("/proc/thread-self/children") as children:
            for pid in children.read().split():
                os.kill(int(pid), signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
