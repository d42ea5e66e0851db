"""Network policy: deny denies, and what cannot be enforced is refused before anything is made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from sandboxio.core.errors import (
    CapabilityNotSupported,
    ConfigurationError,
    ExecutionTimeout,
    SandboxError,
)
from sandboxio.core.models import Capability, NetworkPolicy
from sandboxio.testing.suite._case import case
from sandboxio.testing.suite.fixtures import SuiteFixtures

if TYPE_CHECKING:
    from sandboxio.core.protocols import AsyncSandbox, Backend
    from sandboxio.testing.suite.fixtures import Create
    from sandboxio.testing.suite.settings import Canary

POLICY = Capability.NETWORK_POLICY
COMMANDS = Capability.NETWORK_POLICY | Capability.RUN_COMMAND
CODE = Capability.NETWORK_POLICY | Capability.RUN_CODE
NO_PROGRAM = 99
OPEN = NetworkPolicy(egress="allow")
NOWHERE = "192.0.2.1"
"""An address that belongs to nobody."""
UNENFORCED: tuple[tuple[Capability, NetworkPolicy], ...] = (
    (Capability.EGRESS_ALLOWLIST, NetworkPolicy(allow=("example.org",))),
    (Capability.EGRESS_ALLOWLIST, NetworkPolicy(allow=("192.0.2.0/24", "example.org"))),
    (Capability.TUNNELS, NetworkPolicy(ingress_ports=(8080,))),
    (Capability.TUNNELS, NetworkPolicy(egress="allow", ingress_ports=(8080,))),
)
"""Policies, each with the capability without which it has to be refused."""
MALFORMED: tuple[dict[str, Any], ...] = (
    *({"egress": word} for word in ("some", "", "DENY", None, True)),
    *({"allow": hosts} for hosts in (["example.org"], "example.org", ("",), (1,), (None,), None)),
    *({"ingress_ports": ports} for ports in ([80], 80, (0,), (-1,), (65536,), (True,), ("80",))),
)


class PolicySuite(SuiteFixtures):
    """Cases of `network=`."""

    @case("NET-001", needs=COMMANDS)
    async def test_policy_deny_holds_for_commands(self, sandbox: AsyncSandbox) -> None:
        """Under deny no command reaches the host, at any of its addresses."""
        with self.canary() as canary:
            for host, port in _addresses(canary):
                assert not await self._reaches(sandbox, host, port)
            assert canary.visitors == []

    @case("NET-002", needs=CODE)
    async def test_policy_deny_holds_for_code(self, sandbox: AsyncSandbox) -> None:
        """Under deny no code reaches the host."""
        with self.canary() as canary:
            for host, port in _addresses(canary):
                done = await sandbox.run_code(_dial(host, port))
                assert done.exit_code != 0
                assert "connected" not in done.stdout
            assert canary.visitors == []

    @case("NET-003", needs=COMMANDS | Capability.STREAMING)
    async def test_policy_deny_holds_for_streams(self, sandbox: AsyncSandbox) -> None:
        """Under deny no streamed command reaches the host."""
        with self.canary() as canary:
            for host, port in _addresses(canary):
                async with sandbox.stream(self.connect(host, port)) as process:
                    assert (await process.wait()).exit_code != 0
            assert canary.visitors == []

    @case("NET-004", needs=COMMANDS)
    async def test_policy_allow_lets_out(self, sandbox: AsyncSandbox, create: Create) -> None:
        """The same attempt arrives where egress is allowed: a denied one was really denied."""
        opened = await _allowed(create, OPEN)
        with self.canary() as canary:
            reached = [await self._reaches(opened, *where) for where in _addresses(canary)]
            assert any(reached)
            assert canary.visitors

    @case("NET-005", needs=CODE | Capability.RUN_COMMAND)
    async def test_policy_allow_lets_code_out(self, sandbox: AsyncSandbox, create: Create) -> None:
        """The same for code."""
        opened = await _allowed(create, OPEN)
        with self.canary() as canary:
            done = [await opened.run_code(_dial(*where)) for where in _addresses(canary)]
            assert any(one.stdout == "connected\n" for one in done)
            assert canary.visitors

    @case("NET-006", needs=COMMANDS)
    async def test_policy_policies_are_each_sandboxes_own(
        self, sandbox: AsyncSandbox, create: Create
    ) -> None:
        """A sandbox that may go out changes nothing for one beside it that may not."""
        opened = await _allowed(create, OPEN)
        closed = await create(network=NetworkPolicy())
        with self.canary() as canary:
            where = [one for one in _addresses(canary) if await self._reaches(opened, *one)]
            seen = len(canary.visitors)
            for denied in (sandbox, closed):
                assert not [one for one in where if await self._reaches(denied, *one)]
            assert len(canary.visitors) == seen > 0

    @case("NET-007", needs=COMMANDS)
    async def test_policy_deny_is_the_default(
        self, sandbox: AsyncSandbox, backend: Backend, options: dict[str, Any]
    ) -> None:
        """A sandbox created without a word about the network reaches nothing."""
        del options["network"]
        async with await backend.create(**options) as plain:
            with self.canary() as canary:
                for host, port in _addresses(canary):
                    assert not await self._reaches(plain, host, port)
                assert canary.visitors == []

    @case("NET-008", needs=COMMANDS)
    async def test_policy_deny_lasts(self, sandbox: AsyncSandbox, marker: int) -> None:
        """Deny holds for the sandbox's whole life: again, after a failure and after a timeout."""
        with self.canary() as canary:
            where = _addresses(canary)
            assert not [one for one in where if await self._reaches(sandbox, *one)]
            await sandbox.run(["no-such-program"])
            assert not [one for one in where if await self._reaches(sandbox, *one)]
            with pytest.raises(ExecutionTimeout):
                await sandbox.run(self.hang(marker), timeout=2)
            assert not [one for one in where if await self._reaches(sandbox, *one)]
            assert canary.visitors == []

    @case("NET-009", needs=COMMANDS)
    async def test_policy_deny_binds_every_user(self, sandbox: AsyncSandbox) -> None:
        """Deny binds root and any other user of the sandbox as well."""
        with self.canary() as canary:
            for user in ("root", "1234:1234"):
                try:
                    await sandbox.run(["true"], user=user)
                except (CapabilityNotSupported, ConfigurationError):
                    continue
                for host, port in _addresses(canary):
                    assert not await self._reaches(sandbox, host, port, user=user)
            assert canary.visitors == []

    @case("NET-010", needs=COMMANDS)
    async def test_policy_deny_cannot_be_lifted_from_inside(self, sandbox: AsyncSandbox) -> None:
        """No setting that code can make inside, proxies included, opens the way out."""
        with self.canary() as canary:
            for host, port in _addresses(canary):
                proxy = f"http://{host}:{port}"
                env = dict.fromkeys(("http_proxy", "HTTP_PROXY", "https_proxy", "ALL_PROXY"), proxy)
                for user in ("root", None):
                    try:
                        assert not await self._reaches(sandbox, host, port, user=user, env=env)
                    except (CapabilityNotSupported, ConfigurationError):
                        assert user is not None
            assert canary.visitors == []

    @case("NET-011", needs=COMMANDS)
    async def test_policy_deny_holds_for_names(self, sandbox: AsyncSandbox) -> None:
        """Under deny no name leads out, neither the host's nor the world's."""
        for name in ("host.docker.internal", "gateway.docker.internal", "example.org"):
            assert not await self._reaches(sandbox, name, 80)

    @case("NET-012", needs=CODE)
    async def test_policy_deny_holds_for_requests(self, sandbox: AsyncSandbox) -> None:
        """Under deny a request over HTTP fails as an error that code can see."""
        code = "import urllib.request\nurllib.request.urlopen('http://example.org/')\nprint('got')"
        done = await sandbox.run_code(code, timeout=30)
        assert done.exit_code == 1
        assert done.stdout == ""
        assert "Error" in done.stderr

    @case("NET-013", needs=COMMANDS)
    async def test_policy_deny_hides_the_metadata_service(self, sandbox: AsyncSandbox) -> None:
        """Under deny the address at which clouds hand out credentials is out of reach."""
        assert not await self._reaches(sandbox, "169.254.169.254", 80)

    @case("NET-014", needs=COMMANDS)
    async def test_policy_a_denied_attempt_fails_soon(self, sandbox: AsyncSandbox) -> None:
        """A denied attempt fails within seconds, and the sandbox works as before."""
        started = self.clock.time()
        assert not await self._reaches(sandbox, NOWHERE, 80)
        assert self.clock.time() - started < 15
        assert await self.sh(sandbox, "echo works") == "works\n"

    @case("NET-015", needs=COMMANDS | Capability.EGRESS_ALLOWLIST)
    async def test_policy_an_allowlist(self, sandbox: AsyncSandbox, create: Create) -> None:
        """An allowlist opens the way to what it lists, and to nothing else."""
        with self.canary() as canary:
            where = _addresses(canary)
            elsewhere = await create(network=NetworkPolicy(allow=(NOWHERE, "example.org")))
            assert not [one for one in where if await self._reaches(elsewhere, *one)]
            assert canary.visitors == []
            listed = await create(network=NetworkPolicy(allow=tuple(host for host, _ in where)))
            assert [one for one in where if await self._reaches(listed, *one)]
            assert canary.visitors
            assert not await self._reaches(listed, NOWHERE, where[0][1])

    @case("NET-016")
    async def test_policy_what_cannot_be_enforced(
        self, sandbox: AsyncSandbox, create: Create
    ) -> None:
        """A policy that needs an undeclared capability is refused; never accepted and ignored."""
        refused = [policy for flag, policy in UNENFORCED if flag not in sandbox.capabilities]
        if not refused:
            pytest.skip(reason="this sandbox declares all that these policies need")
        for policy in refused:
            with pytest.raises(CapabilityNotSupported) as caught:
                await create(network=policy)
            assert caught.value.outcome == "not_started"

    @case("NET-017")
    async def test_policy_learn_is_refused(self, sandbox: AsyncSandbox, create: Create) -> None:
        """`egress="learn"` is refused; it is never taken for deny or for allow."""
        with pytest.raises(CapabilityNotSupported) as caught:
            await create(network=NetworkPolicy(egress="learn"))
        assert caught.value.outcome == "not_started"

    @case("NET-018")
    async def test_policy_an_allowlist_beside_allow(self, create: Create) -> None:
        """An allowlist beside `egress="allow"` would not apply, and is refused."""
        with pytest.raises((ConfigurationError, CapabilityNotSupported)) as caught:
            await create(network=NetworkPolicy(egress="allow", allow=("example.org",)))
        assert caught.value.outcome == "not_started"

    @case("NET-019")
    @pytest.mark.parametrize("fields", MALFORMED, ids=str)
    async def test_policy_malformed_policies(self, create: Create, fields: dict[str, Any]) -> None:
        """A policy with a value that means nothing is refused by name of the field."""
        with pytest.raises(ConfigurationError) as caught:
            await create(network=NetworkPolicy(**fields))
        assert next(iter(fields)) in caught.value.message
        assert caught.value.outcome == "not_started"

    @case("NET-020")
    async def test_policy_what_is_no_policy(self, create: Create) -> None:
        """`network` is a `NetworkPolicy`; nothing else is taken for one, `None` least of all."""
        for wrong in (None, "deny", "allow", {"egress": "deny"}, False):
            with pytest.raises(ConfigurationError) as caught:
                await create(network=wrong)
            assert "network" in caught.value.message

    @case("NET-021")
    async def test_policy_a_refusal_makes_nothing(
        self, sandbox: AsyncSandbox, create: Create, run_id: str
    ) -> None:
        """Where a policy is refused no sandbox was made, not even for a moment."""
        made = await self.count(run_id)
        refused = [policy for flag, policy in UNENFORCED if flag not in sandbox.capabilities]
        wrong = [NetworkPolicy(**fields) for fields in MALFORMED]
        for policy in (*refused, *wrong, NetworkPolicy(egress="learn")):
            with pytest.raises(SandboxError):
                await create(network=policy)
        assert await self.count(run_id) == made == 1

    @case("NET-022", lacks=POLICY)
    async def test_policy_without_policies(
        self, sandbox: AsyncSandbox, backend: Backend, options: dict[str, Any]
    ) -> None:
        """A backend that enforces no policy refuses the default; openness has to be asked for."""
        unsaid = {name: value for name, value in options.items() if name != "network"}
        said: dict[str, Any] = {**options, "network": NetworkPolicy()}
        for asked in (unsaid, said):
            with pytest.raises(CapabilityNotSupported) as caught:
                await backend.create(**asked)
            assert caught.value.outcome == "not_started"
            assert caught.value.hint

    async def _reaches(self, sandbox: AsyncSandbox, host: str, port: int, **options: Any) -> bool:
        """Try to connect; skip where the image has nothing to try with."""
        done = await sandbox.run(self.connect(host, port), **options)
        if done.exit_code == NO_PROGRAM:
            pytest.skip(reason="the image has no program that can try a connection")
        return done.ok


def _addresses(canary: Canary) -> list[tuple[str, int]]:
    found = canary.addresses
    if not found:
        pytest.skip(reason="this host has no address but loopback to listen at")
    return found


def _dial(host: str, port: int) -> str:
    return f"import socket\nsocket.create_connection(({host!r}, {port}), 3)\nprint('connected')"


async def _allowed(create: Create, policy: NetworkPolicy) -> AsyncSandbox:
    try:
        return await create(network=policy)
    except CapabilityNotSupported:
        pytest.skip(reason="this backend refuses open egress, so the probe cannot be proven here")
