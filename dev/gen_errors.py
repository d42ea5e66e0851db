#!/usr/bin/env python3
"""Writes docs/errors/ from the catalogue of error codes.

dev/gen_errors.py            write the pages
dev/gen_errors.py --check    say which pages are out of date; exit 1 when any is
"""

from __future__ import annotations

import ast
import inspect
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from sandboxio.core import errors  # noqa: E402
from sandboxio.core.catalog import CATALOG, Entry  # noqa: E402

FOLDER = ROOT / "docs" / "errors"
_LISTS = ("__init__.py", "errors.py", "core/errors.py", "core/catalog.py")
_HINTS = "The error you meet often names a more exact fix; it is in the message and in `exc.hint`."
_NOTE = "<!-- Written by dev/gen_errors.py from sandboxio/core/catalog.py; change it there. -->\n"


def main(arguments: list[str]) -> int:
    """Write or check every page; return the exit status."""
    if arguments not in ([], ["--check"]):
        sys.stderr.write(__doc__ or "")
        return 2
    wanted = pages()
    stale = [name for name, text in wanted.items() if _content(FOLDER / name) != text]
    stale += [path.name for path in FOLDER.glob("*.md") if path.name not in wanted]
    if not arguments:
        write(wanted)
        return 0
    for name in sorted(stale):
        sys.stderr.write(f"docs/errors/{name} is out of date; run: dev/gen_errors.py\n")
    return 1 if stale else 0


def write(wanted: dict[str, str]) -> None:
    """Make the folder hold exactly these pages."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for path in FOLDER.glob("*.md"):
        if path.name not in wanted:
            path.unlink()
    for name, text in wanted.items():
        (FOLDER / name).write_text(text, encoding="utf-8")


def pages() -> dict[str, str]:
    """Return the text of every page by file name."""
    raised = names_in_use()
    texts = {f"{code}.md": page(code, entry, raised) for code, entry in CATALOG.items()}
    return {"README.md": index(raised), **texts}


def page(code: str, entry: Entry, raised: set[str]) -> str:
    """Return the page of one code."""
    cls: type[errors.SandboxError] = getattr(errors, entry.name)
    lines = [f"# {code}: {entry.name}", "", entry.summary, ""]
    if entry.name not in raised:
        lines += [
            "No part of this version raises it: the code is reserved for a feature to come.",
            "",
        ]
    lines += ["## Fix", "", "```text", entry.hint, "```", ""]
    lines += [_HINTS, "", "## In code", "", "| | |", "|---|---|"]
    lines += [f"| Class | `sandboxio.{entry.name}` |", f"| Caught by | {_bases(cls)} |"]
    lines += [f"| `exc.retryable` | `{entry.retryable}`, unless the message says otherwise |"]
    if attributes := _own_attributes(cls):
        lines += [f"| Of its own | {attributes} |"]
    return "\n".join([*lines, "", _NOTE])


def index(raised: set[str]) -> str:
    """Return the table of all codes."""
    rows = [
        f"| [{code}]({code}.md) | `{entry.name}` | {entry.summary}"
        f"{'' if entry.name in raised else ' *(reserved)*'} |"
        for code, entry in CATALOG.items()
    ]
    text = """\
# Error codes

Every error of sandboxio carries one of these codes, a hint that is the fix, and a link to its page.
A code is public: it is never renamed and never given another meaning.
Reserved codes are in the tree already, and nothing in this version raises them.

How to use them in a program is told in [errors and timeouts](../how-to/errors-and-timeouts.md).

| Code | Class | Meaning |
|------|-------|---------|
"""
    return text + "\n".join(rows) + "\n\n" + _NOTE


def names_in_use() -> set[str]:
    """Return the names of errors that code of the package refers to, imports left out."""
    package = ROOT / "sandboxio"
    used: set[str] = set()
    for path in package.rglob("*.py"):
        if path.relative_to(package).as_posix() not in _LISTS:
            tree = ast.parse(path.read_text(encoding="utf-8"))
            used |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return used


def _bases(cls: type[errors.SandboxError]) -> str:
    chain = [base for base in inspect.getmro(cls) if issubclass(base, errors.SandboxError)]
    return ", ".join(f"`{base.__name__}`" for base in chain)


def _own_attributes(cls: type[errors.SandboxError]) -> str:
    known = {"self", "message", "hint", "outcome", "retryable"}
    names = [name for name in inspect.signature(cls).parameters if name not in known]
    return ", ".join(f"`exc.{name}`" for name in names)


def _content(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
