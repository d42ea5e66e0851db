"""What is known of the process and its surroundings: `sys`, a part of `os`, and virtual `time`."""

from __future__ import annotations

import errno
import math
from typing import TYPE_CHECKING

from sandboxio.testing._python.objects import (
    ATTRIBUTES,
    CONSTANTS,
    FACTS,
    Closing,
    Lines,
    Value,
    function,
    method,
    named,
)

if TYPE_CHECKING:
    from sandboxio.testing._python.session import Session

VERSION = (3, 12, 0, "final", 0)
LONGEST_SLEEP = 9_223_372_036.0
STDERR = 2


@named("_io.TextIOWrapper")
class Stream(Closing):
    """Standard output or standard error, as text."""

    def __init__(self, number: int) -> None:
        self.number = number


@named("_io.BufferedWriter")
class ByteStream(Closing):
    """Standard output or standard error, as bytes."""

    def __init__(self, number: int) -> None:
        self.number = number


@named("_io.TextIOWrapper")
class Stdin(Lines):
    """Standard input, which is at its end."""

    async def lines(self, session: Session) -> list[Value]:
        return []


class Ended(Exception):
    """The code ended its process here and now."""

    def __init__(self, code: int) -> None:
        super().__init__()
        self.code = code


async def write(session: Session, number: int, data: bytes) -> int:
    """Write to a descriptor of the process."""
    if number not in session.process.fds:
        raise OSError(errno.EBADF, "Bad file descriptor")
    session.need(len(data))
    await session.process.fds[number].write(data)
    return len(data)


@method(Stream, "write")
async def _write_text(session: Session, stream: Stream, said: Value) -> int:
    if not isinstance(said, str):
        raise TypeError(f"write() argument must be str, not {type(said).__name__}")
    errors = "backslashreplace" if stream.number == STDERR else "surrogateescape"
    await write(session, stream.number, encoded(said, errors))
    return len(said)


def encoded(said: str, errors: str) -> bytes:
    """Return the UTF-8 bytes of text; bytes that came in as surrogates go out as they were."""
    try:
        return said.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return said.encode("utf-8", errors)


@method(ByteStream, "write")
async def _write_bytes(session: Session, stream: ByteStream, data: bytes) -> int:
    return await write(session, stream.number, _bytes(data))


@method(Stream, "flush")
@method(ByteStream, "flush")
async def _flush(session: Session, stream: Value) -> None:
    """Do nothing: everything is written at once."""


@method(Stdin, "read", "readline")
async def _read(session: Session, stdin: Stdin, size: Value = -1) -> str:
    return ""


@method(Stdin, "readlines")
async def _read_lines(session: Session, stdin: Stdin) -> list[Value]:
    return []


def _bytes(data: Value) -> bytes:
    if not isinstance(data, bytes):
        raise TypeError(f"a bytes-like object is required, not {type(data).__name__!r}")
    return data


CONSTANTS.update(
    {
        "sys.stdout": Stream(1),
        "sys.stderr": Stream(STDERR),
        "sys.stdin": Stdin(),
        "sys.version_info": VERSION,
        "sys.version": "3.12.0 (sandboxio fake)",
        "sys.platform": "linux",
        "sys.executable": "/usr/local/bin/python3",
        "sys.maxsize": 2**63 - 1,
        "os.sep": "/",
        "os.linesep": "\n",
        "os.name": "posix",
    }
)
ATTRIBUTES[Stream] = {"buffer": lambda stream: ByteStream(stream.number)}
FACTS["sys.argv"] = lambda session: ["-c"]
FACTS["os.environ"] = lambda session: session.environ


@function("os._exit")
async def _end(session: Session, code: int) -> None:
    raise Ended(int(code))


@function("os.write")
async def _os_write(session: Session, number: int, data: Value) -> int:
    return await write(session, int(number), _bytes(data))


@function("os.getenv")
async def _getenv(session: Session, name: str, default: Value = None) -> Value:
    return session.environ.get(name, default)


@function("os.getcwd")
async def _getcwd(session: Session) -> str:
    return session.process.cwd


@function("os.getuid", "os.geteuid")
async def _getuid(session: Session) -> int:
    return session.process.who.uid


@function("os.getgid", "os.getegid")
async def _getgid(session: Session) -> int:
    return session.process.who.gid


@function("os.getpid")
async def _getpid(session: Session) -> int:
    return session.process.pid


@function("time.sleep")
async def _sleep(session: Session, seconds: Value) -> None:
    if not isinstance(seconds, int | float):
        kind = type(seconds).__name__
        raise TypeError(f"{kind!r} object cannot be interpreted as an integer")
    if math.isnan(seconds):
        raise ValueError("Invalid value NaN (not a number)")
    if seconds < 0:
        raise ValueError("sleep length must be non-negative")
    if seconds > LONGEST_SLEEP:
        raise OverflowError("timestamp too large to convert to C _PyTime_t")
    await session.process.sleep(float(seconds))


@function("time.time")
async def _time(session: Session) -> float:
    return session.process.kernel.clock.wall().timestamp()


@function("time.monotonic", "time.perf_counter")
async def _monotonic(session: Session) -> float:
    return session.process.kernel.clock.time()
