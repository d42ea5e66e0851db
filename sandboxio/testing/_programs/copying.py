"""cp and mv."""

from __future__ import annotations

import errno
from contextlib import suppress
from typing import TYPE_CHECKING

from sandboxio.testing._disk.nodes import Directory, Link, Special
from sandboxio.testing._programs._common import (
    CHUNK,
    Failure,
    Place,
    here,
    misused,
    put_text,
    quoted,
    say,
    tool,
)
from sandboxio.testing._programs._options import parse
from sandboxio.testing._programs.names import base_name

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from sandboxio.testing._disk.fs import Handle
    from sandboxio.testing._disk.nodes import Node
    from sandboxio.testing._machine.process import Process
    from sandboxio.testing._programs._options import Options

_CP = {
    "recursive": "r",
    "archive": "a",
    "force": "f",
    "no-clobber": "n",
    "verbose": "v",
    "no-target-directory": "T",
    "target-directory=": "t",
    "dereference": "L",
    "no-dereference": "P",
    "preserve?": "p",
}
_MV = {name: _CP[name] for name in ("force", "no-clobber", "verbose", "no-target-directory")}
_MV["target-directory="] = "t"


class _Refused(Exception):
    """One thing that is not copied or moved, with the reason."""


async def _each(
    process: Process,
    name: str,
    options: Options,
    act: Callable[[str, str], Awaitable[None]],
) -> int:
    """Do something with every source and where it is to go; return 1 if one of them failed."""
    sources, target, into = _destination(process, name, options)
    code = 0
    for source in sources:
        await process.step()
        goal = f"{target.rstrip('/')}/{base_name(source)}" if into else target
        try:
            await act(source, goal)
        except _Refused as exc:
            await say(process, f"{name}: {exc}")
            code = 1
        else:
            if "v" in options:
                lead = "renamed " if name == "mv" else ""
                await put_text(process, f"{lead}{quoted(source)} -> {quoted(goal)}\n")
    return code


def _destination(process: Process, name: str, options: Options) -> tuple[list[str], str, bool]:
    """Return the sources, the target, and whether it is a directory that takes them in."""
    operands = options.operands
    if not operands:
        raise misused(name, "missing file operand")
    if "t" in options:
        return operands, options.get("t"), True
    if len(operands) == 1:
        raise misused(name, f"missing destination file operand after {quoted(operands[0])}")
    *sources, target = operands
    if "T" in options and len(sources) > 1:
        raise misused(name, f"extra operand {quoted(operands[2])}")
    into, why = False, "No such file or directory"
    try:
        into = isinstance(process.kernel.fs.stat(target, **here(process)), Directory)
        why = "Not a directory"
    except OSError as exc:
        why = exc.strerror or why
    if len(sources) > 1 and not into:
        raise Failure(f"{name}: target {quoted(target)}: {why}")
    return sources, target, into and "T" not in options


@tool("cp")
async def cp(process: Process, args: Sequence[str]) -> int:
    """Copy files and, with -r, directories."""
    options = parse("cp", args, "rRapfnvTt:LPd", _CP)
    return await _each(process, "cp", options, _Copy(process, options).copy)


