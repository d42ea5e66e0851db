"""Rendering: a command makes one object, and this shows it to a human or as JSON.

rich draws on a terminal when it is importable. Everywhere else the text is plain, so that it
can be pasted and searched.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, TextIO

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import ModuleType

    from sandboxio.errors import SandboxError

_STYLES = {
    "ok": "green",
    "removed": "green",
    "failed": "red",
    "skipped": "yellow",
    "note": "yellow",
}
_GAP = 2
_NARROW = 24
"""Columns up to this width are never wrapped: names and states stay readable."""


class _RichConsole(Protocol):
    def print(self, *objects: object, markup: bool = ...) -> None: ...


def clean(text: str) -> str:
    """Make text from an engine or a sandbox harmless for a terminal and one line long.

    What does not print (escapes, line ends, direction marks, lone surrogates) is spelled out.

    Example:
        >>> clean("a\\x1b[31mb")
        'a\\\\x1b[31mb'
    """
    return "".join(
        character if character.isprintable() else repr(character)[1:-1] for character in text
    )


class Console:
    """Where one run of the command line writes; results on stdout, troubles on stderr."""

    def __init__(self, *, as_json: bool = False) -> None:
        self._as_json = as_json
        self._rich = None if as_json else _rich_console()

    def line(self, text: str = "") -> None:
        """Show one line of text to humans."""
        if self._as_json:
            return
        if self._rich is None:
            _write(sys.stdout, clean(text))
        else:
            self._rich.print(clean(text), markup=False)

    def rows(self, rows: Sequence[Sequence[str]], *, widths: Sequence[int] = ()) -> None:
        """Show aligned rows to humans; a first cell that is a status has its colour.

        `widths` are the least widths of the columns, for rows that come one by one.
        """
        if self._as_json or not rows:
            return
        cells = [[clean(cell) for cell in row] for row in rows]
        least = _widths(cells, widths)
        if self._rich is None:
            for row in cells:
                _write(sys.stdout, _padded(row, least))
        else:
            self._rich.print(_rich_grid(cells, least))

    def result(self, payload: Mapping[str, Any]) -> None:
        """Show the whole object as JSON; humans have seen it already."""
        if self._as_json:
            _write(sys.stdout, json.dumps(payload, indent=2))

    def error(self, exc: SandboxError) -> None:
        """Show an error of ours: one rendering for humans on stderr, one as JSON on stdout."""
        if self._as_json:
            self.result({"error": as_error(exc)})
        else:
            for line in str(exc).splitlines():
                _write(sys.stderr, clean(line))

    def warning(self, text: str) -> None:
        """Show a warning on stderr, in both renderings."""
        _write(sys.stderr, f"warning: {clean(text)}")


def as_error(exc: SandboxError) -> dict[str, str]:
    """Return an error as plain data."""
    return {
        "code": exc.code,
        "message": exc.message,
        "hint": exc.hint,
        "url": exc.url if exc.code else "",
    }


def install_tracebacks() -> None:
    """Let rich show tracebacks, when it is importable; without values of local variables."""
    with suppress(ImportError):
        _rich("traceback").install(show_locals=False)


def _widths(cells: Sequence[Sequence[str]], least: Sequence[int]) -> list[int]:
    count = max(len(row) for row in cells)
    found = [max(len(row[i]) for row in cells if i < len(row)) for i in range(count)]
    return [max(n, least[i] if i < len(least) else 0) for i, n in enumerate(found)]


def _padded(row: Sequence[str], widths: Sequence[int]) -> str:
    padded = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
    return (" " * _GAP).join(padded).rstrip()


def _rich_grid(cells: Sequence[Sequence[str]], widths: Sequence[int]) -> object:
    text = _rich("text")
    grid = _rich("table").Table.grid(padding=(0, _GAP, 0, 0))
    for width in widths[:-1]:
        grid.add_column(min_width=width, no_wrap=width <= _NARROW)
    grid.add_column(overflow="fold")
    for row in cells:
        grid.add_row(
            text.Text(row[0], style=_STYLES.get(row[0], "")), *(text.Text(c) for c in row[1:])
        )
    return grid


def _rich_console() -> _RichConsole | None:
    if not sys.stdout.isatty() or os.environ.get("TERM") == "dumb":
        return None
    try:
        console: _RichConsole = _rich("console").Console(
            no_color=bool(os.environ.get("NO_COLOR")), highlight=False
        )
    except ImportError:
        return None
    return console


def _rich(module: str) -> ModuleType:
    return import_module(f"rich.{module}")


def _write(stream: TextIO, text: str) -> None:
    """Write a line; what the stream cannot encode is spelled out."""
    encoding = stream.encoding or "utf-8"
    print(text.encode(encoding, "backslashreplace").decode(encoding), file=stream, flush=True)
