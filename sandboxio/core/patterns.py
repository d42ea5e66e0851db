"""Patterns of `files.glob()`: which paths one matches, and where to look for them.

`*`, `?` and `[...]` match within one name, a leading dot included. `**`, as a whole component, is
any number of directories, none included; at the end it is everything below. `[!...]` is what is
not in the set; there is no escape but a set of one, as in `[*]`. A trailing slash asks for
directories. Names are compared as text, bytes that are not UTF-8 as surrogate escapes.
"""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sandboxio.core.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sandboxio.core.models import FileInfo

_ANY = "**"
_Part = re.Pattern[str] | None
"""What one component is compared with; `None` is `**`."""


@dataclass(frozen=True)
class Pattern:
    """A pattern, split where its first wildcard is."""

    prefix: str
    """Where to begin: a path without wildcards, `"."` for the working directory."""
    parts: tuple[_Part, ...]
    """What the names below it are compared with; nothing where there is no wildcard at all."""
    folders: bool
    """Only directories are asked for."""

    @property
    def depth(self) -> int | None:
        """How far below the prefix matches can be; `None` is without end."""
        return None if None in self.parts else len(self.parts)

    def takes(self, info: FileInfo) -> bool:
        """Say whether an entry at or below the prefix, by the path it has there, matches."""
        base = "" if self.prefix == "." else self.prefix.rstrip("/") + "/"
        names = info.path.removeprefix(base).split("/") if self.parts else []
        return self.matches(names) and (info.is_dir or not self.folders)

    def matches(self, names: Sequence[str]) -> bool:
        """Say whether the names on the way from the prefix to an entry match."""
        states = self.begin()
        for name in names:
            states = self.step(states, name)
        return self.accepts(states)

    def begin(self) -> frozenset[int]:
        """Return how far the pattern has come at the prefix."""
        return self._skipped({0})

    def step(self, states: frozenset[int], name: str) -> frozenset[int]:
        """Return how far it has come one name further."""
        after: set[int] = set()
        for state in states:
            part = self.parts[state] if state < len(self.parts) else _NOTHING
            if part is None:
                after.add(state)
            elif part.match(name):
                after.add(state + 1)
        return self._skipped(after)

    def accepts(self, states: frozenset[int]) -> bool:
        return len(self.parts) in states

    def _skipped(self, states: set[int]) -> frozenset[int]:
        """Return the states and those behind any `**` that they stand at."""
        found = set(states)
        for state in states:
            while state < len(self.parts) and self.parts[state] is None:
                state += 1
                found.add(state)
        return frozenset(found)


_NOTHING = re.compile("(?!)")


def parse(pattern: str) -> Pattern:
    """Split a pattern.

    Raises:
        ConfigurationError: `..` stands behind a wildcard, where no walk goes.
    """
    parts = [part for part in pattern.split("/") if part not in ("", ".")]
    plain = next((i for i, part in enumerate(parts) if _is_magic(part)), len(parts))
    magic = parts[plain:]
    if ".." in magic:
        raise ConfigurationError("pattern must not have '..' behind a wildcard.")
    if magic and magic[-1] == _ANY:
        magic.append("*")
    root = "/" if pattern.startswith("/") else ""
    return Pattern(
        prefix=root + "/".join(parts[:plain]) or ".",
        parts=tuple(None if part == _ANY else _compiled(part) for part in magic),
        folders=pattern.endswith("/"),
    )


def whole(pattern: str) -> Pattern:
    """Return a pattern that is compared with all names of a path, wildcard or none."""
    parts = [part for part in pattern.split("/") if part not in ("", ".")]
    if parts and parts[-1] == _ANY:
        parts.append("*")
    compiled = tuple(None if part == _ANY else _compiled(part) for part in parts)
    return Pattern(prefix=".", parts=compiled, folders=pattern.endswith("/"))


def _is_magic(part: str) -> bool:
    return any(sign in part for sign in "*?[")


def _compiled(part: str) -> re.Pattern[str]:
    return re.compile(fnmatch.translate(part))
