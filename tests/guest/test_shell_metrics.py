"""What the script about metrics says, of every kind of kernel."""

from __future__ import annotations

import subprocess
import sys

import pytest

from sandboxio import CapabilityNotSupported, Metrics
from sandboxio.guest import shell_metrics

SECOND = b"memory 41000000\nlimit max\ncache 1000000\nmicroseconds 1500000\nprocesses 3\n"
FIRST = b"memory 5000\nlimit 9223372036854771712\ncache 6000\nnanoseconds 20000000\nprocesses 0\n"
PROC = (
    b"VmRSS:\t    1024 kB\nVmRSS:\t     512 kB\n"
    b"1 (a) b) R) S 0 1 1 0 -1 4194560 100 200 0 0 150 50 7 8 20 0 1 0 5 1 2\n"
    b"9 (sh\nell) S 1 9 9 0 -1 0 0 0 0 0 25 25 0 0 20 0 1 0 5 1 2\nprocesses 2\n"
)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (SECOND, Metrics(1.5, 40_000_000, None, 3)),
        (SECOND.replace(b"max", b"536870912"), Metrics(1.5, 40_000_000, 536_870_912, 3)),
        (FIRST, Metrics(0.02, 0, None, 0)),
        (PROC, Metrics(2.0, 1536 * 1024, None, 2)),
    ],
)
def test_what_is_said_is_understood(said: bytes, expected: Metrics) -> None:
    """Either version of control groups, or `/proc` alone; what can be dropped is not in use."""
    assert shell_metrics.parse(said) == expected


@pytest.mark.parametrize(
    "said", [b"", b"processes 3\n", b"memory 5\n", b"memory x\nprocesses -1\n"]
)
def test_what_says_too_little_is_refused(said: bytes) -> None:
    """Where nobody can tell, no number is made up."""
    with pytest.raises(CapabilityNotSupported):
        shell_metrics.parse(said)


@pytest.mark.skipif(sys.platform != "linux", reason="the script reads /proc")
def test_the_script_says_something_here() -> None:
    """On this host's own shell the script finds memory, CPU time and processes."""
    done = subprocess.run(["/bin/sh", "-c", shell_metrics.SCRIPT], capture_output=True, check=True)
    used = shell_metrics.parse(done.stdout)
    assert used.memory_bytes > 0
    assert used.cpu_seconds > 0
    assert used.processes > 0
