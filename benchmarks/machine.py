"""Where the figures come from: they mean little without it."""

from __future__ import annotations

import os
import platform
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.rows import Stage

_CPUS = Path("/proc/cpuinfo")
_MODE = "io.sandboxio.mode"
_MODES = {"link": "the agent in the sandbox", "exec": "one engine exec a call"}


@dataclass(frozen=True)
class Machine:
    """The machine, the engine, and how sandboxio reaches a sandbox there."""

    processor: str
    cores: int
    kernel: str
    engine: str
    storage: str
    cgroup: str
    python: str
    image: str
    reached: str

    def facts(self) -> dict[str, str]:
        return {name: str(value) for name, value in asdict(self).items()}


def describe(stage: Stage, image: str) -> Machine:
    """Ask the system, the engine, and the labels of the sandbox; blocking."""
    info = stage.raw.ask("/info")
    container = stage.raw.ask(f"/containers/sandboxio-{stage.sandbox.id}/json")
    mode = str(container["Config"]["Labels"].get(_MODE, "exec"))
    return Machine(
        processor=_processor(),
        cores=len(os.sched_getaffinity(0)),
        kernel=platform.release(),
        engine=f"Docker {info['ServerVersion']}",
        storage=str(info["Driver"]),
        cgroup=f"v{info.get('CgroupVersion', '1')}",
        python=platform.python_version(),
        image=image,
        reached=_MODES.get(mode, mode),
    )


def _processor() -> str:
    names = [
        line.partition(":")[2].strip()
        for line in _CPUS.read_text(encoding="utf-8").splitlines()
        if line.startswith("model name")
    ]
    return names[0] if names else platform.machine()
