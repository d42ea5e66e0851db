"""`sandboxio demo`: five steps that show a sandbox at work, and that it is closed."""

from __future__ import annotations

import secrets
import time
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import anyio

import sandboxio
from sandboxio import Capability
from sandboxio.cli import _interrupt
from sandboxio.cli._arguments import target
from sandboxio.cli._egress import probe
from sandboxio.core import dsn, registry
from sandboxio.errors import ConnectError, SandboxError, SandboxGone
from sandboxio.protocols import ReapableBackend

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Generator

    from sandboxio import BackendConfig
    from sandboxio.cli._arguments import Parser
    from sandboxio.cli._egress import Probe
    from sandboxio.cli._render import Console
    from sandboxio.protocols import AsyncSandbox

DEFAULT_TARGET = "docker://python:3.12-slim"
CALL_SECONDS = 30.0
"""Seconds each call of a step may take; far more than any needs."""

StepName = Literal["create", "run_code", "stream", "egress", "teardown"]

_CODE = """\
import sys
print(sum(range(101)), "from Python", sys.version.split()[0])
"""
_STREAMED = "for i in 1 2 3; do echo line$i; sleep 0.2; done"
_STREAMED_WORDS = [b"line1", b"line2", b"line3"]
_EPILOG = f"""\
examples:
  sandboxio demo                                       {DEFAULT_TARGET}
  sandboxio demo --backend docker://python:3.13-slim   another image
  sandboxio demo --json

The sandbox has the default policy, which reaches nothing; no option changes that.
Exit code 1 when a step failed, and so also when the sandbox reached the network.
"""


@dataclass(frozen=True)
class Step:
    """One step and how it went."""

    name: StepName
    status: Literal["ok", "failed", "skipped"]
    seconds: float
    detail: str


@dataclass(frozen=True)
class DemoReport:
    """The result of the command."""

    backend: str
    run: str
    """Metadata of the sandbox, by which `reap --label run=…` would find it."""
    sandbox_id: str
    isolation: str
    steps: tuple[Step, ...]
    probe: Probe

    @property
    def ok(self) -> bool:
        return all(step.status != "failed" for step in self.steps)

    def as_dict(self) -> dict[str, Any]:
        return {"ok": self.ok, **asdict(self)}


def add(new: Callable[..., Parser], common: Parser) -> None:
    """Add the command to the command line, with the options that are common to all."""
    about = "create a sandbox, run code, stream output, prove that egress is denied, tear down"
    parser = new("demo", parents=[common], help=about, description=about, epilog=_EPILOG)
    parser.add_argument(
        "--backend",
        type=target,
        default=DEFAULT_TARGET,
        metavar="DSN",
        help="where the sandbox is made (default: %(default)s)",
    )
    parser.set_defaults(execute=execute)


def execute(arguments: argparse.Namespace, console: Console) -> bool:
    """Run the command; whether no step failed."""
    demo = Demo(arguments.backend, console)
    report = _interrupt.run(demo.run)
    console.line("The demo passed." if report.ok else "The demo FAILED.")
    console.result(report.as_dict())
    return report.ok


@dataclass
class _Outcome:
    """How the running step goes; the step's own code changes it."""

    detail: str = ""
    status: Literal["ok", "failed", "skipped"] = "ok"

    def fail(self, detail: str) -> None:
        self.status, self.detail = "failed", detail

    def skip(self, detail: str) -> None:
        self.status, self.detail = "skipped", detail


