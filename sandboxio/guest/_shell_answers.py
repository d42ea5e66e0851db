"""Reading what the file scripts print: nothing of it is believed that no file could have."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from sandboxio.core.errors import FileSystemError
from sandboxio.core.models import FileInfo
from sandboxio.guest._shell_scripts import CODES

if TYPE_CHECKING:
    from sandboxio.core.models import FileKind

_NUMBERS = rb" ?([0-9a-f]{1,8}) ([0-9]{1,19}) (-?[0-9]{1,19})"
_ONE = re.compile(_NUMBERS + rb"\Z")
_NAME = rb"(?!\.{1,2}(?:/|\Z))[^/\0]{1,255}"
_ENTRY = re.compile(_NUMBERS + rb" \./(" + _NAME + rb")\Z")
_DEEP_ENTRY = re.compile(_NUMBERS + rb" \./(" + _NAME + rb"(?:/" + _NAME + rb")*+)\Z")
_TARGET_LIMIT = 4096
_KINDS: dict[int, FileKind] = {0o100000: "file", 0o040000: "directory", 0o120000: "link"}


def described(path: str, said: bytes, mark: bytes) -> FileInfo:
    """Read the answer of `STAT`."""
    numbers, *rest = _records(said, mark) or [b""]
    match = _ONE.match(numbers)
    if match is None:
        raise _unreadable()
    return _info(path, match.groups(), rest[0] if rest else None)


def listed(path: str, said: bytes, mark: bytes, *, deep: bool = False) -> list[FileInfo]:
    """Read the answer of `LIST`, or with `deep` one that goes further down, sorted by path."""
    form = _DEEP_ENTRY if deep else _ENTRY
    base = "" if path == "." else path if path.endswith("/") else f"{path}/"
    entries: dict[bytes, tuple[bytes, ...]] = {}
    targets: dict[bytes, bytes] = {}
    link = b""
    for body in _records(said, mark):
        if body.startswith(b"@"):
            link = body[1:].removeprefix(b"./")
        elif body.startswith(b"="):
            targets[link] = body[1:]
        else:
            *numbers, name = _entry(body, form)
            entries[name] = tuple(numbers)
    found = [
        _info(base + _decode(name), numbers, targets.get(name)) for name, numbers in entries.items()
    ]
    return sorted(found, key=lambda info: info.path)


def failure(
    path: str, code: int, complaint: bytes, *, target: str | None = None
) -> FileSystemError:
    """Return the error for the end of a script, in the sandbox's own words."""
    words = " ".join(complaint.decode("utf-8", "replace").split()) or f"exit code {code}"
    said = "".join(sign if sign.isprintable() else "?" for sign in words)
    where = f"{path!r}" if target is None else f"{path!r} to {target!r}"
    return CODES.get(code, FileSystemError)(f"{where}: {said}", outcome="done")


def _records(said: bytes, mark: bytes) -> list[bytes]:
    before, *records = said.split(mark)
    if before:
        raise _unreadable()
    return [record.removesuffix(b"\n") for record in records]


def _entry(body: bytes, form: re.Pattern[bytes]) -> tuple[bytes, ...]:
    match = form.match(body)
    if match is None:
        raise _unreadable()
    return match.groups()


def _info(path: str, numbers: tuple[bytes, ...], target: bytes | None) -> FileInfo:
    mode = int(numbers[0], 16)
    kind: FileKind = _KINDS.get(mode & 0o170000, "other")
    if target is not None and (len(target) > _TARGET_LIMIT or b"\0" in target):
        raise _unreadable()
    return FileInfo(
        path=path,
        size=int(numbers[1]),
        is_dir=kind == "directory",
        kind=kind,
        mode=mode & 0o7777,
        mtime=_time(int(numbers[2])),
        target=None if target is None else _decode(target),
    )


def _time(seconds: int) -> datetime | None:
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return None  # a file can carry any number, also beyond the year 9999


def _decode(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")


def _unreadable() -> FileSystemError:
    return FileSystemError(
        "The sandbox described a file in a way that cannot be read.",
        hint="Use an image whose stat, find and readlink are those of coreutils or BusyBox.",
        outcome="done",
    )
