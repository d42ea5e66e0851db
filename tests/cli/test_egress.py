"""The egress probe's judgement and its witnesses."""

from __future__ import annotations

import ipaddress
import json
import socket

import pytest

from sandboxio.cli._egress import Canary, host_addresses, judge

TARGET = "192.0.2.1:80"
NAME = "name example.com"
REFUSED = {"control": ["reached", ""], TARGET: ["refused", "no"], NAME: ["refused", "no"]}


def test_all_attempts_refused_is_closed() -> None:
    """Every attempt made, none out, and the control succeeded."""
    assert judge(json.dumps(REFUSED), [TARGET]).closed


@pytest.mark.parametrize("name", [TARGET, NAME])
def test_one_way_out_is_named(name: str) -> None:
    """A single success is enough, and the report says which."""
    assert judge(json.dumps({**REFUSED, name: ["reached", ""]}), [TARGET]).reached == (name,)


def test_host_is_believed_before_the_sandbox() -> None:
    """A token that arrived outweighs a report that denies it or is missing."""
    assert judge(json.dumps(REFUSED), [TARGET], [TARGET]).reached == (TARGET,)
    assert judge("", [TARGET], [TARGET]).reached == (TARGET,)


@pytest.mark.parametrize(
    "said", ["", "null", "[]", "{", "{}", '{"control": 1}', '{"control": ["reached", ""]}']
)
def test_report_that_is_not_whole_proves_nothing(said: str) -> None:
    """A probe that did not run, or not to its end, is a complaint and not a pass."""
    probe = judge(said, [TARGET])
    assert not probe.closed
    assert probe.complaint


def test_canary_knows_its_token_from_other_visitors() -> None:
    """Somebody who happens to connect is not taken for the sandbox."""
    with Canary(["127.0.0.1"]) as canary:
        for said in (b"", b"GET / HTTP/1.1\r\n", b"other-token"):
            with socket.create_connection(canary.addresses[0]) as visitor:
                visitor.sendall(said)
        assert canary.touched("right-token") == []
        with socket.create_connection(canary.addresses[0]) as visitor:
            visitor.sendall(b"right-token")
        assert canary.touched("right-token") == [f"127.0.0.1:{canary.addresses[0][1]}"]


def test_canary_skips_addresses_it_cannot_have() -> None:
    """An address that is not, or no longer, this host's is no reason to fail."""
    with Canary(["192.0.2.77", "127.0.0.1"]) as canary:
        assert [host for host, _ in canary.addresses] == ["127.0.0.1"]


def test_host_addresses_are_not_loopback() -> None:
    """Loopback is the sandbox's own in every sandbox, so it would show nothing."""
    assert not any(ipaddress.ip_address(text).is_loopback for text in host_addresses())
