"""What the virtual programs read: files and stdin, in pieces or in whole lines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from sandboxio.testing._machine.fds import bad_descriptor, open_fd
from sandboxio.testing._programs._common import CHUNK, hold, quoted_if_needed, say

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from types import TracebackType

    from sandboxio.testing._machine.process import Process


class Source:
    """A file, or stdin for `-`, that is read from front to back.

    Raises:
        OSError: the file cannot be opened.
    """

    def __init__(self, process: Process, name: str) -> None:
        self.name = name
        self.process = process
        self._rest = b""
        self.is_stdin = name == "-"
        if self.is_stdin and 0 not in process.fds:
            raise bad_descriptor(0)
        self._fd = process.stdin if self.is_stdin else open_fd(process, name, read=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        if not self.is_stdin:
            self._fd.close()

    async def read(self, size: int = CHUNK) -> bytes:
        """Return the next bytes, `b""` at the end."""
        await self.process.step()
        return await self._fd.read(min(size, CHUNK))

    async def lines(self, end: bytes = b"\n") -> list[bytes]:
        """Return the next lines with their ends, which the very last may lack; none at the end."""
        pieces, size = [self._rest], len(self._rest)
        self._rest = b""
        while piece := await self.read():
            pieces.append(piece)
            size += len(piece)
            if end in piece:
                *whole, self._rest = b"".join(pieces).split(end)
                return [line + end for line in whole]
            await hold(self.process, size)
        last = b"".join(pieces)
        return [last] if last else []

    async def all(self) -> bytes:
        """Return everything that is left."""
        pieces: list[bytes] = []
        size = 0
        while piece := await self.read():
            pieces.append(piece)
            size += len(piece)
            await hold(self.process, size)
        return b"".join(pieces)


def complaint(name: str, exc: OSError) -> str:
    """Return what most programs say of a file they cannot read."""
    return f"{quoted_if_needed(name)}: {exc.strerror}"


async def over(
    process: Process,
    program: str,
    names: Sequence[str],
    act: Callable[[Source], Awaitable[None]],
    *,
    complain: Callable[[str, OSError], str] = complaint,
) -> int:
    """Do something with every file, with stdin where none is named; return 1 if one failed."""
    code = 0
    for name in names or ["-"]:
        try:
            source = Source(process, name)
        except OSError as exc:
            await say(process, f"{program}: {complain(name, exc)}")
            code = 1
            continue
        with source:
            await act(source)
    return code
