"""The fake backend: sandboxes in memory, for tests of what uses sandboxes."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from sandboxio.core import registry
from sandboxio.core.backend import DriverBackend
from sandboxio.core.errors import ConfigurationError
from sandboxio.core.models import Capability, NetworkPolicy
from sandboxio.core.redaction import Redactor
from sandboxio.core.requests import CreateRequest
from sandboxio.core.tiers import IsolationTier
from sandboxio.testing import _rules
from sandboxio.testing._driver import FakeDriver
from sandboxio.testing._faults import Faults
from sandboxio.testing.calls import Call, explain, matches
from sandboxio.testing.clock import FakeClock

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Generator, Sequence

    from sandboxio.core.errors import SandboxError
    from sandboxio.core.models import ExecResult, OutputChunk
    from sandboxio.core.record import OperationRecord
    from sandboxio.core.sandbox import Sandbox
    from sandboxio.testing._inside import Inside
    from sandboxio.testing._machine.network import EgressAttempt
    from sandboxio.testing._rules import Rule

EVERYTHING = (
    Capability.RUN_COMMAND
    | Capability.RUN_CODE
    | Capability.STREAMING
    | Capability.FILESYSTEM
    | Capability.UPLOAD_DOWNLOAD
    | Capability.STDIN
    | Capability.NETWORK_POLICY
    | Capability.EGRESS_ALLOWLIST
)
"""Every capability there is an implementation of."""
RUNS = ("run", "stream")


class FakeBackend(DriverBackend):
    """A backend that executes nothing and reaches nothing, and behaves like a real one.

    It is held to the same contract suite as the real backends. Unscripted commands go through
    a small virtual shell; unscripted code is recognised, not run. It reports the tier it is
    told to and isolates nothing: it is for tests.

    Example:
        fake = FakeBackend()
        fake.on_run("pytest", returns=ExecResult(1, "", "1 failed"))
        assert (await fake.sandbox.run(["pytest", "-q"])).exit_code == 1
        fake.assert_ran("pytest")
    """

    reaches_out = False

    def __init__(
        self,
        *,
        name: str = "fake",
        capabilities: Capability = EVERYTHING,
        isolation: IsolationTier = IsolationTier.CONTAINER,
        latency: float = 0.0,
        seed: int = 0,
        clock: FakeClock | None = None,
    ) -> None:
        """Make a fake; `latency` is the virtual seconds of every call, `seed` decides `flaky`."""
        self.clock = FakeClock() if clock is None else clock
        self.records: list[OperationRecord] = []
        """The record of every operation that has ended."""
        self._fake = FakeDriver(
            name,
            capabilities=capabilities,
            isolation=isolation,
            clock=self.clock,
            latency=latency,
            seed=seed,
        )
        self._sandbox: Sandbox | None = None
        super().__init__(self._fake, on_record=self.records.append, clock=self.clock)

    @property
    def sandbox(self) -> Sandbox:
        """A sandbox of the defaults, made at the first look; the same one from then on."""
        if self._sandbox is None:
            inside = self._fake.make(_default_request())
            self._fake.sandboxes[inside.id] = inside
            self._sandbox = self._handle(inside, {}, Redactor())
        return self._sandbox

    @property
    def calls(self) -> list[Call]:
        """Every call that reached the fake, oldest first."""
        return self._fake.calls

    @property
    def sandboxes(self) -> list[Inside]:
        """Every sandbox that has not been removed: its `fs`, its `kernel`, its `state`."""
        return [one for one in self._fake.sandboxes.values() if one.state != "removed"]

    @property
    def egress(self) -> list[EgressAttempt]:
        """Every connection that something in a sandbox tried to open, oldest first."""
        return self._fake.attempts

    def on_run(
        self,
        match: str | re.Pattern[str] | Callable[[str], bool] | None = None,
        *,
        returns: ExecResult | Sequence[ExecResult | SandboxError] | None = None,
        raises: SandboxError | type[SandboxError] | None = None,
        streams: Sequence[str | bytes | OutputChunk | tuple[float, str | bytes | OutputChunk]]
        | None = None,
        hangs: bool = False,
        takes: float = 0.0,
        times: int | None = None,
    ) -> Rule:
        """Script the commands, streamed ones included, whose text matches.

        `match` is a substring, a pattern or a predicate of the command line; `None` matches
        all. The rule made last wins; `times` uses it up. `returns` is a result, or a sequence
        of results and errors of which the last is repeated; `raises` an error of sandboxio.
        `streams` are pieces of output, each with the virtual second at which it is written.
        `takes` is how many virtual seconds the command needs; `hangs` is for ever.

        Example:
            fake.on_run("deploy", returns=[ConnectError("lost"), ExecResult(0, "ok", "")])
            fake.on_run("build", streams=[(0, "one\\n"), (60, "two\\n")])

        Raises:
            ConfigurationError: the arguments contradict each other.
        """
        rule = _rules.build(
            match,
            returns=returns,
            raises=raises,
            streams=streams,
            hangs=hangs,
            takes=takes,
            times=times,
        )
        self._fake.on_run.append(rule)
        return rule

    def on_run_code(
        self,
        match: str | re.Pattern[str] | Callable[[str], bool] | None = None,
        *,
        returns: ExecResult | Sequence[ExecResult | SandboxError] | None = None,
        raises: SandboxError | type[SandboxError] | None = None,
        hangs: bool = False,
        takes: float = 0.0,
        times: int | None = None,
    ) -> Rule:
        """Script the code that matches; arguments and errors as `on_run()`.

        Example:
            fake.on_run_code("import pandas", returns=ExecResult(0, "2.2.1\\n", ""))
        """
        rule = _rules.build(
            match,
            returns=returns,
            raises=raises,
            streams=None,
            hangs=hangs,
            takes=takes,
            times=times,
        )
        self._fake.on_run_code.append(rule)
        return rule

    def simulate(
        self,
        *,
        create_takes: float = 0.0,
        create_fails: Exception | None = None,
        kill_takes: float = 0.0,
        kill_hangs: bool = False,
        auth_missing: bool = False,
        rate_limited: bool = False,
        gone: bool = False,
        flaky: float = 0.0,
        network_violation: bool = False,
        memory_limit: bool = False,
    ) -> None:
        """Let the provider misbehave from now on; without arguments, let it behave again.

        `create_takes` and `kill_takes` are virtual seconds. `create_fails` is what the provider
        raises: an error of sandboxio as it is, any other as the cause of a `CreationError`.
        `auth_missing` is `AuthError`, `rate_limited` `RateLimitError`, both of creations.
        `gone` is `SandboxGone` for every call. `flaky` is the chance, between 0 and 1, of
        `ConnectError` at each creation and call. `network_violation` and `memory_limit` end
        commands and code with `NetworkPolicyViolation` and `ResourceLimitExceeded`.

        Example:
            fake.simulate(create_takes=3600)
            with pytest.raises(CreateTimeout):
                await sandboxio.create("fake://")
        """
        if not 0 <= flaky <= 1:
            raise ConfigurationError("flaky must be a chance between 0 and 1.")
        self._fake.faults = Faults(
            create_takes=create_takes,
            create_fails=create_fails,
            kill_takes=kill_takes,
            kill_hangs=kill_hangs,
            auth_missing=auth_missing,
            rate_limited=rate_limited,
            gone=gone,
            flaky=flaky,
            network_violation=network_violation,
            memory_limit=memory_limit,
        )

    def expire(self, sandbox_id: str) -> None:
        """Bring a sandbox to the end of its lifetime: its calls raise `SandboxGone`.

        Raises:
            ConfigurationError: the fake has made no sandbox of that id.
        """
        if sandbox_id not in self._fake.sandboxes:
            raise ConfigurationError(
                f"This fake has made no sandbox {sandbox_id!r}.",
                hint=f"It made: {', '.join(self._fake.sandboxes) or 'none'}.",
            )
        self._fake.sandboxes[sandbox_id].expire()

    @contextmanager
    def serving(self, *names: str) -> Generator[FakeBackend]:
        """Stand in for the backends of those names while the block lasts.

        Example:
            with fake.serving("docker"):
                await my_tool()  # it calls sandboxio.create("docker://…")
        """
        with registry.replaced(dict.fromkeys(names or (self.name,), self._itself)):
            yield self

    def assert_ran(
        self, match: str | re.Pattern[str] | Callable[[str], bool] | None = None
    ) -> Call:
        """Return the last command that matches; fail, with the nearest ones, if there is none."""
        return self._last(RUNS, match)

    def assert_ran_code(
        self, match: str | re.Pattern[str] | Callable[[str], bool] | None = None
    ) -> Call:
        """Return the last code that matches; fail, with the nearest ones, if there is none."""
        return self._last(("run_code",), match)

    def assert_not_ran(
        self, match: str | re.Pattern[str] | Callable[[str], bool] | None = None
    ) -> None:
        """Fail if a command or code matches."""
        ops = (*RUNS, "run_code")
        for call in self.calls:
            if call.op in ops and matches(match, call.text):
                raise AssertionError(f"Nothing of this kind was to run, but this did: {call}")

    def assert_no_egress(self, host: str | None = None) -> None:
        """Fail if anything tried to reach the network, or that host."""
        for attempt in self.egress:
            if host in (None, attempt.host):
                raise AssertionError(f"Nothing was to reach the network, but this tried: {attempt}")

    def assert_nothing_left(self) -> None:
        """Fail if a sandbox that somebody created has not been removed."""
        own = None if self._sandbox is None else self._sandbox.id
        left = [one for one in self.sandboxes if one.id != own]
        if left:
            shown = ", ".join(f"{one.id} ({one.state})" for one in left)
            raise AssertionError(f"Sandboxes were created and not removed: {shown}")

    def _last(
        self, ops: tuple[str, ...], match: str | re.Pattern[str] | Callable[[str], bool] | None
    ) -> Call:
        for call in reversed(self.calls):
            if call.op in ops and matches(match, call.text):
                return call
        raise AssertionError(f"No call matches {match!r}. {explain(self.calls, ops, match)}")

    def _itself(self) -> FakeBackend:
        return self


def _default_request() -> CreateRequest:
    return CreateRequest(network=NetworkPolicy())
