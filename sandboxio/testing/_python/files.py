"""Open files as recognised Python sees them; their bytes are in the file system in memory."""

from __future__ import annotations

import errno
import io
from contextlib import closing
from typing import TYPE_CHECKING
from weakref import finalize

from sandboxio.testing._python.methods import require_codec
from sandboxio.testing._python.objects import (
    ATTRIBUTES,
    Lines,
    NotUnderstood,
    Value,
    function,
    method,
    named,
)
from sandboxio.testing._python.paths import PosixPath, path
from sandboxio.testing._python.session import ITEM, LARGEST, STEP

if TYPE_CHECKING:
    from sandboxio.testing._disk.handles import Handle
    from sandboxio.testing._python.session import Session

MOST_OPEN = 1024
_MODES = {
    "r": {"read": True},
    "w": {"write": True, "truncate": True, "create": True},
    "a": {"append": True, "create": True},
    "x": {"write": True, "create": True, "exclusive": True},
}


class OpenFile(Lines):
    """An open file; what is read is read ahead to the end."""

    def __init__(self, handle: Handle, name: Value, mode: str) -> None:
        self.handle = handle
        self.name = name
        self.mode = mode
        self.release = finalize(self, handle.close)
        self._ahead: Value = self.convert(b"")
        self._at = 0

    def convert(self, data: bytes) -> Value:
        """Return what is read for bytes of the file."""
        return data

    def raw(self, value: Value) -> bytes:
        """Return the bytes of what is written."""
        if not isinstance(value, bytes):
            raise TypeError(f"a bytes-like object is required, not {type(value).__name__!r}")
        return value

    def close(self) -> None:
        super().close()
        self.release()

    async def lines(self, session: Session) -> list[Value]:
        rest = await self.read(session, -1)
        breaks = rest.count("\n" if isinstance(rest, str) else b"\n")
        session.need(ITEM * (breaks + 1))
        return _split(rest)

    async def read(self, session: Session, size: int) -> Value:
        """Return so many characters or bytes; the rest for -1."""
        self._require("r", "not readable")
        if self._at >= len(self._ahead):
            self._ahead, self._at = self.convert(await self._rest(session)), 0
        end = len(self._ahead) if size < 0 else self._at + size
        found = self._ahead[self._at : end]
        self._at += len(found)
        return session.made(found)

    async def line(self, session: Session) -> Value:
        """Return one line, empty at the end."""
        first = await self.read(session, 1)
        self._at -= len(first)
        end = self._ahead.find("\n" if isinstance(self._ahead, str) else b"\n", self._at)
        return await self.read(session, -1 if end < 0 else end + 1 - self._at)

    async def write(self, session: Session, value: Value) -> int:
        """Write at once, and return how many characters or bytes that were."""
        self._require("wax", "not writable")
        if self._at < len(self._ahead):
            raise NotUnderstood
        data = self.raw(value)
        session.need(len(data))
        self.handle.write(data)
        return len(value)

    def seek(self, position: int) -> None:
        self._require("rwax", "")
        self.handle.seek(position)
        self._ahead, self._at = self.convert(b""), 0

    def _require(self, modes: str, complaint: str) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file.")
        if not set(modes + "+") & set(self.mode):
            raise io.UnsupportedOperation(complaint)

    async def _rest(self, session: Session) -> bytes:
        parts: list[bytes] = []
        while piece := self.handle.read(STEP):
            parts.append(piece)
            await session.round()
            if len(parts) * STEP > LARGEST:
                raise MemoryError
        return bytes(session.made(b"".join(parts)))


@named("_io.BufferedRandom")
class ByteFile(OpenFile):
    """A file opened with `b`."""


@named("_io.TextIOWrapper")
class TextFile(OpenFile):
    """A file opened as text."""

    def __init__(
        self, handle: Handle, name: Value, mode: str, *, encoding: str, errors: str, newline: Value
    ) -> None:
        self.encoding, self.errors, self.newline = encoding, errors, newline
        super().__init__(handle, name, mode)

    def convert(self, data: bytes) -> Value:
        found = data.decode(self.encoding, self.errors)
        if self.newline is None:
            found = found.replace("\r\n", "\n").replace("\r", "\n")
        return found

    def raw(self, value: Value) -> bytes:
        if not isinstance(value, str):
            raise TypeError(f"write() argument must be str, not {type(value).__name__}")
        return value.encode(self.encoding, self.errors)


