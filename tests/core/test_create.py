"""`create()`, `connect()` and the end of a sandbox's life."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import anyio
import pytest

import sandboxio
from sandboxio import (
    Capability,
    CapabilityNotSupported,
    ConfigurationError,
    ConnectError,
    CreateTimeout,
    CreationError,
    IsolationTier,
    NetworkPolicy,
    OrphanedSandboxWarning,
    Resources,
    UnverifiedIsolationWarning,
)
from sandboxio.core import file_protocols, lifecycle, protocols
from tests.conftest import SECRET

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sandboxio.core.backend import DriverBackend
    from sandboxio.core.record import OperationRecord
    from sandboxio.core.sandbox import Sandbox
    from tests.doubles import DoubleDriver

pytestmark = pytest.mark.anyio


async def test_leaving_the_block_removes_the_sandbox(target: str, driver: DoubleDriver) -> None:
    """`async with await create()` is a whole life."""
    async with await sandboxio.create(target) as sandbox:
        assert (sandbox.id, sandbox.isolation) == ("made-1", IsolationTier.CONTAINER)
        assert "remove" not in driver.log
    assert driver.log == ["refuse", "provision", "remove"]


async def test_an_exception_removes_it_and_goes_on(target: str, driver: DoubleDriver) -> None:
    """The caller's own exception leaves the block unchanged."""
    with pytest.raises(ZeroDivisionError):
        async with await sandboxio.create(target):
            raise ZeroDivisionError
    assert "remove" in driver.steps.done


async def test_cancellation_removes_it(target: str, driver: DoubleDriver) -> None:
    """A cancelled block still removes its sandbox."""
    with anyio.CancelScope() as scope:
        async with await sandboxio.create(target):
            scope.cancel()
            await anyio.sleep_forever()
    assert scope.cancelled_caught
    assert "remove" in driver.steps.done


