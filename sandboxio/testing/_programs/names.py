"""Programs about names and links: ln, readlink, basename, dirname."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandboxio.testing._disk.nodes import Directory
from sandboxio.testing._programs._common import (
    Failure,
    here,
    misused,
    put_text,
    quoted,
    quoted_if_needed,
    refuse_operand,
    require_operands,
    say,
    tool,
)
from sandboxio.testing._programs._options import parse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sandboxio.testing._machine.process import Process
    from sandboxio.testing._programs._options import Options

_LN = {
    "symbolic": "s",
    "force": "f",
    "no-dereference": "n",
    "no-target-directory": "T",
    "verbose": "v",
}
_READLINK = {"canonicalize": "f", "canonicalize-existing": "e", "no-newline": "n", "zero": "z"}
_LINKS = 40


@tool("ln")
async def ln(process: Process, args: Sequence[str]) -> int:
    """Give files further names, or with -s make symbolic links."""
    options = parse("ln", args, "sfnTv", _LN)
    operands = options.operands
    if not operands:
        raise misused("ln", "missing file operand")
    if "T" in options and len(operands) != 2:
        raise misused("ln", f"missing destination file operand after {quoted(operands[0])}")
    targets, last = (operands, ".") if len(operands) == 1 else (operands[:-1], operands[-1])
    into = _is_directory(process, last, options)
    if not into and len(targets) > 1:
        missing = not process.kernel.fs.exists(last, **here(process))
        reason = "No such file or directory" if missing else "Not a directory"
        raise Failure(f"ln: target {quoted(last)}: {reason}")
    code = 0
    for target in targets:
        name = f"{last.rstrip('/')}/{base_name(target)}" if into else last
        problem = _link(process, target, name, options)
        if problem:
            await say(process, f"ln: {problem}")
            code = 1
        elif "v" in options:
            await put_text(
                process, f"{quoted(name)} {'->' if 's' in options else '=>'} {quoted(target)}\n"
            )
    return code


def _is_directory(process: Process, name: str, options: Options) -> bool:
    if "T" in options:
        return False
    try:
        node = process.kernel.fs.stat(name, **here(process), follow="n" not in options)
    except OSError:
        return False
    return isinstance(node, Directory)


def _link(process: Process, target: str, name: str, options: Options) -> str:
    """Make one link, and return what to complain about."""
    fs, place = process.kernel.fs, here(process)
    symbolic = "s" in options
    if not symbolic:
        try:
            node = fs.stat(target, **place, follow=False)
        except OSError as exc:
            return f"failed to access {quoted(target)}: {exc.strerror}"
        if isinstance(node, Directory):
            return f"{quoted_if_needed(target)}: hard link not allowed for directory"
    try:
        if "f" in options and fs.exists(name, **place, follow=False):
            fs.unlink(name, **place)
        (fs.symlink if symbolic else fs.link)(target, name, **place)
    except OSError as exc:
        kind = "symbolic" if symbolic else "hard"
        arrow = "" if isinstance(exc, FileExistsError) or symbolic else f" => {quoted(target)}"
        return f"failed to create {kind} link {quoted(name)}{arrow}: {exc.strerror}"
    return ""


@tool("readlink")
async def readlink(process: Process, args: Sequence[str]) -> int:
    """Show where links point, or with -f the real path."""
    options = parse("readlink", args, "fenz", _READLINK)
    require_operands("readlink", options.operands)
    end = "\0" if "z" in options else "\n"
    code = 0
    for name in options.operands:
        try:
            found = _target(process, name, options)
        except OSError:
            code = 1
            continue
        bare = "n" in options and len(options.operands) == 1
        await put_text(process, found if bare else found + end)
    return code


def _target(process: Process, name: str, options: Options) -> str:
    fs, place = process.kernel.fs, here(process)
    if "e" in options:
        return fs.realpath(name, **place)
    return real_path(process, name) if "f" in options else fs.readlink(name, **place)


def real_path(process: Process, name: str) -> str:
    """Return the path of a file free of links, whose last component may be missing.

    Raises:
        OSError: a directory on the way is missing, or is none.
    """
    fs, place = process.kernel.fs, here(process)
    for _ in range(_LINKS):
        try:
            return fs.realpath(name, **place)
        except FileNotFoundError:
            above, slash, last = name.rstrip("/").rpartition("/")
            folder = fs.realpath((above or "/") if slash else ".", **place)
            if not isinstance(fs.stat(folder, **place), Directory) or not last:
                raise
            name = f"{folder.rstrip('/')}/{last}"
            if not fs.exists(name, **place, follow=False):
                return name
            target = fs.readlink(name, **place)
            name = target if target.startswith("/") else f"{folder.rstrip('/')}/{target}"
    return fs.realpath(name, **place)


@tool("basename")
async def basename(process: Process, args: Sequence[str]) -> int:
    """Show the last component of paths."""
    options = parse("basename", args, "as:z", {"multiple": "a", "suffix=": "s"}, permute=False)
    names = options.operands
    require_operands("basename", names)
    suffix = options.get("s")
    if "a" not in options and "s" not in options:
        refuse_operand("basename", names, 2)
        names, suffix = names[:1], "".join(names[1:2])
    end = "\0" if "z" in options else "\n"
    for name in names:
        base = base_name(name)
        await put_text(process, (base.removesuffix(suffix) or base) + end)
    return 0


@tool("dirname")
async def dirname(process: Process, args: Sequence[str]) -> int:
    """Show paths without their last component."""
    options = parse("dirname", args, "z", {"zero": "z"})
    require_operands("dirname", options.operands)
    for name in options.operands:
        above, slash, _ = name.rstrip("/").rpartition("/")
        rooted = bool(slash) or (name.startswith("/") and not name.strip("/"))
        shown = above.rstrip("/") or ("/" if rooted else ".")
        await put_text(process, shown + ("\0" if "z" in options else "\n"))
    return 0


def base_name(path: str) -> str:
    """Return the last component of a path; `/` of the root."""
    bare = path.rstrip("/")
    return bare.rpartition("/")[2] if bare else path[:1]
