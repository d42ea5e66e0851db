"""The two greetings of a link."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sandboxio.core.errors import ConfigurationError
from sandboxio.guest import frames
from sandboxio.guest.frames import RuleBroken

if TYPE_CHECKING:
    from collections.abc import Mapping

_MANY = ("interface", "program")


class Facts(NamedTuple):
    """What an agent says of itself and of the sandbox."""

    single: Mapping[str, str]
    interfaces: frozenset[str]
    programs: frozenset[str]


def hello(settings: Mapping[str, str | bytes]) -> bytes:
    """Return the payload of the host's greeting."""
    pairs = [
        name.encode() + b"=" + (value.encode() if isinstance(value, str) else value)
        for name, value in settings.items()
    ]
    payload = frames.pack([frames.NAME, frames.VERSION, *pairs])
    if len(payload) > frames.FIELDS_MAX:
        raise ConfigurationError(f"The settings of a link are more than {frames.FIELDS_MAX} bytes.")
    return payload


def read(payload: bytes) -> Facts:
    """Read the agent's greeting."""
    fields = frames.unpack(payload)
    if fields[:2] != [frames.NAME, frames.VERSION]:
        raise RuleBroken("HELLO names another protocol or version")
    single: dict[str, str] = {}
    many: dict[str, set[str]] = {name: set() for name in _MANY}
    for field in fields[2:]:
        name, sign, value = field.decode("utf-8", "surrogateescape").partition("=")
        if not sign or name in single:
            raise RuleBroken("a fact of HELLO is no name with a value, or came twice")
        if name in many:
            many[name].add(value)
        else:
            single[name] = value
    if not single.get("link"):
        raise RuleBroken("HELLO does not name the link")
    return Facts(single, frozenset(many["interface"]), frozenset(many["program"]))
