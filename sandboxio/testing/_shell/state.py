"""What a shell knows: variables, parameters, functions, options."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sandboxio.testing._shell.ast import Command

LARGEST = 16 * 1024 * 1024
"""Most characters of one value: they are in the memory of the tests."""
OPTIONS = {
    "e": "errexit",
    "u": "nounset",
    "x": "xtrace",
    "f": "noglob",
    "n": "noexec",
    "C": "noclobber",
    "a": "allexport",
    "v": "verbose",
    "m": "monitor",
    "b": "notify",
    "i": "interactive",
    "l": "login",
    "s": "stdin",
}


class ShellError(Exception):
    """Something that ends a shell which is not interactive; `text` is what it says."""

    def __init__(self, text: str, exit_code: int = 2) -> None:
        super().__init__(text)
        self.text = text
        self.exit_code = exit_code


class CannotFork(ShellError):
    """There are too many processes; the shell that wanted another ends."""

    def __init__(self) -> None:
        super().__init__("Cannot fork")


class Leave(Exception):
    """The shell is to end."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class Return(Leave):
    """The function, or the script that was read with `.`, is to end."""


class Loop(Exception):
    """`break`, or with `again` `continue`, out of so many loops."""

    def __init__(self, levels: int, *, again: bool) -> None:
        super().__init__(levels)
        self.levels = levels
        self.again = again


@dataclass
class State:
    """The part of a shell that a forked one has too."""

    name: str
    """`$0`."""
    pid: int
    """`$$`, the same in subshells."""
    parent_pid: int
    bash: bool
    args: list[str] = field(default_factory=list[str])
    variables: dict[str, str] = field(default_factory=dict[str, str])
    exported: set[str] = field(default_factory=set[str])
    readonly: set[str] = field(default_factory=set[str])
    functions: dict[str, Command] = field(default_factory=dict[str, "Command"])
    options: set[str] = field(default_factory=set[str])
    status: int = 0
    """`$?`."""
    background: int | None = None
    """`$!`."""
    line: int = 1
    locals: list[dict[str, str | None]] = field(default_factory=list[dict[str, str | None]])
    """What the variables of each function that is running were outside of it."""

    def copy(self) -> State:
        """Return what a forked shell begins with."""
        return replace(
            self,
            args=list(self.args),
            variables=dict(self.variables),
            exported=set(self.exported),
            readonly=set(self.readonly),
            functions=dict(self.functions),
            options=set(self.options),
            locals=[dict(frame) for frame in self.locals],
        )

    def get(self, name: str) -> str | None:
        """Return the value of a parameter, or `None` if it is not set; `@` and `*` excluded."""
        if name.isdigit():
            return self._positional(int(name))
        special = self._special(name)
        return self.variables.get(name) if special is None else special or None

    def put(self, name: str, value: str) -> None:
        """Set a variable.

        Raises:
            ShellError: it is read-only, or the value is too long.
        """
        self.require_writable(name)
        if len(value) > LARGEST:
            raise ShellError("Out of space")
        self.variables[name] = value
        if "allexport" in self.options:
            self.exported.add(name)

    def drop(self, name: str) -> None:
        """Unset a variable, or raise `ShellError` where it is read-only."""
        self.require_writable(name)
        self.variables.pop(name, None)
        self.exported.discard(name)

    def require_writable(self, name: str) -> None:
        if name in self.readonly:
            raise ShellError(f"{name}: is read only")

    def environment(self) -> dict[str, str]:
        """Return the exported variables that have a value."""
        return {name: self.variables[name] for name in self.variables if name in self.exported}

    def restore(self, values: dict[str, str | None]) -> None:
        """Give variables back what they were; `None` is unset."""
        for name, value in values.items():
            if value is None:
                self.variables.pop(name, None)
            else:
                self.variables[name] = value

    def _positional(self, number: int) -> str | None:
        if number == 0:
            return self.name
        return self.args[number - 1] if number <= len(self.args) else None

    def _special(self, name: str) -> str | None:
        """Return a special parameter, `""` if it is not set, `None` if it is none."""
        if name == "?":
            return str(self.status)
        if name == "$":
            return str(self.pid)
        if name == "!":
            return "" if self.background is None else str(self.background)
        if name == "#":
            return str(len(self.args))
        if name == "PPID":
            return str(self.parent_pid)
        if name == "LINENO" and self.bash:  # Debian's dash has none
            return str(self.line)
        return None
