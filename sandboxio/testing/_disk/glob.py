"""Patterns of a shell: `*`, `?`, `[...]`, and a backslash before what stands for itself.

Where POSIX leaves a choice, as for `[^a]`, dash is followed: only `!` negates a set.
"""

from __future__ import annotations

import re
from functools import lru_cache

_CLASSES = {
    "alpha": "a-zA-Z",
    "digit": "0-9",
    "alnum": "a-zA-Z0-9",
    "upper": "A-Z",
    "lower": "a-z",
    "space": r" \t\n\r\f\v",
    "blank": r" \t",
    "punct": r"!-/:-@\[-`{-~",
    "xdigit": "0-9a-fA-F",
    "cntrl": r"\x00-\x1f\x7f",
    "print": r"\x20-\x7e",
    "graph": r"\x21-\x7e",
}
_SET = r"\[(?P<not>!?+)(?P<set>(?:\[:[a-z]+:\]|\\.|[^\\])(?:\[:[a-z]+:\]|\\.|[^\]\\])*+)\]"
_TOKEN = re.compile(rf"{_SET}|\\(?P<literal>.)|(?P<wild>[*?])|(?P<plain>.)", re.DOTALL)
_MEMBER = re.compile(
    r"\[:(?P<named>[a-z]+):\]|\\?(?P<low>.)-\\?(?P<high>.)|\\?(?P<one>.)", re.DOTALL
)


def pieces(pattern: str) -> list[str]:
    """Split a pattern into its components and the slashes between them."""
    return [piece for piece in re.split("(/+)", pattern) if piece]


def is_pattern(piece: str) -> bool:
    """Say whether a component can match anything other than one name."""
    return any(token["wild"] or token["set"] for token in _TOKEN.finditer(piece))


def literal(piece: str) -> str:
    """Return the name that a component without wildcards stands for."""
    return "".join(token["literal"] or token[0] for token in _TOKEN.finditer(piece))


def matches(name: str, piece: str) -> bool:
    """Say whether a name matches a component; a leading dot only matches a dot."""
    if name.startswith(".") and not piece.removeprefix("\\").startswith("."):
        return False
    return _compiled(piece).fullmatch(name) is not None


@lru_cache(maxsize=256)
def _compiled(piece: str) -> re.Pattern[str]:
    return re.compile("".join(map(_translated, _TOKEN.finditer(piece))), re.DOTALL)


def _translated(token: re.Match[str]) -> str:
    if token["set"]:
        return _set(token["set"], negated=bool(token["not"]))
    if token["wild"]:
        return ".*" if token["wild"] == "*" else "."
    return re.escape(token["literal"] or token["plain"])


def _set(members: str, *, negated: bool) -> str:
    inside = "".join(map(_member, _MEMBER.finditer(members)))
    if not inside:
        return "." if negated else "(?!)"
    return f"[{'^' if negated else ''}{inside}]"


def _member(member: re.Match[str]) -> str:
    if member["named"]:
        return _CLASSES.get(member["named"], "")
    if member["one"]:
        return re.escape(member["one"])
    low, high = member["low"], member["high"]
    return f"{re.escape(low)}-{re.escape(high)}" if low <= high else ""