class Demo:
    """One run of the five steps, shown as they end."""

    def __init__(self, backend: str, console: Console) -> None:
        self._target = backend
        self._name = dsn.parse(backend).backend
        self._console = console
        self._run = secrets.token_hex(4)
        self._steps: list[Step] = []
        self._pulling = False

    async def run(self) -> DemoReport:
        """Take all five steps; an error ends them, and the sandbox with them."""
        self._console.line(f"A sandbox on {self._name}, under the default policy:")
        async with await self._create() as sandbox:
            await self._run_code(sandbox)
            await self._stream(sandbox)
            found = await self._egress(sandbox)
            await self._teardown(sandbox)
        tier = sandbox.isolation.value
        return DemoReport(self._name, self._run, sandbox.id, tier, tuple(self._steps), found)

    async def _create(self) -> AsyncSandbox:
        with self._step("create") as step:
            metadata = {"made-by": "sandboxio-demo", "run": self._run}
            sandbox = await sandboxio.create(self._configured(), metadata=metadata)
            step.detail = f"{sandbox.id}, isolation {sandbox.isolation.value}"
        return sandbox

    async def _run_code(self, sandbox: AsyncSandbox) -> None:
        with self._step("run_code") as step:
            result = await sandbox.run_code(_CODE, timeout=CALL_SECONDS)
            step.detail = f"said: {result.stdout.strip()[:80]}"
            if not result.ok or not result.stdout.startswith("5050 "):
                step.fail(f"exit code {result.exit_code}, {step.detail}")

    async def _stream(self, sandbox: AsyncSandbox) -> None:
        with self._step("stream") as step:
            if Capability.STREAMING not in sandbox.capabilities:
                step.skip("this sandbox does not declare STREAMING")
                return
            arrivals: list[float] = []
            said = b""
            async with sandbox.stream(["sh", "-c", _STREAMED], timeout=CALL_SECONDS) as process:
                async for chunk in process:
                    arrivals.append(time.perf_counter())
                    said += chunk.data
            if said.split() != _STREAMED_WORDS:
                step.fail(f"said: {said[:80]!r}")
                return
            step.detail = f"3 lines, the first {arrivals[-1] - arrivals[0]:.2f} s before the last"

    async def _egress(self, sandbox: AsyncSandbox) -> Probe:
        with self._step("egress") as step:
            found = await probe(sandbox)
            step.detail = f"{len(found.attempts)} attempts to get out, none did"
            if found.reached:
                step.fail(
                    f"the sandbox REACHED {', '.join(found.reached)}; "
                    "please report this as a security problem"
                )
            elif not found.closed:
                step.fail(f"nothing is proven: {found.complaint}")
        return found

    async def _teardown(self, sandbox: AsyncSandbox) -> None:
        with self._step("teardown") as step:
            await sandbox.kill()
            step.detail = "the sandbox is gone"
            if trace := await self._trace_of(sandbox):
                step.fail(trace)

    async def _trace_of(self, sandbox: AsyncSandbox) -> str:
        """Look for a sandbox that should be gone: by its handle, by its id, in the listing."""
        with suppress(SandboxGone):
            await sandbox.run(["true"], timeout=CALL_SECONDS)
            return "the sandbox still runs commands"
        with suppress(ConnectError):
            await sandboxio.connect(sandbox.id, self._target)
            return "the sandbox can still be connected to"
        backend = registry.resolve(self._name)
        if isinstance(backend, ReapableBackend):
            with anyio.move_on_after(CALL_SECONDS):
                listed = await backend.list_managed()
                still = any(entry.sandbox_id == sandbox.id for entry in listed)
                return "the backend still lists the sandbox" if still else ""
            return "the backend did not list its sandboxes in time"
        return ""

    @contextmanager
    def _step(self, name: StepName) -> Generator[_Outcome]:
        """Time a step and show it once it has ended; an interrupted one is not shown."""
        outcome, started = _Outcome(), time.perf_counter()
        try:
            yield outcome
        except SandboxError as exc:
            outcome.fail(exc.message)
            self._ended(name, outcome, started)
            raise
        self._ended(name, outcome, started)

    def _ended(self, name: StepName, outcome: _Outcome, started: float) -> None:
        seconds = round(time.perf_counter() - started, 3)
        self._steps.append(Step(name, outcome.status, seconds, outcome.detail))
        row = (outcome.status, name, f"{seconds:.2f} s", outcome.detail)
        self._console.rows([row], widths=(7, 8, 7))

    def _configured(self) -> str | BackendConfig:
        """Return the target, with word of a pull where its backend can give it."""
        kind = getattr(registry.resolve(self._name), "config_type", None)
        if kind is None or kind.backend != self._name or not hasattr(kind, "on_pull"):
            return self._target
        config: BackendConfig = kind.from_dsn(dsn.parse(self._target))
        return replace(config, on_pull=self._on_pull)  # type: ignore[call-arg]

    def _on_pull(self, _: str) -> None:
        if not self._pulling:
            self._pulling = True
            self._console.line("pulling the image, which only a first run does …")
