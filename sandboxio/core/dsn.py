"""DSN grammar: `<backend>://[<template>][?<parameter>=<value>&…]`.

A front end for typed configuration, never a second path: what it yields becomes the backend's
own config object. Parameters are plain scalars; nothing about policy or credentials fits in.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import unquote

from sandboxio.core.errors import ConfigurationError
from sandboxio.core.requests import text

if TYPE_CHECKING:
    from collections.abc import Mapping

SCHEME = re.compile(r"[a-z][a-z0-9+.-]*\Z")
_NAME = re.compile(r"[a-z][a-z0-9_]*\Z")
_CREDENTIAL = re.compile(r"key|token|secret|passw|pwd|credential|auth", re.IGNORECASE)
_FORM = "Write <backend>://<template>?timeout=60, for example docker://python:3.12-slim"


@dataclass(frozen=True)
class Dsn:
    """A parsed DSN; the template is exactly what was written."""

    backend: str
    template: str | None = None
    parameters: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)


def parse(value: str) -> Dsn:
    """Split a DSN; messages never repeat it, since it may hold what it must not.

    Example:
        >>> parse("docker://python:3.12-slim?timeout=60").template
        'python:3.12-slim'

    Raises:
        ConfigurationError: the value is no DSN, or a parameter looks like a credential.
    """
    scheme, separator, rest = text("target", value).partition("://")
    if not separator or not SCHEME.match(scheme):
        raise ConfigurationError("The target is not a DSN: it has no backend name.", hint=_FORM)
    template, question, query = rest.partition("?")
    if "#" in rest or any(character.isspace() for character in rest):
        raise ConfigurationError("A DSN has no fragment and no white space.", hint=_FORM)
    return Dsn(scheme, template or None, _parameters(query) if question else {})


def _parameters(query: str) -> dict[str, str]:
    parameters: dict[str, str] = {}
    for pair in query.split("&"):
        name, separator, value = pair.partition("=")
        if _CREDENTIAL.search(name):
            raise ConfigurationError(
                "A DSN parameter looks like a credential; a DSN ends up in logs and shells.",
                hint="Set the provider's own environment variable, such as E2B_API_KEY.",
            )
        if not separator or not _NAME.match(name):
            raise ConfigurationError("A DSN parameter is not of the form name=value.", hint=_FORM)
        if name in parameters:
            raise ConfigurationError(f"The DSN parameter {name!r} is given twice.")
        parameters[name] = text(name, unquote(value), empty=True)
    return parameters
