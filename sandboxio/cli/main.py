"""The `sandboxio` command: parsing, exit codes, and the one place that shows errors."""

from __future__ import annotations

import os
import sys
import warnings
from typing import TYPE_CHECKING, TextIO

from sandboxio.cli import demo, doctor, reap
from sandboxio.cli._arguments import Parser
from sandboxio.cli._render import Console, install_tracebacks
from sandboxio.doctor import version
from sandboxio.errors import SandboxError, SandboxWarning

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

OK, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130
"""The exit codes; stable across releases."""
DEBUG_VARIABLE = "SBX_DEBUG"

_EPILOG = """\
examples:
  sandboxio demo               create a sandbox, run code in it, prove that it is closed
  sandboxio doctor             what each backend has, lacks and answers
  sandboxio reap --kill        remove the sandboxes that are still there

exit codes: 0 success, 1 a problem was found or the command failed, 2 usage error,
130 interrupted. SBX_DEBUG=1 shows tracebacks; NO_COLOR=1 switches colours off.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; `None` means the arguments of the process.

    Example:
        >>> main(["reap", "--label", "no-value"])
        2
    """
    try:
        arguments = _parser().parse_args(argv)
    except SystemExit as exc:
        return exc.code if isinstance(exc.code, int) else OK
    return _guarded(arguments)


def run() -> None:
    """Be the console script."""
    sys.exit(main())


def _guarded(arguments: argparse.Namespace) -> int:
    console = Console(as_json=arguments.json)
    if _debugging():
        install_tracebacks()
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _shown_by(console)
            return OK if arguments.execute(arguments, console) else FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    except SandboxError as exc:
        if _debugging():
            sys.excepthook(type(exc), exc, exc.__traceback__)
        if arguments.json or not _debugging():
            console.error(exc)
        return FAILED
    except BrokenPipeError:
        # The reader has gone; without this the interpreter would complain at its exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED


def _parser() -> Parser:
    parser = Parser(
        prog="sandboxio",
        description="Run AI-agent code in a sandbox, and look after the sandboxes.",
        epilog=_EPILOG,
    )
    parser.add_argument("--version", action="version", version=f"sandboxio {version('sandboxio')}")
    common = Parser(add_help=False)
    common.add_argument("--json", action="store_true", help="print the result as JSON")
    commands = parser.add_subparsers(metavar="command", required=True, parser_class=Parser)
    for module in (demo, doctor, reap):
        module.add(commands.add_parser, common)
    return parser


def _debugging() -> bool:
    return os.environ.get(DEBUG_VARIABLE) == "1"


def _shown_by(console: Console) -> Callable[..., None]:
    """Return a `warnings.showwarning` that shows our own without file and line."""
    usual = warnings.showwarning

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        if issubclass(category, SandboxWarning):
            console.warning(str(message))
        else:
            usual(message, category, filename, lineno, file, line)

    return show
