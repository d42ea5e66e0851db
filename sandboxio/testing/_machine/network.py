"""The network of a fake sandbox: nothing is ever sent; policy decides, attempts are recorded."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from sandboxio.core.models import NetworkPolicy

_LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class EgressAttempt:
    """A connection that something in a fake sandbox tried to open."""

    sandbox_id: str
    host: str
    port: int
    allowed: bool


class Network:
    """What one sandbox may reach."""

    def __init__(
        self, sandbox_id: str, policy: NetworkPolicy, record: Callable[[EgressAttempt], None]
    ) -> None:
        self._sandbox_id = sandbox_id
        self._policy = policy
        self._record = record

    def connect(self, host: str, port: int) -> bool:
        """Try a connection; True when the policy lets it pass. Nobody listens on loopback."""
        if host.lower() in _LOOPBACK:
            return False
        allowed = self._policy.egress == "allow" or any(
            _matches(host, rule) for rule in self._policy.allow
        )
        self._record(EgressAttempt(self._sandbox_id, host, port, allowed))
        return allowed


def is_address(host: str) -> bool:
    """Say whether a host is an IP address, which needs no look-up of a name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _matches(host: str, rule: str) -> bool:
    if is_address(host):
        try:
            return ipaddress.ip_address(host) in ipaddress.ip_network(rule, strict=False)
        except ValueError:
            return False
    return fnmatchcase(host.lower().rstrip("."), rule.lower().rstrip("."))
