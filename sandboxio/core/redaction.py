"""Masking of secret values in text."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

MASK = "***"
MIN_LENGTH = 4
"""Characters below which a value is not masked: it would mask ordinary words, and guessing
it is easy anyway. The value still goes nowhere but into the environment of a call."""


class Redactor:
    """Replaces every registered value, wherever it stands, by `***`.

    Values that overlap or touch in the text become one mask, so that the remains of one never
    show beside the mask of another.

    Example:
        >>> Redactor(["hunter2"]).redact("password=hunter2")
        'password=***'
    """

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._values: tuple[str, ...] = ()
        for value in values:
            self.add(value)

    def __repr__(self) -> str:
        return f"<Redactor of {len(self._values)} values>"

    def add(self, value: str) -> None:
        """Register a value, and the same without a line end it may be stored with."""
        known = set(self._values)
        known.update(v for v in (value, value.rstrip("\r\n")) if len(v) >= MIN_LENGTH)
        self._values = tuple(sorted(known, key=len, reverse=True))

    def redact(self, text: str) -> str:
        """Return the text with every value masked."""
        spans = self.spans(text)
        if not spans:
            return text
        parts: list[str] = []
        position = 0
        for start, end in spans:
            parts += (text[position:start], MASK)
            position = end
        parts.append(text[position:])
        return "".join(parts)

    def redact_halves(self, head: str, tail: str) -> str:
        """Mask text whose middle was dropped, parts of a value beside the gap included."""
        head, tail = self.redact(head), self.redact(tail)
        if not tail:
            return head
        cut = max((_overlap(head.rstrip("\ufffd"), value) for value in self._values), default=0)
        if cut:
            head = head.rstrip("\ufffd")[:-cut] + MASK
        lead = tail.lstrip("\ufffd")
        cut = max((_overlap(value, lead) for value in self._values), default=0)
        return head + (MASK + lead[cut:] if cut else tail)

    def stream(self) -> StreamRedactor:
        """Return a redactor for text that arrives in pieces."""
        return StreamRedactor(self)

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Return the merged, ordered ranges of the text that hold a value."""
        found: list[tuple[int, int]] = []
        for value in self._values:
            start = text.find(value)
            while start >= 0:
                found.append((start, start + len(value)))
                start = text.find(value, start + 1)
        return _merge(found)

    @property
    def longest(self) -> int:
        """Length of the longest value; 0 when there is none."""
        return len(self._values[0]) if self._values else 0


class StreamRedactor:
    """Masks values that are cut across pieces; holds back less than the longest value.

    Example:
        >>> stream = Redactor(["hunter2"]).stream()
        >>> stream.feed("is hun") + stream.feed("ter2!") + stream.flush()
        'is ***!'
    """

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._held = ""
        self._masked: int | None = None
        """How much of the start of what is held belongs to the mask written last, if any."""

    def feed(self, piece: str) -> str:
        """Return what can be shown now."""
        self._held += piece
        return self._release(max(0, len(self._held) - max(0, self._redactor.longest - 1)))

    def flush(self) -> str:
        """Return what is still held; the stream has ended."""
        return self._release(len(self._held))

    def _release(self, cut: int) -> str:
        if cut == 0:
            return ""
        continued = self._masked is not None
        spans = self._redactor.spans(self._held)
        if self._masked is not None:
            spans = _merge([(0, self._masked), *spans])
        parts: list[str] = []
        position = 0
        self._masked = None
        for start, end in spans:
            if start >= cut:
                break
            parts.append(self._held[position:start])
            if start > 0 or not continued:
                parts.append(MASK)
            position = min(end, cut)
            self._masked = end - cut if end >= cut else None
        parts.append(self._held[position:cut])
        self._held = self._held[cut:]
        return "".join(parts)


def _overlap(first: str, second: str) -> int:
    """Return how much of the end of one text is the beginning of the other."""
    longest = min(len(first), len(second))
    return next((n for n in range(longest, 0, -1) if first.endswith(second[:n])), 0)


def _merge(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged
