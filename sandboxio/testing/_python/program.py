"""What a fake sandbox does with Python code that no script answers.

It recognises a small part of Python from the syntax tree, and plays what that part means on the
virtual files, clock and network. It executes nothing: no code is compiled, no module is imported
because code names it, no attribute is looked up because code spells it. The rest is refused.
"""

from __future__ import annotations

import ast
import re
import traceback
import warnings
from itertools import islice
from typing import TYPE_CHECKING

from sandboxio.testing._python.check import Check, Misplaced
from sandboxio.testing._python.objects import NotUnderstood, Raised
from sandboxio.testing._python.run import Run
from sandboxio.testing._python.session import show, weight
from sandboxio.testing._python.system import Ended, encoded

if TYPE_CHECKING:
    from sandboxio.testing._machine.process import Process

WIDEST = 200
"""Characters of a line that a refusal shows."""
MOST_WORDS = 40_000
"""Names, literals and signs of a program; a text of any length is one."""
_WORD = re.compile(
    r'''"""(?s:.*?)"""|"[^"\\\n]*(?:\\(?s:.)[^"\\\n]*)*"'''
    r"""|'''(?s:.*?)'''|'[^'\\\n]*(?:\\(?s:.)[^'\\\n]*)*'"""
    r"""|#.*|\w+|[^\w\s]"""
)
_HINT = 'Script it: fake.on_run_code("…", returns=ExecResult(0, "…", ""))\n'
_DURING = "\nDuring handling of the above exception, another exception occurred:\n\n"
_CAUSE = "\nThe above exception was the direct cause of the following exception:\n\n"


async def python(process: Process, code: str, *, filename: str = "<code>") -> int:
    """Play a Python program in a process, and return its exit code."""
    lines = code.split("\n")
    if excess := _excess(code):
        return await _fail(process, refusal(lines, excess))
    tree = ast.Module([], [])
    try:
        tree = _parsed(code, filename)
        line = Check(tree).first_unknown()
    except SyntaxError as exc:
        return await _fail(process, "".join(traceback.format_exception_only(exc)))
    except Misplaced as exc:
        place = f'  File "{filename}", line {exc.line}\n    {_source(lines, exc.line)}\n'
        return await _fail(process, f"{place}SyntaxError: {exc}\n")
    except (RecursionError, MemoryError):
        line = 1
    if line:
        return await _fail(process, refusal(lines, line))
    return await _played(process, tree, lines, filename)


def refusal(lines: list[str], line: int) -> str:
    """Return what is said about code that is not understood."""
    source = _source(lines, line)
    shown = source if len(source) <= WIDEST else f"{source[:WIDEST]}…"
    return f"FakeBackend: line {line} is not understood without executing it: {shown}\n{_HINT}"


def _excess(code: str) -> int:
    """Return the line from which on a program is too long to be looked at, else 0."""
    words = islice(_WORD.finditer(code), MOST_WORDS, None)
    word = next(words, None)
    return 0 if word is None else code.count("\n", 0, word.start()) + 1


def _parsed(code: str, filename: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about escapes: they are the caller's
        try:
            try:
                return ast.parse(code, filename)
            except SystemError:  # CPython's own, where a collection parses too: gh-106905
                return ast.parse(code, filename)
        except (ValueError, UnicodeError) as exc:
            raise SyntaxError(str(exc)) from None


async def _played(process: Process, tree: ast.Module, lines: list[str], filename: str) -> int:
    run = Run(process)
    try:
        await run.block(tree.body)
    except NotUnderstood as exc:
        return await _fail(process, refusal(lines, exc.line))
    except RecursionError:  # the host's own stack was deep already
        return await _fail(process, refusal(lines, 1))
    except Ended as exc:
        return exc.code & 0xFF
    except Raised as raised:
        if isinstance(raised.error, SystemExit):
            return await _exit(process, raised.error.code)
        return await _fail(process, _trace(raised, lines, filename))
    finally:
        run.end()
    return 0


async def _exit(process: Process, code: object) -> int:
    """Do what `SystemExit` means at the end of a program."""
    if code is None or isinstance(code, int):
        return (code or 0) & 0xFF
    return await _fail(process, f"{_text(code)}\n")


async def _fail(process: Process, said: str) -> int:
    try:
        await process.stderr.write(encoded(said, "backslashreplace"))
    except BrokenPipeError:
        raise
    except OSError:  # nobody is left to be told
        pass
    return 1


def _trace(raised: Raised, lines: list[str], filename: str) -> str:
    """Return what Python prints about an exception that nobody caught."""
    parts = [_one(raised, lines, filename)]
    while raised.before is not None:
        parts.append(_CAUSE if raised.has_cause else _DURING)
        raised = raised.before
        parts.append(_one(raised, lines, filename))
    return "".join(reversed(parts))


def _one(raised: Raised, lines: list[str], filename: str) -> str:
    kind = type(raised.error)
    module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    said = _text(raised.error)
    last = f"{module}{kind.__qualname__}{': ' if said else ''}{said}\n"
    if not raised.line:
        return last
    place = f'  File "{filename}", line {raised.line}, in <module>\n'
    source = _source(lines, raised.line)
    return f"Traceback (most recent call last):\n{place}    {source}\n{last}"


def _text(value: object) -> str:
    """Return the words of an exception, or of what a program exits with."""
    try:
        weight(value)
        return str(value) if isinstance(value, str | BaseException) else show(value)
    except (MemoryError, RecursionError, ValueError):
        return "<exception str() failed>"


def _source(lines: list[str], line: int) -> str:
    return lines[line - 1].strip() if 0 < line <= len(lines) else ""
