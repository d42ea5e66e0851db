"""Bounded capture of what a command writes."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sandboxio.core.models import OutputChunk


class Capture:
    """Keeps the first and the last half of the allowance; what lies between is dropped.

    Chunks are joined and decoded once, at the end, so characters split across reads stay whole
    and cost grows with the size of the output, never with its square.
    """

    def __init__(self, limit: int) -> None:
        self._head_room = limit - limit // 2
        self._tail_limit = limit // 2
        self._head: list[bytes] = []
        self._tail: deque[bytes] = deque()
        self._tail_size = 0
        self.total = 0

    def add(self, data: bytes) -> None:
        self.total += len(data)
        if self._head_room:
            taken = data[: self._head_room]
            self._head.append(taken)
            self._head_room -= len(taken)
            data = data[len(taken) :]
        if data:
            self._tail.append(data)
            self._tail_size += len(data)
            self._trim()

    @property
    def truncated(self) -> bool:
        return self.total > sum(map(len, self._head)) + self._tail_size

    def text(self) -> str:
        """Decode what was kept; bytes that are not UTF-8 become U+FFFD."""
        return "".join(self.halves())

    def halves(self) -> tuple[str, str]:
        """Decode what stands before and after the gap; all of it before, when there is none."""
        if not self.truncated:
            return _decode((*self._head, *self._tail)), ""
        return _decode(self._head), _decode(self._tail)

    def _trim(self) -> None:
        excess = self._tail_size - self._tail_limit
        while excess > 0:
            first = self._tail.popleft()
            if len(first) > excess:
                self._tail.appendleft(first[excess:])
            dropped = min(len(first), excess)
            self._tail_size -= dropped
            excess -= dropped


def _decode(pieces: Iterable[bytes]) -> str:
    return b"".join(pieces).decode("utf-8", "replace")


class OutputCapture:
    """Both streams of one command."""

    def __init__(self, limit: int) -> None:
        self.stdout = Capture(limit)
        self.stderr = Capture(limit)

    def add(self, chunk: OutputChunk) -> None:
        (self.stdout if chunk.stream == "stdout" else self.stderr).add(chunk.data)
