"""Programs about processes and time: env, setsid, sleep, timeout, kill."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from sandboxio.testing._machine.launch import NOT_FOUND, CannotRun, execute, start
from sandboxio.testing._machine.process import KILL, SIGNALS, signal_number
from sandboxio.testing._programs._common import (
    Failure,
    misused,
    put_text,
    quoted,
    require_operands,
    say,
    tool,
)
from sandboxio.testing._programs._options import parse
from sandboxio.testing._programs.system import environment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sandboxio.testing._machine.process import Process

_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION = re.compile(r"\+?(\d+\.?\d*|\.\d+|inf(?:inity)?)([smhd]?)", re.IGNORECASE)
_ENV = {"ignore-environment": "i", "unset=": "u", "chdir=": "C", "null": "0"}
_TIMEOUT = {"signal=": "s", "kill-after=": "k", "preserve-status": "p", "foreground": "f"}
_HARMLESS = (17, 18, 28)
_STOPS = (19, 20)
FIRST_PID = 1
"""The sandbox's first process, which is root's and no virtual process."""


def cannot_run(program: str, exc: CannotRun) -> str:
    """Return the complaint about a program that cannot be started."""
    reason = "No such file or directory" if exc.exit_code == NOT_FOUND else exc.reason
    return f"{quoted(program)}: {reason}"


@tool("env")
async def env(process: Process, args: Sequence[str]) -> int:
    """Show the environment, or run a program in a changed one."""
    options = parse("env", args, "iu:C:0", _ENV, code=125, permute=False)
    words = options.operands
    if words[:1] == ["-"] or "i" in options:
        process.env.clear()
        words = words[1:] if words[:1] == ["-"] else words
    for name in options.all("u"):
        process.env.pop(name, None)
    count = next((at for at, word in enumerate(words) if "=" not in word), len(words))
    for word in words[:count]:
        name, _, value = word.partition("=")
        process.env[name] = value
    if "C" in options:
        _enter(process, options.get("C"))
    if count == len(words):
        await put_text(process, environment(process, "\0" if "0" in options else "\n"))
        return 0
    try:
        return await execute(process, words[count:])
    except CannotRun as exc:
        raise Failure(f"env: {cannot_run(words[count], exc)}", exc.exit_code) from exc


def _enter(process: Process, folder: str) -> None:
    fs = process.kernel.fs
    try:
        fs.stat(f"{folder}/.", cwd=process.cwd, who=process.who)
        process.cwd = fs.realpath(folder, cwd=process.cwd, who=process.who)
    except OSError as exc:
        message = f"env: cannot change directory to {quoted(folder)}: {exc.strerror}"
        raise Failure(message, 125) from exc


@tool("setsid")
async def setsid(process: Process, args: Sequence[str]) -> int:
    """Run a program in a session of its own, in place of this one."""
    long = {"wait": "w", "fork": "f", "ctty": "c"}
    options = parse("setsid", args, "wfc", long, permute=False)
    words = options.operands
    if not words:
        raise misused("setsid", "no command specified")
    try:
        if "f" in options:
            start(process, words, new_session=True)
            return 0
        process.session = process.pid
        return await execute(process, words)
    except CannotRun as exc:
        reason = "No such file or directory" if exc.exit_code == NOT_FOUND else exc.reason
        message = f"setsid: failed to execute {words[0]}: {reason}"
        raise Failure(message, exc.exit_code) from exc


@tool("sleep")
async def sleep(process: Process, args: Sequence[str]) -> int:
    """Wait for virtual time; several times add up."""
    options = parse("sleep", args, "")
    require_operands("sleep", options.operands)
    wrong = [text for text in options.operands if seconds(text) is None]
    if wrong:
        lines = [f"invalid time interval {quoted(text)}" for text in wrong]
        raise misused("sleep", "\nsleep: ".join(lines))
    await process.sleep(sum(seconds(text) or 0.0 for text in options.operands))
    return 0


def seconds(text: str) -> float | None:
    """Return the seconds of a duration such as `1.5`, `2m` or `infinity`."""
    match = _DURATION.fullmatch(text)
    if match is None:
        return None
    amount = math.inf if match[1].lower().startswith("inf") else float(match[1])
    return amount * _UNITS[match[2].lower()]


@tool("timeout", trouble=125)
async def timeout(process: Process, args: Sequence[str]) -> int:
    """Run a program, and end it when it takes too long; exits 124 then."""
    options = parse("timeout", args, "s:k:v", _TIMEOUT, code=125, permute=False)
    words = options.operands
    if len(words) < 2:
        raise Failure("Try 'timeout --help' for more information.", 125)
    limit, grace = _limit(words[0]), _limit(options.get("k", "0"))
    number = signal_number(options.get("s", "TERM"))
    if number is None:
        raise misused("timeout", f"{quoted(options.get('s'))}: invalid signal", 125)
    try:
        child = start(process, words[1:])
    except CannotRun as exc:
        message = f"timeout: failed to run command {cannot_run(words[1], exc)}"
        raise Failure(message, exc.exit_code) from exc
    if await _ends_within(process, child, limit):
        return await process.wait(child)
    child.signal(number)
    if not await _ends_within(process, child, grace):
        child.signal(KILL)
        return 128 + KILL
    code = await process.wait(child)
    return code if "p" in options or number == KILL else 124


def _limit(text: str) -> float:
    """Return the seconds of a limit; 0 is without end."""
    limit = seconds(text)
    if limit is None:
        raise misused("timeout", f"invalid time interval {quoted(text)}", 125)
    return limit or math.inf


async def _ends_within(process: Process, child: Process, limit: float) -> bool:
    """Wait for a child, but no longer than some seconds of virtual time."""
    clock = process.kernel.clock
    until = clock.time() + limit
    timer = process.kernel.at(until, process.waited.wake)
    try:
        while child.exit_code is None and clock.time() < until:
            await process.waited.wait()
    finally:
        timer.cancel()
    return child.exit_code is not None


@tool("kill")
async def kill(process: Process, args: Sequence[str]) -> int:
    """Send a signal to processes, or with a negative number to sessions."""
    words = list(args)
    if words[:1] == ["-l"]:
        return await _list(process, words[1:])
    number = _chosen(words)
    if not words:
        raise Failure(
            "sh: 1: kill: Usage: kill [-s sigspec | -signum | -sigspec] [pid | job]...", 2
        )
    code = 0
    for word in words:
        problem = await _send(process, word, number)
        if problem:
            await say(process, f"sh: 1: kill: {problem}")
            code = 1
    return code


def _chosen(words: list[str]) -> int:
    """Take the options from the words, and return the signal they name."""
    text = "TERM"
    if words[:1] == ["-s"]:
        text = words[1] if len(words) > 1 else ""
        del words[:2]
    elif words and re.fullmatch(r"-[0-9A-Za-z]+", words[0]):
        text = words.pop(0)[1:]
    if words[:1] == ["--"]:
        del words[0]
    number = signal_number(text)
    if number is None:
        raise Failure(f"sh: 1: kill: invalid signal number or name: {text}", 2)
    return number


async def _list(process: Process, words: Sequence[str]) -> int:
    names = {number: name for name, number in sorted(SIGNALS.items(), key=lambda item: item[1])}
    if not words:
        await put_text(process, "".join(f"{name}\n" for name in names.values()))
        return 0
    for word in words:
        number = int(word) & 0x7F if word.isdecimal() else 0
        if number not in names:
            raise Failure(f"sh: 1: kill: invalid signal number or name: {word}", 2)
        await put_text(process, names[number] + "\n")
    return 0


async def _send(process: Process, word: str, number: int) -> str:
    """Send a signal to one target, and return what to complain about."""
    if not re.fullmatch(r"-?\d+", word):
        return f"Illegal number: {word}"
    pid = int(word)
    targets = _targets(process, pid)
    allowed = [target for target in targets if _may_signal(process, target)]
    if not allowed:
        ours = process.who.uid == 0
        if pid == FIRST_PID and ours:
            return ""  # the first process of a sandbox ignores what it does not handle
        return "Operation not permitted" if targets or pid == FIRST_PID else "No such process"
    if number in _STOPS:
        return "stopping a process is not simulated"
    for target in allowed:
        if number and (number not in _HARMLESS or number in target.traps):
            await process.kernel.kill(target, number)
    return ""


def _targets(process: Process, pid: int) -> list[Process]:
    everyone = list(process.kernel.processes.values())
    if pid == -1:
        return [other for other in everyone if other is not process]
    session = process.session if pid == 0 else -pid
    if pid > 0:
        return [other for other in everyone if other.pid == pid]
    # itself last: it could not go on to the others
    group = [other for other in everyone if other.session == session]
    return sorted(group, key=lambda other: other is process)


def _may_signal(process: Process, target: Process) -> bool:
    return process.who.uid in (0, target.who.uid)