class _Copy:
    """What is asked of cp, and the copying of one file after the other."""

    def __init__(self, process: Process, options: Options) -> None:
        self._process = process
        self._fs = process.kernel.fs
        self._place: Place = here(process)
        self._recursive = any(name in options for name in "rRa")
        self._preserve = "p" in options or "a" in options
        self._follow = options.last("LPda") == "L" or not (self._recursive or options.last("LPda"))
        self._force = "f" in options
        self._no_clobber = "n" in options

    async def copy(self, source: str, target: str) -> None:
        """Copy one operand."""
        node = self._look(source)
        if isinstance(node, Directory):
            if not self._recursive:
                raise _Refused(f"-r not specified; omitting directory {quoted(source)}")
            self._refuse_itself(node, source, target)
        await self._copy(node, source, target)

    def _look(self, source: str) -> Node:
        try:
            return self._fs.stat(source, **self._place, follow=self._follow)
        except OSError as exc:
            raise _Refused(f"cannot stat {quoted(source)}: {exc.strerror}") from exc

    def _refuse_itself(self, node: Node, source: str, target: str) -> None:
        above = target.rstrip("/").rpartition("/")
        start = (above[0] or "/") if above[1] else "."
        try:
            path = self._fs.realpath(start, **self._place)
        except OSError:
            return
        own = self._fs.realpath(source, **self._place)
        if f"{path.rstrip('/')}/".startswith(f"{own.rstrip('/')}/"):
            shown = f"{quoted(source)}, into itself, {quoted(target)}"
            raise _Refused(f"cannot copy a directory, {shown}")

    async def _copy(self, node: Node, source: str, target: str) -> None:
        await self._process.step()
        there = self._existing(target)
        if there is node:
            raise _Refused(f"{quoted(source)} and {quoted(target)} are the same file")
        if there is None and self._fs.exists(target, **self._place, follow=False):
            self._refuse_dangling(node, target)
        if there is not None and self._no_clobber and not isinstance(node, Directory):
            return
        if isinstance(node, Directory):
            await self._copy_directory(node, there, source, target)
        elif isinstance(there, Directory):
            shown = f"{quoted(target)} with non-directory"
            raise _Refused(f"cannot overwrite directory {shown}")
        elif isinstance(node, Link):
            self._copy_link(node, there, target)
        elif isinstance(node, Special) and node.device is None and self._recursive:
            self._make(lambda: self._fs.mkfifo(target, **self._place), "fifo", target)
        else:
            await self._copy_file(node, source, target)

    def _refuse_dangling(self, node: Node, target: str) -> None:
        if not isinstance(node, Directory | Link):
            raise _Refused(f"not writing through dangling symlink {quoted(target)}")

    def _existing(self, target: str) -> Node | None:
        try:
            return self._fs.stat(target, **self._place)
        except OSError:
            return None

    async def _copy_directory(
        self, node: Directory, there: Node | None, source: str, target: str
    ) -> None:
        if there is not None and not isinstance(there, Directory):
            shown = f"{quoted(target)} with directory {quoted(source)}"
            raise _Refused(f"cannot overwrite non-directory {shown}")
        umask = self._process.umask
        if there is None:
            self._make(
                lambda: self._fs.mkdir(target, 0o700, **self._place, umask=0), "directory", target
            )
        problems: list[_Refused] = []
        for name in self._names(source):
            path = f"{source.rstrip('/')}/{name}"
            try:
                entry = self._look(path)
                await self._copy(entry, path, f"{target.rstrip('/')}/{name}")
            except _Refused as exc:
                problems.append(exc)
        if there is None:
            self._fs.chmod(target, node.mode & 0o7777 & ~umask, **self._place)
        self._keep(node, target)
        if problems:
            raise _Refused("\ncp: ".join(map(str, problems)))

    def _names(self, source: str) -> list[str]:
        try:
            return self._fs.listdir(source, **self._place)
        except OSError as exc:
            raise _Refused(f"cannot access {quoted(source)}: {exc.strerror}") from exc

    def _copy_link(self, node: Link, there: Node | None, target: str) -> None:
        def make() -> None:
            if self._fs.exists(target, **self._place, follow=False):
                self._fs.unlink(target, **self._place)
            self._fs.symlink(node.target, target, **self._place)

        self._make(make, "symbolic link", target)

    def _make(self, act: Callable[[], object], what: str, target: str) -> None:
        try:
            act()
        except OSError as exc:
            raise _Refused(f"cannot create {what} {quoted(target)}: {exc.strerror}") from exc

    async def _copy_file(self, node: Node, source: str, target: str) -> None:
        try:
            reader = self._fs.open(source, **self._place, read=True)
        except OSError as exc:
            message = f"cannot open {quoted(source)} for reading: {exc.strerror}"
            raise _Refused(message) from exc
        with reader, self._open(node, target) as writer:
            try:
                while piece := reader.read(CHUNK):
                    await self._process.step()
                    writer.write(piece)
            except OSError as exc:
                raise _Refused(f"error writing {quoted(target)}: {exc.strerror}") from exc
        self._keep(node, target)

    def _open(self, node: Node, target: str) -> Handle:
        try:
            return self._try_open(node, target)
        except OSError as exc:
            if self._force and self._fs.exists(target, **self._place, follow=False):
                self._make(lambda: self._fs.unlink(target, **self._place), "regular file", target)
                return self._open(node, target)
            reason = "Not a directory" if target.endswith("/") else exc.strerror
            shown = f"cannot create regular file {quoted(target)}: {reason}"
            raise _Refused(shown) from exc

    def _try_open(self, node: Node, target: str) -> Handle:
        mode, umask = node.mode & 0o777, self._process.umask
        return self._fs.open(
            target,
            **self._place,
            write=True,
            create=True,
            truncate=True,
            mode=mode,
            umask=umask,
        )

    def _keep(self, node: Node, target: str) -> None:
        """Give a copy the attributes of its original, as far as that is allowed."""
        if not self._preserve:
            return
        with suppress(OSError):
            self._fs.chown(target, node.uid, node.gid, **self._place)
        self._fs.chmod(target, node.mode, **self._place)
        self._fs.utime(target, node.mtime, **self._place)


@tool("mv")
async def mv(process: Process, args: Sequence[str]) -> int:
    """Move and rename files and directories."""
    options = parse("mv", args, "fnvTt:", _MV)

    async def move(source: str, target: str) -> None:
        _move(process, source, target, options)

    return await _each(process, "mv", options, move)


def _move(process: Process, source: str, target: str, options: Options) -> None:
    fs, place = process.kernel.fs, here(process)
    try:
        node = fs.stat(source.rstrip("/") or source, **place, follow=False)
    except OSError as exc:
        raise _Refused(f"cannot stat {quoted(source)}: {exc.strerror}") from exc
    there = None
    if fs.exists(target, **place, follow=False):
        there = fs.stat(target.rstrip("/") or target, **place, follow=False)
    if there is not None and "n" in options:
        return
    if there is node:
        raise _Refused(f"{quoted(source)} and {quoted(target)} are the same file")
    _require_same_kind(node, there, source, target)
    try:
        fs.rename(source, target, **place)
    except OSError as exc:
        if exc.errno == errno.EINVAL and isinstance(node, Directory):
            shown = f"{quoted(source)} to a subdirectory of itself, {quoted(target)}"
            raise _Refused(f"cannot move {shown}") from exc
        shown = f"{quoted(source)} to {quoted(target)}"
        raise _Refused(f"cannot move {shown}: {exc.strerror}") from exc


def _require_same_kind(node: Node, there: Node | None, source: str, target: str) -> None:
    if there is None or isinstance(node, Directory) == isinstance(there, Directory):
        return
    if isinstance(there, Directory):
        raise _Refused(f"cannot overwrite directory {quoted(target)} with non-directory")
    shown = f"{quoted(target)} with directory {quoted(source)}"
    raise _Refused(f"cannot overwrite non-directory {shown}")
