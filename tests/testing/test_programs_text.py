"""cat, head, tail, wc, sort, uniq, cut, tr, tee, seq, as the real ones behave."""

from __future__ import annotations

import shlex

import pytest

from sandboxio.core.models import NetworkPolicy
from sandboxio.testing._machine.fds import FileFd

from .bench import USER, Bench, MemoryFd

FILES = {
    "f": b"a\n",
    "t": b"one two\nthree\n\n\nfour  five\n",
    "bare": b"no newline",
    "n": b"10\n9\n2\n-1\n1.5\n9\n",
    "csv": b"x:y:z\nsingle\n1:2:3\n",
    "k": b"b 2\na 10\nc 1\nB 2\n",
    "dup": b"a\na\nb\nB\nb\n",
    "odd": b"a\tb\x01\x80\xc3\xa9\n",
}
NINE = b"line 1\nline 2\nline 3\nline 4\nline 5\nline 6\nline 7\nline 8\nline 9\n"


@pytest.fixture
def bench() -> Bench:
    made = Bench()
    for name, data in FILES.items():
        made.write(name, data)
    return made


@pytest.mark.parametrize(
    ("command", "stdin", "out"),
    [
        ("cat", b"a\0b", b"a\0b"),
        ("cat f - bare", b"x\n", b"a\nx\nno newline"),
        ("cat -n f bare", b"", b"     1\ta\n     2\tno newline"),
        ("cat -b t", b"", b"     1\tone two\n     2\tthree\n\n\n     3\tfour  five\n"),
        ("cat -s t", b"", b"one two\nthree\n\nfour  five\n"),
        ("cat -A odd", b"", b"a^Ib^AM-^@M-CM-)$\n"),
        ("cat /dev/stdin", b"x", b"x"),
        ("head -n 2", NINE, NINE[:14]),
        ("head -2", NINE, NINE[:14]),
        ("head -n -8", NINE, NINE[:7]),
        ("head -c 4", NINE, b"line"),
        ("head -c -56", NINE, NINE[:7]),
        ("head f bare", b"", b"==> f <==\na\n\n==> bare <==\nno newline"),
        ("head -q -n1 f t", b"", b"a\none two\n"),
        ("tail -n 2", NINE, NINE[-14:]),
        ("tail -n +8", NINE, NINE[-14:]),
        ("tail -c 3", NINE, b" 9\n"),
        ("tail -c +57", NINE, NINE[-7:]),
        ("tail -n 1 bare", b"", b"no newline"),
        ("wc", b"a b\nc", b"      1       3       5\n"),
        ("wc -l", NINE, b"9\n"),
        ("wc t", b"", b" 5  5 27 t\n"),
        ("wc -c f t", b"", b" 2 f\n27 t\n29 total\n"),
        ("wc -m", "né".encode(), b"2\n"),
        ("sort", b"b\na\nB", b"B\na\nb\n"),
        ("sort -n n", b"", b"-1\n1.5\n2\n9\n9\n10\n"),
        ("sort -rn n", b"", b"10\n9\n9\n2\n1.5\n-1\n"),
        ("sort -u dup", b"", b"B\na\nb\n"),
        ("sort -k 2,2n -k1,1r k", b"", b"c 1\nb 2\nB 2\na 10\n"),
        ("sort -t: -k2,2r csv", b"", b"x:y:z\n1:2:3\nsingle\n"),
        ("uniq dup", b"", b"a\nb\nB\nb\n"),
        ("uniq -c dup", b"", b"      2 a\n      1 b\n      1 B\n      1 b\n"),
        ("uniq -d dup", b"", b"a\n"),
        ("cut -d: -f2- csv", b"", b"y:z\nsingle\n2:3\n"),
        ("cut -d: -s -f3,1 csv", b"", b"x:z\n1:3\n"),
        ("cut -c1-2,4- csv", b"", b"x::z\nsigle\n1::3\n"),
        ("tr a-z A-Z", b"hello 1", b"HELLO 1"),
        ("tr '[:upper:]' '[:lower:]'", b"HeLLo", b"hello"),
        ("tr -d '\\000'", b"a\0b", b"ab"),
        ("tr '\\000' x", b"a\0b", b"axb"),
        ("tr -s ' ' '\\n'", b"a  b   c", b"a\nb\nc"),
        ("tr -cd 0-9", b"a1b2", b"12"),
        ("tr abc x", b"aabbccd", b"xxxxxxd"),
        ("seq 3", b"", b"1\n2\n3\n"),
        ("seq 5 -2 0", b"", b"5\n3\n1\n"),
        ("seq 0 0.25 0.5", b"", b"0.00\n0.25\n0.50\n"),
        ("seq -s, -w 8 10", b"", b"08,09,10\n"),
        ("seq 3 1", b"", b""),
    ],
)
def test_output(bench: Bench, command: str, stdin: bytes, out: bytes) -> None:
    """What the program prints is what GNU coreutils print."""
    assert bench.run(shlex.split(command), stdin) == (0, out, b"")


