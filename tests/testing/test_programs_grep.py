"""grep: its options, and POSIX expressions in terms of Python's."""

from __future__ import annotations

import shlex

import pytest

from .bench import Bench

MATCHES: list[tuple[str, bytes, bytes]] = [
    ("a.b", b"axb\nab\n", b"axb\n"),
    ("-F a.b", b"axb\na.b\n", b"a.b\n"),
    ("-i ONE", b"one\n", b"one\n"),
    ("-v a", b"a\nb\n", b"b\n"),
    ("-c a", b"a\nb\na\n", b"2\n"),
    ("-n b", b"a\nb", b"2:b\n"),
    ("-o 'b*'", b"abbab\n", b"bb\nb\n"),
    ("-x one", b"one\none two\n", b"one\n"),
    ("-w one", b"one\noneself\n", b"one\n"),
    ("-e a -e b", b"a\nb\nc\n", b"a\nb\n"),
    ("-e -a", b"-a\n", b"-a\n"),
    ("-m1 a", b"a\na\n", b"a\n"),
    ("-H a", b"a\n", b"(standard input):a\n"),
    ("-a a", b"a\0b\n", b"a\0b\n"),
    ("-c a", b"a\0b\n", b"1\n"),
    ("'a|b'", b"a\na|b\n", b"a|b\n"),
    ("'a\\|b'", b"a\nc\n", b"a\n"),
    ("-E 'a|b'", b"a\nc\n", b"a\n"),
    ("'a+'", b"aa\na+\n", b"a+\n"),
    ("'a\\+b'", b"aab\nb\n", b"aab\n"),
    ("-o 'a\\{2\\}'", b"aaa\n", b"aa\n"),
    ("'a{2}'", b"aa\na{2}\n", b"a{2}\n"),
    ("-Eo 'a{2,}'", b"aaaa\n", b"aaaa\n"),
    ("'*a'", b"*a\na\n", b"*a\n"),
    ("'a^b$c'", b"a^b$c\n", b"a^b$c\n"),
    ("'^a'", b"ab\nba\n", b"ab\n"),
    ("'a$'", b"ab\nba\n", b"ba\n"),
    ("'^$'", b"\na\n", b"\n"),
    ("'\\(a\\)\\1'", b"aa\nab\n", b"aa\n"),
    ("'[[:digit:]]'", b"a1\nb\n", b"a1\n"),
    ("'[]a]'", b"]\nb\n", b"]\n"),
    ("'[^]a]'", b"]\nx\n", b"x\n"),
    ("'[a\\]'", b"\\\nb\n", b"\\\n"),
    ("'\\<o'", b"one\nto\n", b"one\n"),
    ("-E 'a+?'", b"aa\n", b"aa\n"),
    ("-E 'a**'", b"aa\n", b"aa\n"),
    ("-oE 'a|ab'", b"ab\n", b"ab\n"),
]


@pytest.mark.parametrize(("arguments", "stdin", "out"), MATCHES)
def test_matches(arguments: str, stdin: bytes, out: bytes) -> None:
    """A line is chosen exactly where GNU grep chooses it."""
    assert Bench().run(["grep", *shlex.split(arguments)], stdin) == (0, out, b"")


@pytest.mark.parametrize(
    ("arguments", "code", "err"),
    [
        ("zzz", 1, ""),
        ("-q a nope", 2, "grep: nope: No such file or directory\n"),
        ("-qs a nope", 2, ""),
        ("a /work", 2, "grep: /work: Is a directory\n"),
        ("'\\('", 2, "grep: Unmatched ( or \\(\n"),
        ("-E '('", 2, "grep: Unmatched ( or \\(\n"),
        ("'a\\{1'", 2, "grep: Unmatched \\{\n"),
        ("'a\\'", 2, "grep: Trailing backslash\n"),
    ],
)
def test_no_match_and_failure(arguments: str, code: int, err: str) -> None:
    """No match is 1, a failure 2 with its reason."""
    outcome = Bench().run(["grep", *shlex.split(arguments)], b"a\n")
    assert outcome == (code, b"", err.encode())


def test_quiet_forgives_failures() -> None:
    """With -q a match counts although a file could not be read."""
    assert Bench().run(["grep", "-q", "a", "nope", "-"], b"a\n").code == 0


def test_binary_file_is_only_named() -> None:
    """What matches in a file with NUL bytes is not printed."""
    outcome = Bench().run(["grep", "a"], b"a\0b\n")
    assert outcome == (0, b"", b"grep: (standard input): binary file matches\n")


def test_unknown_option_shows_the_usage() -> None:
    """grep shows how it is called where others only point to their help."""
    code, _, err = Bench().run(["grep", "-Q"])
    assert code == 2
    assert err.decode().splitlines()[:2] == [
        "grep: invalid option -- 'Q'",
        "Usage: grep [OPTION]... PATTERNS [FILE]...",
    ]


def test_recursive_names_files() -> None:
    """-r looks below directories, and -l names what holds a match."""
    bench = Bench()
    bench.fs.mkdir("/work/d/e", who=bench.who, parents=True)
    bench.write("d/e/f", b"one\n")
    bench.write("d/g", b"two\n")
    bench.fs.symlink("e", "/work/d/link", who=bench.who)
    assert bench.run(["grep", "-rn", "o", "d"]).out == b"d/e/f:1:one\nd/g:1:two\n"
    assert bench.run(["grep", "-rl", "one"]).out == b"d/e/f\n"
