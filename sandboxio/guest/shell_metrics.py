"""What a sandbox uses, asked by its own shell: control groups of either version, else `/proc`.

It is what the sandbox says of itself: code in it could falsify the numbers, of itself alone.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sandboxio.core.errors import CapabilityNotSupported
from sandboxio.core.models import Metrics
from sandboxio.guest._shell_call import ANSWER_LIMIT, ShellCalls, too_long

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sandboxio.core.driver import ExecChannel
    from sandboxio.core.requests import ExecRequest

SCRIPT = """\
PATH=/usr/bin:/bin:/usr/sbin:/sbin${PATH:+:$PATH}; LC_ALL=C; export PATH LC_ALL
first() { [ -r "$2" ] && read -r v <"$2" && echo "$1 $v"; }
named() {
  [ -r "$3" ] || return
  while read -r k v; do [ "$k" != "$2" ] || echo "$1 $v"; done <"$3"
}
g=/sys/fs/cgroup
if [ -r $g/memory.current ]; then
  first memory $g/memory.current
  first limit $g/memory.max
  named cache inactive_file $g/memory.stat
elif [ -r $g/memory/memory.usage_in_bytes ]; then
  first memory $g/memory/memory.usage_in_bytes
  first limit $g/memory/memory.limit_in_bytes
  named cache total_inactive_file $g/memory/memory.stat
else
  grep -h VmRSS: /proc/[0-9]*/status 2>/dev/null
fi
if [ -r $g/cpu.stat ]; then named microseconds usage_usec $g/cpu.stat
elif ! first nanoseconds $g/cpuacct/cpuacct.usage; then cat /proc/[0-9]*/stat 2>/dev/null; fi
set -- /proc/[0-9]*
own=1
[ "$PPID" -le 1 ] || own=2
echo "processes $(($# - own))"
"""

_PAIR = re.compile(rb"^(memory|limit|cache|[mn]\w+seconds|processes) (\d{1,20})$", re.MULTILINE)
_RESIDENT = re.compile(rb"^VmRSS:\s*(\d{1,15}) kB$", re.MULTILINE)
_TICKS = re.compile(rb"^\d+ \(.*\) \w(?: -?\d+){10} (\d{1,15}) (\d{1,15}) ", re.MULTILINE)
_TICKS_PER_SECOND = 100
_UNLIMITED = 2**60
"""Control groups of the first version have a limit always, and this much where there is none."""


async def measure(
    start: Callable[[ExecRequest], Awaitable[ExecChannel]],
    *,
    timeout: float,
    give_up: Callable[[], Awaitable[None]],
) -> Metrics:
    """Ask the sandbox; arguments as those of `ShellFiles`."""
    said = bytearray()

    async def keep(piece: bytes) -> None:
        said.extend(piece)
        if len(said) > ANSWER_LIMIT:
            raise too_long()

    await ShellCalls(start, timeout=timeout, give_up=give_up).run(SCRIPT, sink=keep)
    return parse(bytes(said))


def parse(said: bytes) -> Metrics:
    """Read what `SCRIPT` said; `CapabilityNotSupported` where it found nothing to say."""
    pairs = {name: int(number) for name, number in _PAIR.findall(said)}
    resident, ticks = _RESIDENT.findall(said), _TICKS.findall(said)
    if b"processes" not in pairs or not (b"memory" in pairs or resident):
        raise CapabilityNotSupported(
            "This sandbox cannot say what it uses: neither control groups nor /proc are readable.",
            hint="Ask the engine, or use an image with a shell, cat and grep.",
        )
    memory = pairs.get(b"memory", sum(map(int, resident)) * 1024)
    limit = pairs.get(b"limit", _UNLIMITED)
    seconds = sum(int(user) + int(system) for user, system in ticks) / _TICKS_PER_SECOND
    return Metrics(
        cpu_seconds=pairs.get(b"microseconds", 0) / 1e6
        + pairs.get(b"nanoseconds", 0) / 1e9
        + seconds,
        memory_bytes=max(0, memory - pairs.get(b"cache", 0)),
        memory_limit_bytes=None if limit >= _UNLIMITED else limit,
        processes=max(0, pairs[b"processes"]),
    )