@pytest.mark.parametrize(
    ("command", "code", "err"),
    [
        ("cat nope", 1, "cat: nope: No such file or directory"),
        ("cat /work", 1, "cat: /work: Is a directory"),
        ("cat 'a b'", 1, "cat: 'a b': No such file or directory"),
        ("head nope", 1, "head: cannot open 'nope' for reading: No such file or directory"),
        ("head -n x", 1, "head: invalid number of lines: 'x'"),
        ("tail /work", 1, "tail: error reading '/work': Is a directory"),
        ("sort nope", 2, "sort: cannot read: nope: No such file or directory"),
        ("sort -c n", 1, "sort: n:3: disorder: 2"),
        ("uniq nope", 1, "uniq: nope: No such file or directory"),
        ("tee /root/x", 1, "tee: /root/x: Permission denied"),
        ("tr z-a x", 1, "tr: range-endpoints of 'z-a' are in reverse collating sequence order"),
    ],
)
def test_failure(bench: Bench, command: str, code: int, err: str) -> None:
    """What cannot be done is said in the words of GNU coreutils."""
    assert bench.run(shlex.split(command)) == (code, b"", f"{err}\n".encode())


@pytest.mark.parametrize(
    ("command", "code", "err"),
    [
        ("cat -q", 1, "cat: invalid option -- 'q'"),
        ("sort -q", 2, "sort: invalid option -- 'q'"),
        ("head -n", 1, "head: option requires an argument -- 'n'"),
        ("wc --foo", 1, "wc: unrecognized option '--foo'"),
        ("seq", 1, "seq: missing operand"),
        ("seq 1 2 3 4", 1, "seq: extra operand '4'"),
        ("cut", 1, "cut: you must specify a list of bytes, characters, or fields"),
        ("cut -f 0", 1, "cut: fields are numbered from 1"),
    ],
)
def test_misuse(bench: Bench, command: str, code: int, err: str) -> None:
    """An option or operand that is unknown is refused, never ignored."""
    name = command.split()[0]
    hint = f"Try '{name} --help' for more information."
    assert bench.run(shlex.split(command)) == (code, b"", f"{err}\n{hint}\n".encode())


def test_cat_goes_on_after_a_failure(bench: Bench) -> None:
    """One file that cannot be read does not keep the others back."""
    code, out, err = bench.run(["cat", "nope", "f"])
    assert (code, out, err.count(b"\n")) == (1, b"a\n", 1)


def test_tee_appends(bench: Bench) -> None:
    """What tee reads goes to stdout and to the end of the file."""
    assert bench.run(["tee", "-a", "f"], b"b\n").out == b"b\n"
    assert bench.read("f") == b"a\nb\n"


def test_sort_writes_over_its_input(bench: Bench) -> None:
    """`-o` may name a file that is sorted."""
    bench.run(["sort", "-o", "dup", "-u", "dup"])
    assert bench.read("dup") == b"B\na\nb\n"


@pytest.mark.parametrize(
    ("command", "code"),
    [("cat", 1), ("sort", 2), ("grep x", 2), ("tr a b", 1), ("uniq", 1), ("curl -I h", 23)],
)
def test_full_disk_is_reported(command: str, code: int) -> None:
    """An output that cannot be written ends a program with a message."""
    bench = Bench(policy=NetworkPolicy(egress="allow"))
    name = command.split()[0]
    full = FileFd(bench.fs.open("/dev/full", who=USER, write=True))
    outcome = bench.run(command.split(), b"x\n", stdout=full)
    message = f"{name}: write error: No space left on device\n"
    assert outcome == (code, b"", message.encode())


@pytest.mark.anyio
@pytest.mark.parametrize("command", ["tail", "sort", "tail -c 99M", "head -n -1", "grep x"])
async def test_endless_line_is_the_end(bench: Bench, command: str) -> None:
    """Who keeps more than 64 MiB is killed, as by the kernel's out-of-memory killer."""
    running = bench.start([*command.split(), "/dev/zero"])
    while running.process.exit_code is None:
        await bench.clock.sleep(1)
    assert running.outcome == (137, b"", b"")


@pytest.mark.anyio
async def test_endless_output_uses_up_virtual_time(bench: Bench) -> None:
    """A program that never ends lets the clock move on, so that a deadline can end it."""
    with bench.clock.limit(60):
        running = bench.start(["yes"], stdout=NowhereFd())
        await bench.clock.sleep(float("inf"))
    assert running.process.exit_code is None
    bench.kernel.end(running.process, 137)


class NowhereFd(MemoryFd):
    async def write(self, data: bytes) -> None:
        return
