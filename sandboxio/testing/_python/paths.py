"""Paths as recognised Python sees them: `os`, `os.path` and `pathlib.Path`, in memory."""

from __future__ import annotations

import errno
import posixpath
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, TypedDict

from sandboxio.testing._disk.nodes import Directory, File
from sandboxio.testing._python.objects import (
    ATTRIBUTES,
    CONSTANTS,
    FUNCTIONS,
    Function,
    NotUnderstood,
    Value,
    constructor,
    function,
    method,
    named,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from sandboxio.testing._disk.fs import FileSystem
    from sandboxio.testing._disk.nodes import Node, Who
    from sandboxio.testing._python.session import Session


@named("pathlib.PosixPath")
class PosixPath(PurePosixPath):
    """A `pathlib.Path`, of which only the pure half is Python's own."""


class _Caller(TypedDict):
    cwd: str
    who: Who


def path(value: Value) -> str:
    """Return a path given as text or as a `Path`; descriptors and bytes are not known."""
    if isinstance(value, str | PosixPath):
        if "\0" in str(value):
            raise ValueError("embedded null byte")
        return str(value)
    if isinstance(value, bytes | int):
        raise NotUnderstood
    kind = type(value).__name__
    raise TypeError(f"expected str, bytes or os.PathLike object, not {kind}")


def _files(session: Session) -> FileSystem:
    return session.process.kernel.fs


def _caller(session: Session) -> _Caller:
    return {"cwd": session.process.cwd, "who": session.process.who}


def _node(session: Session, name: Value) -> Node | None:
    try:
        return _files(session).resolve(path(name), **_caller(session))
    except OSError:
        return None


@function("os.listdir")
async def _listdir(session: Session, name: Value = ".") -> list[Value]:
    found = _files(session).listdir(path(name), **_caller(session))
    return list(session.made(list[Value](found)))


@function("os.mkdir")
async def _mkdir(session: Session, name: Value, mode: int = 0o777) -> None:
    umask = session.process.umask
    _files(session).mkdir(path(name), mode, umask=umask, **_caller(session))


@function("os.makedirs")
async def _makedirs(
    session: Session, name: Value, mode: int = 0o777, exist_ok: Value = False
) -> None:
    if not exist_ok and _node(session, name) is not None:
        raise FileExistsError(errno.EEXIST, "File exists", path(name))
    umask = session.process.umask
    _files(session).mkdir(path(name), mode, umask=umask, parents=True, **_caller(session))


@function("os.remove", "os.unlink")
async def _remove(session: Session, name: Value) -> None:
    _files(session).unlink(path(name), **_caller(session))


@function("os.rmdir")
async def _rmdir(session: Session, name: Value) -> None:
    _files(session).rmdir(path(name), **_caller(session))


@function("os.rename", "os.replace")
async def _rename(session: Session, old: Value, new: Value) -> None:
    try:
        _files(session).rename(path(old), path(new), **_caller(session))
    except OSError as exc:
        raise OSError(exc.errno, exc.strerror, path(old), None, path(new)) from None


@function("os.path.exists")
async def _exists(session: Session, name: Value) -> bool:
    return _node(session, name) is not None


@function("os.path.isfile")
async def _isfile(session: Session, name: Value) -> bool:
    return isinstance(_node(session, name), File)


@function("os.path.isdir")
async def _isdir(session: Session, name: Value) -> bool:
    return isinstance(_node(session, name), Directory)


@function("os.path.getsize")
async def _getsize(session: Session, name: Value) -> int:
    return _files(session).resolve(path(name), **_caller(session)).size


@function("os.path.abspath")
async def _abspath(session: Session, name: Value) -> str:
    return posixpath.normpath(posixpath.join(session.process.cwd, path(name)))


def _lexical(name: str, host: Callable[..., Value]) -> None:
    async def act(session: Session, *given: Value) -> Value:
        return session.made(host(*map(path, given)))

    FUNCTIONS[name] = Function(name, act)


_LEXICAL: dict[str, Callable[..., Value]] = {
    "basename": posixpath.basename,
    "dirname": posixpath.dirname,
    "isabs": posixpath.isabs,
    "join": posixpath.join,
    "normpath": posixpath.normpath,
    "splitext": posixpath.splitext,
}
for _name in _LEXICAL:
    _lexical(f"os.path.{_name}", _LEXICAL[_name])


CONSTANTS["pathlib.Path"] = PosixPath
ATTRIBUTES[PosixPath] = {
    "name": lambda value: value.name,
    "parent": lambda value: value.parent,
    "parts": lambda value: value.parts,
    "stem": lambda value: value.stem,
    "suffix": lambda value: value.suffix,
}
method(PosixPath, "exists")(_exists)
method(PosixPath, "is_file")(_isfile)
method(PosixPath, "is_dir")(_isdir)
method(PosixPath, "rmdir")(_rmdir)


@constructor(PosixPath)
async def _path(session: Session, *parts: Value) -> PosixPath:
    return PosixPath(*map(path, parts))


@method(PosixPath, "unlink")
async def _unlink(session: Session, name: PosixPath, missing_ok: Value = False) -> None:
    if not (missing_ok and _node(session, name) is None):
        await _remove(session, name)


@method(PosixPath, "mkdir")
async def _make(
    session: Session,
    name: PosixPath,
    mode: int = 0o777,
    parents: Value = False,
    exist_ok: Value = False,
) -> None:
    if exist_ok and isinstance(_node(session, name), Directory):
        return
    await (_makedirs if parents else _mkdir)(session, name, mode)


@method(PosixPath, "iterdir")
async def _iterdir(session: Session, name: PosixPath) -> list[Value]:
    return [name / entry for entry in await _listdir(session, name)]
