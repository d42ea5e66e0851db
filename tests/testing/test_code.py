"""What the fake makes of unscripted Python code that it recognises."""

from __future__ import annotations

import pytest

from sandboxio.core.models import NetworkPolicy
from sandboxio.testing._disk.fs import ROOT
from sandboxio.testing._machine.network import EgressAttempt
from sandboxio.testing.clock import FakeClock
from tests.testing.code_box import Box, box

pytestmark = pytest.mark.anyio

__all__ = ["box"]  # a fixture

OPEN = NetworkPolicy(egress="allow")

PRINTED = {
    'print("a", 1, None, [1, "b"], sep="-", end="!")': "a-1-None-[1, 'b']!",
    "x = 6\nx *= 7\nprint(x)": "42\n",
    "a, (b, *c) = 1, (2, 3, 4)\nprint(a, b, c)": "1 2 [3, 4]\n",
    "x: int = 5\nprint(x)": "5\n",
    "print(sum(range(101)), sum(range(10**12)))": "5050 499999999999500000000000\n",
    'print(f"{3.14159:.2f}|{5:03d}|{chr(233)!r}|{[1]}|{7:>{3}}")': "3.14|005|'é'|[1]|  7\n",
    'print("%s=%d" % ("x", 3), "{:>3} {n}".format(1, n=2))': "x=3   1 2\n",
    "print(7 // 2, -7 % 3, 2 ** 10, 1 / 4, 'ab' * 2, [1] + [2])": "3 2 1024 0.25 abab [1, 2]\n",
    "print(1 < 2 < 3, 3 in [1], not 0, None is None, 0 or 'x')": "True False True True x\n",
    "print('a b'.upper().split(), '-'.join('abc'), 'x'.encode())": "['A', 'B'] a-b-c b'x'\n",
    "print([x * x for x in range(5) if x % 2], {x: 1 for x in 'a'})": "[1, 9] {'a': 1}\n",
    "print(any(1 // x for x in [1, 0]))": "True\n",
    "print('abc'[::-1], [1, 2, 3][1:], {'k': 5}['k'])": "cba [2, 3] 5\n",
    "for i, c in enumerate('ab'):\n    print(i, c)\nelse:\n    print('end')": "0 a\n1 b\nend\n",
    "i = 0\nwhile True:\n    i += 1\n    if i < 3: continue\n    break\nprint(i)": "3\n",
    "if 0:\n    pass\nelif 1:\n    print('b')\nelse:\n    print('c')": "b\n",
    "x = [3, 1]\nx.append(2)\nx.sort()\ndel x[0]\nprint(x, len(x))": "[2, 3] 2\n",
    "d = {}\nd['a'] = [1]\nd['a'] += [2]\nprint(d, d.get('b', 0))": "{'a': [1, 2]} 0\n",
    "print({'c', 'a', 'b'}, {3, 1} | {2})": "{'a', 'b', 'c'} {1, 2, 3}\n",
    "print(type(1).__name__, isinstance('a', str), type([]))": "int True <class 'list'>\n",
    "print(__name__)": "__main__\n",
    "import sys\nprint(repr(sys.stdin.read()), sys.argv)": "'' ['-c']\n",
    "import sys\nsys.stdout.write('a')\nsys.stdout.flush()\nprint('b', flush=True)": "ab\n",
    "import os\nos.write(1, b'raw')": "raw",
    "import os\nprint(os.getcwd(), os.getuid(), os.environ['MODE'])": "/work 1000 fast\n",
    "import os\nprint(os.getenv('NO'), os.environ.get('NO', 1))": "None 1\n",
    "from os import path as p\nprint(p.join('a', 'b'), p.basename('x/y'))": "a/b y\n",
    "import json\nprint(json.dumps({'a': None}), json.loads('[1.5]'))": '{"a": null} [1.5]\n',
    "import math as m\nprint(m.sqrt(16), m.factorial(5))": "4.0 120\n",
    "print('é🎉', len('é🎉'), '\\udcff')": "é🎉 2 \udcff\n",
    "try:\n    import numpy\nexcept ImportError as e:\n    print(e.name)": "numpy\n",
    "print('a')\r\nprint('b')\r\n": "a\nb\n",
    "": "",
}


@pytest.mark.parametrize("code", PRINTED)
async def test_recognised_code(box: Box, code: str) -> None:
    """Code that is understood says what Python says."""
    assert await box.play(code) == (0, PRINTED[code], "")


CAUGHT = """\
for what in (0, "x", None):
    try:
        print(1 // what)
    except ZeroDivisionError as e:
        print("zero", e)
    except (TypeError, ValueError):
        print("type")
        continue
    else:
        print("never")
    finally:
        print("finally")
"""