async def test_a_forked_child_that_leaves_the_block(
    sandbox: Sandbox, driver: DoubleDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PY-4: the sandbox is its parent's, and stays."""
    monkeypatch.setattr("os.getpid", lambda: -1)
    async with sandbox:
        pass
    assert "remove" not in driver.log


async def test_killing_again_is_silent(sandbox: Sandbox, driver: DoubleDriver) -> None:
    """Any number of kills removes once."""
    async with sandbox:
        await sandbox.kill()
        await sandbox.kill()
    assert driver.log.count("remove") == 1


async def test_a_removal_that_hangs_is_warned_of(
    sandbox: Sandbox, driver: DoubleDriver, short_grace: None
) -> None:
    """After the grace the caller goes on with a warning that says how to clean up."""
    driver.steps.hang.add("remove")
    with pytest.warns(OrphanedSandboxWarning, match="made-1.*sandboxio reap --kill"):
        await sandbox.kill()


async def test_a_removal_that_fails_is_raised_and_warned_of(
    sandbox: Sandbox, driver: DoubleDriver
) -> None:
    """Without an exception of its own the block raises the driver's."""
    driver.steps.fail["remove"] = ConnectError("no engine")
    with pytest.warns(OrphanedSandboxWarning), pytest.raises(ConnectError):
        async with sandbox:
            pass


async def test_a_removal_that_fails_does_not_mask_the_caller_s_exception(
    sandbox: Sandbox, driver: DoubleDriver
) -> None:
    """The exception that left the block is the one that arrives."""
    driver.steps.fail["remove"] = ConnectError("no engine")
    with pytest.warns(OrphanedSandboxWarning), pytest.raises(ZeroDivisionError):
        async with sandbox:
            raise ZeroDivisionError


async def test_a_creation_out_of_time_is_undone(
    backend: DriverBackend, driver: DoubleDriver
) -> None:
    """The deadline is a `CreateTimeout`, and what was half made is gone."""
    driver.steps.hang.add("provision")
    with pytest.raises(CreateTimeout, match=r"within 0\.02 s") as caught:
        await backend.create(timeout=0.02)
    assert "undo" in driver.steps.done
    assert (caught.value.outcome, caught.value.retryable) == ("not_started", True)


async def test_a_cancelled_creation_is_undone(backend: DriverBackend, driver: DoubleDriver) -> None:
    """Cancellation stays cancellation, and the undo is not cancelled."""
    driver.steps.hang.add("provision")
    with anyio.CancelScope() as scope:
        driver.steps.call["provision"] = scope.cancel
        await backend.create()
    assert scope.cancelled_caught
    assert "undo" in driver.steps.done


async def test_a_failed_creation_is_undone(backend: DriverBackend, driver: DoubleDriver) -> None:
    """The driver's error arrives as it is."""
    driver.steps.fail["provision"] = error = CreationError("no such image")
    with pytest.raises(CreationError) as caught:
        await backend.create()
    assert caught.value is error
    assert "undo" in driver.steps.done


@pytest.mark.parametrize("trouble", ["hang", "fail"])
async def test_an_undo_that_does_not_finish_is_warned_of(
    backend: DriverBackend, driver: DoubleDriver, short_grace: None, trouble: str
) -> None:
    """The metadata in the warning lets an operator find what was left."""
    driver.steps.fail["provision"] = CreationError("no")
    if trouble == "hang":
        driver.steps.hang.add("undo")
    else:
        driver.steps.fail["undo"] = ConnectError("no engine")
    with pytest.warns(OrphanedSandboxWarning, match="tenant=t1"), pytest.raises(CreationError):
        await backend.create(metadata={"tenant": "t1"})


async def test_errors_of_creation_show_no_secret(
    backend: DriverBackend, driver: DoubleDriver
) -> None:
    """What an engine repeats of a secret is masked in message, hint and arguments."""
    driver.steps.fail["provision"] = CreationError(f"bad {SECRET}", hint=f"try {SECRET}")
    with pytest.raises(CreationError, match=r"bad \*\*\*") as caught:
        await backend.create(secrets={"TOKEN": SECRET})
    assert SECRET not in f"{caught.value} {caught.value!r} {caught.value.args}"


async def test_what_a_driver_refuses_is_not_provisioned(
    backend: DriverBackend, driver: DoubleDriver
) -> None:
    """`refuse()` is asked first."""
    driver.refusal = CapabilityNotSupported("no allowlist")
    with pytest.raises(CapabilityNotSupported):
        await backend.create(network=NetworkPolicy(allow=("example.org",)))
    assert driver.log == ["refuse"]


async def test_a_backend_without_network_policy_makes_nothing(
    driver: DoubleDriver, backend: DriverBackend
) -> None:
    """Where not even deny can be enforced, every creation is refused."""
    backend.capabilities = ~Capability.NETWORK_POLICY
    with pytest.raises(CapabilityNotSupported, match="not even deny"):
        await backend.create()
    assert driver.created == []


async def test_no_policy_needs_nobody_to_enforce_it(
    driver: DoubleDriver, backend: DriverBackend
) -> None:
    """A backend without network policy serves who asks, in words, for an open network."""
    backend.capabilities = ~Capability.NETWORK_POLICY
    await backend.create(network=NetworkPolicy(egress="allow"))
    assert len(driver.created) == 1


@pytest.mark.parametrize(
    ("capability", "options"),
    [
        (Capability.EGRESS_ALLOWLIST, {"network": NetworkPolicy(allow=("example.org",))}),
        (Capability.TUNNELS, {"network": NetworkPolicy(ingress_ports=(8080,))}),
        (Capability.GPU, {"resources": Resources(gpu="T4")}),
    ],
)
async def test_what_no_sandbox_can_have_is_refused(
    driver: DoubleDriver, backend: DriverBackend, capability: Capability, options: dict[str, Any]
) -> None:
    """An option that needs an undeclared capability is refused, whatever the driver thinks."""
    backend.capabilities = ~capability
    with pytest.raises(CapabilityNotSupported, match="does not support"):
        await backend.create(**options)
    assert driver.created == []


async def test_learning_is_refused(driver: DoubleDriver, backend: DriverBackend) -> None:
    """Nobody can learn an allowlist yet, and nobody pretends to."""
    with pytest.raises(CapabilityNotSupported, match="learn"):
        await backend.create(network=NetworkPolicy(egress="learn"))
    assert driver.created == []


async def test_a_claim_too_weak_makes_nothing(
    target: str, driver: DoubleDriver, backend: DriverBackend
) -> None:
    """`require_isolation` is compared with the claim before the driver is touched."""
    with pytest.raises(ConfigurationError, match="CONTAINER isolation; MICROVM is required"):
        await sandboxio.create(target, require_isolation=IsolationTier.MICROVM)
    backend.isolation = IsolationTier.UNKNOWN
    with pytest.raises(ConfigurationError, match="UNKNOWN isolation"):
        await sandboxio.create(target, require_isolation=IsolationTier.NONE)
    assert driver.log == []


@pytest.mark.parametrize("verified", [IsolationTier.PROCESS, IsolationTier.UNKNOWN])
async def test_a_verification_too_weak_removes_it(
    target: str, driver: DoubleDriver, verified: IsolationTier
) -> None:
    """What turned out weaker than required is gone before any code could run."""
    driver.verified = verified
    with pytest.raises(ConfigurationError, match=f"verified as {verified.name}"):
        await sandboxio.create(target, require_isolation=IsolationTier.CONTAINER)
    assert driver.log == ["refuse", "provision", "remove"]


async def test_a_failed_removal_does_not_hide_the_refusal(
    target: str, driver: DoubleDriver
) -> None:
    """The caller learns that the isolation was too weak, and that something may be left."""
    driver.verified = IsolationTier.PROCESS
    driver.steps.fail["remove"] = ConnectError("no engine")
    with pytest.warns(OrphanedSandboxWarning), pytest.raises(ConfigurationError):
        await sandboxio.create(target, require_isolation=IsolationTier.CONTAINER)


async def test_a_requirement_that_is_met(target: str, driver: DoubleDriver) -> None:
    """Claim and verification both satisfy it; nothing is said."""
    driver.verified = IsolationTier.GVISOR
    made = await sandboxio.create(target, require_isolation=IsolationTier.CONTAINER)
    assert made.isolation is IsolationTier.GVISOR


async def test_unverified_isolation_is_warned_of_once(target: str, driver: DoubleDriver) -> None:
    """One warning per backend and process, where no tier was required."""
    driver.verified = IsolationTier.UNKNOWN
    with pytest.warns(UnverifiedIsolationWarning, match="'double'"):
        await sandboxio.create(target)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        await sandboxio.create(target)


async def test_connecting_gives_a_handle_without_secrets(target: str, driver: DoubleDriver) -> None:
    """A handle on a running sandbox knows nothing of its creator's environment."""
    made = await sandboxio.connect("made-1", target)
    await made.run(["x"])
    assert {**driver.calls[0].request.env} == {}
    assert driver.log[0] == "connect"


async def test_connecting_needs_an_id(target: str, driver: DoubleDriver) -> None:
    """An empty id is refused before the driver is asked."""
    with pytest.raises(ConfigurationError, match="sandbox_id"):
        await sandboxio.connect("", target)
    assert driver.log == []


async def test_managed_sandboxes(backend: DriverBackend) -> None:
    """Listing narrows by metadata; removing says whether there was something."""
    found = await backend.list_managed(labels={"tenant": "t1"})
    assert [(item.sandbox_id, dict(item.labels)) for item in found] == [
        ("made-1", {"tenant": "t1"})
    ]
    assert await backend.kill_managed("made-1")
    assert not await backend.kill_managed("made-2")


@pytest.mark.parametrize("step", ["connect", "list_managed", "remove_managed"])
async def test_finding_and_removing_is_bounded(
    backend: DriverBackend, driver: DoubleDriver, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Connecting, listing or removing ends in a `ConnectError` when nobody answers."""
    monkeypatch.setattr("sandboxio.core.backend.CONNECT_TIMEOUT", 0.02)
    driver.steps.hang.add(step)
    calls: dict[str, Callable[[], Awaitable[object]]] = {
        "connect": lambda: backend.connect("made-1"),
        "list_managed": backend.list_managed,
        "remove_managed": lambda: backend.kill_managed("made-1"),
    }
    with pytest.raises(ConnectError, match="did not answer"):
        await calls[step]()


@pytest.mark.parametrize("labels", [{"a b": "x"}, {"a": 1}, "a=b"])
async def test_odd_labels_are_refused(
    backend: DriverBackend, driver: DoubleDriver, labels: Any
) -> None:
    """Labels to search for follow the rules of metadata."""
    with pytest.raises(ConfigurationError):
        await backend.list_managed(labels=labels)
    assert driver.log == []


async def test_a_secret_is_not_metadata(backend: DriverBackend, driver: DoubleDriver) -> None:
    """Metadata becomes labels that anybody can read, so no secret is let into it."""
    with pytest.raises(ConfigurationError, match="'note' holds a secret") as caught:
        await backend.create(secrets={"TOKEN": SECRET}, metadata={"note": f"x{SECRET}"})
    assert SECRET not in str(caught.value)
    assert "provision" not in driver.log


async def test_handles_are_the_public_ports(backend: DriverBackend, sandbox: Sandbox) -> None:
    """What is handed out satisfies the protocols users annotate with."""
    assert isinstance(backend, protocols.ReapableBackend)
    assert isinstance(sandbox, protocols.AsyncSandbox)
    assert isinstance(sandbox.files, file_protocols.AsyncFileSystem)
    assert isinstance(sandbox.stream(["x"]), protocols.Process)


async def test_the_backend_shows_its_claim(backend: DriverBackend) -> None:
    """A backend prints as its kind, name and tier."""
    assert repr(backend) == "<DriverBackend double container>"


@pytest.mark.parametrize("value", ["", "abc", "0", "-1", "nan", "inf", "3600"])
def test_an_odd_grace_is_refused(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    """The variable that sets the grace must hold seconds in a sensible range."""
    monkeypatch.setenv("SBX_TEARDOWN_GRACE", value)
    with pytest.raises(ConfigurationError, match="SBX_TEARDOWN_GRACE"):
        lifecycle.teardown_grace()


def test_the_grace_has_a_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five seconds, unless the variable says otherwise."""
    monkeypatch.delenv("SBX_TEARDOWN_GRACE", raising=False)
    assert lifecycle.teardown_grace() == 5.0
    monkeypatch.setenv("SBX_TEARDOWN_GRACE", "0.5")
    assert lifecycle.teardown_grace() == 0.5


async def test_an_odd_grace_leaks_nothing(
    target: str,
    driver: DoubleDriver,
    records: list[OperationRecord],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A bad value is refused before anything is made."""
    monkeypatch.setenv("SBX_TEARDOWN_GRACE", "abc")
    with pytest.raises(ConfigurationError):
        await sandboxio.create(target)
    assert driver.log == []
    assert records == []
