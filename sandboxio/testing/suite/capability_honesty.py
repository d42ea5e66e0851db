"""Capabilities: what is declared works, and what is not declared is refused by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from sandboxio.core.errors import CapabilityNotSupported, ExecutionTimeout
from sandboxio.core.models import Capability, NetworkPolicy, Resources
from sandboxio.testing.suite._case import case
from sandboxio.testing.suite.fixtures import SuiteFixtures

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from sandboxio.core.protocols import AsyncSandbox, Backend
    from sandboxio.testing.suite.fixtures import Create

COMMANDS = Capability.RUN_COMMAND
NO_PROGRAM = 99
UNBUILT = (
    Capability.PTY
    | Capability.PAUSE_RESUME
    | Capability.SNAPSHOT_FORK
    | Capability.LSP
    | Capability.GIT
    | Capability.TUNNELS
    | Capability.COST_REPORTING
    | Capability.BACKGROUND
    | Capability.EGRESS_RULES
    | Capability.HOST_TOOLS
    | Capability.MOUNTS
    | Capability.RICH_OUTPUT
    | Capability.GPU
)
"""Capabilities that the port has no way to use yet, so that nobody can have them."""
PREMISES = {
    Capability.UPLOAD_DOWNLOAD: Capability.FILESYSTEM,
    Capability.STREAMING: Capability.RUN_COMMAND,
    Capability.STDIN: Capability.RUN_COMMAND,
    Capability.STATEFUL_CODE: Capability.RUN_CODE,
    Capability.EGRESS_ALLOWLIST: Capability.NETWORK_POLICY,
    Capability.EGRESS_RULES: Capability.EGRESS_ALLOWLIST,
}
"""What a capability cannot be used without."""


class CapabilityHonestySuite(SuiteFixtures):
    """Cases of `capabilities`."""

    @case("FLAG-001")
    async def test_flags_they_are_declared(self, sandbox: AsyncSandbox, backend: Backend) -> None:
        """Backend and sandbox declare `Capability` flags; a sandbox none its backend has not."""
        assert isinstance(backend.capabilities, Capability)
        assert isinstance(sandbox.capabilities, Capability)
        assert sandbox.capabilities & backend.capabilities == sandbox.capabilities
        assert sandbox.capabilities

    @case("FLAG-002")
    async def test_flags_premises(self, sandbox: AsyncSandbox) -> None:
        """A capability comes with those without which it could not be used."""
        for flag, premise in PREMISES.items():
            if flag in sandbox.capabilities:
                assert premise in sandbox.capabilities, flag

    @case("FLAG-003")
    async def test_flags_nobody_has_what_nothing_uses(
        self, sandbox: AsyncSandbox, backend: Backend
    ) -> None:
        """A capability is not declared ahead of the feature that it is about."""
        assert not (sandbox.capabilities | backend.capabilities) & UNBUILT

    @case("FLAG-004", needs=COMMANDS)
    async def test_flags_they_last(self, sandbox: AsyncSandbox, marker: int) -> None:
        """What a sandbox can do does not change during its life."""
        before = sandbox.capabilities
        await sandbox.run(["true"])
        await sandbox.run(["no-such-program"])
        with pytest.raises(ExecutionTimeout):
            await sandbox.run(self.hang(marker), timeout=2)
        assert sandbox.capabilities == before

    @case("FLAG-005")
    async def test_flags_they_are_the_same_after_connecting(
        self, sandbox: AsyncSandbox, backend: Backend
    ) -> None:
        """Another handle on the sandbox declares the same."""
        assert (await backend.connect(sandbox.id)).capabilities == sandbox.capabilities

    @case("FLAG-006", needs=COMMANDS)
    async def test_flags_run_command(self, sandbox: AsyncSandbox) -> None:
        """`RUN_COMMAND`: `run()` runs a command."""
        done = await sandbox.run(["echo", "hello"])
        assert (done.exit_code, done.stdout) == (0, "hello\n")

    @case("FLAG-007", lacks=COMMANDS)
    async def test_flags_without_run_command(self, sandbox: AsyncSandbox) -> None:
        """Without `RUN_COMMAND`, `run()` refuses."""
        await _refused(Capability.RUN_COMMAND, lambda: sandbox.run(["true"]))

    @case("FLAG-008", needs=Capability.RUN_CODE)
    async def test_flags_run_code(self, sandbox: AsyncSandbox) -> None:
        """`RUN_CODE`: `run_code()` runs Python."""
        done = await sandbox.run_code("print(6 * 7)")
        assert (done.exit_code, done.stdout) == (0, "42\n")

    @case("FLAG-009", lacks=Capability.RUN_CODE)
    async def test_flags_without_run_code(self, sandbox: AsyncSandbox) -> None:
        """Without `RUN_CODE`, `run_code()` refuses and runs nothing."""
        await _refused(Capability.RUN_CODE, lambda: sandbox.run_code("open('ran', 'w').write('x')"))
        await self._nothing_ran(sandbox)

    @case("FLAG-010", needs=Capability.STATEFUL_CODE)
    async def test_flags_stateful_code(self, sandbox: AsyncSandbox) -> None:
        """`STATEFUL_CODE`: calls with one `context_id` share their names, others do not."""
        await sandbox.run_code("x = 41", context_id="one")
        assert (await sandbox.run_code("print(x + 1)", context_id="one")).stdout == "42\n"
        assert (await sandbox.run_code("print(x)", context_id="two")).exit_code != 0

    @case("FLAG-011", lacks=Capability.STATEFUL_CODE)
    async def test_flags_without_stateful_code(self, sandbox: AsyncSandbox) -> None:
        """Without `STATEFUL_CODE` a `context_id` is refused; no call pretends to keep state."""
        first = Capability.STATEFUL_CODE
        if Capability.RUN_CODE not in sandbox.capabilities:
            first |= Capability.RUN_CODE
        code = "open('ran', 'w').write('x')"
        await _refused(first, lambda: sandbox.run_code(code, context_id="one"))
        await self._nothing_ran(sandbox)

    @case("FLAG-012", needs=Capability.STREAMING)
    async def test_flags_streaming(self, sandbox: AsyncSandbox) -> None:
        """`STREAMING`: `stream()` hands over output."""
        async with sandbox.stream(["echo", "hello"]) as process:
            assert b"".join([chunk.data async for chunk in process]) == b"hello\n"

    @case("FLAG-013", lacks=Capability.STREAMING)
    async def test_flags_without_streaming(self, sandbox: AsyncSandbox) -> None:
        """Without `STREAMING`, `stream()` itself refuses, before anything is entered."""
        with pytest.raises(CapabilityNotSupported) as caught:
            sandbox.stream("echo x >ran")
        _assert_named(caught.value, Capability.STREAMING)
        await self._nothing_ran(sandbox)

    @case("FLAG-014", needs=Capability.STDIN)
    async def test_flags_stdin(self, sandbox: AsyncSandbox) -> None:
        """`STDIN`: a command reads what `run(stdin=...)` gives, and then end of file."""
        assert (await sandbox.run(["cat"], stdin="hello")).stdout == "hello"

    @case("FLAG-015", lacks=Capability.STDIN)
    async def test_flags_without_stdin(self, sandbox: AsyncSandbox) -> None:
        """Without `STDIN`, `run(stdin=...)` and `stream(stdin=True)` refuse and run nothing."""
        missing = Capability.STDIN | (Capability.RUN_COMMAND & ~sandbox.capabilities)
        await _refused(missing, lambda: sandbox.run("echo x >ran", stdin="x"))
        await _refused(missing, lambda: sandbox.run("echo x >ran", stdin=b""))
        missing |= Capability.STREAMING & ~sandbox.capabilities
        with pytest.raises(CapabilityNotSupported) as caught:
            sandbox.stream("echo x >ran", stdin=True)
        _assert_named(caught.value, missing)
        await self._nothing_ran(sandbox)

    @case("FLAG-016", needs=Capability.FILESYSTEM)
    async def test_flags_filesystem(self, sandbox: AsyncSandbox) -> None:
        """`FILESYSTEM`: what is written can be read."""
        await sandbox.files.write("f", "hello")
        assert await sandbox.files.read("f") == b"hello"

    @case("FLAG-017", lacks=Capability.FILESYSTEM)
    async def test_flags_without_filesystem(self, sandbox: AsyncSandbox) -> None:
        """Without `FILESYSTEM`, `files` refuses at once or at its first use."""
        await _refused(Capability.FILESYSTEM, lambda: sandbox.files.write("ran", "x"))
        await self._nothing_ran(sandbox)

    @case("FLAG-018", needs=Capability.UPLOAD_DOWNLOAD)
    async def test_flags_upload_download(self, sandbox: AsyncSandbox, tmp_path: Path) -> None:
        """`UPLOAD_DOWNLOAD`: a file goes in and comes out."""
        (tmp_path / "local").write_text("hello")
        await sandbox.files.upload(tmp_path / "local", "f")
        await sandbox.files.download("f", tmp_path / "back")
        assert (tmp_path / "back").read_text() == "hello"

    @case("FLAG-019", lacks=Capability.UPLOAD_DOWNLOAD)
    async def test_flags_without_upload_download(
        self, sandbox: AsyncSandbox, tmp_path: Path
    ) -> None:
        """Without `UPLOAD_DOWNLOAD` both refuse, and nothing comes to be on either side."""
        missing = Capability.UPLOAD_DOWNLOAD | (Capability.FILESYSTEM & ~sandbox.capabilities)
        (tmp_path / "local").write_text("x")
        await _refused(missing, lambda: sandbox.files.upload(tmp_path / "local", "ran"))
        await _refused(missing, lambda: sandbox.files.download("ran", tmp_path / "back"))
        assert not (tmp_path / "back").exists()
        await self._nothing_ran(sandbox)

    @case("FLAG-020", needs=Capability.NETWORK_POLICY | COMMANDS)
    async def test_flags_network_policy(self, sandbox: AsyncSandbox) -> None:
        """`NETWORK_POLICY`: a sandbox under deny exists, and reaches nothing."""
        with self.canary() as canary:
            for host, port in canary.addresses:
                done = await sandbox.run(self.connect(host, port))
                if done.exit_code == NO_PROGRAM:
                    pytest.skip(reason="the image has no program that can try a connection")
                assert done.exit_code != 0
            assert canary.visitors == []

    @case("FLAG-021", lacks=Capability.NETWORK_POLICY)
    async def test_flags_without_network_policy(
        self, sandbox: AsyncSandbox, create: Create
    ) -> None:
        """Without `NETWORK_POLICY` no sandbox is made that was to be denied anything."""
        await _refused(Capability.NETWORK_POLICY, lambda: create(network=NetworkPolicy()))

    @case("FLAG-022", needs=Capability.EGRESS_ALLOWLIST)
    async def test_flags_egress_allowlist(self, sandbox: AsyncSandbox, create: Create) -> None:
        """`EGRESS_ALLOWLIST`: a sandbox with an allowlist is made."""
        listed = await create(network=NetworkPolicy(allow=("192.0.2.1",)))
        assert Capability.EGRESS_ALLOWLIST in listed.capabilities

    @case("FLAG-023", lacks=Capability.EGRESS_ALLOWLIST)
    async def test_flags_without_egress_allowlist(
        self, sandbox: AsyncSandbox, create: Create
    ) -> None:
        """Without `EGRESS_ALLOWLIST` no sandbox is made that was to have one."""
        missing = Capability.EGRESS_ALLOWLIST | (Capability.NETWORK_POLICY & ~sandbox.capabilities)
        policy = NetworkPolicy(allow=("example.org",))
        await _refused(missing, lambda: create(network=policy))

    @case("FLAG-024", lacks=Capability.TUNNELS)
    async def test_flags_without_tunnels(self, sandbox: AsyncSandbox, create: Create) -> None:
        """Without `TUNNELS` no sandbox is made that was to have ports open."""
        enforced = Capability.NETWORK_POLICY in sandbox.capabilities
        egress: Any = "deny" if enforced else "allow"
        missing = Capability.TUNNELS | (Capability.NETWORK_POLICY & ~sandbox.capabilities)
        policy = NetworkPolicy(egress=egress, ingress_ports=(8080,))
        await _refused(missing, lambda: create(network=policy))

    @case("FLAG-025", lacks=Capability.GPU)
    async def test_flags_without_gpu(self, sandbox: AsyncSandbox, create: Create) -> None:
        """Without `GPU` no sandbox is made that was to have one."""
        if not self.resource_caps_supported:
            pytest.skip(reason="the caps of this backend belong to its templates")
        await _refused(Capability.GPU, lambda: create(resources=Resources(gpu="T4")))

    @case("FLAG-026")
    async def test_flags_refusals_do_not_wear_off(
        self, sandbox: AsyncSandbox, create: Create
    ) -> None:
        """A refusal is the same at the first call, after others that worked, and again.

        It harms nothing: what the sandbox can do it does afterwards.
        """
        refused = _refusals(sandbox, create)
        if not refused:
            pytest.skip(reason="this sandbox declares all that could be refused")
        for _ in range(2):
            for flags, act in refused.items():
                await _refused(flags, act)
            if COMMANDS in sandbox.capabilities:
                assert await self.sh(sandbox, "echo works") == "works\n"

    async def _nothing_ran(self, sandbox: AsyncSandbox) -> None:
        """Look for the file that a refused call would have made, by whatever can look."""
        if COMMANDS in sandbox.capabilities:
            assert not (await sandbox.run(["test", "-e", "ran"])).ok
        elif Capability.FILESYSTEM in sandbox.capabilities:
            assert not await sandbox.files.exists("ran")


def _refusals(
    sandbox: AsyncSandbox, create: Create
) -> dict[Capability, Callable[[], Awaitable[object]]]:
    """Return a use of each capability that the sandbox does not declare."""

    async def stream() -> None:
        sandbox.stream(["true"])

    uses: dict[Capability, Callable[[], Awaitable[object]]] = {
        Capability.RUN_COMMAND: lambda: sandbox.run(["true"]),
        Capability.RUN_CODE: lambda: sandbox.run_code("1"),
        Capability.STATEFUL_CODE: lambda: sandbox.run_code("1", context_id="one"),
        Capability.STREAMING: stream,
        Capability.STDIN: lambda: sandbox.run(["true"], stdin="x"),
        Capability.FILESYSTEM: lambda: sandbox.files.ls(),
        Capability.UPLOAD_DOWNLOAD: lambda: sandbox.files.upload(__file__, "x"),
        Capability.NETWORK_POLICY: lambda: create(network=NetworkPolicy()),
        Capability.EGRESS_ALLOWLIST: lambda: create(network=NetworkPolicy(allow=("example.org",))),
    }
    lacking = {flag: act for flag, act in uses.items() if flag not in sandbox.capabilities}
    return {
        flag | (PREMISES.get(flag, flag) & ~sandbox.capabilities): act
        for flag, act in lacking.items()
    }


async def _refused(missing: Capability, act: Callable[[], Awaitable[object]]) -> None:
    with pytest.raises(CapabilityNotSupported) as caught:
        await act()
    _assert_named(caught.value, missing)


def _assert_named(error: CapabilityNotSupported, missing: Capability) -> None:
    """The error names what is missing (one of it), says what to do, and that nothing was done."""
    assert any((flag.name or "") in str(error) for flag in missing), str(error)
    assert error.hint
    assert error.code == "SBX_E1101"
    assert error.outcome == "not_started"
