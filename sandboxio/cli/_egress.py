"""The egress probe: real attempts to leave a sandbox, made inside it and witnessed outside.

The host opens a listener on each of its addresses, loopback excluded, and waits for a token
that only the probe knows. An attempt that got out therefore shows even where the sandbox says
otherwise. Inside, a connection to the probe's own listener must succeed first, so that a probe
that cannot connect at all is not taken for a closed sandbox.
"""

from __future__ import annotations

import ipaddress
import json
import secrets
import socket
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self, cast

import anyio.to_thread

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sandboxio.protocols import AsyncSandbox

METADATA_SERVICE = "169.254.169.254"
PUBLIC_ADDRESS = "1.1.1.1"
PUBLIC_NAME = "example.com"
ATTEMPT_SECONDS = 3.0
"""Seconds all attempts have together, for they run at once."""
RUN_SECONDS = 10.0
"""Seconds the interpreter inside has, its start included."""
_MAX_LISTENERS = 16
_SIOCGIFADDR = 0x8915  # Linux: the IPv4 address of an interface

_PROBE = """\
import json, socket, threading, time
plan = json.loads(PLAN)
results = {}
def attempt(name, action):
    try:
        results[name] = ("reached", action())
    except OSError as error:
        results[name] = ("refused", str(error))
def connect(host, port, token):
    with socket.create_connection((host, port), plan["seconds"]) as link:
        link.sendall(token.encode())
        return "connected"
def resolve(name):
    return ", ".join(sorted({entry[4][0] for entry in socket.getaddrinfo(name, 443)}))
def control():
    listener = socket.create_server(("127.0.0.1", 0))
    return connect("127.0.0.1", listener.getsockname()[1], "control")
attempt("control", control)
jobs = [("%s:%s" % (host, port), lambda host=host, port=port: connect(host, port, plan["token"]))
        for host, port in plan["addresses"]]
jobs.append(("name " + plan["name"], lambda: resolve(plan["name"])))
threads = [threading.Thread(target=attempt, args=job, daemon=True) for job in jobs]
end = time.monotonic() + plan["seconds"]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join(max(0, end - time.monotonic()))
silent = {name: ("refused", "no answer") for name, _ in jobs}
print(json.dumps({**silent, **results}), flush=True)
"""


@dataclass(frozen=True)
class Attempt:
    """One try to get out."""

    target: str
    reached: bool
    answer: str
    """What the sandbox says came back."""


@dataclass(frozen=True)
class Probe:
    """The outcome of all attempts."""

    attempts: tuple[Attempt, ...] = ()
    complaint: str = ""
    """Why the attempts prove nothing; empty when they do."""

    @property
    def reached(self) -> tuple[str, ...]:
        return tuple(attempt.target for attempt in self.attempts if attempt.reached)

    @property
    def closed(self) -> bool:
        """Whether every attempt was made and none got out."""
        return bool(self.attempts) and not self.reached and not self.complaint


async def probe(sandbox: AsyncSandbox) -> Probe:
    """Try to get out of a sandbox; bounded, and a closed one answers at once."""
    token = secrets.token_hex(16)
    hosts = await anyio.to_thread.run_sync(host_addresses, abandon_on_cancel=True)
    with Canary(hosts) as canary:
        addresses = [*canary.addresses, (METADATA_SERVICE, 80), (PUBLIC_ADDRESS, 443)]
        result = await sandbox.run_code(_source(token, addresses), timeout=RUN_SECONDS)
        touched = canary.touched(token)
    if not result.ok:
        return Probe(complaint=f"the probe ended with exit code {result.exit_code}")
    return judge(result.stdout, [_target(*address) for address in addresses], touched)


