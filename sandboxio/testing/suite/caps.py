"""Resource caps, as the kernel of the sandbox holds them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest

from sandboxio.core.errors import (
    CapabilityNotSupported,
    ConfigurationError,
    ExecutionTimeout,
    ResourceLimitExceeded,
    SandboxError,
    SandboxGone,
)
from sandboxio.core.models import Capability, Resources
from sandboxio.testing.suite._case import case
from sandboxio.testing.suite._metrics import MetricsCases

if TYPE_CHECKING:
    from sandboxio.core.models import ExecResult
    from sandboxio.core.protocols import AsyncSandbox
    from sandboxio.testing.suite.fixtures import Create
    from sandboxio.testing.suite.settings import Caps

COMMANDS = Capability.RUN_COMMAND
MIB = 1024 * 1024
MODEST_MEMORY = 16 * 1024 * MIB
MODEST_CPUS = 16
MODEST_PROCESSES = 32_768
STORM = 1500
"""Processes that a storm tries to start: more than any modest ceiling, harmless to the host."""
MALFORMED: tuple[dict[str, Any], ...] = (
    *({"cpu": value} for value in (0, -1, math.nan, math.inf, True, "1")),
    *({"memory_mb": value} for value in (0, -1, True, "512", 1.5, math.inf)),
    *({"disk_mb": value} for value in (0, -1, True, "512")),
    *({"gpu": value} for value in ("", 1, True)),
)
ASKED = (Resources(cpu=0.5), Resources(memory_mb=256), Resources(disk_mb=256), Resources(gpu="T4"))


class CapsSuite(MetricsCases):
    """Cases of `resources=`; those of `metrics()` are inherited."""

    @case("CAP-001", needs=COMMANDS)
    async def test_caps_the_defaults(self, sandbox: AsyncSandbox) -> None:
        """A sandbox created without a word about caps has concrete and modest ones."""
        caps = await self._read_caps(sandbox)
        assert caps.memory_bytes is None or 0 < caps.memory_bytes <= MODEST_MEMORY
        assert caps.cpus is None or 0 < caps.cpus <= MODEST_CPUS

    @case("CAP-002", needs=COMMANDS)
    async def test_caps_memory(self, create: Create) -> None:
        """The memory cap is exactly the one asked for, whether below or above the default."""
        self._skip_without_caps()
        for memory in (96, 257, 1024):
            sandbox = await create(resources=Resources(memory_mb=memory))
            held = _known((await self._read_caps(sandbox)).memory_bytes)
            assert held == memory * MIB

    @case("CAP-003", needs=COMMANDS)
    async def test_caps_swap(self, sandbox: AsyncSandbox, create: Create) -> None:
        """The memory cap is one on memory and swap together: swapping evades nothing."""
        default = await self._read_caps(sandbox)
        assert _known(default.memory_and_swap_bytes) == default.memory_bytes
        asked = await self._read_caps(await create(resources=Resources(memory_mb=200)))
        assert asked.memory_and_swap_bytes == 200 * MIB

    @case("CAP-004", needs=COMMANDS)
    async def test_caps_cpu(self, create: Create) -> None:
        """The share of CPU time is exactly the one asked for, fractions of a core included."""
        self._skip_without_caps()
        for cpu in (0.25, 0.5, 1, 1.5):
            sandbox = await create(resources=Resources(cpu=cpu))
            held = _known((await self._read_caps(sandbox)).cpus)
            assert held == pytest.approx(cpu, rel=0.01)

    @case("CAP-005", needs=COMMANDS)
    async def test_caps_together(self, sandbox: AsyncSandbox, create: Create) -> None:
        """Each cap is its own: setting one leaves the default of the other."""
        default = await self._read_caps(sandbox)
        memory = await self._read_caps(await create(resources=Resources(memory_mb=300)))
        cpu = await self._read_caps(await create(resources=Resources(cpu=0.5)))
        both = await self._read_caps(await create(resources=Resources(cpu=0.5, memory_mb=300)))
        assert (memory.cpus, cpu.memory_bytes) == (default.cpus, default.memory_bytes)
        assert both == type(both)(
            memory.memory_bytes, memory.memory_and_swap_bytes, cpu.cpus, default.processes
        )

    @case("CAP-006", needs=COMMANDS)
    async def test_caps_the_process_ceiling(self, sandbox: AsyncSandbox, create: Create) -> None:
        """There is a ceiling on processes, in every sandbox, whatever its other caps."""
        self._skip_without_caps()
        larger = await create(resources=Resources(cpu=2, memory_mb=1024))
        for one in (sandbox, larger):
            ceiling = _known((await self._read_caps(one)).processes)
            assert 0 < ceiling <= MODEST_PROCESSES

    @case("CAP-007", needs=COMMANDS)
    async def test_caps_none_is_the_default(self, sandbox: AsyncSandbox, create: Create) -> None:
        """Caps cannot be unset: `None` is the default, never "unlimited"."""
        default = await self._read_caps(sandbox)
        for resources in (Resources(), Resources(cpu=None, memory_mb=None, disk_mb=None)):
            assert await self._read_caps(await create(resources=resources)) == default

    @case("CAP-008", needs=COMMANDS)
    async def test_caps_cannot_be_lifted_from_inside(self, sandbox: AsyncSandbox) -> None:
        """No user of the sandbox, root included, can lift its caps."""
        before = await self._read_caps(sandbox)
        lift = (
            "cd /sys/fs/cgroup || exit 0; for f in memory.max memory.swap.max cpu.max pids.max; do "
            "echo max >$f; done; for f in memory/memory.memsw.limit_in_bytes "
            "memory/memory.limit_in_bytes cpu/cpu.cfs_quota_us; do echo -1 >$f; done; "
            "echo max >pids/pids.max; exit 0"
        )
        for user in (None, "root"):
            try:
                await sandbox.run(lift, user=user)
            except (CapabilityNotSupported, ConfigurationError):
                assert user is not None
        assert await self._read_caps(sandbox) == before

    @case("CAP-009", needs=COMMANDS)
    async def test_caps_memory_beyond_the_cap(self, create: Create) -> None:
        """A command that needs more memory than there is never succeeds and never hangs.

        It ends with an exit code of its own or of its killer, or with `ResourceLimitExceeded`;
        the sandbox works afterwards, or says that it is gone.
        """
        self._skip_without_caps()
        sandbox = await create(resources=Resources(memory_mb=64))
        hungry = "head -c 400000000 /dev/zero | tail -c 400000000 >/dev/null"
        assert await _outcome(sandbox, hungry) != 0
        assert await _outcome(sandbox, "echo works >f; cat f") in (0, None)

    @case("CAP-010", needs=COMMANDS | Capability.RUN_CODE)
    async def test_caps_code_beyond_the_cap(self, create: Create) -> None:
        """The same for code: it never ends as if it had had the memory."""
        self._skip_without_caps()
        sandbox = await create(resources=Resources(memory_mb=64))
        try:
            done = await sandbox.run_code("x = 'a' * 400000000\nprint(len(x))", timeout=60)
        except (ResourceLimitExceeded, SandboxGone):
            pass
        else:
            assert done.exit_code != 0
            assert done.stdout == ""
        assert await _outcome(sandbox, "true") in (0, None)

    @case("CAP-011", needs=COMMANDS)
    async def test_caps_memory_below_the_cap(self, create: Create) -> None:
        """A raised cap can be used: what fails with little memory works with more."""
        self._skip_without_caps()
        sandbox = await create(resources=Resources(memory_mb=1024))
        enough = "head -c 100000000 /dev/zero | tail -c 100000000 >/dev/null"
        assert await _outcome(sandbox, enough) == 0

    @case("CAP-012", needs=COMMANDS)
    async def test_caps_a_fork_storm(self, sandbox: AsyncSandbox, marker: int) -> None:
        """A storm of processes stays under the ceiling, and its timeout ends every one of them."""
        self._skip_without_caps()
        ceiling = (await self.caps(sandbox)).processes or STORM
        if ceiling > MODEST_PROCESSES:
            ceiling = STORM
        storm = (
            f"(for i in $(seq {STORM}); do {self.hang(marker)} & done) 2>/dev/null; "
            f"set -- /proc/[0-9]*; echo $# >count; exec {self.hang(marker)}"
        )
        with pytest.raises(ExecutionTimeout):
            await sandbox.run(storm, timeout=6)
        assert 1 < int(await self.sh(sandbox, "cat count")) <= ceiling
        await self.until_dead(sandbox, marker)
        assert await self.sh(sandbox, "echo works") == "works\n"

    @case("CAP-013")
    @pytest.mark.parametrize("fields", MALFORMED, ids=str)
    async def test_caps_malformed_caps(self, create: Create, fields: dict[str, Any]) -> None:
        """A cap that is no positive number, or no number, is refused by its name."""
        with pytest.raises(ConfigurationError) as caught:
            await create(resources=Resources(**fields))
        assert next(iter(fields)) in caught.value.message
        assert caught.value.outcome == "not_started"

    @case("CAP-014")
    async def test_caps_what_is_no_set_of_caps(self, create: Create) -> None:
        """`resources` is a `Resources`; nothing else is taken for one, `None` least of all."""
        for wrong in (None, 512, {"memory_mb": 512}, False):
            with pytest.raises(ConfigurationError) as caught:
                await create(resources=wrong)
            assert "resources" in caught.value.message

    @case("CAP-015")
    async def test_caps_a_refusal_makes_nothing(
        self, sandbox: AsyncSandbox, create: Create, run_id: str
    ) -> None:
        """Where caps are refused no sandbox was made."""
        made = await self.count(run_id)
        for fields in MALFORMED:
            with pytest.raises(SandboxError):
                await create(resources=Resources(**fields))
        assert await self.count(run_id) == made == 1

    @case("CAP-016", needs=COMMANDS)
    async def test_caps_more_than_there_is(self, create: Create) -> None:
        """A cap beyond what the host has is held exactly or refused; it is never quietly less."""
        self._skip_without_caps()
        try:
            sandbox = await create(resources=Resources(cpu=4096))
        except SandboxError:
            return
        held = (await self.caps(sandbox)).cpus
        assert held is None or held == 4096

    @case("CAP-017", needs=COMMANDS)
    async def test_caps_disk(self, create: Create) -> None:
        """A cap on the disk is enforced, or refused where it cannot be."""
        self._skip_without_caps()
        try:
            sandbox = await create(resources=Resources(disk_mb=64))
        except CapabilityNotSupported:
            return
        assert await _outcome(sandbox, "head -c 200000000 /dev/zero >large") != 0
        assert int(await self.sh(sandbox, "wc -c <large")) <= 64 * MIB

    @case("CAP-018", lacks=Capability.GPU)
    async def test_caps_without_accelerators(self, sandbox: AsyncSandbox, create: Create) -> None:
        """Without `GPU` an accelerator is refused; never accepted and then missing."""
        with pytest.raises((CapabilityNotSupported, ConfigurationError)) as caught:
            await create(resources=Resources(gpu="T4"))
        assert caught.value.outcome == "not_started"

    @case("CAP-019")
    async def test_caps_of_the_template(self, sandbox: AsyncSandbox, create: Create) -> None:
        """Where caps belong to the template a caller's are refused, and the template is named."""
        if self.resource_caps_supported:
            pytest.skip(reason="this backend takes caps for each sandbox")
        for resources in ASKED:
            with pytest.raises((ConfigurationError, CapabilityNotSupported)) as caught:
                await create(resources=resources)
            assert caught.value.outcome == "not_started"
            if resources.gpu is None:
                assert isinstance(caught.value, ConfigurationError)
                assert "template" in str(caught.value)

    async def _read_caps(self, sandbox: AsyncSandbox) -> Caps:
        """Read what the kernel holds; skip where nothing can be read."""
        self._skip_without_caps()
        found = await self.caps(sandbox)
        if found == type(found)():
            pytest.skip(reason="no cap can be read inside; caps() of the suite may be overridden")
        return found

    def _skip_without_caps(self) -> None:
        if not self.resource_caps_supported:
            pytest.skip(reason="the caps of this backend belong to its templates")


def _known(value: Any) -> Any:
    if value is None:
        pytest.skip(reason="this cap cannot be read inside this sandbox")
    return value


async def _outcome(sandbox: AsyncSandbox, script: str) -> int | None:
    """Return the exit code; -1 where a cap is what ended it, `None` where the sandbox is gone."""
    try:
        done: ExecResult = await sandbox.run(script, timeout=60)
    except ResourceLimitExceeded:
        return -1
    except SandboxGone:
        return None
    return done.exit_code
