"""Redirections: descriptors of a process changed for a while, or for good."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from sandboxio.testing._machine.fds import ClosedFd, TextFd, bad_descriptor, open_fd
from sandboxio.testing._shell.state import ShellError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sandboxio.testing._machine.process import Fd, Process
    from sandboxio.testing._shell.ast import Redirect
    from sandboxio.testing._shell.state import State
    from sandboxio.testing._shell.words import Expander


class CannotRedirect(Exception):
    """A redirection that fails, in the words of the shell."""


class Redirections:
    """What descriptors were before; `restore()` brings them back, `keep()` lets them go."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._before: dict[int, Fd | None] = {}

    def put(self, number: int, fd: Fd | None) -> None:
        """Set a descriptor, or with `None` close it."""
        current = self._process.fds.pop(number, None)
        if number not in self._before:
            self._before[number] = current
        elif current is not None:
            current.close()
        if fd is not None:
            self._process.fds[number] = fd
        elif number <= 2:
            self._process.fds[number] = ClosedFd()

    def restore(self) -> None:
        """Undo it all; a process that has ended meanwhile gets nothing back."""
        if self._process.exit_code is not None:
            self.keep()
            return
        for number, fd in self._before.items():
            current = self._process.fds.pop(number, None)
            if current is not None:
                current.close()
            if fd is not None:
                self._process.fds[number] = fd
        self._before = {}

    def keep(self) -> None:
        """Make it last: close what was there before."""
        for fd in self._before.values():
            if fd is not None:
                fd.close()
        self._before = {}


async def redirect(
    process: Process, state: State, expander: Expander, redirects: Sequence[Redirect]
) -> Redirections:
    """Carry out redirections from left to right; none of them if one fails.

    Raises:
        CannotRedirect: a file cannot be opened, or a descriptor is not open.
        ShellError: a word cannot be expanded, or names no descriptor.
    """
    done = Redirections(process)
    try:
        for each in redirects:
            text = await expander.text(each.target)
            _Opening(process, state, done).carry_out(each, text)
    except BaseException:
        done.restore()
        raise
    return done


class _Opening:
    def __init__(self, process: Process, state: State, done: Redirections) -> None:
        self._process = process
        self._state = state
        self._done = done

    def carry_out(self, each: Redirect, text: str) -> None:
        if each.operator in ("<<", "<<<"):
            data = text + "\n" * (each.operator == "<<<")
            self._done.put(each.fd, TextFd(data.encode("utf-8", "surrogateescape")))
        elif each.operator in ("<&", ">&"):
            self._copy(each, text)
        elif each.operator.startswith("&"):
            self._both(text, append=each.operator == "&>>")
        else:
            self._done.put(each.fd, self._open(each.operator, text))

    def _copy(self, each: Redirect, text: str) -> None:
        if text == "-":
            self._done.put(each.fd, None)
        elif text.isdecimal():
            self._done.put(each.fd, self._own(int(text)))
        elif self._state.bash and each.operator == ">&":
            self._both(text, append=False)
        else:
            raise ShellError("Syntax error: Bad fd number")

    def _own(self, number: int) -> Fd:
        fd = self._process.fds.get(number)
        if fd is None or isinstance(fd, ClosedFd):
            raise CannotRedirect(f"{number}: {bad_descriptor(number).strerror}")
        return fd.dup()

    def _both(self, path: str, *, append: bool) -> None:
        opened = self._open(">>" if append else ">", path)
        self._done.put(1, opened)
        self._done.put(2, opened.dup())

    def _open(self, operator: str, path: str) -> Fd:
        process = self._process
        try:
            if operator == "<":
                return open_fd(process, path, read=True)
            if operator == "<>":
                return open_fd(process, path, read=True, write=True, create=True)
            if operator == ">>":
                return open_fd(process, path, append=True, create=True)
            kept = operator == ">" and "noclobber" in self._state.options
            return open_fd(
                process,
                path,
                write=True,
                create=True,
                truncate=not kept,
                exclusive=kept and path != "/dev/null",
            )
        except OSError as exc:
            raise CannotRedirect(self._complaint(operator, path, exc)) from exc

    def _complaint(self, operator: str, path: str, exc: OSError) -> str:
        if self._state.bash:
            return f"{path}: {exc.strerror}"
        missing = exc.errno == errno.ENOENT
        if operator.startswith("<"):
            return f"cannot open {path}: {'No such file' if missing else exc.strerror}"
        return f"cannot create {path}: {'Directory nonexistent' if missing else exc.strerror}"
