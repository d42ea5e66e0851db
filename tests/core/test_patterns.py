"""Patterns of `files.glob()`, apart from any file system."""

from __future__ import annotations

import pytest

from sandboxio import ConfigurationError, FileInfo
from sandboxio.core import patterns


@pytest.mark.parametrize(
    ("pattern", "prefix", "depth"),
    [
        ("*.py", ".", 1),
        ("a/b/*.py", "a/b", 1),
        ("/a/*/c", "/a", 2),
        ("/*", "/", 1),
        ("./a//b", "a/b", 0),
        (".", ".", 0),
        ("/", "/", 0),
        ("a/**/c", "a", None),
        ("../a/*", "../a", 1),
        ("a[/b", ".", 2),
    ],
)
def test_a_walk_begins_before_the_first_wildcard(
    pattern: str, prefix: str, depth: int | None
) -> None:
    """The prefix has no wildcard, and the depth is how far below it a match can be."""
    found = patterns.parse(pattern)
    assert (found.prefix, found.depth) == (prefix, depth)


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("*.py", "x.py", True),
        ("*.py", ".py", True),
        ("*.py", "a/x.py", False),
        ("**", "a", True),
        ("**", "a/b/c", True),
        ("**/c", "c", True),
        ("**/**/c", "a/b/c", True),
        ("a/**/c", "a/c", True),
        ("a/**/c", "a/b", False),
        ("**/a/**/b/**/c", "a/x/a/b/y/z/c", True),
        ("a**c", "abc", True),
        ("a**c", "a/c", False),
        ("[!a]", "a", False),
        ("[]]", "]", True),
        ("[a", "[a", True),
        ("a\\*", "a\\b", True),
        ("?", "\n", True),
        ("?", "\udcff", True),
    ],
)
def test_matches(pattern: str, path: str, expected: bool) -> None:
    """Wildcards stay within a name, `**` goes through directories."""
    info = FileInfo(path, size=0, is_dir=False)
    assert patterns.parse(pattern).takes(info) is expected


def test_a_pattern_of_many_directories_is_matched_soon() -> None:
    """No pattern takes more time than its length and that of the path ask for."""
    pattern = patterns.parse("**/a" * 200 + "/**/b")
    assert not pattern.matches(["a"] * 1000)


def test_nothing_goes_up_behind_a_wildcard() -> None:
    """`..` behind a wildcard is refused, and before it a part of the prefix."""
    with pytest.raises(ConfigurationError, match="wildcard"):
        patterns.parse("*/../x")
    assert patterns.parse("a/../*").prefix == "a/.."
