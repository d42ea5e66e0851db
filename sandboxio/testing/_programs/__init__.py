"""The programs of the fake sandbox: importing this fills the table of `_launch`."""

from __future__ import annotations

from sandboxio.testing._machine.launch import PROGRAMS
from sandboxio.testing._programs import (
    attributes,
    batch,
    condition,
    copying,
    counting,
    files,
    grep,
    lines,
    listing,
    names,
    net,
    processes,
    sorting,
    system,
    text,
    translate,
    words,
)

__all__ = [
    "PROGRAMS",
    "attributes",
    "batch",
    "condition",
    "copying",
    "counting",
    "files",
    "grep",
    "lines",
    "listing",
    "names",
    "net",
    "processes",
    "sorting",
    "system",
    "text",
    "translate",
    "words",
]
