"""Code blocks of the documentation: found, and run exactly as written."""

from __future__ import annotations

import ast
import inspect
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import anyio

if TYPE_CHECKING:
    from collections.abc import Awaitable

ROOT = Path(__file__).resolve().parents[2]
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_MARK = re.compile(r"<!-- (not run|engine only): (.+?) -->\n+\Z")


@dataclass(frozen=True)
class Block:
    """One fenced block, and the mark on the line before it."""

    file: Path
    line: int
    language: str
    text: str
    mark: str = ""
    """`not run`, `engine only` or nothing."""
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.file.relative_to(ROOT)}:{self.line}"


@cache
def pages() -> tuple[Path, ...]:
    """Return every Markdown page of the project."""
    found = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*.md")]
    return tuple(sorted(found))


@cache
def blocks(language: str) -> tuple[Block, ...]:
    """Return the blocks of one language, in all pages."""
    return tuple(
        block for page in pages() for block in _blocks_of(page) if block.language == language
    )


def run(block: Block) -> None:
    """Run a Python block; one that awaits gets an event loop, as in `python -m asyncio`."""
    source = "\n" * block.line + block.text
    code = compile(source, str(block), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    space: dict[str, Any] = {"__name__": "__main__"}
    if not code.co_flags & inspect.CO_COROUTINE:
        exec(code, space)
        return

    async def main() -> None:
        await cast("Awaitable[object]", eval(code, space))

    anyio.run(main)


def _blocks_of(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found: list[Block] = []
    for match in _FENCE.finditer(text):
        mark = _MARK.search(text[: match.start()])
        line = text.count("\n", 0, match.start()) + 1
        found.append(
            Block(
                file=page,
                line=line,
                language=match[1],
                text=match[2],
                mark=mark[1] if mark else "",
                reason=mark[2] if mark else "",
            )
        )
    return found
