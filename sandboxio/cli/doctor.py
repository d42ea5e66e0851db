"""`sandboxio doctor`: the diagnosis, shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandboxio.doctor import doctor

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator

    from sandboxio.cli._arguments import Parser
    from sandboxio.cli._render import Console
    from sandboxio.doctor import BackendReport

_EPILOG = """\
examples:
  sandboxio doctor             for reading, and for pasting into a bug report
  sandboxio doctor --json

No value of a credential is shown. Exit code 1 when an installed backend has a failing check.
"""


def add(new: Callable[..., Parser], common: Parser) -> None:
    """Add the command to the command line, with the options that are common to all."""
    about = "look at every backend and say how to repair what fails"
    parser = new("doctor", parents=[common], help=about, description=about, epilog=_EPILOG)
    parser.set_defaults(execute=execute)


def execute(_: argparse.Namespace, console: Console) -> bool:
    """Run the command; whether every installed backend is healthy."""
    report = doctor()
    console.line(f"sandboxio {report.sandboxio}, Python {report.python}, {report.platform}")
    for backend in report.backends:
        console.line()
        console.line(_headline(backend))
        console.rows(list(_rows(backend)), widths=(6,))
    console.result(report.as_dict())
    return report.healthy


def _headline(backend: BackendReport) -> str:
    if not backend.installed:
        return f"{backend.name}: not installed"
    return f"{backend.name} ({backend.origin}): installed, isolation {backend.isolation}"


def _rows(backend: BackendReport) -> Iterator[tuple[str, str, str]]:
    if not backend.installed:
        yield ("", "fix:", backend.install)
    for name, version in backend.packages.items():
        yield ("ok", name, version)
    for variable in backend.variables:
        yield ("", variable.name, "set" if variable.is_set else "not set")
    for check in backend.checks:
        yield (check.status, check.name, check.detail)
        if check.fix:
            yield ("", "  fix:", check.fix)
