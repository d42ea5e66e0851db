"""What callers pass to operations on files, checked."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable
from typing import TYPE_CHECKING, cast

import anyio.lowlevel

from sandboxio.core import requests
from sandboxio.core.errors import ConfigurationError, FileSystemError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from sandboxio.core.record import OperationRecord

_LARGEST = 2**62


async def one_piece(payload: bytes) -> AsyncGenerator[bytes]:
    await anyio.lowlevel.checkpoint()
    if payload:
        yield payload


async def counted(
    chunks: AsyncIterator[bytes], size: int | None, record: OperationRecord
) -> AsyncGenerator[bytes]:
    """Yield the caller's chunks, as far as they are what was promised."""
    async for chunk in chunks:
        if not isinstance(chunk, bytes):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(f"chunks must be bytes, not {type(chunk).__name__}.")
        record.bytes_in += len(chunk)
        if size is not None and record.bytes_in > size:
            raise FileSystemError(f"chunks are more than size={size} bytes.", outcome="done")
        if chunk:
            yield chunk


def chunk_source(chunks: object) -> AsyncIterator[bytes]:
    if not isinstance(chunks, AsyncIterable):
        raise ConfigurationError(
            f"chunks must be an async iterable of bytes, not {type(chunks).__name__}.",
            hint="Pass what is in memory to write(), and a file of this host to upload().",
        )
    return aiter(cast("AsyncIterable[bytes]", chunks))


def payload(data: object, name: str = "data") -> bytes:
    if isinstance(data, bytes):
        return data
    if isinstance(data, str):
        return requests.input_bytes(data) or b""
    raise ConfigurationError(f"{name} must be bytes or text, not {type(data).__name__}.")


def mode_bits(mode: object) -> int | None:
    if mode is None:
        return None
    if isinstance(mode, bool) or not isinstance(mode, int) or not 0 <= mode <= 0o777:
        raise ConfigurationError("mode must be permission bits between 0 and 0o777.")
    return mode


def byte_range(offset: object, length: object) -> tuple[int, int | None]:
    start = whole_number("offset", offset)
    return start, None if length is None else whole_number("length", length)


def whole_number(name: str, value: object, *, least: int = 0) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _LARGEST:
        raise ConfigurationError(f"{name} must be a whole number between {least} and 2**62.")
    return value
