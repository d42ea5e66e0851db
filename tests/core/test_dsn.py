"""The DSN grammar."""

from __future__ import annotations

from typing import Any

import pytest

from sandboxio import ConfigurationError
from sandboxio.core.dsn import Dsn, parse

DIGEST = "sha256:" + "0123456789abcdef" * 4
SECRET = "s3cr3t-value"


@pytest.mark.parametrize(
    ("written", "backend", "template", "parameters"),
    [
        ("docker://", "docker", None, {}),
        ("docker://python:3.12-slim", "docker", "python:3.12-slim", {}),
        (
            "docker://localhost:5000/team/img:1.2?timeout=60",
            "docker",
            "localhost:5000/team/img:1.2",
            {"timeout": "60"},
        ),
        (f"docker://img@{DIGEST}", "docker", f"img@{DIGEST}", {}),
        (f"docker://img:tag@{DIGEST}", "docker", f"img:tag@{DIGEST}", {}),
        ("docker://img:MixedTag", "docker", "img:MixedTag", {}),
        ("docker://UPPER/img", "docker", "UPPER/img", {}),
        ("docker://img:", "docker", "img:", {}),
        ("docker://img?timeout=60&x=1", "docker", "img", {"timeout": "60", "x": "1"}),
        ("docker://?timeout=60", "docker", None, {"timeout": "60"}),
        ("my-own+x.1://a%20b", "my-own+x.1", "a%20b", {}),
        ("x://t?a=b%20c&d=", "x", "t", {"a": "b c", "d": ""}),
        ("x://t?a=b=c", "x", "t", {"a": "b=c"}),
    ],
)
def test_the_grammar(
    written: str, backend: str, template: str | None, parameters: dict[str, str]
) -> None:
    """The template is exactly what was written; parameters are unquoted."""
    assert parse(written) == Dsn(backend, template, parameters)


@pytest.mark.parametrize(
    "written",
    [
        "",
        "docker",
        "docker:",
        "docker:/x",
        "://x",
        "DOCKER://x",
        "1docker://x",
        " docker://x",
        "docker\n://x",
        "docker://a b",
        "docker://a\tb",
        "docker://a#b",
        "docker://a\0",
        "docker://a\ud800",
        "docker://x?",
        "docker://x?timeout",
        "docker://x?=1",
        "docker://x?a=1&",
        "docker://x?A=1",
        "docker://x?a-b=1",
        "docker://x?a%62=1",
        "docker://x?a=%00",
    ],
)
def test_what_is_no_dsn_is_refused(written: str) -> None:
    """Each malformed form is a configuration error."""
    with pytest.raises(ConfigurationError):
        parse(written)


def test_a_parameter_given_twice_is_refused() -> None:
    """Which of two values counts is never guessed."""
    with pytest.raises(ConfigurationError, match="'timeout' is given twice"):
        parse("docker://x?timeout=1&timeout=1")


@pytest.mark.parametrize(
    "name", ["api_key", "API_KEY", "token", "x_secret", "password", "pwd", "credentials", "auth"]
)
@pytest.mark.parametrize("form", ["x://t?{}={}", "x://t?a=1&{}={}", "x://t?{}{}"])
def test_a_credential_is_refused_and_not_repeated(name: str, form: str) -> None:
    """A parameter that looks like a credential is refused without showing its value."""
    with pytest.raises(ConfigurationError, match="credential") as caught:
        parse(form.format(name, SECRET))
    assert SECRET not in f"{caught.value}{caught.value!r}"


@pytest.mark.parametrize("written", [f"not a dsn {SECRET}", f"x://a b?{SECRET}", f"x://t?{SECRET}"])
def test_a_malformed_dsn_is_not_repeated(written: str) -> None:
    """What was written may hold anything, so no message shows it."""
    with pytest.raises(ConfigurationError) as caught:
        parse(written)
    assert SECRET not in str(caught.value)


def test_a_dsn_shows_no_parameter() -> None:
    """The `repr` of a parsed DSN leaves its parameters out."""
    assert SECRET not in repr(parse(f"x://t?a={SECRET}"))


@pytest.mark.parametrize("written", [3, b"docker://", None])
def test_a_dsn_is_text(written: Any) -> None:
    """Anything but a string is refused."""
    with pytest.raises(ConfigurationError, match="must be a string"):
        parse(written)