def _split(rest: Value) -> list[Value]:
    """Split into lines that keep their ends; text breaks at newlines alone."""
    newline: Value = "\n" if type(rest) is str else b"\n"
    parts: list[Value] = rest.split(newline)
    lines = [part + newline for part in parts[:-1]]
    return [*lines, parts[-1]] if parts[-1] else lines


@function("open")
async def open_file(
    session: Session,
    file: Value,
    mode: str = "r",
    buffering: Value = -1,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
) -> OpenFile:
    session.need(STEP)  # an endless loop of these fills tables, not memory
    require_codec(encoding, errors)
    if newline not in (None, "", "\n"):
        raise NotUnderstood
    kinds = [letter for letter in "rwax" if letter in mode]
    if set(mode) - set("rwaxbt+") or len(kinds) != 1 or {"b", "t"} <= set(mode):
        raise ValueError(f"invalid mode: {mode!r}")
    if "b" in mode and encoding is not None:
        raise ValueError("binary mode doesn't take an encoding argument")
    handle = _opened(session, path(file), kinds[0], plus="+" in mode)
    made: OpenFile
    if "b" in mode:
        made = ByteFile(handle, file, mode)
    else:
        codec, how = encoding or "utf-8", errors or "strict"
        made = TextFile(handle, file, mode, encoding=codec, errors=how, newline=newline)
    session.open_files.append(made.release)
    return made


def _opened(session: Session, name: str, kind: str, *, plus: bool) -> Handle:
    process = session.process
    session.open_files = [release for release in session.open_files if release.alive]
    if len(session.open_files) >= MOST_OPEN:
        raise OSError(errno.EMFILE, "Too many open files", name)
    how = {**_MODES[kind], **({"read": True, "write": kind != "a"} if plus else {})}
    return process.kernel.fs.open(
        name, cwd=process.cwd, who=process.who, umask=process.umask, **how
    )


@method(OpenFile, "read")
async def _read(session: Session, file: OpenFile, size: Value = -1) -> Value:
    return await file.read(session, -1 if size is None else int(size))


@method(OpenFile, "readline")
async def _readline(session: Session, file: OpenFile) -> Value:
    return await file.line(session)


@method(OpenFile, "readlines")
async def _readlines(session: Session, file: OpenFile) -> list[Value]:
    return await file.lines(session)


@method(OpenFile, "write")
async def _write(session: Session, file: OpenFile, value: Value) -> int:
    return await file.write(session, value)


@method(OpenFile, "writelines")
async def _writelines(session: Session, file: OpenFile, values: Value) -> None:
    for value in await session.items(values):
        await file.write(session, value)


@method(OpenFile, "seek")
async def _seek(session: Session, file: OpenFile, position: int) -> int:
    file.seek(int(position))
    return int(position)


@method(OpenFile, "flush")
async def _flush(session: Session, file: OpenFile) -> None:
    """Do nothing: everything is written at once."""


ATTRIBUTES[OpenFile] = {
    "closed": lambda file: file.closed,
    "mode": lambda file: file.mode,
    "name": lambda file: file.name,
}


@method(PosixPath, "open")
async def _open_path(session: Session, name: PosixPath, mode: str = "r") -> OpenFile:
    return await open_file(session, name, mode)


@method(PosixPath, "read_text")
async def _read_text(session: Session, name: PosixPath, encoding: str | None = None) -> Value:
    return await _whole(session, await open_file(session, name, "r", encoding=encoding))


@method(PosixPath, "read_bytes")
async def _read_bytes(session: Session, name: PosixPath) -> Value:
    return await _whole(session, await open_file(session, name, "rb"))


@method(PosixPath, "write_text")
async def _write_text(
    session: Session, name: PosixPath, data: Value, encoding: str | None = None
) -> int:
    return await _written(session, await open_file(session, name, "w", encoding=encoding), data)


@method(PosixPath, "write_bytes")
async def _write_bytes(session: Session, name: PosixPath, data: Value) -> int:
    return await _written(session, await open_file(session, name, "wb"), data)


async def _whole(session: Session, file: OpenFile) -> Value:
    with closing(file):
        return await file.read(session, -1)


async def _written(session: Session, file: OpenFile, data: Value) -> int:
    with closing(file):
        return await file.write(session, data)
