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


def metrics() -> list[bytes]:
    """Return what the sandbox uses, from its control groups."""

    def value(*paths: str) -> int:
        for path in paths:
            try:
                with open("/sys/fs/cgroup/" + path, "rb") as file:
                    return int(file.read(64))
            except (OSError, ValueError):
                continue
        return -1

    cpu = value("cpuacct/cpuacct.usage") / 1e9
    if cpu < 0:
        cpu = 0.0
        with suppress(OSError, ValueError), open("/sys/fs/cgroup/cpu.stat", "rb") as file:
            cpu = int(dict(line.split() for line in file)[b"usage_usec"]) / 1e6
    memory = value("memory/memory.usage_in_bytes", "memory.current")
    limit = value("memory/memory.limit_in_bytes", "memory.max")
    processes = sum(name.isdigit() for name in os.listdir("/proc"))
    return [
        b"ok",
        b"%.6f" % max(cpu, 0.0),
        b"%d" % max(memory, 0),
        b"" if limit < 0 or limit >= 1 << 60 else b"%d" % limit,
        b"%d" % processes,
    ]
