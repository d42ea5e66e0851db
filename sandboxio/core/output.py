"""Bounded capture of what a command writes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sandboxio.core.models import OutputChunk


_SLACK = 64 * 1024
"""Bytes beyond the allowance that gather before they are dropped."""


class Capture:
    """Keeps the first and the last half of the allowance; what lies between is dropped.

    Bytes are decoded once, at the end, so characters split across reads stay whole, and cost
    grows with the size of the output, never with its square nor with the number of reads.
    """

    def __init__(self, limit: int) -> None:
        self._head_limit = limit - limit // 2
        self._tail_limit = limit // 2
        self._head = bytearray()
        self._tail = bytearray()
        self.total = 0

    def add(self, data: bytes) -> None:
        self.total += len(data)
        room = self._head_limit - len(self._head)
        if room:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        if len(self._tail) > 2 * self._tail_limit + _SLACK:
            self._trim()

    @property
    def truncated(self) -> bool:
        return self.total > self._head_limit + self._tail_limit

    def text(self) -> str:
        """Decode what was kept; bytes that are not UTF-8 become U+FFFD."""
        return "".join(self.halves())

    def halves(self) -> tuple[str, str]:
        """Decode what stands before and after the gap; all of it before, when there is none."""
        self._trim()
        if not self.truncated:
            return _decode(self._head + self._tail), ""
        return _decode(self._head), _decode(self._tail)

    def _trim(self) -> None:
        excess = len(self._tail) - self._tail_limit
        if excess > 0:
            del self._tail[:excess]


def _decode(data: bytearray) -> str:
    return data.decode("utf-8", "replace")


class OutputCapture:
    """Both streams of one command."""

    def __init__(self, limit: int) -> None:
        self.stdout = Capture(limit)
        self.stderr = Capture(limit)

    def add(self, chunk: OutputChunk) -> None:
        (self.stdout if chunk.stream == "stdout" else self.stderr).add(chunk.data)
