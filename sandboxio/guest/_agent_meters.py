"""Part of the agent: what the kernel counts."""

from __future__ import annotations

import os

from sandboxio.guest._agent_wire import suppress

OOM_COUNTERS = (
    "/sys/fs/cgroup/memory/memory.oom_control",
    "/sys/fs/cgroup/memory.events",
)


class OomKills:
    """How often the memory cap has killed here."""

    def __init__(self) -> None:
        self.fd = -1
        for path in OOM_COUNTERS:
            with suppress(OSError):
                self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                return

    def count(self) -> int:
        with suppress(OSError, ValueError):
            for line in os.pread(self.fd, 4096, 0).splitlines():
                name, _, value = line.partition(b" ")
                if name == b"oom_kill":
                    return int(value)
        return 0


def value(*paths: str) -> int:
    """Return the number in the first of some files that is there, or -1."""
    for path in paths:
        with suppress(OSError, ValueError), open("/sys/fs/cgroup/" + path, "rb") as file:
            return int(file.read(64))
    return -1


def named(name: bytes, *paths: str) -> int:
    """Return a number by its name in the first of some files that is there, or 0."""
    for path in paths:
        with suppress(OSError, ValueError), open("/sys/fs/cgroup/" + path, "rb") as file:
            for line in file:
                if line.startswith(name + b" "):
                    return int(line.split()[1])
    return 0


def metrics(own: int) -> list[bytes]:
    """Return what the sandbox uses, from its control groups; some processes are not its own."""
    nanoseconds = value("cpuacct/cpuacct.usage")
    if nanoseconds < 0:
        nanoseconds = 1000 * named(b"usage_usec", "cpu.stat")
    memory = value("memory/memory.usage_in_bytes", "memory.current")
    memory -= named(b"total_inactive_file", "memory/memory.stat")
    memory -= named(b"inactive_file", "memory.stat")
    limit = value("memory/memory.limit_in_bytes", "memory.max")
    processes = sum(name.isdigit() for name in os.listdir("/proc"))
    return [
        b"ok",
        b"%.6f" % (nanoseconds / 1e9),
        b"%d" % max(memory, 0),
        b"" if limit < 0 or limit >= 1 << 60 else b"%d" % limit,
        b"%d" % max(processes - own, 0),
    ]
