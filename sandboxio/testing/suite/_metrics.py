"""What a sandbox says that it uses, beside the caps that it has."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import pytest

from sandboxio.core.errors import CapabilityNotSupported, SandboxGone
from sandboxio.core.models import Capability, Resources
from sandboxio.testing.suite._case import case
from sandboxio.testing.suite.fixtures import SuiteFixtures

if TYPE_CHECKING:
    from sandboxio.core.models import Metrics
    from sandboxio.core.protocols import AsyncSandbox
    from sandboxio.testing.suite.fixtures import Create

COMMANDS = Capability.RUN_COMMAND
MIB = 1024 * 1024
BURN = "for i in 1 2 3; do seq 100000 >/dev/null; done"


class MetricsCases(SuiteFixtures):
    """Cases of `metrics()`; skipped where the sandbox says that nobody can tell."""

    @case("CAP-020", area="caps")
    async def test_metrics_are_of_a_sandbox(self, sandbox: AsyncSandbox) -> None:
        """`metrics()` gives CPU time, memory and processes, none of them negative."""
        used = await self._metrics(sandbox)
        assert used.cpu_seconds >= 0
        assert used.memory_bytes > 0
        assert used.memory_limit_bytes is None or used.memory_limit_bytes >= used.memory_bytes
        assert used.processes >= 0

    @case("CAP-021", needs=COMMANDS, area="caps")
    async def test_metrics_count_cpu_time(self, sandbox: AsyncSandbox) -> None:
        """CPU time grows with what commands use of it, and never shrinks."""
        before = await self._metrics(sandbox)
        await self.sh(sandbox, BURN)
        after = await self._metrics(sandbox)
        assert after.cpu_seconds > before.cpu_seconds

    @case("CAP-022", needs=COMMANDS, area="caps")
    async def test_metrics_count_processes(self, sandbox: AsyncSandbox, marker: int) -> None:
        """Processes are counted while they run, and not once they have ended."""
        before = await self._metrics(sandbox)
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(sandbox.run, self.hang(marker))
            await self.until_alive(sandbox, marker, 3)
            assert (await self._metrics(sandbox)).processes >= before.processes + 3
            tasks.cancel_scope.cancel()

        async def as_before() -> bool:
            return (await self._metrics(sandbox)).processes <= before.processes

        await self.eventually(as_before)

    @case("CAP-023", area="caps")
    async def test_metrics_know_the_memory_cap(self, create: Create) -> None:
        """The limit of memory is the cap that was asked for, where one can be had."""
        if not self.resource_caps_supported:
            pytest.skip(reason="this backend has no cap on memory")
        sandbox = await create(resources=Resources(memory_mb=200))
        limit = (await self._metrics(sandbox)).memory_limit_bytes
        assert limit in (None, 200 * MIB)

    @case("CAP-024", area="caps")
    async def test_metrics_of_a_removed_sandbox(self, sandbox: AsyncSandbox) -> None:
        """Once the sandbox is removed there are none: `SandboxGone`."""
        await sandbox.kill()
        with pytest.raises(SandboxGone):
            await sandbox.metrics()

    async def _metrics(self, sandbox: AsyncSandbox) -> Metrics:
        try:
            return await sandbox.metrics()
        except CapabilityNotSupported as exc:
            pytest.skip(reason=f"nobody can tell what this sandbox uses: {exc.message}")
