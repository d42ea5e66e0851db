"""What the file tools of a sandbox print: read exactly, or refused."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from sandboxio import FileInfo, FileSystemError, PermissionDenied
from sandboxio.guest._shell_answers import described, failure, listed

MARK = b"/mark/"


def test_a_file_is_described() -> None:
    """Mode, size and time are those of `stat -c "%f %s %Y"`."""
    assert described("f", b"/mark/ 81a4 5 60\n", MARK) == FileInfo(
        "f", size=5, is_dir=False, mode=0o644, mtime=datetime.fromtimestamp(60, UTC)
    )


@pytest.mark.parametrize(
    "numbers",
    [
        b"",
        b"nonsense",
        b"81a4 5",
        b"81a4 5 60 7",
        b"81a4 -5 60",
        b"81a4 +5 60",
        b"81a4 1_0 60",
        b"81a4 0x5 60",
        b"81a4 " + b"9" * 5000 + b" 60",
        b"-81a4 5 60",
        b"81a4 5 " + b"9" * 5000,
        b"\0 \xff \n",
    ],
)
def test_numbers_that_no_file_has(numbers: bytes) -> None:
    """Garbage where `stat` and `ls` expect numbers is a `FileSystemError`."""
    with pytest.raises(FileSystemError, match="cannot be read"):
        described("f", MARK + numbers, MARK)
    with pytest.raises(FileSystemError, match="cannot be read"):
        listed("d", MARK + numbers + b" ./name\n", MARK)


def test_an_answer_without_the_mark() -> None:
    """What does not begin with the mark of the call is no empty answer."""
    for read in (described, listed):
        with pytest.raises(FileSystemError, match="cannot be read"):
            read("d", b"81a4 5 60\n", MARK)
    assert listed("d", b"", MARK) == []


@pytest.mark.parametrize("name", [b"", b".", b"..", b"../x", b"a/b", b"/etc", b"a\0b", b"n" * 256])
def test_names_that_no_entry_has(name: bytes) -> None:
    """What a listing calls an entry is a name within that directory, or is refused."""
    with pytest.raises(FileSystemError, match="cannot be read"):
        listed("d", b"/mark/ 81a4 5 60 ./" + name + b"\n", MARK)


@pytest.mark.parametrize("target", [b"a\0b", b"t" * 4097])
def test_targets_that_no_link_has(target: bytes) -> None:
    """The same holds for where a link points."""
    with pytest.raises(FileSystemError, match="cannot be read"):
        described("l", b"/mark/ a1ff 5 60\n/mark/" + target + b"\n", MARK)


@pytest.mark.parametrize("seconds", [b"9" * 19, b"-" + b"9" * 19, b"999999999999"])
def test_times_that_no_datetime_holds(seconds: bytes) -> None:
    """A time beyond what `datetime` can hold is `None`; the file is described nonetheless."""
    info = described("f", b"/mark/ 81a4 5 " + seconds + b"\n", MARK)
    assert (info.size, info.mtime) == (5, None)


def test_the_words_of_a_sandbox_are_shown_harmless() -> None:
    """What a tool complains of is one line without control characters."""
    error = failure("a\nb", 72, b"no\x1b[2J\n  \xff\x00 way\n")
    assert isinstance(error, PermissionDenied)
    assert error.message == "'a\\nb': no?[2J \ufffd? way"
