"""What the tests of inner runs use; it is copied beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandboxio import ConfigurationError, ExecResult, create
from sandboxio.adapters.docker import DockerBackend
from sandboxio.core import offline

if TYPE_CHECKING:
    from sandboxio.testing import FakeBackend


async def use(fake: FakeBackend) -> None:
    """Use a fresh fake by its own sandbox and by its DSN; virtual time passes."""
    fake.on_run("deploy", returns=ExecResult(7, "", ""), takes=30)
    assert (await fake.sandbox.run("deploy")).exit_code == 7
    async with await create("fake://") as sandbox:
        assert (await sandbox.run("deploy")).exit_code == 7
    fake.assert_nothing_left()
    assert [call.op for call in fake.calls] == ["create", "run", "create", "run", "kill"]
    assert fake.clock.time() == 60


def refusal() -> str:
    """Return what a real backend is refused with here, if it is."""
    try:
        offline.check(DockerBackend(), "docker")
    except ConfigurationError as exc:
        return str(exc)
    return ""
