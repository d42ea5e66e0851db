"""Bounded capture: what is kept, what is dropped, and how it is decoded."""

from __future__ import annotations

from random import Random

import pytest

from sandboxio.core.output import Capture, OutputCapture
from tests.doubles import err, out

TEXT = bytes(range(33, 33 + 64))


def kept(data: bytes, limit: int) -> str:
    """Return, the simple way, what a capture has to keep."""
    if len(data) <= limit:
        return data.decode()
    tail = limit // 2
    return (data[: limit - tail] + data[len(data) - tail :]).decode()


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 62, 63, 64, 65, 1000])
@pytest.mark.parametrize("size", [1, 2, 5, 64])
def test_head_and_tail_are_kept_at_every_border(limit: int, size: int) -> None:
    """Whatever the limit and the size of the pieces, the first and last halves remain."""
    capture = Capture(limit)
    for start in range(0, len(TEXT), size):
        capture.add(TEXT[start : start + size])
    assert capture.text() == kept(TEXT, limit)
    assert capture.truncated is (limit < len(TEXT))
    assert capture.total == len(TEXT)


def test_random_pieces_always_give_the_same() -> None:
    """How output is cut into reads never shows in what is kept."""
    random = Random(2)
    for _ in range(300):
        limit, position = random.randint(1, 80), 0
        capture = Capture(limit)
        while position < len(TEXT):
            size = random.randint(0, 20)
            capture.add(TEXT[position : position + size])
            position += size
        assert (capture.text(), capture.truncated) == (kept(TEXT, limit), limit < len(TEXT))


def test_one_byte_more_than_the_limit_is_marked() -> None:
    """Exactly the limit is whole; one byte beyond it is not."""
    whole, cut = Capture(4), Capture(4)
    whole.add(b"abcd")
    cut.add(b"abcde")
    assert (whole.text(), whole.truncated) == ("abcd", False)
    assert (cut.text(), cut.truncated) == ("abde", True)


def test_characters_split_across_pieces_stay_whole() -> None:
    """Bytes are joined before they are decoded."""
    capture = Capture(100)
    for byte in "🚀é".encode():
        capture.add(bytes([byte]))
    assert capture.text() == "🚀é"


def test_bytes_that_are_not_text_are_replaced() -> None:
    """Invalid bytes and a character cut off at the end become U+FFFD, each run its own."""
    capture = Capture(100)
    capture.add(b"a\xff\xfeb\n\xe2\x82")
    assert capture.text() == "a\ufffd\ufffdb\n\ufffd"


def test_a_cut_makes_no_character_of_its_own() -> None:
    """Halves of two characters on either side of the gap do not become a third."""
    capture = Capture(2)
    capture.add("é".encode()[:1] + b"x" * 10 + "é".encode()[1:])
    assert "é" not in capture.text()


def test_memory_stays_within_the_limit() -> None:
    """A tail of many small pieces is trimmed as it grows, not at the end."""
    capture = Capture(10)
    for _ in range(1000):
        capture.add(b"ab")
    assert len(capture.text()) == 10
    assert capture.total == 2000


def test_the_streams_are_apart() -> None:
    """stdout and stderr have an allowance each."""
    capture = OutputCapture(2)
    capture.add(out("abc"))
    capture.add(err("de"))
    assert (capture.stdout.text(), capture.stdout.truncated) == ("ac", True)
    assert (capture.stderr.text(), capture.stderr.truncated) == ("de", False)
