"""The builtins of the shell that are about signals and background processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandboxio.testing._machine.process import KILL, SIGNALS, signal_number
from sandboxio.testing._shell.builtins import builtin, number, quoted
from sandboxio.testing._shell.state import ShellError

if TYPE_CHECKING:
    from sandboxio.testing._machine.process import Process
    from sandboxio.testing._shell.run import Shell

_NAMES = {0: "EXIT", **{number: name for name, number in SIGNALS.items()}}


@builtin("trap")
async def _trap(shell: Shell, args: list[str]) -> int:
    words = args[1:] if args[:1] == ["--"] else args
    if not words or words == ["-p"]:
        for number_, text in sorted(shell.traps.items()):
            await shell.process.out(f"trap -- {quoted(text)} {_NAMES.get(number_, number_)}\n")
        return 0
    resets = len(words) == 1 or words[0].isdecimal()
    action = None if resets or words[0] == "-" else words[0]
    for name in words if resets else words[1:]:
        signal = 0 if name.upper() == "EXIT" else signal_number(name)
        if signal is None:
            await shell.process.err(f"trap: {name}: bad trap\n")
            return 1
        _set_trap(shell, signal, action)
    return 0


def _set_trap(shell: Shell, signal: int, action: str | None) -> None:
    if signal in shell.ignored_at_start:
        return
    if action is None:
        shell.traps.pop(signal, None)
    else:
        shell.traps[signal] = action
    if signal in (0, KILL):
        return
    if action is None:
        shell.process.traps.pop(signal, None)
    else:
        shell.process.traps[signal] = action


@builtin("wait")
async def _wait(shell: Shell, args: list[str]) -> int:
    if not args:
        for pid in tuple(shell.jobs):
            status = await _wait_for(shell, shell.jobs[pid])
            if status is None:
                return await _interrupted(shell)
            shell.jobs.pop(pid, None)
        return 0
    found = 0
    for arg in args:
        child = shell.jobs.get(_pid(shell, arg))
        if child is None:
            found = 127
            continue
        status = await _wait_for(shell, child)
        if status is None:
            return await _interrupted(shell)
        found = status
    return found


async def _wait_for(shell: Shell, child: Process) -> int | None:
    """Wait for a background process; `None` when a signal comes first."""
    if child.exit_code is None:
        await shell.process.wait(child)
    shell.reap()
    return child.exit_code


async def _interrupted(shell: Shell) -> int:
    status = 128 + shell.process.pending[0]
    await shell.step()
    return status


def _pid(shell: Shell, text: str) -> int:
    if not text.startswith("%"):
        return number("wait", text)
    pids = list(shell.jobs)
    index = len(pids) if text[1:] in ("", "%", "+") else number("wait", text[1:])
    if not 0 < index <= len(pids):
        raise ShellError(f"wait: No such job: {text}")
    return pids[index - 1]
