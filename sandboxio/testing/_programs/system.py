"""Programs that tell about the system and the user: id, uname, date and their like."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from sandboxio.testing._disk.nodes import ROOT
from sandboxio.testing._machine.launch import DEFAULT_PATH, find
from sandboxio.testing._programs import _dates
from sandboxio.testing._programs._common import (
    Failure,
    here,
    put,
    put_text,
    quoted,
    refuse_operand,
    tool,
)
from sandboxio.testing._programs._options import parse
from sandboxio.testing._programs._users import User, find_user, group_name, user_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sandboxio.testing._machine.process import Process

KERNEL, RELEASE, VERSION, MACHINE, SYSTEM = (
    "Linux",
    "6.1.0",
    "#1 SMP",
    "x86_64",
    "GNU/Linux",
)
_UNAME = {
    "all": "a",
    "kernel-name": "s",
    "nodename": "n",
    "kernel-release": "r",
    "kernel-version": "v",
    "machine": "m",
    "operating-system": "o",
}
_ID = {"user": "u", "group": "g", "groups": "G", "name": "n", "real": "r"}


@tool("true")
async def true(process: Process, args: Sequence[str]) -> int:
    return 0


@tool("false")
async def false(process: Process, args: Sequence[str]) -> int:
    return 1


@tool("pwd")
async def pwd(process: Process, args: Sequence[str]) -> int:
    """Show the current directory, free of links unless asked for with -L."""
    options = parse("pwd", args, "LP", {"logical": "L", "physical": "P"})
    path = process.cwd
    if options.last("LP") != "L":
        try:
            path = process.kernel.fs.realpath(path, who=ROOT)
        except OSError:
            path = process.cwd
    await put_text(process, path + "\n")
    return 0


@tool("id")
async def identity(process: Process, args: Sequence[str]) -> int:
    """Show a user and its group."""
    options = parse("id", args, "ugGnr", _ID)
    refuse_operand("id", options.operands, 1)
    kinds = {kind for kind, _ in options.given if kind in "ugG"}
    if len(kinds) > 1:
        raise Failure('id: cannot print "only" of more than one choice')
    if not kinds and ("n" in options or "r" in options):
        raise Failure("id: cannot print only names or real IDs in default format")
    user = _user(process, options.operands)
    await put_text(process, _described(process, user, kinds, named="n" in options) + "\n")
    return 0


def _user(process: Process, operands: Sequence[str]) -> User:
    if not operands:
        who = process.who
        return User(user_name(process, who.uid) or "", who.uid, who.gid)
    user = find_user(process, operands[0])
    if user is None:
        raise Failure(f"id: {quoted(operands[0])}: no such user")
    return user


def _described(process: Process, user: User, kinds: set[str], *, named: bool) -> str:
    group = group_name(process, user.gid)
    if not kinds:
        own = f"{user.gid}({group})" if group else str(user.gid)
        uid = f"{user.uid}({user.name})" if user.name else str(user.uid)
        return f"uid={uid} gid={own} groups={own}"
    name, number = (user.name, user.uid) if kinds == {"u"} else (group, user.gid)
    if not named:
        return str(number)
    if not name:
        what = "user" if kinds == {"u"} else "group"
        raise Failure(f"id: cannot find name for {what} ID {number}")
    return name


@tool("whoami")
async def whoami(process: Process, args: Sequence[str]) -> int:
    options = parse("whoami", args, "")
    refuse_operand("whoami", options.operands, 0)
    name = user_name(process, process.who.uid)
    if name is None:
        raise Failure(f"whoami: cannot find name for user ID {process.who.uid}")
    await put_text(process, name + "\n")
    return 0


@tool("uname")
async def uname(process: Process, args: Sequence[str]) -> int:
    """Show what system this is."""
    options = parse("uname", args, "asnrvmo", _UNAME)
    refuse_operand("uname", options.operands, 0)
    facts = {
        "s": KERNEL,
        "n": host_name(process),
        "r": RELEASE,
        "v": VERSION,
        "m": MACHINE,
        "o": SYSTEM,
    }
    asked = facts if "a" in options else [name for name, _ in options.given] or ["s"]
    await put_text(process, " ".join(facts[name] for name in facts if name in asked) + "\n")
    return 0


@tool("hostname")
async def hostname(process: Process, args: Sequence[str]) -> int:
    """Show the name of this host."""
    options = parse("hostname", args, "sf", {"short": "s", "long": "f", "fqdn": "f"})
    if options.operands:
        raise Failure("hostname: you must be root to change the host name")
    name = host_name(process)
    await put_text(process, (name.partition(".")[0] if "s" in options else name) + "\n")
    return 0


def host_name(process: Process) -> str:
    """Return the name in `/etc/hostname`."""
    try:
        data = process.kernel.fs.read("/etc/hostname", who=ROOT)
    except OSError:
        return "localhost"
    return data.decode("utf-8", "replace").strip() or "localhost"


@tool("nproc")
async def nproc(process: Process, args: Sequence[str]) -> int:
    """Show how many processors there are: as many as the sandbox may use."""
    options = parse("nproc", args, "", {"all": "a"})
    refuse_operand("nproc", options.operands, 0)
    await put_text(process, f"{_processors(process)}\n")
    return 0


def _processors(process: Process) -> int:
    try:
        quota, period = process.kernel.fs.read("/sys/fs/cgroup/cpu.max", who=ROOT).split()
        return max(1, math.ceil(int(quota) / int(period)))
    except (OSError, ValueError):
        return 1


@tool("date")
async def date(process: Process, args: Sequence[str]) -> int:
    """Show the date of the virtual clock, or another one with -d; always in UTC."""
    long = {"date=": "d", "utc": "u", "universal": "u", "iso-8601": "I", "rfc-email": "R"}
    options = parse("date", args, "d:uIR", long)
    refuse_operand("date", options.operands, 1)
    form = "".join(options.operands)
    if form and not form.startswith("+"):
        raise Failure(f"date: invalid date {quoted(form)}")
    shown = {"R": "%a, %d %b %Y %H:%M:%S %z", "I": "%F", "": _dates.DEFAULT}[options.last("RI")]
    when = process.kernel.clock.wall()
    if "d" in options:
        moved = _dates.read(options.get("d"), when)
        if moved is None:
            raise Failure(f"date: invalid date {quoted(options.get('d'))}")
        when = moved
    await put_text(process, _dates.show(when, form[1:] if form else shown) + "\n")
    return 0


@tool("printenv")
async def printenv(process: Process, args: Sequence[str]) -> int:
    """Show the environment, or the values of some variables."""
    options = parse("printenv", args, "0", {"null": "0"}, permute=False, code=2)
    end = "\0" if "0" in options else "\n"
    names = options.operands
    if not names:
        await put_text(process, environment(process, end))
        return 0
    for name in names:
        if name in process.env:
            await put_text(process, process.env[name] + end)
    return int(any(name not in process.env for name in names))


def environment(process: Process, end: str) -> str:
    """Return all variables as `NAME=value`."""
    return "".join(f"{name}={value}{end}" for name, value in process.env.items())


@tool("which")
async def which(process: Process, args: Sequence[str]) -> int:
    """Show where programs are; silent about those that are not."""
    options = parse("which", args, "a", code=2)
    missing = not options.operands
    for name in options.operands:
        paths = _found(process, name)
        missing = missing or not paths
        for path in paths if "a" in options else paths[:1]:
            await put(process, path.encode("utf-8", "surrogateescape") + b"\n")
    return int(missing)


def _found(process: Process, name: str) -> list[str]:
    fs, place = process.kernel.fs, here(process)
    if "/" in name:
        return [name] if find(process, name) and fs.access(name, **place, execute=True) else []
    folders = process.env.get("PATH", DEFAULT_PATH).split(":")
    paths = [f"{folder or '.'}/{name}" for folder in folders]
    return [
        path
        for path in paths
        if fs.access(path, **place, execute=True) and fs.stat(path, **place).kind == "file"
    ]
