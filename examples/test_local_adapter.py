"""The contract suite on the adapter of `local_adapter.py`; copy it together with the adapter.

Run it with `pytest examples/test_local_adapter.py`, on Linux.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import anyio
import pytest

from sandboxio.testing.suite import BackendContractSuite

if sys.platform != "linux":
    pytest.skip("the local adapter needs /proc", allow_module_level=True)
sys.path.insert(0, str(Path(__file__).parent))

from local_adapter import LocalBackend, LocalDriver, LocalSandbox

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from sandboxio.core.protocols import AsyncSandbox, Backend

DRIVER = LocalDriver()
NO_ISOLATION = {
    **dict.fromkeys(("FS-019", "FS-020", "FS-021"), "files are the host's, as commands see them"),
    "LIFE-018": "all commands share /tmp, which is the host's",
    "LIFE-019": "all commands share one table of processes, which is the host's",
}
SHARED_TMP = ("CANCEL-016", "CODE-008", "FS-022", "TIME-030")
"""They list /tmp before and after; ours is the host's, where others write meanwhile, so that they
would fail now and then, which is no deviation either."""
AS_ROOT = {"LIFE-011": "commands run as whoever runs the tests, and that is root here"}


@pytest.fixture(scope="module", autouse=True)
def _tidy() -> Generator[None]:
    """Remove what cases leave in directories that a real sandbox would take with it."""
    yield
    for place in ("/tmp", "/dev/shm"):
        for name in ("mine", "theirs"):
            with suppress(OSError):
                Path(place, name).unlink()
    for path in Path("/tmp").glob("sandboxio-" + "[0-9a-f]" * 16):
        path.unlink(missing_ok=True)


class TestLocal(BackendContractSuite):
    """Every area, with the probes that a provider's console would be used for elsewhere."""

    backend = LocalBackend()
    resource_caps_supported = False
    deviations: ClassVar[Mapping[str, str]] = {
        **NO_ISOLATION,
        **(AS_ROOT if os.getuid() == 0 else {}),
    }

    @pytest.fixture(autouse=True)
    def _shared_tmp(self, backend: Backend, request: pytest.FixtureRequest) -> None:
        case = request.function.case
        if case.number in SHARED_TMP:
            pytest.skip("/tmp is the host's, where others write meanwhile")

    async def remove_behind(self, sandbox: AsyncSandbox) -> None:
        directory = _directory(sandbox)
        (directory / "record.json").unlink()
        _end_processes(directory)
        shutil.rmtree(directory, ignore_errors=True)

    async def expire(self, sandbox: AsyncSandbox) -> None:
        record = _directory(sandbox) / "record.json"
        record.write_text(json.dumps({**json.loads(record.read_text()), "ends": 0}))
        _end_processes(record.parent)

    async def count(self, run: str) -> int:
        return sum(run in found.read_text() for found in DRIVER.base.glob("*/record.json"))

    @contextmanager
    def slow_create(self) -> Generator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(LocalDriver, "provision", _hang)
            yield

    @contextmanager
    def failing_create(self, error: Exception) -> Generator[None]:
        def make(_: object) -> None:
            raise error

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(LocalSandbox, "make", make)
            yield

    @contextmanager
    def hanging_removal(self) -> Generator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(LocalSandbox, "remove", _hang)
            yield


async def _hang(*_: object) -> None:
    await anyio.sleep_forever()


def _directory(sandbox: AsyncSandbox) -> Path:
    assert isinstance(sandbox.native, Path)
    return sandbox.native


def _end_processes(directory: Path) -> None:
    for found in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if os.fsencode(directory) in found.read_bytes():
                os.kill(int(found.parent.name), signal.SIGTERM)
