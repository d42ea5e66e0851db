"""Files for blocking code."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from typing import TYPE_CHECKING, cast

from sandboxio.core import threads
from sandboxio.core.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from sandboxio.core.file_protocols import AsyncFileSystem, FileReader
    from sandboxio.core.models import FileInfo, TreeTransfer
    from sandboxio.core.portal import Portal


class SyncFileSystem:
    """`AsyncFileSystem` for blocking code."""

    def __init__(self, files: AsyncFileSystem, portal: Portal) -> None:
        self._files = files
        self._portal = portal

    def read(self, path: str, *, offset: int = 0, length: int | None = None) -> bytes:
        return self._portal.call(lambda: self._files.read(path, offset=offset, length=length))

    def write(self, path: str, data: bytes | str, *, mode: int | None = None) -> None:
        self._portal.call(lambda: self._files.write(path, data, mode=mode))

    def write_from(
        self,
        path: str,
        chunks: Iterable[bytes],
        *,
        size: int | None = None,
        mode: int | None = None,
    ) -> None:
        """Write what an iterable gives; it is asked in a worker thread."""
        source = _in_threads(chunks)
        self._portal.call(lambda: self._files.write_from(path, source, size=size, mode=mode))

    def open_read(self, path: str, *, offset: int = 0, length: int | None = None) -> SyncFileReader:
        """Return a file for `with`; each chunk costs one round trip between threads."""
        return SyncFileReader(
            self._files.open_read(path, offset=offset, length=length), self._portal
        )

    def stat(self, path: str) -> FileInfo:
        return self._portal.call(lambda: self._files.stat(path))

    def exists(self, path: str) -> bool:
        return self._portal.call(lambda: self._files.exists(path))

    def ls(self, path: str = ".", *, recursive: bool = False) -> list[FileInfo]:
        return self._portal.call(lambda: self._files.ls(path, recursive=recursive))

    def glob(self, pattern: str) -> list[FileInfo]:
        return self._portal.call(lambda: self._files.glob(pattern))

    def mkdir(self, path: str, *, parents: bool = False) -> None:
        self._portal.call(lambda: self._files.mkdir(path, parents=parents))

    def remove(self, path: str, *, recursive: bool = False) -> None:
        self._portal.call(lambda: self._files.remove(path, recursive=recursive))

    def move(self, source: str, target: str) -> None:
        self._portal.call(lambda: self._files.move(source, target))

    def copy(self, source: str, target: str) -> None:
        self._portal.call(lambda: self._files.copy(source, target))

    def chmod(self, path: str, mode: int) -> None:
        self._portal.call(lambda: self._files.chmod(path, mode))

    def edit(self, path: str, old: bytes | str, new: bytes | str, *, count: int | None = 1) -> int:
        return self._portal.call(lambda: self._files.edit(path, old, new, count=count))

    def upload(self, local: str | Path, remote: str) -> None:
        self._portal.call(lambda: self._files.upload(local, remote))

    def download(self, remote: str, local: str | Path) -> None:
        self._portal.call(lambda: self._files.download(remote, local))

    def upload_dir(
        self,
        local: str | Path,
        remote: str,
        *,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
    ) -> TreeTransfer:
        return self._portal.call(
            lambda: self._files.upload_dir(local, remote, include=include, exclude=exclude)
        )

    def download_dir(
        self,
        remote: str,
        local: str | Path,
        *,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
    ) -> TreeTransfer:
        return self._portal.call(
            lambda: self._files.download_dir(remote, local, include=include, exclude=exclude)
        )


class SyncFileReader:
    """`FileReader` for blocking code."""

    def __init__(self, reader: FileReader, portal: Portal) -> None:
        self._reader = reader
        self._portal = portal
        self._block = ExitStack()

    def __enter__(self) -> Self:
        self._block.enter_context(self._portal.entered(self._reader))
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self._block.__exit__(exc_type, exc, tb)

    def __iter__(self) -> Iterator[bytes]:
        chunks = aiter(self._reader)
        while (chunk := self._portal.call(lambda: _next(chunks))) is not None:
            yield chunk


async def _next(chunks: AsyncIterator[bytes]) -> bytes | None:
    return await anext(chunks, None)


def _in_threads(chunks: object) -> AsyncGenerator[bytes]:
    """Return an iterable for the event loop, which must not wait for it."""
    if not isinstance(chunks, Iterable):
        raise ConfigurationError(
            f"chunks must be an iterable of bytes, not {type(chunks).__name__}."
        )
    return _asked(iter(cast("Iterable[bytes]", chunks)))


async def _asked(chunks: Iterator[bytes]) -> AsyncGenerator[bytes]:
    while (chunk := await threads.run(lambda: next(chunks, None))) is not None:
        yield chunk
