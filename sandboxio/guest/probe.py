"""The sandbox's own first words: proof of its confinement, before any code of a caller runs.

A shell script of builtins alone. It reports what the kernel says of the process it runs in, the
network interfaces, and the interpreters there are. As a container's first process it then sleeps
until the lifetime is over.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sandboxio.core.errors import CreationError

INTERPRETERS = ("python3", "python", "bash")
PROBE = """\
while read -r k v; do
  case $k in CapEff:|CapBnd:|NoNewPrivs:|Seccomp:) echo "$k $v";; esac
done </proc/self/status
while read -r k v; do
  case $k in *:*) echo "Interface: ${k%%:*}";; esac
done </proc/net/dev
for p in @INTERPRETERS@; do
  if command -v "$p" >/dev/null 2>&1; then echo "Program: $p"; fi
done
""".replace("@INTERPRETERS@", " ".join(INTERPRETERS))
FIRST_PROCESS = (
    PROBE
    + """\
if ! command -v sleep >/dev/null 2>&1; then echo 'sleep: not found' >&2; exit 127; fi
echo Ready:
exec sleep "$1"
"""
)
READY = b"Ready:\n"
_CAPS = ("CapEff", "CapBnd")
REPORT_LIMIT = 16 * 1024
"""Bytes of report that are read at most; it is the sandbox that writes it."""


@dataclass(frozen=True)
class Report:
    """What a sandbox said of itself."""

    facts: dict[str, str] = field(default_factory=dict[str, str])
    interfaces: frozenset[str] = frozenset()
    programs: frozenset[str] = frozenset()


def parse(text: bytes) -> Report:
    """Read a report; lines that are not of it are ignored."""
    facts: dict[str, str] = {}
    interfaces: set[str] = set()
    programs: set[str] = set()
    for line in text[:REPORT_LIMIT].decode("ascii", "replace").splitlines():
        key, _, value = line.partition(": ")
        if key == "Interface":
            interfaces.add(value)
        elif key == "Program":
            programs.add(value)
        elif key in ("CapEff", "CapBnd", "NoNewPrivs", "Seccomp"):
            facts[key] = value
    return Report(facts, frozenset(interfaces), frozenset(programs))


def verify(report: Report, *, network: bool) -> None:
    """Compare a report with what was asked of the engine.

    Raises:
        CreationError: a control that was asked for did not take effect.
    """
    if any(set(report.facts.get(name, "")) != {"0"} for name in _CAPS):
        raise _not_applied("dropping all capabilities")
    if report.facts.get("NoNewPrivs") != "1":
        raise _not_applied("no-new-privileges")
    if not network and report.interfaces - {"lo"}:
        raise _not_applied("network deny")


def _not_applied(control: str) -> CreationError:
    return CreationError(
        f"The engine accepted {control} and did not apply it; the sandbox was removed.",
        hint="Use an engine and runtime that enforce it; sandboxio doctor names yours.",
        outcome="not_started",
    )
