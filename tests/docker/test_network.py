"""Deny means deny, and what cannot be enforced is refused."""

from __future__ import annotations

import functools
import json
import socket
import subprocess
import threading
from typing import TYPE_CHECKING, Any

import pytest

import sandboxio
from sandboxio import CapabilityNotSupported, ConfigurationError, NetworkPolicy, Resources
from sandboxio.adapters.docker import DockerConfig
from tests.docker.outside import RUN, Outside

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sandboxio.protocols import AsyncSandbox
    from tests.docker.conftest import Make

pytestmark = [pytest.mark.docker, pytest.mark.anyio]

PROBE = """
import json, socket, sys

def attempt(act):
    try:
        act()
        return "reached"
    except OSError as error:
        return type(error).__name__

def udp(family, address):
    with socket.socket(family, socket.SOCK_DGRAM) as sock:
        sock.settimeout(1)
        sock.sendto(b"canary", address)
        sock.recv(10)

def tcp(host, port):
    socket.create_connection((host, port), timeout=1).close()

hosts, port, resolvers = json.loads(sys.argv[1] if len(sys.argv) > 1 else ARGUMENTS)
found = {}
for host in hosts:
    found["tcp " + host] = attempt(lambda: tcp(host, port))
    found["udp " + host] = attempt(lambda: udp(socket.AF_INET, (host, port)))
for resolver in resolvers:
    found["dns " + resolver] = attempt(lambda: udp(socket.AF_INET, (resolver, 53)))
found["metadata"] = attempt(lambda: tcp("169.254.169.254", 80))
found["ipv6"] = attempt(lambda: tcp("2001:4860:4860::8888", 53))
for name in ("host.docker.internal", "x7d1f.example.org"):
    found["name " + name] = attempt(lambda: socket.getaddrinfo(name, 80))
found["ping"] = attempt(
    lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP).sendto(
        b"\\x08\\x00\\xf7\\xff\\x00\\x00\\x00\\x00", ("8.8.8.8", 0)))
print(json.dumps(found))
"""
LOOPBACK = """
import socket
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(("localhost", server.getsockname()[1]), timeout=2)
client.sendall(b"hello")
print(server.accept()[0].recv(5))
"""


class Canary:
    """Listens on every address of this host, by TCP and UDP, and remembers who came."""

    def __init__(self) -> None:
        self.visitors: list[str] = []
        self._tcp = socket.create_server(("0.0.0.0", 0))
        self.port: int = self._tcp.getsockname()[1]
        self._udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._udp.bind(("0.0.0.0", self.port))
        self._threads = [threading.Thread(target=t) for t in (self._accept, self._receive)]
        for thread in self._threads:
            thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, address = self._tcp.accept()
            except OSError:
                return
            self.visitors.append(f"tcp {address[0]}")
            connection.close()

    def _receive(self) -> None:
        while data := self._udp.recvfrom(10):
            if data[0] == b"end":
                return
            self.visitors.append(f"udp {data[1][0]}")

    def close(self) -> None:
        self._udp.sendto(b"end", ("127.0.0.1", self.port))
        self._tcp.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        self._udp.close()
        self._tcp.close()


@pytest.fixture
def canary() -> Iterator[Canary]:
    canary = Canary()
    yield canary
    canary.close()


def _addresses() -> list[str]:
    shown = subprocess.run(["ip", "-j", "-4", "addr"], capture_output=True, text=True, check=True)
    interfaces: list[dict[str, Any]] = json.loads(shown.stdout)
    found = {entry["local"] for one in interfaces for entry in one["addr_info"]}
    return sorted(found - {"127.0.0.1"})


def _resolvers() -> list[str]:
    with open("/etc/resolv.conf", encoding="utf-8") as file:
        return [line.split()[1] for line in file if line.startswith("nameserver") and "." in line]


