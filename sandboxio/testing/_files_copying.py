"""Copying in a file system in memory: whatever is there and all below it, links as links."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import anyio.lowlevel

from sandboxio.testing._disk.fs import ROOT, Directory, Link, Special

if TYPE_CHECKING:
    from collections.abc import Callable

    from sandboxio.testing._disk.fs import FileSystem, Node, Who

_PIECE = 256 * 1024


class Copying:
    """One `cp -a` to a place where nothing is."""

    def __init__(self, fs: FileSystem, *, who: Who, cwd: str, on_step: Callable[[], None]) -> None:
        self._on_step = on_step
        self._fs = fs
        self._who = who
        self._cwd = cwd

    async def run(self, source: str, target: str) -> None:
        """Copy, or raise the first `OSError` and leave nothing."""
        try:
            await self._tree(source, target)
        except BaseException:
            with suppress(OSError):
                self._fs.remove_tree(target, cwd=self._cwd, who=ROOT)
            raise

    async def _tree(self, source: str, target: str) -> None:
        """Visit a tree without recursion: it may be deeper than Python's stack."""
        pending = [(source, target, False)]
        while pending:
            await self._step()
            old, new, filled = pending.pop()
            node = self._fs.resolve(old, cwd=self._cwd, who=self._who, follow=False)
            if isinstance(node, Directory) and not filled:
                names = self._fs.listdir(old, cwd=self._cwd, who=self._who)
                self._fs.mkdir(new, 0o700, cwd=self._cwd, who=self._who)
                pending.append((old, new, True))
                pending += [(f"{old}/{name}", f"{new}/{name}", False) for name in names]
                continue
            if not filled:
                await self._entry(node, old, new)
            self._keep(node, new)

    async def _entry(self, node: Node, old: str, new: str) -> None:
        if isinstance(node, Link):
            self._fs.symlink(node.target, new, cwd=self._cwd, who=self._who)
        elif isinstance(node, Special):
            if node.device is not None:
                raise PermissionError(1, "Operation not permitted", old)
            self._fs.mkfifo(new, cwd=self._cwd, who=self._who)
        else:
            await self._file(old, new)

    async def _file(self, old: str, new: str) -> None:
        who, cwd = self._who, self._cwd
        with (
            self._fs.open(old, cwd=cwd, who=who, read=True) as reader,
            self._fs.open(new, cwd=cwd, who=who, write=True, create=True) as writer,
        ):
            while piece := reader.read(_PIECE):
                writer.write(piece)
                await self._step()

    async def _step(self) -> None:
        await anyio.lowlevel.checkpoint()
        self._on_step()

    def _keep(self, node: Node, new: str) -> None:
        """Give a copy the attributes of its original, as far as that is allowed."""
        who, cwd = self._who, self._cwd
        if isinstance(node, Link):
            return
        with suppress(OSError):
            self._fs.chown(new, node.uid, node.gid, cwd=cwd, who=who)
        self._fs.chmod(new, node.mode, cwd=cwd, who=who)
        self._fs.utime(new, node.mtime, cwd=cwd, who=who)
