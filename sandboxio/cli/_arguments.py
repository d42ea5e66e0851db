"""Arguments: parsers that never repeat a value that could be an address with a secret in it."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING, Any, NoReturn

from sandboxio.core import dsn
from sandboxio.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence

_ADDRESS = re.compile(r"\S*://\S*")
_NAME = re.compile(r"[a-z][a-z0-9+.-]*\Z")


class Parser(argparse.ArgumentParser):
    """A parser whose options cannot be shortened and whose help keeps its line ends."""

    def __init__(self, **options: Any) -> None:  # noqa: ANN401  # argparse's own, passed on
        options.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(**options, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        if message.startswith("unrecognized") or "invalid choice" in message:
            message = _ADDRESS.sub("<target>", message)
        super().error(message)


class Labels(argparse.Action):
    """Collects `key=value` pairs, each key once."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        key, separator, value = str(values).partition("=")
        labels: dict[str, str] = getattr(namespace, self.dest) or {}
        if not key or not separator:
            raise argparse.ArgumentError(self, "write it as key=value")
        if key in labels:
            raise argparse.ArgumentError(self, f"the key {key!r} is given twice")
        setattr(namespace, self.dest, {**labels, key: value})


def target(value: str) -> str:
    """Accept a DSN; the complaint about any other value does not hold that value."""
    try:
        dsn.parse(value)
    except ConfigurationError as exc:
        raise argparse.ArgumentTypeError(f"{exc.message} {exc.hint}") from None
    return value


def backend_name(value: str) -> str:
    """Accept the name of a backend."""
    if not _NAME.match(value):
        raise argparse.ArgumentTypeError("give a backend's name alone, such as docker")
    return value