def judge(said: str, targets: Iterable[str], touched: Iterable[str] = ()) -> Probe:
    """Weigh what the sandbox said against what the host saw.

    Example:
        >>> judge('{"control": ["reached", ""], "a:1": ["refused", ""]}', ["a:1"], ["a:1"]).reached
        ('a:1',)
    """
    answers, seen = _answers(said), set(touched)
    wanted = [*targets, f"name {PUBLIC_NAME}"]
    attempts = tuple(
        Attempt(target, target in seen or answers[target][0] == "reached", answers[target][1])
        for target in wanted
        if target in answers
    )
    attempts += tuple(Attempt(target, True, "unsaid") for target in seen - answers.keys())
    complaint = ""
    if answers.get("control", ("", ""))[0] != "reached":
        complaint = "no connection works inside, not even to itself"
    elif any(target not in answers for target in wanted):
        complaint = "the probe did not report every attempt"
    return Probe(attempts, complaint)


class Canary:
    """A listener on each of the given addresses; never reads more than a token."""

    def __init__(self, hosts: Iterable[str]) -> None:
        self._listeners: dict[tuple[str, int], socket.socket] = {}
        for host in hosts:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            with suppress(OSError):
                listener = socket.create_server((host, 0), family=family)
                listener.setblocking(False)
                self._listeners[host, listener.getsockname()[1]] = listener

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        for listener in self._listeners.values():
            listener.close()

    @property
    def addresses(self) -> list[tuple[str, int]]:
        return list(self._listeners)

    def touched(self, token: str) -> list[str]:
        """Return where the token has arrived; what anybody else sent is ignored."""
        return [
            _target(*address)
            for address, listener in self._listeners.items()
            if any(data == token.encode() for data in _arrived(listener, len(token)))
        ]


def host_addresses() -> list[str]:
    """Return the addresses of this host that another machine or a sandbox could use."""
    found = dict.fromkeys([*_of_interfaces(), *_of_name(), *_towards(PUBLIC_ADDRESS)])
    usable = [text for text in found if not _unusable(ipaddress.ip_address(text))]
    return usable[:_MAX_LISTENERS]


def _unusable(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    return address.is_loopback or address.is_unspecified or address.is_link_local


def _of_interfaces() -> Iterator[str]:
    """Yield the address of every interface, the engine's bridges included."""
    if sys.platform != "linux":
        return
    import fcntl
    import struct

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for _, name in socket.if_nameindex():
            with suppress(OSError):
                question = struct.pack("256s", name.encode()[:15])
                answer = fcntl.ioctl(any_socket.fileno(), _SIOCGIFADDR, question)
                yield socket.inet_ntoa(answer[20:24])


def _of_name() -> Iterator[str]:
    with suppress(OSError):
        for *_, address in socket.getaddrinfo(socket.gethostname(), None):
            yield str(address[0]).partition("%")[0]


def _towards(address: str) -> Iterator[str]:
    """Yield the address used towards another one; nothing is sent."""
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        any_socket.connect((address, 9))
        yield str(any_socket.getsockname()[0])


def _arrived(listener: socket.socket, size: int) -> Iterator[bytes]:
    """Yield what each connection that waits at a listener has sent by now."""
    with suppress(BlockingIOError):
        while True:
            connection, _ = listener.accept()
            with connection, suppress(OSError):
                connection.setblocking(False)
                yield connection.recv(size)


def _source(token: str, addresses: list[tuple[str, int]]) -> str:
    plan = {
        "token": token,
        "addresses": addresses,
        "name": PUBLIC_NAME,
        "seconds": ATTEMPT_SECONDS,
    }
    return _PROBE.replace("PLAN", repr(json.dumps(plan)))


def _target(host: str, port: int) -> str:
    return f"{host}:{port}"


def _answers(said: str) -> dict[str, tuple[str, str]]:
    """Read the probe's report, which comes from the sandbox and may be anything."""
    try:
        report = json.loads(said)
    except ValueError:
        return {}
    if not isinstance(report, dict):
        return {}
    pairs = cast("dict[str, object]", report)
    return {
        name: (str(pair[0]), str(pair[1]))
        for name, value in pairs.items()
        if isinstance(value, list) and len(pair := cast("list[object]", value)) == 2
    }
