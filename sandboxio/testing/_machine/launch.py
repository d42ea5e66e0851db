"""From a command line to a running virtual program: the search along PATH, and exec."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from sandboxio.testing._disk.nodes import Directory, File

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sandboxio.testing._machine.process import Fd, Process

Program = Callable[["Process", Sequence[str]], Coroutine[Any, Any, int]]
"""A program: gets its process and its arguments without its own name, returns the exit code."""

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
MAGIC = b"\x7fFAKE "
"""How the file of a virtual program begins; its name in the table follows."""
NOT_FOUND, NOT_EXECUTABLE = 127, 126

PROGRAMS: dict[str, Program] = {}
"""Every virtual program by its name; the modules that hold them enter them here."""


class CannotRun(Exception):
    """A program that cannot be started: `reason` in the words of the system, and its exit code."""

    def __init__(self, exit_code: int, reason: str) -> None:
        super().__init__(reason)
        self.exit_code = exit_code
        self.reason = reason


def program(*names: str) -> Callable[[Program], Program]:
    """Enter a program into the table, under one or more names."""

    def enter(main: Program) -> Program:
        for name in names:
            PROGRAMS[name] = main
        return main

    return enter


def find(process: Process, name: str) -> str | None:
    """Return the path of the program of that name, or `None`; a name with a slash is a path."""
    fs = process.kernel.fs
    if "/" in name:
        return name if fs.exists(name, cwd=process.cwd, who=process.who) else None
    for folder in process.env.get("PATH", DEFAULT_PATH).split(":"):
        path = f"{folder or '.'}/{name}"
        if fs.access(path, cwd=process.cwd, who=process.who, execute=True) and isinstance(
            fs.resolve(path, cwd=process.cwd, who=process.who), File
        ):
            return path
    return None


async def execute(process: Process, argv: Sequence[str]) -> int:
    """Run a program in this process, in place of what runs in it, and return its exit code.

    Raises:
        CannotRun: there is no such program, or it is none.
    """
    main, full = _load(process, argv)
    process.argv = tuple(full)
    process.forget_handlers()
    return await main(process, full[1:])


def start(
    parent: Process,
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    fds: Mapping[int, Fd] | None = None,
    new_session: bool = False,
) -> Process:
    """Start a program as a child of a process; `env` replaces the whole environment.

    Raises:
        CannotRun: there is no such program, or it is none.
    """
    _load(parent, argv)

    async def main(process: Process) -> int:
        return await execute(process, argv)

    child = parent.kernel.fork(parent, main, argv=argv, fds=fds, new_session=new_session)
    if env is not None:
        child.env = dict(env)
    return child


def _load(process: Process, argv: Sequence[str]) -> tuple[Program, list[str]]:
    path = find(process, argv[0])
    if path is None:
        raise CannotRun(NOT_FOUND, "No such file or directory" if "/" in argv[0] else "not found")
    fs = process.kernel.fs
    try:
        node = fs.resolve(path, cwd=process.cwd, who=process.who)
    except OSError as exc:
        raise CannotRun(NOT_EXECUTABLE, exc.strerror or "") from exc
    may = fs.access(path, cwd=process.cwd, who=process.who, execute=True)
    if isinstance(node, Directory) or not isinstance(node, File) or not may:
        raise CannotRun(NOT_EXECUTABLE, "Permission denied")
    return _interpret(bytes(node.data[:256]), path, argv)


def _interpret(head: bytes, path: str, argv: Sequence[str]) -> tuple[Program, list[str]]:
    line = head.split(b"\n", 1)[0]
    if line.startswith(MAGIC):
        return PROGRAMS[line[len(MAGIC) :].decode()], list(argv)
    if line.startswith(b"#!"):
        interpreter = line[2:].decode("utf-8", "replace").split()[0].rpartition("/")[2]
        if interpreter in PROGRAMS:
            return PROGRAMS[interpreter], [interpreter, path, *argv[1:]]
        raise CannotRun(NOT_FOUND, f"bad interpreter: {interpreter}")
    return PROGRAMS["sh"], ["sh", path, *argv[1:]]
