"""What `files.edit()` does to content, apart from any file."""

from __future__ import annotations

import pytest

from sandboxio import FileSystemError
from sandboxio.core import edits


@pytest.mark.parametrize(
    ("old", "new", "count", "expected"),
    [
        (b"b", b"x", 1, (b"axcac", 1)),
        (b"c", b"", 2, (b"aba", 2)),
        (b"c", b"cc", None, (b"abccacc", 2)),
        (b"ab", b"ab", 1, (b"abcac", 1)),
    ],
)
def test_all_that_there_is_is_replaced(
    old: bytes, new: bytes, count: int | None, expected: tuple[bytes, int]
) -> None:
    """The number is the one that was asked for, and all of them are replaced."""
    assert edits.edited("f", b"abcac", old, new, count) == expected


@pytest.mark.parametrize(("old", "count"), [(b"c", 1), (b"c", 3), (b"z", 1), (b"z", None)])
def test_another_number_is_refused_by_name(old: bytes, count: int | None) -> None:
    """The error says how many there are, and how many were asked for."""
    with pytest.raises(FileSystemError, match=rf"'f'.*{b'abcac'.count(old)} times") as caught:
        edits.edited("f", b"abcac", old, b"x", count)
    assert caught.value.outcome == "done"


def test_what_grows_too_large_is_refused_before_it_is_made() -> None:
    """A replacement beyond the limit is an error and no allocation."""
    with pytest.raises(FileSystemError, match="64 MiB"):
        edits.edited("f", b"a" * 1000, b"a", b"x" * 100_000, None)
