"""Expansion in the virtual shell: parameters, splitting, patterns, arithmetic."""

from __future__ import annotations

import pytest

from sandboxio.testing._shell.arith import ArithmeticRefused, evaluate
from tests.testing.world import World

pytestmark = pytest.mark.anyio


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize(
    ("script", "out"),
    [
        (
            'echo ${x:-"a  b"} ${x-c} "${x:-d  e}" ${x:=f} $x ${x:+g} ${y+h}.',
            "a  b c d  e f f g .\n",
        ),
        ('x=; echo "[${x-d}][${x:-d}][${x+s}][${x:+s}]"', "[][d][s][]\n"),
        (
            "x=/a/b.tar.gz; echo ${x##*/} ${x#*/} ${x%.*} ${x%%.*} ${#x}",
            "b.tar.gz a/b.tar.gz /a/b.tar /a/b 11\n",
        ),
        ('p="*"; x="a*b"; echo "${x#a$p}" "${x#a"$p"}"', "*b b\n"),
        ('echo "${x:-$(echo ")")}" "${x:-}}"', ") }\n"),
        (
            'set -- a \'b c\'; echo $#; printf \'<%s>\' "$@" "$*" $* x"$@"y',
            "2\n<a><b c><a b c><a><b><c><xa><b cy>",
        ),
        ('set --; printf "<%s>" "$@" "${1-}" ""', "<><>"),
        ("false; echo $? $# $0; set -- 1 2 3 4 5 6 7 8 9 ten; echo $10 ${10}", "1 0 sh\n10 ten\n"),
        ("sh -c 'echo $PPID'; echo $$", "2\n2\n"),
        ("echo ~ ~/x '~' a~; x=/b:~/c; echo $x", "/home/me /home/me/x ~ a~\n/b:/home/me/c\n"),
        ('echo a\\\nb "c\\\nd" \'e\\\nf\' \\$x "\\$x\\q" # comment', "ab cd e\\\nf $x $x\\q\n"),
        ('echo "$(echo "a $(echo "b  c")")" `echo \\`echo n\\``', "a b  c n\n"),
        ('x=$(printf "a\\n\\n"); echo "[$x]"; x=$(exit 4); echo $?', "[a]\n4\n"),
        ("x='$y'; y=2; echo $x; eval echo $x", "$y\n2\n"),
    ],
)
async def test_expansion(world: World, script: str, out: str) -> None:
    """Parameters, substitutions, quotes and tildes stand for what they stand for in dash."""
    done = await world.run(script)
    assert (done.out, done.err) == (out, "")


@pytest.mark.parametrize(
    ("separators", "value", "fields"),
    [
        (" ", " a  b ", "<a><b>"),
        (":", "a:b::c:", "<a><b><><c>"),
        (": ", " a : b::c ", "<a><b><><c>"),
        ("", "a b:c", "<a b:c>"),
    ],
)
async def test_splitting(world: World, separators: str, value: str, fields: str) -> None:
    """Unquoted values are split at IFS: white space joins, other separators do not."""
    done = await world.run(f"IFS='{separators}'; x='{value}'; printf '<%s>' $x")
    assert done.out == fields


async def test_patterns(world: World) -> None:
    """Unquoted patterns become the names they match, sorted; what matches nothing stays."""
    script = "touch b.c 'a d.c' .h; printf '<%s>' *.c \"*\".c '*'.c .h* *.x [ab]*; set -f; echo *"
    assert (await world.run(script)).out == "<a d.c><b.c><*.c><*.c><.h><*.x><a d.c><b.c>*\n"


async def test_names_that_are_not_text(world: World) -> None:
    """Bytes that are not UTF-8 survive variables, patterns and files."""
    script = 'for f in a*; do [ "$f" = "$x" ] && printf %s "$f"; done'
    done = await world.run(f"x=$(printf 'a\\377'); echo >\"$x\"; {script}")
    assert done.out == "a\udcff"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1+2*3", 7),
        ("(1+2)*3 % 4", 1),
        ("-7/2", -3),
        ("-7%3", -1),
        ("0x1f + 010", 39),
        ("1<2 && 2>=3 || !0", 1),
        ("1 ? 2 : 3", 2),
        ("5 & 3 | 8 ^ 1", 9),
        ("1 << 4 >> 1", 8),
        ("9223372036854775807 + 1", -(2**63)),
        ("x = 4", 4),
        ("x += 2", 7),
        ("0 && 1/0", 0),
        ("", 0),
    ],
)
def test_arithmetic(text: str, value: int) -> None:
    """Operators are those of C on 64 bits; what is not evaluated has no effect."""
    variables = {"x": "5"}
    assert evaluate(text, lambda name: variables.get(name, ""), variables.__setitem__) == value


@pytest.mark.parametrize(
    "text", ["1/0", "1 +", "1 2", "x++", "08", "(1", "1,2", "a.b", "-" * 500 + "1"]
)
def test_arithmetic_refuses(text: str) -> None:
    """What is no expression of dash is refused."""
    with pytest.raises(ArithmeticRefused):
        evaluate(text, lambda name: "", lambda name, value: None)
