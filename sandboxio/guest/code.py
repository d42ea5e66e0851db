"""Running source code with the sandbox's own interpreters.

The code travels on stdin with its length told beforehand, so that it is in no argument list, no
file and no environment, and needs no half-closed connection. By the time it runs, its stdin is
at end of file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sandboxio.core.errors import CapabilityNotSupported

if TYPE_CHECKING:
    from collections.abc import Collection

LOADER = """\
def run(source):
    import sys
    space = sys.modules['__main__'].__dict__
    for name in ('run', 'load'):
        space.pop(name, None)
    source = source.decode('utf-8')
    depth = 0
    try:
        code = compile(source, '<code>', 'exec', 0, True)
        depth = 1
        exec(code, space)
    except SystemExit:
        raise
    except BaseException as error:
        trace = error.__traceback__.tb_next if depth else None
        try:
            path, sys.path[:] = sys.path[:], [place for place in sys.path if place]
            import linecache, traceback
            sys.path[:] = path
            linecache.cache['<code>'] = len(source), None, source.splitlines(True), '<code>'
        except Exception:
            pass
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        sys.exit(1)
"""
"""Runs the code as `__main__`; tracebacks hold the caller's lines and none of these."""

_PYTHON = (
    LOADER
    + """\
def load():
    import os, sys
    size, parts = int(sys.argv.pop()), []
    while size > 0:
        part = os.read(0, min(size, 65536))
        if not part:
            os._exit(125)
        parts.append(part)
        size -= len(part)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    return b''.join(parts)
run(load())
"""
)

_BASH = 'eval "shift;$(head -c "$1")" </dev/null'


class CodeCommand(NamedTuple):
    """A program to start and what to write to its stdin first."""

    argv: tuple[str, ...]
    stdin: bytes


INTERPRETERS = {"python": ("python3", "python"), "bash": ("bash",)}
"""Languages, and the programs that run each, in order of preference."""


def languages(programs: Collection[str]) -> tuple[str, ...]:
    """Return what can be run where these programs exist."""
    return tuple(
        language
        for language, candidates in INTERPRETERS.items()
        if any(program in programs for program in candidates)
    )


def command(language: str, code: str, programs: Collection[str]) -> CodeCommand:
    """Return how to run code of a language with the programs there are.

    Raises:
        CapabilityNotSupported: the language is unknown, or has no interpreter here.
    """
    candidates = INTERPRETERS.get(language, ())
    program = next((name for name in candidates if name in programs), None)
    if program is None:
        wanted = f" ({' or '.join(candidates)})" if candidates else ""
        available = ", ".join(languages(programs)) or "no language at all"
        raise CapabilityNotSupported(
            f"This sandbox has no interpreter for {language!r}{wanted}; it runs {available}.",
            hint="Use an image that holds one, such as docker://python:3.12-slim",
        )
    source = code.encode()
    argv: tuple[str, ...]
    if language == "python":
        argv = (program, "-u", "-X", "utf8", "-c", _PYTHON, str(len(source)))
    else:
        argv = (program, "-c", _BASH, program, str(len(source)))
    return CodeCommand(argv, source)
