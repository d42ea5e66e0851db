"""The virtual shell: `sh`, `bash` and `dash`. What dash says and does is the rule."""

from __future__ import annotations

import errno
import re
from typing import TYPE_CHECKING

from sandboxio.testing._machine.launch import program
from sandboxio.testing._shell import signals, variables
from sandboxio.testing._shell.builtins import set_options
from sandboxio.testing._shell.run import Shell
from sandboxio.testing._shell.state import ShellError, State

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sandboxio.testing._machine.process import Process

__all__ = ["sh"]

_ENTERED = (signals, variables)
"""Modules that enter their builtins into the table when they are imported."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PIECE = 64 * 1024
_LONG = frozenset({"--login", "--norc", "--noprofile", "--posix"})


@program("sh", "bash", "dash")
async def sh(process: Process, args: Sequence[str]) -> int:
    """Run `-c text [name [argument…]]`, a file with arguments, or what comes from stdin.

    Raises:
        BackendNotInstalled: tree-sitter is missing.
    """
    state = _state(process)
    ignored = frozenset(number for number, how in process.traps.items() if how == "")
    shell = Shell(process, state, ignored=ignored)
    try:
        text = await _script(process, state, list(args))
    except ShellError as exc:
        await shell.complain(exc.text, 0)
        return exc.exit_code
    process.traps = dict.fromkeys(shell.traps, "")
    if "verbose" in state.options:
        await process.err(text)
    return await shell.finish(shell.run_text(text, tail=True))


def _state(process: Process) -> State:
    name = process.argv[0] if process.argv else "sh"
    state = State(
        name,
        process.pid,
        process.parent.pid if process.parent else 0,
        bash=name.rpartition("/")[2] == "bash",
    )
    for key, value in process.env.items():
        if _NAME.fullmatch(key):
            state.variables[key] = value
            state.exported.add(key)
    state.exported -= {"IFS"}
    state.variables |= {"IFS": " \t\n", "PWD": process.cwd, "OPTIND": "1"}
    process.env = state.environment()
    return state


async def _script(process: Process, state: State, args: list[str]) -> str:
    """Take options, `$0` and the parameters from the arguments, and return the script."""
    words = [arg for arg in args if not (state.bash and arg in _LONG)]
    rest, found = set_options(state.options, words, letters="c", bash=state.bash)
    if rest[:1] in (["--"], ["-"]):
        del rest[0]
    if "c" in found:
        if not rest:
            raise ShellError("-c requires an argument")
        text, *rest = rest
        if rest:
            state.name, *state.args = rest
        return text
    if not rest or "stdin" in state.options:
        state.args = rest
        return await _all(process)
    text = _file(process, rest[0], bash=state.bash)
    state.name, *state.args = rest
    return text


async def _all(process: Process) -> str:
    found = bytearray()
    while piece := await process.stdin.read(_PIECE):
        found += piece
        await process.step()
    return found.decode("utf-8", "surrogateescape")


def _file(process: Process, path: str, *, bash: bool) -> str:
    try:
        data = process.kernel.fs.read(path, cwd=process.cwd, who=process.who)
    except OSError as exc:
        missing = exc.errno == errno.ENOENT
        if bash:
            raise ShellError(f"{path}: {exc.strerror}", 127 if missing else 126) from exc
        why = "No such file" if missing else exc.strerror
        raise ShellError(f"cannot open {path}: {why}") from exc
    return data.decode("utf-8", "surrogateescape")
