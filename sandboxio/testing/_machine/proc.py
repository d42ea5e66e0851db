"""A virtual `/proc`: what the kernel of the fake knows of its processes, computed at each look."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from sandboxio.testing._disk.nodes import (
    Link,
    Node,
    Special,
    VirtualDirectory,
    VirtualFile,
    encoded,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sandboxio.testing._machine.kernel import Kernel
    from sandboxio.testing._machine.process import Process

FIRST = ("sleep", "infinity")
"""What the first process of every sandbox runs; it is root's and no virtual process."""
_STATES = {"R": "running", "S": "sleeping", "Z": "zombie"}
_CONFINED = (
    "CapInh:\t0000000000000000\nCapPrm:\t0000000000000000\nCapEff:\t0000000000000000\n"
    "CapBnd:\t0000000000000000\nCapAmb:\t0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t2\n"
)
_DEVICES = (
    "Inter-|   Receive                                                |  Transmit\n"
    " face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs"
    " drop fifo colls carrier compressed\n"
    "    lo:       0       0    0    0    0     0          0         0        0       0    0"
    "    0    0     0       0          0\n"
)
_ROUTES = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"


def proc(kernel: Kernel, *, memory: int) -> VirtualDirectory:
    """Return the directory; `memory` is the bytes that the sandbox may use."""
    static: dict[str, Node] = {
        "1": _directory(_first_process()),
        "loadavg": _file(lambda: f"0.00 0.00 0.00 1/{len(kernel.processes) + 1} 0\n"),
        "meminfo": _file(lambda: _meminfo(memory)),
        "net": _directory({"dev": _file(lambda: _DEVICES), "route": _file(lambda: _ROUTES)}),
        "uptime": _file(lambda: f"{kernel.clock.time():.2f} 0.00\n"),
    }

    return VirtualDirectory(content=lambda: _Listing(kernel, static))


class _Listing(Mapping[str, Node]):
    """`/proc` as it is now; the entry of a process is made when somebody looks at it."""

    def __init__(self, kernel: Kernel, static: Mapping[str, Node]) -> None:
        self._kernel = kernel
        self._static = static

    def __getitem__(self, name: str) -> Node:
        if name == "self":
            current = _current(self._kernel)
            if current is None:
                raise KeyError(name)
            return Link(target=str(current.pid))
        if name in self._static:
            return self._static[name]
        if not name.isdecimal() or int(name) not in self._kernel.processes:
            raise KeyError(name)
        return _process(self._kernel.processes[int(name)])

    def __iter__(self) -> Iterator[str]:
        yield from self._static
        yield from map(str, self._kernel.processes)
        if _current(self._kernel) is not None:
            yield "self"

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _current(kernel: Kernel) -> Process | None:
    try:
        return kernel.current
    except RuntimeError:
        return None


def _process(process: Process) -> VirtualDirectory:
    uid, gid = process.who
    alive = process.exit_code is None
    entries: dict[str, Node] = {
        "cmdline": _file(lambda: _terminated(process.argv) if alive else b""),
        "comm": _file(lambda: f"{_comm(process.argv)}\n"),
        "environ": _file(lambda: _environ(process) if alive else b"", mode=0o400),
        "stat": _file(lambda: _stat(process)),
        "status": _file(lambda: _status(process)),
    }
    if alive:
        entries["cwd"] = Link(target=process.cwd)
        entries["fd"] = VirtualDirectory(mode=0o500, content=lambda: _descriptors(process))
    for node in entries.values():
        node.uid, node.gid = uid, gid
    return VirtualDirectory(content=lambda: entries, uid=uid, gid=gid)


def _descriptors(process: Process) -> Mapping[str, Node]:
    uid, gid = process.who
    return {str(number): Special(mode=0o600, uid=uid, gid=gid) for number in process.fds}


def _first_process() -> dict[str, Node]:
    return {
        "cmdline": _file(lambda: _terminated(FIRST)),
        "comm": _file(lambda: f"{FIRST[0]}\n"),
        "environ": _file(lambda: b"", mode=0o400),
        "stat": _file(lambda: _stat_line(1, FIRST, "S", 0, 1)),
        "status": _file(lambda: _status_text(FIRST, "S", 1, 0, (0, 0))),
    }


def _directory(entries: dict[str, Node]) -> VirtualDirectory:
    return VirtualDirectory(content=lambda: entries)


def _file(make: Callable[[], str | bytes], mode: int = 0o444) -> VirtualFile:
    def content() -> bytes:
        made = make()
        return encoded(made) if isinstance(made, str) else made

    return VirtualFile(content=content, mode=mode)


def _terminated(words: Sequence[str]) -> bytes:
    return b"".join(encoded(word) + b"\0" for word in words)


def _environ(process: Process) -> bytes:
    return _terminated([f"{name}={value}" for name, value in process.env.items()])


def _comm(argv: Sequence[str]) -> str:
    return argv[0].rpartition("/")[2][:15] if argv else ""


def _state(process: Process) -> str:
    if process.exit_code is not None:
        return "Z"
    return "R" if process is _current(process.kernel) else "S"


def _parent(process: Process) -> int:
    """Return the number of its parent: who has lost it is a child of the first process."""
    return 1 if process.parent is None else process.parent.pid


def _stat(process: Process) -> str:
    parent = _parent(process)
    return _stat_line(process.pid, process.argv, _state(process), parent, process.session)


def _stat_line(pid: int, argv: Sequence[str], state: str, parent: int, session: int) -> str:
    fields = [pid, f"({_comm(argv)})", state, parent, session, session, 0, -1, *[0] * 44]
    return " ".join(map(str, fields)) + "\n"


def _status(process: Process) -> str:
    return _status_text(process.argv, _state(process), process.pid, _parent(process), process.who)


def _status_text(
    argv: Sequence[str], state: str, pid: int, parent: int, who: tuple[int, int]
) -> str:
    uids, gids = ("\t".join([str(number)] * 4) for number in who)
    return (
        f"Name:\t{_comm(argv)}\nState:\t{state} ({_STATES[state]})\nTgid:\t{pid}\nPid:\t{pid}\n"
        f"PPid:\t{parent}\nTracerPid:\t0\nUid:\t{uids}\nGid:\t{gids}\nGroups:\t{who[1]} \n"
        f"Threads:\t1\n{_CONFINED}"
    )


def _meminfo(memory: int) -> str:
    total = memory // 1024
    rows = {"MemTotal": total, "MemFree": total, "MemAvailable": total, "SwapTotal": 0}
    return "".join(f"{name + ':':<15}{value:>10} kB\n" for name, value in rows.items())
