"""What the runs of the contract have in common."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave alone what a run without Docker would drop at once: half of all there is."""
    offline = config.option.markexpr == "not docker"
    return True if offline and collection_path.name.startswith("test_docker") else None


@pytest.hookimpl(wrapper=True)
def pytest_runtestloop() -> Generator[None, object, object]:
    """Keep what has been collected from the collector of garbage while the tests run.

    It stays until the end, and a tenth of the time would go into it. A run inside of a test
    leaves that to the run it is in.
    """
    if gc.get_freeze_count():
        return (yield)
    gc.collect()
    gc.freeze()
    try:
        return (yield)
    finally:
        gc.unfreeze()