async def test_exceptions_are_caught(box: Box) -> None:
    """The first clause that fits handles an exception, and `finally` always comes last."""
    zero = "zero integer division or modulo by zero\nfinally\n"
    assert (await box.play(CAUGHT)).out == zero + "type\nfinally\n" * 2


FAILED = {
    "x = 1\n\n1/0": (3, "ZeroDivisionError: division by zero"),
    "raise ValueError('é')": (1, "ValueError: é"),
    "raise KeyError('k')": (1, "KeyError: 'k'"),
    "print(nope)": (1, "NameError: name 'nope' is not defined"),
    "time.sleep(1)": (1, "NameError: name 'time' is not defined"),
    "assert 1 == 2, 'no'": (1, "AssertionError: no"),
    "input()": (1, "EOFError: EOF when reading a line"),
    "'a' + 1": (1, 'TypeError: can only concatenate str (not "int") to str'),
    "print(1, file=5)": (1, "AttributeError: 'int' object has no attribute 'write'"),
    "open('\\0')": (1, "ValueError: embedded null byte"),
    "None.upper()": (1, "AttributeError: 'NoneType' object has no attribute 'upper'"),
    "a, b = 1, 2, 3": (1, "ValueError: too many values to unpack (expected 2)"),
    "import os\nos.environ['NO']": (2, "KeyError: 'NO'"),
    "import requests\nprint(requests.get('x').ok)": (
        1,
        "ModuleNotFoundError: No module named 'requests'",
    ),
    "from a.b import c": (1, "ModuleNotFoundError: No module named 'a'"),
    "open('none')": (1, "FileNotFoundError: [Errno 2] No such file or directory: 'none'"),
    "open('/etc/secret')": (1, "PermissionError: [Errno 13] Permission denied: '/etc/secret'"),
    "open('/work')": (1, "IsADirectoryError: [Errno 21] Is a directory: '/work'"),
    "import time\ntime.sleep(-1)": (2, "ValueError: sleep length must be non-negative"),
}


@pytest.mark.parametrize("code", FAILED)
async def test_uncaught_exceptions(box: Box, code: str) -> None:
    """A traceback names the caller's own line and shows it; the exit code is 1."""
    line, said = FAILED[code]
    place = f'  File "<code>", line {line}, in <module>\n    {code.splitlines()[line - 1]}\n'
    expected = f"Traceback (most recent call last):\n{place}{said}\n"
    assert await box.play(code) == (1, "", expected)


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("", "\nDuring handling of the above exception, another exception occurred:\n\n"),
        (" from e", "\nThe above exception was the direct cause of the following exception:\n\n"),
        (" from None", None),
    ],
)
async def test_chained_exceptions(box: Box, how: str, words: str | None) -> None:
    """What was being handled is shown first, unless it is told not to be."""
    err = (await box.play(f"try:\n    1/0\nexcept Exception as e:\n    raise KeyError(2){how}")).err
    first, last = "ZeroDivisionError: division by zero\n", "KeyError: 2\n"
    assert err.endswith(last)
    assert (first in err) == (words is not None)
    assert words is None or first + words in err


@pytest.mark.parametrize(
    ("code", "line", "said"),
    [
        ("print(1)\nx = = 1\n", 2, "SyntaxError: invalid syntax"),
        ("if 1:\nx", 2, "IndentationError: expected an indented block after 'if' statement"),
        ("print(1)\nbreak", 2, "SyntaxError: 'break' outside loop"),
        ("(" * 1000, 1, "SyntaxError: too many nested parentheses"),
    ],
)
async def test_syntax_errors(box: Box, code: str, line: int, said: str) -> None:
    """None of a program with a syntax error runs; the error and its line are on stderr."""
    played = await box.play(code)
    assert (played.code, played.out) == (1, "")
    assert played.err.startswith(f'  File "<code>", line {line}\n')
    assert said in played.err.splitlines()[-1]


@pytest.mark.parametrize(
    ("code", "exit_code", "said"),
    [
        ("import sys; sys.exit()", 0, ""),
        ("import sys; sys.exit(7)", 7, ""),
        ("raise SystemExit(256 + 3)", 3, ""),
        ("exit('bye')", 1, "bye\n"),
        ("import os; os._exit(9)", 9, ""),
        ("try:\n    exit(4)\nexcept Exception:\n    print('no')", 4, ""),
    ],
)
async def test_exit_codes(box: Box, code: str, exit_code: int, said: str) -> None:
    """`SystemExit` means what it means in any program."""
    assert await box.play(f"{code}\nprint('after')") == (exit_code, "", said)


FILES = """\
with open("a", "w") as f:
    print(f.write("é\\n"), "x", file=f)
open("a", "a").write("end")
for line in open("a", encoding="utf-8"):
    print(repr(line))
print(open("a", "rb").read(2))
f.read()
"""


