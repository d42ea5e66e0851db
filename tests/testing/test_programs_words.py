"""echo, printf and test, as dash and coreutils have them."""

from __future__ import annotations

import shlex

import pytest

from .bench import Bench


@pytest.mark.parametrize(
    ("command", "out"),
    [
        ("echo", b"\n"),
        ("echo a b", b"a b\n"),
        ("echo -n a", b"a"),
        ("echo -e a", b"-e a\n"),
        (r"echo 'a\tb\c' d", b"a\tb"),
        (r"echo '\101\0101 \x41 \q \\'", b"AA \\x41 \\q \\\n"),
        ("printf hello", b"hello"),
        (r"printf '%s\n' a b", b"a\nb\n"),
        (r"printf '%s-%s;' a b c", b"a-b;c-;"),
        (r"printf '\303\251'", b"\xc3\xa9"),
        (r"printf '\0\x41\n'", b"\0A\n"),
        (r"""printf '%d %d %d %d' 12 0x1f 010 "'a" """, b"12 31 8 97"),
        ("printf '%i|%5d|%-5d|%05d|%+d' 1 2 3 4 5", b"1|    2|3    |00004|+5"),
        ("printf '%x %X %o %#x %#o' 255 255 8 255 8", b"ff FF 10 0xff 010"),
        ("printf '%u' -1", b"18446744073709551615"),
        ("printf '%c%5s|%-5s|%.2s|%*s' abc ab ab abc 3 x", b"a   ab|ab   |ab|  x"),
        (r"printf '%b|' 'a\tb' '\0101'", b"a\tb|A|"),
        (r"printf '%b' 'a\cb' c", b"a"),
        ("printf '%.2f %g%%' 2.345 0.5", b"2.35 0.5%"),
        ("printf '%s' ''", b""),
        ("printf x 1 2", b"x"),
    ],
)
def test_printed(command: str, out: bytes) -> None:
    """Arguments are printed byte for byte as by the real programs."""
    assert Bench().run(shlex.split(command)) == (0, out, b"")


@pytest.mark.parametrize(
    ("command", "out", "err"),
    [
        ("printf '%d' abc", b"0", "'abc': expected a numeric value"),
        ("printf '%d' 3x", b"3", "'3x': value not completely converted"),
        ("printf 'a%z'", b"a", "%z: invalid conversion specification"),
    ],
)
def test_printf_failure(command: str, out: bytes, err: str) -> None:
    """What printf cannot convert it says, and exits 1."""
    assert Bench().run(shlex.split(command)) == (1, out, f"printf: {err}\n".encode())


TRUE = """\
a
-n a
-z ''
a = a
a != b
a '<' b
1 -eq 01
-3 -lt 2
2 -gt 1 -a 1 -le 1
'' -o b
! ''
! a = b
'(' a = a ')' -a b
-f = -f
-e f
-f f
-d d
-L dangling
-h link
-s f
-r f
-x d
-p fifo
-c /dev/null
-O f
f -ef link
! -e dangling
! -x f
! -w /etc/passwd
! -e f/x
! -t 0"""
FALSE = """\

''
-n ''
a = b
1 -gt 1
-f d
-d f
-s empty
'' -a b
! a"""


@pytest.fixture
def bench() -> Bench:
    made = Bench()
    made.write("f", b"data")
    made.write("empty", b"")
    made.fs.mkdir("/work/d", who=made.who)
    made.fs.symlink("f", "/work/link", who=made.who)
    made.fs.symlink("nowhere", "/work/dangling", who=made.who)
    made.fs.mkfifo("/work/fifo", who=made.who)
    return made


@pytest.mark.parametrize("condition", TRUE.split("\n"))
def test_holds(bench: Bench, condition: str) -> None:
    """A condition that holds is 0, for both names of the program."""
    words = shlex.split(condition)
    assert bench.run(["test", *words]) == bench.run(["[", *words, "]"]) == (0, b"", b"")


@pytest.mark.parametrize("condition", FALSE.split("\n"))
def test_does_not_hold(bench: Bench, condition: str) -> None:
    """A condition that does not hold is 1."""
    assert bench.run(["test", *shlex.split(condition)]) == (1, b"", b"")


@pytest.mark.parametrize(
    ("command", "err"),
    [
        ("test a -eq 1", "test: invalid integer 'a'"),
        ("[ a", "[: missing ']'"),
        ("test a b", "test: missing argument after 'b'"),
        ("test a b c", "test: 'b': binary operator expected"),
        ("test a = a b", "test: extra argument 'b'"),
        ("test a = a -a", "test: missing argument after '-a'"),
    ],
)
def test_no_condition(command: str, err: str) -> None:
    """What is no condition is 2, with the reason."""
    assert Bench().run(shlex.split(command)) == (2, b"", f"{err}\n".encode())
