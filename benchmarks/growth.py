"""How much the memory of this process grows during a work, at its peak."""

from __future__ import annotations

import ctypes
import gc
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_STATUS = Path("/proc/self/status")
_RESET = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"


def growth(act: Callable[[], object]) -> float:
    """Return the bytes by which the resident set grew."""
    before = _settled()
    act()
    return _since(before)


async def growth_async(act: Callable[[], Awaitable[object]]) -> float:
    before = _settled()
    await act()
    return _since(before)


def _settled() -> int:
    """Begin a new peak; return the resident set.

    What earlier works have freed goes back to the kernel first: memory the allocator keeps would
    be used again without the process growing.
    """
    gc.collect()
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
    _RESET.write_text(_RESET_PEAK, encoding="ascii")
    return _of_status("VmRSS")


def _since(before: int) -> int:
    return max(0, _of_status("VmHWM") - before)


def _of_status(name: str) -> int:
    for line in _STATUS.read_text(encoding="ascii").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"no {name} in {_STATUS}")
