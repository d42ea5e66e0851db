"""What the documentation names is there: links, commands, files, settings, numbers."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import fields

import pytest

from sandboxio.adapters import _docker_container as containers
from sandboxio.adapters.docker import DockerConfig
from sandboxio.core import models
from sandboxio.core.catalog import CATALOG
from sandboxio.core.lifecycle import DEFAULT_GRACE
from sandboxio.core.threads import DEFAULT_THREADS

from .blocks import ROOT, blocks, pages

_LINK = re.compile(r"\]\(([^)\s]+)\)")
_PATH = re.compile(r"`((?:sandboxio|dev|tests|examples|docs)/[\w./-]+)`")
_MAKE = re.compile(r"\bmake ([a-z-]+)")
_COMMAND = re.compile(r"^(?:\$ )?(?:python -m )?sandboxio ([a-z]+)", re.MULTILINE)
_INLINE_COMMAND = re.compile(r"`sandboxio ([a-z]+)")
_VARIABLE = re.compile(r"\bSBX_[A-Z_]{4,}\b")
TEXTS = {page: page.read_text(encoding="utf-8") for page in pages()}
EVERYTHING = "\n".join(TEXTS.values())


def test_links_lead_somewhere() -> None:
    """Every relative link names a file, and a heading of it."""
    broken: list[str] = []
    for page, text in TEXTS.items():
        for link in _LINK.findall(text):
            path, _, anchor = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            if "://" in link:
                continue
            if not target.exists() or (anchor and anchor not in _anchors(target.read_text())):
                broken.append(f"{page.relative_to(ROOT)}: {link}")
    assert broken == []


def test_paths_named_exist() -> None:
    """A file of this repository that a page names is there."""
    named = set(_PATH.findall(EVERYTHING))
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []


def test_every_module_is_in_the_architecture() -> None:
    """The table of files misses none of core, guest and adapters."""
    named = TEXTS[ROOT / "docs/architecture.md"]
    modules = [
        path.relative_to(ROOT).as_posix()
        for part in ("core", "guest", "adapters")
        for path in (ROOT / "sandboxio" / part).glob("*.py")
    ]
    assert [m for m in modules if not m.endswith("__init__.py") and f"`{m}`" not in named] == []


def test_make_targets_exist() -> None:
    """Every `make` command can be typed."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    shown = "\n".join(block.text for block in blocks("bash")) + "\n".join(
        re.findall(r"`make [a-z-]+", EVERYTHING)
    )
    assert set(_MAKE.findall(shown)) <= targets


def test_subcommands_exist() -> None:
    """Every `sandboxio` command can be typed."""
    shown = {name for block in blocks("bash") for name in _COMMAND.findall(block.text)}
    for name in sorted(shown | set(_INLINE_COMMAND.findall(EVERYTHING))):
        asked = subprocess.run(
            [sys.executable, "-m", "sandboxio", name, "--help"],
            cwd=ROOT,
            capture_output=True,
            check=False,
        )
        assert asked.returncode == 0, (name, asked.stderr)


def test_environment_variables_are_those_of_the_source() -> None:
    """Every variable we read is documented, and no other is."""
    source = "\n".join(path.read_text() for path in (ROOT / "sandboxio").rglob("*.py"))
    read = {name for name in _VARIABLE.findall(source) if f'"{name}"' in source}
    reference = (ROOT / "docs/reference/configuration.md").read_text(encoding="utf-8")
    assert set(_VARIABLE.findall(reference)) == read
    assert set(_VARIABLE.findall(EVERYTHING)) <= read


def test_every_field_of_the_configuration_is_documented() -> None:
    """The reference misses no field of `DockerConfig`."""
    reference = (ROOT / "docs/reference/configuration.md").read_text(encoding="utf-8")
    assert [f.name for f in fields(DockerConfig) if f"| `{f.name}` |" not in reference] == []


@pytest.mark.parametrize(
    ("value", "row"),
    [
        (models.DEFAULT_TIMEOUT, "| Lifetime of a sandbox, and of each call | 300 s |"),
        (models.DEFAULT_MAX_OUTPUT_BYTES / 2**20, "| Output kept by `run()` | 10 MiB per stream |"),
        (containers.DEFAULT_CPU, "| CPU | 1 core |"),
        (containers.DEFAULT_MEMORY_MB, "| Memory and swap together | 512 MiB |"),
        (containers.PIDS_LIMIT, "| Processes | 512 |"),
        (containers.SANDBOX_UID, "| User of commands | `sandbox`, 10001:10001, no capability |"),
    ],
)
def test_defaults_are_those_of_the_source(value: float, row: str) -> None:
    """The README's table of defaults follows the code."""
    assert row in TEXTS[ROOT / "README.md"]
    assert f"{value:g}" in row


def test_variables_have_the_documented_defaults() -> None:
    """The reference's numbers follow the code."""
    reference = TEXTS[ROOT / "docs/reference/configuration.md"]
    assert re.search(rf"SBX_TEARDOWN_GRACE.*\| {DEFAULT_GRACE:g} \|", reference)
    assert re.search(rf"SBX_DOCKER_THREADS.*\| {DEFAULT_THREADS} \|", reference)


def test_error_pages_are_generated() -> None:
    """Pages and catalogue do not drift apart."""
    checked = subprocess.run(
        [sys.executable, ROOT / "dev/gen_errors.py", "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_every_code_has_one_page() -> None:
    """A code without a page, or a page without a code, is a dead link in a message."""
    names = {path.stem for path in ROOT.glob("docs/errors/SBX_*.md")}
    assert names == set(CATALOG)


def test_index_of_decisions_is_complete() -> None:
    """Every decision is in the index, and says when it was taken."""
    index = TEXTS[ROOT / "docs/adr/README.md"]
    for record in sorted(ROOT.glob("docs/adr/0*.md")):
        title = TEXTS[record].splitlines()[0].partition(" ")[2]
        assert f"({record.name}) | {title.partition(': ')[2]} |" in index
        assert re.search(r"^Accepted, \d{4}-\d\d-\d\d\.$", TEXTS[record], re.MULTILINE)
        for heading in ("## Context", "## Decision", "## Consequences"):
            assert heading in TEXTS[record]


def _anchors(text: str) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
