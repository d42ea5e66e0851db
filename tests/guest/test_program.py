"""The agent as it is sent: one text, for old Pythons, with nothing but what is always there."""

from __future__ import annotations

import ast

from sandboxio.guest import program

ALWAYS_THERE = {
    *("__future__", "ctypes", "errno", "fcntl", "fnmatch", "gc", "os", "re", "select", "site"),
    *("stat", "struct", "sys", "time", "_collections", "_heapq", "_signal", "_socket"),
}
"""Modules of python3-minimal, and ctypes and resource, which are asked for and done without."""


def files() -> bytes:
    """Return the part that only the processes compile which work on files."""
    space: dict[str, object] = {}
    line = next(line for line in program.source().splitlines() if line.startswith(b"__files__"))
    exec(line, space)
    found = space["__files__"]
    assert isinstance(found, bytes)
    return found


def imported(source: bytes) -> set[str]:
    """Return the modules that a text imports where it runs."""
    found: set[str] = set()
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {name.name.partition(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add((node.module or "").partition(".")[0])
    return found


def test_it_is_written_for_python_3_8() -> None:
    """All of it parses as Python 3.8 and later."""
    for source in (program.source(), files()):
        for minor in (8, 9, 10, 11):
            ast.parse(source, feature_version=(3, minor))


def test_it_needs_nothing_that_may_be_absent() -> None:
    """It imports what Debian's python3-minimal has, and nothing of ours."""
    assert imported(program.source()) | imported(files()) <= ALWAYS_THERE


def test_only_the_bootstrap_is_an_argument() -> None:
    """The argument list holds a few lines and a length, whatever the agent has grown to."""
    boot, length = program.arguments(program.source())
    assert len(boot) < 300
    assert int(length) == len(program.source()) < 128 * 1024


def test_the_relay_is_a_few_lines() -> None:
    """The relay is a program by itself."""
    ast.parse(program.RELAY, feature_version=(3, 8))
    assert len(program.RELAY.splitlines()) < 15
