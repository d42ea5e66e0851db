"""Part of the agent: frames and fields, as `docs/reference/link-protocol.md` has them."""

from __future__ import annotations

import errno
import struct

HELLO, OPEN, DATA, ERROUT, EOF, CREDIT, RESULT, SIGNAL, END, PING, PONG = range(1, 12)

PAYLOAD_MAX = 256 * 1024
OPEN_MAX = 4 * 1024 * 1024
WINDOW = 256 * 1024
CREDIT_MAX = 1 << 30

HEADER = struct.Struct("!II")
LENGTH = struct.Struct("!I")
ENTRY = struct.Struct("!IIQqI")

NAMES: dict[int, bytes] = {
    errno.ENOENT: b"not-found",
    errno.EACCES: b"permission",
    errno.EPERM: b"permission",
    errno.EROFS: b"permission",
    errno.ENOTDIR: b"not-a-directory",
    errno.EISDIR: b"is-a-directory",
    errno.EEXIST: b"exists",
    errno.ENOTEMPTY: b"not-empty",
    errno.ENOSPC: b"no-space",
    errno.EDQUOT: b"no-space",
    errno.EAGAIN: b"busy",
    errno.EMFILE: b"busy",
    errno.ENFILE: b"busy",
    errno.ENOMEM: b"busy",
}


class Invalid(Exception):
    """The other side broke a rule."""


class suppress:  # noqa: N801  # contextlib costs more than all of this
    """Pass over some errors."""

    def __init__(self, *kinds: type[BaseException]) -> None:
        self.kinds = kinds

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        return kind is not None and issubclass(kind, self.kinds)


def header(channel: int, kind: int, length: int) -> bytes:
    return HEADER.pack(channel, kind << 24 | length)


def pack(fields: list[bytes]) -> bytes:
    return b"".join(LENGTH.pack(len(field)) + field for field in fields)


def unpack(payload: bytes) -> list[bytes]:
    fields: list[bytes] = []
    at, end = 0, len(payload)
    while at < end:
        if end - at < 4:
            raise Invalid
        (length,) = LENGTH.unpack_from(payload, at)
        at += 4 + length
        if at > end:
            raise Invalid
        fields.append(payload[at - length : at])
    return fields


def number(field: bytes) -> int:
    if not field.isdigit() or len(field) > 19:
        raise Invalid
    return int(field)


def account(field: bytes) -> tuple[int, int, list[int]]:
    """Read `uid:gid:group,group`."""
    parts = field.split(b":")
    if len(parts) != 3:
        raise Invalid
    groups = [number(group) for group in parts[2].split(b",") if group]
    return number(parts[0]), number(parts[1]), groups


def failed(error: OSError) -> list[bytes]:
    """Return the fields of a `RESULT` for an error of the system."""
    words = (error.strerror or "failed").encode("utf-8", "replace")
    return [b"error", NAMES.get(error.errno or 0, b"other"), words]
