"""Python code that the fake refuses, bounds, or lets use up its time."""

from __future__ import annotations

import time

import pytest

from sandboxio.testing._disk.fs import ROOT
from tests.testing.code_box import Box, box

pytestmark = pytest.mark.anyio

__all__ = ["box"]  # a fixture

HINT = 'Script it: fake.on_run_code("…", returns=ExecResult(0, "…", ""))\n'

REFUSED = [
    '__import__("os").system("x")',
    "().__class__.__bases__",
    'print("a".__len__())',
    'eval("1")',
    'exec("1")',
    'getattr(1, "real")',
    "globals()",
    "print(__builtins__)",
    "def f(): pass",
    "f = lambda: 1",
    "class A: pass",
    "async def f(): pass",
    "match 1:\n    case 1: pass",
    "(x := 1)",
    "print(**{'sep': ''})",
    "x = 1j",
    "x = ...",
    "1 @ 2",
    "import os; os.system('x')",
    "import os as o; o.popen('x')",
    "from os import system",
    "from os import *",
    "from . import x",
    "import this",
    "import xml.dom",
    "import subprocess; subprocess.run(['ls'])",
    "import sys; sys.modules",
    "import sys; sys.stdout = 1",
    "str.upper('x')",
    "dict.fromkeys('ab')",
    "print.__self__",
    "print('x' if 0 else (yield))",
    "x = 0x" + "f" * 100_000,
]


@pytest.mark.parametrize("code", REFUSED, ids=lambda code: code[:30])
async def test_what_is_not_understood_is_refused(box: Box, code: str) -> None:
    """Before anything runs, the line that is not understood is named, with what to do."""
    played = await box.play(f"print('before')\n{code}\nprint('after')")
    said, hint = played.err.splitlines(keepends=True)
    assert (played.code, played.out, hint) == (1, "", HINT)
    shown = code.splitlines()[0][:200]
    assert said.startswith(f"FakeBackend: line 2 is not understood without executing it: {shown}")


REFUSED_WHILE_IT_RUNS = [
    "t = type(print)\nt()",
    '"{0.__class__}".format(1)',
    'x = "{0[0]}"\nx.format([1])',
    'b"x".decode("rot13")',
    "print(1, foo=2)",
    'type("A", (), {})',
    "open(0)",
    "b'%99999999999d' % 1",
    "import urllib.request\nurllib.request.urlopen('file:///etc/passwd')",
]


@pytest.mark.parametrize("code", REFUSED_WHILE_IT_RUNS)
async def test_values_that_are_not_understood(box: Box, code: str) -> None:
    """What only a value shows is refused as well, and no clause of the code catches it."""
    body = code.replace("\n", "\n    ")
    played = await box.play(f"try:\n    {body}\nexcept BaseException:\n    print('caught')")
    assert (played.code, played.out) == (1, "")
    assert "is not understood without executing it" in played.err


async def test_a_module_of_the_callers_own_is_refused(box: Box) -> None:
    """A module that lies there would be found by Python, and is not executed here."""
    box.fs.populate("/work/helper.py", b"print(1)", mode=0o644)
    assert "not understood" in (await box.play("import helper")).err


TOO_LARGE = [
    "print(9**9**9)",
    "x = 'a' * 10**10",
    "x = 'a'\nwhile True: x += x",
    "x = [0]\nwhile True: x *= 2",
    "1 << 10**10",
    "list(range(10**12))",
    "bytes(10**12)",
    "('a' * 10**6).replace('', 'b' * 10**6)",
    "('a' * 10**7).join('b' * 10**4)",
    "x = ('a ' * 3 * 10**7).split()",
    'print(f"{1:>99999999999}")',
    'print("%99999999999d" % 1)',
    'print("%*d" % (10**9, 1))',
    'print("{:>99999999999}".format(1))',
    "open('/dev/zero').read()",
    "import math\nmath.factorial(10**9)",
    "round(5, -10**9)",
    "x = [0]\nfor i in range(100): x = [x, x]\nprint(x)",
    "x = (0,)\nfor i in range(100): x = (x, x)\nd = {x: 1}",
    "import time\nx = []\nwhile True:\n    x.append('a' * 6 * 10**7)\n    time.sleep(1)",
]


