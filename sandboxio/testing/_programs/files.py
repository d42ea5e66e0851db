"""Programs that make and remove files: mkdir, rmdir, rm, touch, mkfifo, truncate."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sandboxio.testing._disk.nodes import Directory, File
from sandboxio.testing._programs import _dates, _modes
from sandboxio.testing._programs._common import (
    Failure,
    here,
    misused,
    put_text,
    quoted,
    require_operands,
    say,
    tool,
)
from sandboxio.testing._programs._options import parse

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sandboxio.testing._machine.process import Process
    from sandboxio.testing._programs._options import Options

_UNITS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4, "KB": 1000, "MB": 1000**2}
_PARENTS = {"parents": "p", "mode=": "m", "verbose": "v"}
_RM = {"recursive": "r", "force": "f", "verbose": "v", "dir": "d", "no-preserve-root": "N"}


async def _each(
    process: Process, operands: Sequence[str], problem: str, act: Callable[[str], None]
) -> int:
    """Do something with every operand; say the problem of each that fails, and return 1 then."""
    code = 0
    for name in operands:
        await process.step()
        try:
            act(name)
        except OSError as exc:
            await say(process, f"{problem} {quoted(str(exc.filename))}: {exc.strerror}")
            code = 1
    return code


def _mode(name: str, options: Options, default: int, umask: int, *, folder: bool) -> int | None:
    """Return the mode of `-m`, if it was given."""
    if "m" not in options:
        return None
    mode = _modes.change(default, options.get("m"), umask=umask, folder=folder)
    if mode is None:
        mark = "invalid mode " if name == "mkdir" else "invalid mode: "
        raise Failure(f"{name}: {mark}{quoted(options.get('m'))}")
    return mode


@tool("mkdir")
async def mkdir(process: Process, args: Sequence[str]) -> int:
    """Make directories."""
    options = parse("mkdir", args, "pm:v", _PARENTS)
    require_operands("mkdir", options.operands)
    mode = _mode("mkdir", options, 0o777, process.umask, folder=True)
    fs, place = process.kernel.fs, here(process)
    made: list[str] = []

    def make(name: str) -> None:
        fresh = not fs.exists(name, **place)
        fs.mkdir(name, **place, umask=process.umask, parents="p" in options)
        if fresh and mode is not None:
            fs.chmod(name, mode, **place)
        if fresh and "v" in options:
            made.append(f"mkdir: created directory {quoted(name)}\n")

    code = await _each(process, options.operands, "mkdir: cannot create directory", make)
    await put_text(process, "".join(made))
    return code


@tool("rmdir")
async def rmdir(process: Process, args: Sequence[str]) -> int:
    """Remove empty directories."""
    options = parse("rmdir", args, "p", {"parents": "p"})
    require_operands("rmdir", options.operands)

    def remove(name: str) -> None:
        process.kernel.fs.rmdir(name, **here(process))
        above = name.rstrip("/").rpartition("/")[0]
        if "p" in options and above:
            remove(above)

    return await _each(process, options.operands, "rmdir: failed to remove", remove)


@tool("rm")
async def rm(process: Process, args: Sequence[str]) -> int:
    """Remove files, and with -r directories with all below them."""
    options = parse("rm", args, "rRfvd", _RM)
    if not options.operands and "f" not in options:
        require_operands("rm", options.operands)
    code = 0
    for name in options.operands:
        await process.step()
        problems = _remove(process, name, options)
        for problem in problems:
            await say(process, f"rm: {problem}")
            code = 1
        if not problems and "v" in options:
            await put_text(process, f"removed {quoted(name)}\n")
    return code


def _remove(process: Process, name: str, options: Options) -> list[str]:
    """Remove one thing, and return what to complain about."""
    fs, place = process.kernel.fs, here(process)
    recursive = "r" in options or "R" in options
    if recursive:
        refused = _refused(name)
        if refused:
            return refused
    failures: list[OSError] = []
    try:
        if recursive:
            fs.remove_tree(name, **place, on_error=failures.append)
        elif "d" in options and isinstance(fs.stat(name, **place, follow=False), Directory):
            fs.rmdir(name, **place)
        else:
            fs.unlink(name, **place)
    except OSError as exc:
        failures.append(exc)
    gone = (FileNotFoundError, NotADirectoryError) if "f" in options else ()
    return [
        f"cannot remove {quoted(str(exc.filename))}: {exc.strerror}"
        for exc in failures
        if not isinstance(exc, gone)
    ]


def _refused(name: str) -> list[str]:
    bare = name.rstrip("/")
    if name and not bare:
        return [
            "it is dangerous to operate recursively on '/'\n"
            "rm: use --no-preserve-root to override this failsafe"
        ]
    if bare.rpartition("/")[2] in (".", ".."):
        return [f"refusing to remove '.' or '..' directory: skipping {quoted(name)}"]
    return []


@tool("touch")
async def touch(process: Process, args: Sequence[str]) -> int:
    """Make missing files, and set when files were changed."""
    long = {"no-create": "c", "date=": "d", "reference=": "r"}
    options = parse("touch", args, "cd:r:t:amf", long)
    if not options.operands:
        raise misused("touch", "missing file operand")
    fs, place = process.kernel.fs, here(process)
    when = _time(process, options)

    def act(name: str) -> None:
        if "c" in options and not fs.exists(name, **place):
            return
        fs.touch(name, **place, umask=process.umask)
        if when is not None:
            fs.utime(name, when, **place)

    return await _each(process, options.operands, "touch: cannot touch", act)


def _time(process: Process, options: Options) -> float | None:
    if "r" in options:
        name = options.get("r")
        try:
            return process.kernel.fs.stat(name, **here(process)).mtime
        except OSError as exc:
            message = f"touch: failed to get attributes of {quoted(name)}: {exc.strerror}"
            raise Failure(message) from exc
    now = process.kernel.clock.wall()
    text = options.get("d")
    stamp = re.fullmatch(r"(\d{4})(\d\d)(\d\d)(\d\d)(\d\d)(?:\.(\d\d))?", options.get("t"))
    if "t" in options:
        text = "{}-{}-{} {}:{}:{}".format(*stamp.groups("00")) if stamp else "invalid"
    if "d" not in options and "t" not in options:
        return None
    when = _dates.read(text, now)
    if when is None:
        raise Failure(f"touch: invalid date format {quoted(options.get('d') or options.get('t'))}")
    return when.timestamp()


@tool("mkfifo")
async def mkfifo(process: Process, args: Sequence[str]) -> int:
    """Make FIFOs."""
    options = parse("mkfifo", args, "m:", {"mode=": "m"})
    require_operands("mkfifo", options.operands)
    mode = _mode("mkfifo", options, 0o666, process.umask, folder=False)
    fs, place = process.kernel.fs, here(process)

    def make(name: str) -> None:
        fs.mkfifo(name, **place, umask=process.umask)
        if mode is not None:
            fs.chmod(name, mode, **place)

    return await _each(process, options.operands, "mkfifo: cannot create fifo", make)


@tool("truncate")
async def truncate(process: Process, args: Sequence[str]) -> int:
    """Cut files, or lengthen them with zeros that take no room."""
    options = parse("truncate", args, "s:c", {"size=": "s", "no-create": "c"})
    if "s" not in options:
        raise misused("truncate", "you must specify either '--size' or '--reference'")
    text = options.get("s")
    match = re.fullmatch(r"([-+]?)(\d+)([KMGT]?B?)", text)
    if match is None or match[3] not in _UNITS:
        raise Failure(f"truncate: Invalid number: {quoted(text)}")
    if not options.operands:
        raise misused("truncate", "missing file operand")
    fs, place = process.kernel.fs, here(process)
    count = int(match[2]) * _UNITS[match[3]]

    def act(name: str) -> None:
        create = "c" not in options
        if not create and not fs.exists(name, **place):
            return
        with fs.open(name, **place, write=True, create=create, umask=process.umask) as handle:
            now = handle.node.size if isinstance(handle.node, File) else 0
            sizes = {"": count, "+": now + count, "-": max(0, now - count)}
            handle.truncate(sizes[match[1]])

    code = 0
    for name in options.operands:
        try:
            act(name)
        except OSError as exc:
            await say(process, f"truncate: cannot open {quoted(name)} for writing: {exc.strerror}")
            code = 1
    return code
