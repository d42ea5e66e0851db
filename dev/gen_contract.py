#!/usr/bin/env python3
"""Writes docs/reference/contract.md from the cases of the contract suite.

dev/gen_contract.py            write the page
dev/gen_contract.py --check    say whether it is out of date; exit 1 when it is
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from sandboxio.testing.suite import AREAS, CASES, Case  # noqa: E402

PAGE = ROOT / "docs" / "reference" / "contract.md"
HEAD = """\
<!-- Written by dev/gen_contract.py from sandboxio/testing/suite/; change it there. -->

# The contract

What every backend promises, case by case.
Each heading is a test of `sandboxio.testing.suite`, and its number never changes its meaning.
A case runs where the sandbox declares what the case needs; it is skipped, visibly, elsewhere.

[How to write an adapter](../how-to/write-an-adapter.md) runs them on a backend of your own.

{count} cases in {areas} areas: {links}.
"""


def main(arguments: list[str]) -> int:
    """Write or check the page; return the exit status."""
    if arguments not in ([], ["--check"]):
        sys.stderr.write(__doc__ or "")
        return 2
    wanted = page()
    if not arguments:
        PAGE.write_text(wanted, encoding="utf-8")
        return 0
    if PAGE.is_file() and PAGE.read_text(encoding="utf-8") == wanted:
        return 0
    sys.stderr.write("docs/reference/contract.md is out of date; run: dev/gen_contract.py\n")
    return 1


def page() -> str:
    """Return the text of the page."""
    links = ", ".join(f"[{area}](#{area.replace('_', '-')})" for area in AREAS)
    parts = [HEAD.format(count=len(CASES), areas=len(AREAS), links=links)]
    for area in AREAS:
        parts.append(f"## {area.replace('_', ' ').capitalize()}\n")
        parts += [
            section(found)
            for found in sorted(CASES.values(), key=lambda found: found.number)
            if found.area == area
        ]
    return "\n".join(parts)


def section(found: Case) -> str:
    """Return the part of one case."""
    lines = [f"### {found.number}\n", f"{found.claim}\n"]
    for word, flags in (("Needs", found.needs), ("Without", found.lacks)):
        if flags:
            lines.append(f"{word}: {', '.join(f'`{flag.name}`' for flag in flags)}.\n")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