@pytest.mark.parametrize("way", ["run", "run_code", "stream"])
async def test_nothing_is_reached_from_a_default_sandbox(
    sb: AsyncSandbox, canary: Canary, way: str
) -> None:
    """NET-1: TCP, UDP, DNS, names, IPv6, metadata and ping all fail; the canary hears nothing."""
    targets = json.dumps([_addresses(), canary.port, _resolvers()])
    if way == "run":
        said = (await sb.run(["python3", "-c", PROBE, targets], timeout=30)).stdout
    elif way == "run_code":
        said = (await sb.run_code(f"ARGUMENTS = {targets!r}\n{PROBE}", timeout=30)).stdout
    else:
        async with sb.stream(["python3", "-c", PROBE, targets], timeout=30) as proc:
            said = b"".join([c.data async for c in proc if c.stream == "stdout"]).decode()
    found: dict[str, str] = json.loads(said)
    assert len(found) >= 8
    assert {what for what, outcome in found.items() if outcome == "reached"} == set()
    assert canary.visitors == []


async def test_the_canary_hears_an_open_sandbox(make: Make, canary: Canary) -> None:
    """NET-1: the same probe reaches the same canary where egress is allowed: it can tell."""
    sb = await make(network=NetworkPolicy(egress="allow"))
    targets = json.dumps([_addresses(), canary.port, []])
    found = json.loads((await sb.run(["python3", "-c", PROBE, targets], timeout=30)).stdout)
    assert "reached" in {outcome for what, outcome in found.items() if what.startswith("tcp")}
    assert any(visitor.startswith("tcp") for visitor in canary.visitors)


async def test_only_loopback_is_there(sb: AsyncSandbox, outside: Outside) -> None:
    """NET-1: no interface but loopback, no route; seen from inside and by the engine."""
    script = "for i in /sys/class/net/*; do echo ${i##*/} $(cat $i/flags); done"
    flags = dict(line.split() for line in (await sb.run(script)).stdout.splitlines())
    assert [name for name, value in flags.items() if int(value, 16) & 1] == ["lo"]
    assert (await sb.run("tail -n +2 /proc/net/route")).stdout == ""
    assert set(outside.inspect(sb)["NetworkSettings"]["Networks"]) <= {"none"}


async def test_loopback_works(sb: AsyncSandbox) -> None:
    """NET-1: a program may bind and connect on loopback; localhost resolves."""
    for result in (await sb.run(["python3", "-c", LOOPBACK]), await sb.run_code(LOOPBACK)):
        assert (result.stdout, result.stderr) == ("b'hello'\n", "")


@pytest.mark.parametrize(
    "asked",
    [
        {"network": NetworkPolicy(allow=("example.org",))},
        {"network": NetworkPolicy(egress="learn")},
        {"network": NetworkPolicy(egress="allow", allow=("example.org",))},
        {"network": NetworkPolicy(ingress_ports=(8080,))},
        {"network": NetworkPolicy(egress="some")},  # type: ignore[arg-type]
        {"resources": Resources(gpu="T4")},
        {"resources": Resources(disk_mb=10)},
    ],
    ids=str,
)
async def test_what_cannot_be_enforced_is_refused(outside: Outside, asked: dict[str, Any]) -> None:
    """NET-2: refused before any pull or container; the image named here does not even exist."""
    create = functools.partial(sandboxio.create, "docker://sandboxio-test/absent")
    with pytest.raises((CapabilityNotSupported, ConfigurationError)) as caught:
        await create(timeout=30, metadata={"test_run": RUN, "refused": "1"}, **asked)
    assert caught.value.outcome == "not_started"
    assert outside.containers(refused="1") == []


async def test_a_configuration_and_a_keyword_that_disagree() -> None:
    """NET-2: two different policies are refused; neither wins in silence."""
    config = DockerConfig(
        template="sandboxio-test/absent", network=NetworkPolicy(egress="allow"), timeout=30
    )
    with pytest.raises(ConfigurationError, match="network"):
        await sandboxio.create(config, network=NetworkPolicy(egress="learn"))
    with pytest.raises(ConfigurationError, match="timeout"):
        await sandboxio.create(config, timeout=31)
