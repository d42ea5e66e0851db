"""The file system of a sandbox, as callers see it."""

from __future__ import annotations

import os
import stat
from collections.abc import AsyncGenerator, AsyncIterable
from contextlib import aclosing
from functools import partial
from typing import IO, TYPE_CHECKING, TypeVar

from sandboxio.core import file_arguments as arguments
from sandboxio.core import host_files, host_trees, patterns, requests, threads, trees
from sandboxio.core.errors import ConfigurationError, ExecutionTimeout, FileSystemError
from sandboxio.core.mapping import Deadline, DeadlinePassed
from sandboxio.core.models import Capability
from sandboxio.core.reading import SandboxFileReader
from sandboxio.core.selection import Selection

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from pathlib import Path

    from sandboxio.core.clock import Clock
    from sandboxio.core.driver import DriverSandbox
    from sandboxio.core.host_trees import Names
    from sandboxio.core.models import FileInfo, TreeTransfer
    from sandboxio.core.record import OperationRecord, Recorder

T = TypeVar("T")

MAX_READ_BYTES = 256 * 1024 * 1024
"""Most that `read()` returns at once: it holds the whole of it in memory."""
MAX_DOWNLOAD_BYTES = 16 * 1024 * 1024 * 1024
"""Most that `download()` writes to the host's disk."""
TRANSFERS = Capability.FILESYSTEM | Capability.UPLOAD_DOWNLOAD
_DOWNLOADS_AT_MOST = "A download writes at most 16 GiB."