@pytest.mark.parametrize("code", TOO_LARGE)
async def test_values_without_end(box: Box, code: str) -> None:
    """A value that would fill the host's memory is a `MemoryError` of the code."""
    began = time.perf_counter()
    played = await box.play(code)
    assert (played.code, played.out, played.err.splitlines()[-1]) == (1, "", "MemoryError")
    assert time.perf_counter() - began < 20


@pytest.mark.parametrize(
    "code",
    [
        "x = []\nfor i in range(9999): x = [x]\nprint(x)",
        "x = ()\nfor i in range(9999): x = (x,)\nd = {x: 1}",
        "x = []\nx.append(x)\nprint(x == [x])",
    ],
)
async def test_values_too_deep(box: Box, code: str) -> None:
    """Containers within containers end in a `RecursionError`, not in a crash of the host."""
    assert "RecursionError" in (await box.play(code)).err.splitlines()[-1]


@pytest.mark.parametrize(
    "code",
    [
        "-" * 100_000 + "1",
        "1+" * 100_000 + "1",
        "not " * 100_000 + "1",
        "x" + ".a" * 100_000,
        "x" + "[0]" * 10_000,
        "lambda: " * 5_000 + "1",
        "".join(" " * n + "if 1:\n" for n in range(99)) + " " * 99 + "print(1)",
        "if 0: pass\n" + "elif 0: pass\n" * 9_900,
    ],
    ids=lambda code: code[:8],
)
async def test_code_too_deep(box: Box, code: str) -> None:
    """Deep syntax is refused."""
    assert "is not understood" in (await box.play(code)).err


ENDLESS = [
    "while True: pass",
    "for i in range(10**18):\n    for j in range(10**18): pass",
    "while True:\n    try:\n        1/0\n    except Exception: pass",
    "while True:\n    try:\n        1/0\n    finally: continue",
    "print(sum(i for i in range(10**12)))",
    "x = 'a' * 6 * 10**7\nwhile True: x.upper()",
    "while True: open('f', 'w')",
    "x = 'a' * 10**6\nwhile True: x == x + 'b'",
]


@pytest.mark.parametrize("code", ENDLESS)
async def test_endless_code_uses_up_virtual_time(box: Box, code: str) -> None:
    """Code that never ends meets its deadline, and costs the host next to nothing."""
    began = time.perf_counter()
    assert (await box.play(code, deadline=30)).code == 137
    assert time.perf_counter() - began < 20


async def test_a_long_loop_ends_in_time(box: Box) -> None:
    """What a real interpreter does in an instant takes little virtual time."""
    played = await box.play("n = 0\nfor i in range(20_000): n += i\nprint(n)", deadline=10)
    assert played.out == "199990000\n"


LONG = {
    "text": ('x = "' + "a" * 1_000_000 + '"\nprint(len(x))', "1000000\n"),
    "comment": ("#" * 1_000_000 + "\nprint(1)", "1\n"),
    "lines": ("x = 1\n" * 166_000, ""),
    "list": ("x = [" + "1," * 500_000 + "]", ""),
    "quotes": ("'" * 1_000_000, ""),
}


@pytest.mark.parametrize("kind", LONG)
async def test_a_million_characters(box: Box, kind: str) -> None:
    """Long code is recognised, or refused, without a pause."""
    code, out = LONG[kind]
    began = time.perf_counter()
    assert (await box.play(code)).out == out
    assert time.perf_counter() - began < 5


async def test_files_are_closed_when_it_is_killed(box: Box) -> None:
    """A process that ends holds nothing open."""
    await box.play("f = open('f', 'w')\nimport time\ntime.sleep(600)", deadline=5)
    node = box.fs.resolve("/work/f", who=ROOT)
    assert getattr(node, "opened", None) == 0


async def test_code_that_python_cannot_read(box: Box) -> None:
    """A NUL or a lone surrogate in the source is a syntax error, not a crash."""
    for code in ("print('\0')", "x = '\ud800'"):
        assert "SyntaxError" in (await box.play(code)).err
