"""Files of the host: the other end of an upload or a download, worked on in threads."""

from __future__ import annotations

import stat
import tempfile
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING

from sandboxio.core import requests, threads
from sandboxio.core.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

BATCH = 1024 * 1024
"""Bytes that are read or written at once: each time costs a change of thread."""


def put(target: IO[bytes], parts: list[bytes]) -> None:
    try:
        target.writelines(parts)
        target.flush()
    except OSError as exc:
        raise _unwritable(target.name, exc) from exc


@asynccontextmanager
async def opened_source(opener: Callable[[], IO[bytes]]) -> AsyncGenerator[IO[bytes]]:
    """Yield a file of the host, opened for reading in a thread."""
    late: list[IO[bytes]] = []
    file = await threads.run(lambda: _kept(opener(), late), late=lambda: _close_all(late))
    with file:
        yield file


@asynccontextmanager
async def new_file(local: Path, mode: int) -> AsyncGenerator[IO[bytes]]:
    """Yield a file that appears at `local`, whole, when the block succeeds, and never otherwise."""
    late: list[IO[bytes]] = []
    target = await threads.run(
        lambda: _kept(_open_target(local), late), late=lambda: _discard_all(late)
    )
    try:
        yield target
        await threads.run(lambda: _publish(target, local, mode))
    except BaseException:
        _discard(target)
        raise


def host_path(local: object) -> Path:
    if not isinstance(local, str | Path):
        raise ConfigurationError(f"local must be a path, not {type(local).__name__}.")
    requests.text("local", str(local).encode(errors="surrogateescape").decode("latin-1"))
    return Path(local)


def open_source(local: Path) -> IO[bytes]:
    try:
        status = local.stat()
        if not stat.S_ISREG(status.st_mode):
            raise ConfigurationError(f"local {str(local)!r} is not a regular file of this host.")
        return local.open("rb")
    except OSError as exc:
        raise _unreadable(local, exc) from exc


def _open_target(local: Path) -> IO[bytes]:
    try:
        if local.is_dir():
            raise ConfigurationError(f"local {str(local)!r} is a directory of this host.")
        return tempfile.NamedTemporaryFile(
            dir=local.parent, prefix=f".{local.name[:32]}.", suffix=".part", delete=False
        )
    except OSError as exc:
        raise _unwritable(local, exc) from exc


def _publish(target: IO[bytes], local: Path, mode: int) -> None:
    part = Path(target.name)
    try:
        target.close()
        part.chmod(mode | stat.S_IRUSR | stat.S_IWUSR)
        part.replace(local)
    except OSError as exc:
        raise _unwritable(local, exc) from exc


def _unreadable(local: object, exc: OSError) -> ConfigurationError:
    return ConfigurationError(f"local {str(local)!r} cannot be read on this host: {exc.strerror}.")


def _unwritable(local: object, exc: OSError) -> ConfigurationError:
    return ConfigurationError(
        f"local {str(local)!r} cannot be written on this host: {exc.strerror}."
    )


def _kept(file: IO[bytes], kept: list[IO[bytes]]) -> IO[bytes]:
    kept.append(file)
    return file


def _close_all(files: list[IO[bytes]]) -> None:
    for file in files:
        file.close()


def _discard_all(files: list[IO[bytes]]) -> None:
    """Dispose of a file whose operation was cancelled before it knew of it."""
    for file in files:
        _discard(file)


def _discard(file: IO[bytes]) -> None:
    with suppress(OSError):  # a full disk does not take what is left in the buffer either
        file.close()
    Path(file.name).unlink(missing_ok=True)


async def pieces(opened: IO[bytes], size: int) -> AsyncGenerator[bytes]:
    while size > 0:
        piece = await threads.run(partial(_take, opened, min(size, BATCH)))
        if not piece:
            raise ConfigurationError("The local file became shorter while it was uploaded.")
        size -= len(piece)
        yield piece


def _take(source: IO[bytes], size: int) -> bytes:
    try:
        return source.read(size)
    except OSError as exc:
        raise _unreadable(source.name, exc) from exc
