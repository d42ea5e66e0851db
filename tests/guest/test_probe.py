"""A sandbox's first words: what is read of them, and what is refused."""

from __future__ import annotations

import subprocess
import sys

import pytest

from sandboxio import CreationError
from sandboxio.guest import probe

CONFINED = b"""CapEff: 0000000000000000
CapBnd: 0000000000000000
NoNewPrivs: 1
Seccomp: 2
Interface: lo
Program: python3
Program: bash
Ready:
"""


def test_a_report_is_read() -> None:
    """Facts, interfaces and programs are told apart."""
    report = probe.parse(CONFINED)
    assert report.facts["Seccomp"] == "2"
    assert report.interfaces == {"lo"}
    assert report.programs == {"python3", "bash"}


def test_a_confined_box_is_accepted() -> None:
    """With every control in force nothing is said."""
    probe.verify(probe.parse(CONFINED), network=False)


@pytest.mark.parametrize(
    ("before", "after", "control"),
    [
        (b"CapEff: 0000000000000000", b"CapEff: 00000000a80425fb", "capabilities"),
        (b"CapBnd: 0000000000000000", b"CapBnd: 0000000000000001", "capabilities"),
        (b"CapEff: 0000000000000000\n", b"", "capabilities"),
        (b"CapBnd: 0000000000000000\n", b"", "capabilities"),
        (b"CapEff: 0000000000000000", b"CapEff: none", "capabilities"),
        (b"CapEff: 0000000000000000", b"CapEff: \xff\xfe", "capabilities"),
        (b"CapEff: 0000000000000000", b"CapEff: -0", "capabilities"),
        (b"NoNewPrivs: 1", b"NoNewPrivs: 0", "no-new-privileges"),
        (b"NoNewPrivs: 1\n", b"", "no-new-privileges"),
        (b"NoNewPrivs: 1", b"NoNewPrivs: 11", "no-new-privileges"),
        (b"Interface: lo", b"Interface: lo\nInterface: eth0", "network deny"),
        (b"Interface: lo", b"Interface: lo0", "network deny"),
    ],
)
def test_a_control_not_in_force_is_refused(before: bytes, after: bytes, control: str) -> None:
    """Each missing, odd or weaker fact is a `CreationError` that names the control."""
    with pytest.raises(CreationError, match=control):
        probe.verify(probe.parse(CONFINED.replace(before, after)), network=False)


@pytest.mark.parametrize("name", [b"CapEff", b"CapBnd"])
def test_an_empty_fact_is_no_fact(name: bytes) -> None:
    """A report that names a control and does not say its value proves nothing."""
    report = CONFINED.replace(name + b": 0000000000000000", name + b": ")
    with pytest.raises(CreationError, match="capabilities"):
        probe.verify(probe.parse(report), network=False)


@pytest.mark.parametrize("text", [b"", b"\n\n", b"garbage", b"CapEff", b"\0" * 100, b"a: b: c"])
def test_words_that_are_no_report_prove_nothing(text: bytes) -> None:
    """Silence and noise are refused."""
    with pytest.raises(CreationError):
        probe.verify(probe.parse(text), network=True)


def test_an_interface_is_expected_where_the_network_is_open() -> None:
    """Interfaces matter only where the policy denies them."""
    probe.verify(probe.parse(CONFINED + b"Interface: eth0\n"), network=True)


def test_a_long_report_is_cut() -> None:
    """Only so much of what a sandbox says is read."""
    flood = b"Program: x\n" * 10_000 + b"Program: late\n"
    assert probe.parse(flood).programs <= {"x", "", "Progr", "Program"}


@pytest.mark.skipif(sys.platform != "linux", reason="the probe reads /proc")
def test_the_probe_runs_in_a_plain_shell() -> None:
    """The script needs nothing but sh, and reports what the kernel says of itself."""
    said = subprocess.run(
        ["/bin/sh", "-c", probe.PROBE], capture_output=True, check=True, env={"PATH": "/nowhere"}
    )
    report = probe.parse(said.stdout)
    assert said.stderr == b""
    assert {"CapEff", "CapBnd", "NoNewPrivs"} <= set(report.facts)
    assert "lo" in report.interfaces
    assert report.programs == set()


@pytest.mark.skipif(sys.platform != "linux", reason="the probe reads /proc")
def test_the_first_process_says_what_it_lacks() -> None:
    """Without sleep there is no lifetime, and the box ends at once with the usual code."""
    said = subprocess.run(
        ["/bin/sh", "-c", probe.FIRST_PROCESS, "sandboxio", "1"],
        capture_output=True,
        check=False,
        env={"PATH": "/nowhere"},
    )
    assert (said.returncode, said.stderr) == (127, b"sleep: not found\n")
    assert probe.READY not in said.stdout