class SandboxFiles:
    """Files of one sandbox, with the rights of its user; see `file_protocols.AsyncFileSystem`."""

    def __init__(
        self,
        driver: DriverSandbox,
        *,
        recorder: Recorder,
        require: Callable[[Capability], None],
        clock: Clock,
    ) -> None:
        self._driver = driver
        self._recorder = recorder
        self._require = require
        self._clock = clock

    async def read(self, path: str, *, offset: int = 0, length: int | None = None) -> bytes:
        where = self._allowed("path", path)
        start, count = arguments.byte_range(offset, length)
        most = MAX_READ_BYTES if count is None else min(count, MAX_READ_BYTES)
        pieces = _Bounded(most, "read() got more than it asked for, or more than 256 MiB.")

        async def act(record: OperationRecord) -> bytes:
            await self._driver.files.read(where, offset=start, length=count, sink=pieces.add)
            record.bytes_out = pieces.size
            return b"".join(pieces.parts)

        return await self._operation("file_read", where, act)

    async def write(self, path: str, data: bytes | str, *, mode: int | None = None) -> None:
        where = self._allowed("path", path)
        payload = arguments.payload(data)
        bits = arguments.mode_bits(mode)

        async def act(record: OperationRecord) -> None:
            async with aclosing(arguments.one_piece(payload)) as source:
                await self._driver.files.write(where, source, size=len(payload), mode=bits)
            record.bytes_in = len(payload)

        await self._operation("file_write", where, act)

    async def write_from(
        self,
        path: str,
        chunks: AsyncIterable[bytes],
        *,
        size: int | None = None,
        mode: int | None = None,
    ) -> None:
        where = self._allowed("path", path)
        expected = None if size is None else arguments.whole_number("size", size)
        bits = arguments.mode_bits(mode)
        given = arguments.chunk_source(chunks)

        async def act(record: OperationRecord) -> None:
            async with aclosing(arguments.counted(given, expected, record)) as source:
                await self._driver.files.write(where, source, size=expected, mode=bits)

        try:
            await self._operation("file_write", where, act)
        finally:
            if isinstance(given, AsyncGenerator):
                await given.aclose()

    def open_read(
        self, path: str, *, offset: int = 0, length: int | None = None
    ) -> SandboxFileReader:
        where = self._allowed("path", path)
        start, count = arguments.byte_range(offset, length)

        return SandboxFileReader(
            partial(self._driver.files.read, where, offset=start, length=count),
            timeout=self._driver.timeout,
            operation=self._recorder.operation("file_read", path=where),
            clock=self._clock,
        )

    async def stat(self, path: str) -> FileInfo:
        where = self._allowed("path", path)
        return await self._operation(
            "file_stat", where, lambda _: self._driver.files.stat(where, follow=False)
        )

    async def exists(self, path: str) -> bool:
        where = self._allowed("path", path)
        return await self._operation(
            "file_exists", where, lambda _: self._driver.files.exists(where)
        )

    async def ls(self, path: str = ".", *, recursive: bool = False) -> list[FileInfo]:
        where = self._allowed("path", path)
        return await self._operation(
            "file_list", where, lambda _: self._driver.files.ls(where, recursive=recursive)
        )

    async def glob(self, pattern: str) -> list[FileInfo]:
        where = self._allowed("pattern", pattern)
        patterns.parse(where)
        return await self._operation("file_glob", where, lambda _: self._driver.files.glob(where))

    async def mkdir(self, path: str, *, parents: bool = False) -> None:
        where = self._allowed("path", path)
        await self._operation(
            "file_mkdir", where, lambda _: self._driver.files.mkdir(where, parents=parents)
        )

    async def remove(self, path: str, *, recursive: bool = False) -> None:
        where = self._allowed("path", path)
        await self._operation(
            "file_remove", where, lambda _: self._driver.files.remove(where, recursive=recursive)
        )

    async def move(self, source: str, target: str) -> None:
        start, end = self._allowed("source", source), self._allowed("target", target)
        await self._operation("file_move", start, lambda _: self._driver.files.move(start, end))

    async def copy(self, source: str, target: str) -> None:
        start, end = self._allowed("source", source), self._allowed("target", target)
        await self._operation("file_copy", start, lambda _: self._driver.files.copy(start, end))

    async def chmod(self, path: str, mode: int) -> None:
        where = self._allowed("path", path)
        bits = arguments.mode_bits(mode)
        if bits is None:
            raise ConfigurationError("mode must be permission bits between 0 and 0o777.")
        await self._operation("file_chmod", where, lambda _: self._driver.files.chmod(where, bits))

    async def edit(
        self, path: str, old: bytes | str, new: bytes | str, *, count: int | None = 1
    ) -> int:
        where = self._allowed("path", path)
        before, after = arguments.payload(old, "old"), arguments.payload(new, "new")
        if not before:
            raise ConfigurationError("old must not be empty.")
        wanted = None if count is None else arguments.whole_number("count", count, least=1)
        return await self._operation(
            "file_edit",
            where,
            lambda _: self._driver.files.edit(where, before, after, count=wanted),
        )

    async def upload(self, local: str | Path, remote: str) -> None:
        where = self._allowed("remote", remote, TRANSFERS)
        place = host_files.host_path(local)

        async def act(record: OperationRecord) -> None:
            record.bytes_in = await self._send(partial(host_files.open_source, place), where)

        await self._operation("file_upload", where, act)

    async def download(self, remote: str, local: str | Path) -> None:
        where = self._allowed("remote", remote, TRANSFERS)
        place = host_files.host_path(local)

        async def act(record: OperationRecord) -> None:
            info = await self._driver.files.stat(where, follow=True)
            if info.kind == "file" and info.size > MAX_DOWNLOAD_BYTES:
                raise _too_large(_DOWNLOADS_AT_MOST)
            record.bytes_out = await self._fetch(where, place, info.mode, MAX_DOWNLOAD_BYTES)

        await self._operation("file_download", where, act)

    async def upload_dir(
        self,
        local: str | Path,
        remote: str,
        *,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
    ) -> TreeTransfer:
        where = self._allowed("remote", remote, TRANSFERS)
        top = host_files.host_path(local)
        wanted = Selection(include, exclude)

        async def act(record: OperationRecord) -> TreeTransfer:
            async def send(names: Names, inside: str) -> int:
                size = await self._send(partial(host_trees.opened, top, names), inside)
                record.bytes_in += size
                return size

            return await trees.upload(self._driver.files, top, where, wanted, send)

        return await self._operation("dir_upload", where, act)

    async def download_dir(
        self,
        remote: str,
        local: str | Path,
        *,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
    ) -> TreeTransfer:
        where = self._allowed("remote", remote, TRANSFERS)
        top = host_files.host_path(local)
        wanted = Selection(include, exclude)

        async def act(record: OperationRecord) -> TreeTransfer:
            async def fetch(inside: str, place: Path, mode: int) -> int:
                left = MAX_DOWNLOAD_BYTES - record.bytes_out
                size = await self._fetch(inside, place, mode, left)
                record.bytes_out += size
                return size

            return await trees.download(self._driver.files, where, top, wanted, fetch)

        return await self._operation("dir_download", where, act)

    async def _send(self, opener: Callable[[], IO[bytes]], where: str) -> int:
        """Copy a file of the host, and return its size."""
        async with host_files.opened_source(opener) as file:
            status = os.fstat(file.fileno())
            mode = (stat.S_IMODE(status.st_mode) & 0o755) | 0o644
            async with aclosing(host_files.pieces(file, status.st_size)) as source:
                await self._driver.files.write(where, source, size=status.st_size, mode=mode)
        return status.st_size

    async def _fetch(self, where: str, place: Path, mode: int, limit: int) -> int:
        """Copy a file of the sandbox, and return its size."""
        async with host_files.new_file(place, mode & 0o755) as target:
            sink = _Bounded(limit, _DOWNLOADS_AT_MOST, target=target)
            await self._driver.files.read(where, offset=0, length=None, sink=sink.add)
            await sink.flush()
        return sink.size

    def _allowed(self, name: str, path: str, needs: Capability = Capability.FILESYSTEM) -> str:
        """Return the path of an operation, if the sandbox declares what it takes."""
        for flag in needs:
            self._require(flag)
        return requests.path(name, path)

    async def _operation(
        self, event: str, path: str, act: Callable[[OperationRecord], Awaitable[T]]
    ) -> T:
        timeout = self._driver.timeout
        with self._recorder.operation(event, path=path) as record:
            try:
                return await Deadline(timeout, self._clock).bound(lambda: act(record))
            except DeadlinePassed:
                raise ExecutionTimeout(
                    f"The file operation did not end within {timeout:g} s."
                ) from None


class _Bounded:
    """Gathers pieces up to a limit; with a target, passes them on to a file of the host."""

    def __init__(self, limit: int, complaint: str, *, target: IO[bytes] | None = None) -> None:
        self._limit = limit
        self._complaint = complaint
        self._target = target
        self._waiting = 0
        self.size = 0
        self.parts: list[bytes] = []

    async def add(self, piece: bytes) -> None:
        self.size += len(piece)
        if self.size > self._limit:
            raise _too_large(self._complaint)
        self.parts.append(piece)
        self._waiting += len(piece)
        if self._target is not None and self._waiting >= host_files.BATCH:
            await self.flush()

    async def flush(self) -> None:
        """Write what has gathered: in batches, since each costs a change of thread."""
        target = self._target
        if target is not None:
            parts, self.parts, self._waiting = self.parts, [], 0
            await threads.run(lambda: host_files.put(target, parts))


def _too_large(complaint: str) -> FileSystemError:
    return FileSystemError(complaint, hint="Use read(offset=, length=) for ranges.", outcome="done")