async def test_files(box: Box) -> None:
    """Files are read and written in the sandbox, in the call's directory and with its mask."""
    played = await box.play(FILES, umask=0o077)
    assert played.out == "'é\\n'\n'2 x\\n'\n'end'\nb'\\xc3\\xa9'\n"
    assert played.err.endswith("ValueError: I/O operation on closed file.\n")
    assert box.fs.read("/work/a", who=ROOT) == "é\n2 x\nend".encode()
    node = box.fs.stat("/work/a", who=ROOT)
    assert (node.mode, node.uid) == (0o600, 1000)


async def test_directories_and_paths(box: Box) -> None:
    """`os` and `pathlib` see the same files."""
    code = (
        "import os\nfrom pathlib import Path\nos.mkdir('d')\n"
        "p = Path('d') / 'f.txt'\np.write_text('hi')\n"
        "print(os.listdir('d'), p.read_text(), p.exists(), os.path.isdir('d'), p)\n"
        "os.remove(p)\nos.rmdir('d')\nprint(os.listdir())"
    )
    assert (await box.play(code)).out == "['f.txt'] hi True True d/f.txt\n[]\n"


async def test_time_is_virtual(box: Box) -> None:
    """`time.sleep()` takes virtual time, which the sandbox's own clock shows."""
    code = "import time\nt = time.time()\ntime.sleep(40)\nprint(time.time() - t, t)"
    played = await box.play(code)
    assert played.out == f"40.0 {FakeClock().wall().timestamp()}\n"


async def test_streams_are_apart(box: Box) -> None:
    """Text goes to the stream that the code names."""
    code = 'import sys\nprint("a", end="")\nprint("b", "\\ud800", file=sys.stderr, end="")'
    assert await box.play(code) == (0, "a", "b \\ud800")


async def test_a_full_disk_at_stdout(box: Box) -> None:
    """An error of stdout is an exception of the code."""
    box.out.error = OSError(28, "No space left on device")
    played = await box.play("print(1)")
    assert played.err.endswith("\nOSError: [Errno 28] No space left on device\n")


async def test_a_closed_pipe_ends_the_code(box: Box) -> None:
    """Nobody reads stdout any more: the kernel ends the process, not an exception."""
    box.out.error = BrokenPipeError()
    assert await box.play("try:\n    print(1)\nexcept OSError:\n    pass") == (141, "", "")


UNREACHABLE = "OSError: [Errno 101] Network is unreachable"
UNRESOLVED = "socket.gaierror: [Errno -3] Temporary failure in name resolution"
URL_ERROR = "urllib.error.URLError: <urlopen error [Errno -3] Temporary failure in name resolution>"
DIALLED = {
    "socket.create_connection(('1.1.1.1', 443), 3)": ("1.1.1.1", 443, UNREACHABLE),
    "socket.socket(socket.AF_INET).connect(('1.1.1.1', 80))": ("1.1.1.1", 80, UNREACHABLE),
    "socket.create_connection(('a.example', 443), timeout=3)": ("a.example", 443, UNRESOLVED),
    "socket.getaddrinfo('a.example', 80)": ("a.example", 80, UNRESOLVED),
    "socket.gethostbyname('a.example')": ("a.example", 53, UNRESOLVED),
    "urllib.request.urlopen('https://a.example/x', timeout=1)": ("a.example", 443, URL_ERROR),
    "urllib.request.urlopen('http://1.1.1.1:8/')": (
        "1.1.1.1",
        8,
        "urllib.error.URLError: <urlopen error [Errno 101] Network is unreachable>",
    ),
}


@pytest.mark.parametrize("call", DIALLED)
@pytest.mark.parametrize("allowed", [False, True])
async def test_network_attempts(call: str, allowed: bool) -> None:
    """Every attempt is recorded; the policy decides whether it is an error."""
    box = Box(OPEN if allowed else None)
    host, port, error = DIALLED[call]
    played = await box.play(f"import socket, urllib.request\n{call}\nprint('through')")
    assert box.attempts == [EgressAttempt("box", host, port, allowed)]
    assert played.out == ("through\n" if allowed else "")
    assert played.err.splitlines()[-1:] == ([] if allowed else [error])


async def test_what_is_reached_says_nothing() -> None:
    """A connection that is allowed is empty."""
    code = (
        "import socket, urllib.request\n"
        "with socket.create_connection(('a.example', 1)) as s:\n"
        "    s.sendall(b'x')\n    print(s.recv(10))\n"
        "with urllib.request.urlopen('http://a.example') as r:\n    print(r.status, r.read())"
    )
    assert await Box(OPEN).play(code) == (0, "b''\n200 b''\n", "")


async def test_loopback_refuses(box: Box) -> None:
    """Nobody listens inside the sandbox, and that is no attempt to leave it."""
    played = await box.play("import socket\nsocket.create_connection(('localhost', 80))")
    assert played.err.endswith("ConnectionRefusedError: [Errno 111] Connection refused\n")
    assert box.attempts == []
