"""`sandboxio reap`: list the sandboxes that engines still hold, and remove them when told to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import anyio

from sandboxio.cli import _interrupt
from sandboxio.cli._arguments import Labels, backend_name
from sandboxio.cli._render import as_error
from sandboxio.core import registry
from sandboxio.errors import (
    BackendNotInstalled,
    CapabilityNotSupported,
    ConnectError,
    SandboxError,
)
from sandboxio.protocols import ReapableBackend

if TYPE_CHECKING:
    import argparse
    from collections.abc import Awaitable, Callable, Mapping

    from sandboxio import ManagedSandbox
    from sandboxio.cli._arguments import Parser
    from sandboxio.cli._render import Console

DEFAULT_BACKENDS = ("docker",)
CALL_SECONDS = 30.0
"""Seconds a backend has to list its sandboxes, and to remove one."""

T = TypeVar("T")
Fate = Literal["kept", "removed", "already gone", "failed"]

_EPILOG = """\
examples:
  sandboxio reap                            list every managed sandbox; removes nothing
  sandboxio reap --label tenant_id=acme     only those with this metadata
  sandboxio reap --label run=42 --kill      remove what is listed
  sandboxio reap --backend docker --json

Sandboxes in use are listed too, and removed with --kill: look at the list first.
Exit code 1 when a backend could not be listed or a sandbox could not be removed.
"""


@dataclass(frozen=True)
class ReapedSandbox:
    """One sandbox of the list, and what became of it."""

    sandbox: ManagedSandbox
    fate: Fate
    error: Mapping[str, str] | None = None

    def as_dict(self) -> dict[str, Any]:
        created = self.sandbox.created_at
        return {
            "id": self.sandbox.sandbox_id,
            "state": self.sandbox.state,
            "created_at": None if created is None else created.isoformat(),
            "labels": dict(self.sandbox.labels),
            "fate": self.fate,
            "error": self.error,
        }


@dataclass(frozen=True)
class ReapedBackend:
    """What one backend listed, or why it could not."""

    name: str
    status: Literal["listed", "not installed", "failed"]
    sandboxes: tuple[ReapedSandbox, ...] = ()
    error: Mapping[str, str] | None = None

    @property
    def ok(self) -> bool:
        return self.status != "failed" and all(s.fate != "failed" for s in self.sandboxes)

    def as_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "status": self.status,
            "sandboxes": [sandbox.as_dict() for sandbox in self.sandboxes],
            "error": self.error,
        }


@dataclass(frozen=True)
class ReapReport:
    """The result of the command."""

    kill: bool
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    backends: tuple[ReapedBackend, ...] = ()

    @property
    def ok(self) -> bool:
        return all(backend.ok for backend in self.backends)

    def as_dict(self) -> dict[str, Any]:
        backends = [backend.as_dict() for backend in self.backends]
        return {"ok": self.ok, "kill": self.kill, "labels": self.labels, "backends": backends}


def add(new: Callable[..., Parser], common: Parser) -> None:
    """Add the command to the command line, with the options that are common to all."""
    about = "list sandboxes that are still there, and remove them with --kill"
    parser = new("reap", parents=[common], help=about, description=about, epilog=_EPILOG)
    parser.add_argument(
        "--backend",
        dest="backends",
        action="append",
        type=backend_name,
        metavar="NAME",
        help=f"ask this backend; may be repeated (default: {', '.join(DEFAULT_BACKENDS)})",
    )
    parser.add_argument(
        "--label",
        dest="labels",
        action=Labels,
        default={},
        metavar="KEY=VALUE",
        help="only sandboxes with this metadata; may be repeated, all must match",
    )
    parser.add_argument("--kill", action="store_true", help="remove what is listed")
    parser.set_defaults(execute=execute)


def execute(arguments: argparse.Namespace, console: Console) -> bool:
    """Run the command; whether everything could be listed and, if asked, removed."""
    names = tuple(dict.fromkeys(arguments.backends or DEFAULT_BACKENDS))
    report = _interrupt.run(lambda: reap(names, arguments.labels, kill=arguments.kill))
    _show(report, console)
    console.result(report.as_dict())
    return report.ok


async def reap(names: tuple[str, ...], labels: Mapping[str, str], *, kill: bool) -> ReapReport:
    """List, and with `kill` remove, the managed sandboxes of each backend, one by one."""
    backends = [await _reap_backend(name, labels, kill=kill) for name in names]
    return ReapReport(kill, labels, tuple(backends))


async def _reap_backend(name: str, labels: Mapping[str, str], *, kill: bool) -> ReapedBackend:
    try:
        backend = _reapable(name)
        found = await _in_time(name, lambda: backend.list_managed(labels=labels))
    except SandboxError as exc:
        return ReapedBackend(name, _status(exc), error=as_error(exc))
    if not kill:
        return ReapedBackend(name, "listed", tuple(ReapedSandbox(s, "kept") for s in found))
    return ReapedBackend(name, "listed", tuple([await _remove(backend, s) for s in found]))


async def _remove(backend: ReapableBackend, sandbox: ManagedSandbox) -> ReapedSandbox:
    try:
        removed = await _in_time(sandbox.backend, lambda: backend.kill_managed(sandbox.sandbox_id))
    except SandboxError as exc:
        return ReapedSandbox(sandbox, "failed", as_error(exc))
    return ReapedSandbox(sandbox, "removed" if removed else "already gone")


async def _in_time(name: str, action: Callable[[], Awaitable[T]]) -> T:
    with anyio.move_on_after(CALL_SECONDS):
        return await action()
    raise ConnectError(f"The {name!r} backend did not answer within {CALL_SECONDS:g} s.")


def _reapable(name: str) -> ReapableBackend:
    backend = registry.resolve(name)
    if not isinstance(backend, ReapableBackend):
        raise CapabilityNotSupported(
            f"The {name!r} backend cannot list its sandboxes.",
            hint="Use the provider's own tools.",
        )
    return backend


def _status(exc: SandboxError) -> Literal["not installed", "failed"]:
    """Tell an extra that is missing, which is no failure, from one that does not load."""
    missing = isinstance(exc, BackendNotInstalled)
    return "not installed" if missing and _absent(exc) else "failed"


def _absent(exc: SandboxError) -> bool:
    return exc.__cause__ is None or isinstance(exc.__cause__, ModuleNotFoundError)


def _show(report: ReapReport, console: Console) -> None:
    for backend in report.backends:
        console.line(_headline(backend, report))
        console.rows([_row(sandbox) for sandbox in backend.sandboxes])
        for sandbox in backend.sandboxes:
            if sandbox.error is not None:
                console.line(f"{sandbox.sandbox.sandbox_id}: {_told(sandbox.error)}")


def _headline(backend: ReapedBackend, report: ReapReport) -> str:
    if backend.error is not None:
        return f"{backend.name}: {backend.status}. {_told(backend.error)}"
    count = len(backend.sandboxes)
    text = f"{backend.name}: {count} managed sandbox{'' if count == 1 else 'es'}"
    if report.labels:
        text += " with " + ", ".join(f"{key}={value}" for key, value in report.labels.items())
    return text + ("; nothing was removed, --kill does that" if count and not report.kill else "")


def _told(error: Mapping[str, str]) -> str:
    return f"[{error['code']}] {error['message']} Fix: {error['hint']}"


def _row(found: ReapedSandbox) -> tuple[str, ...]:
    sandbox = found.sandbox
    created = sandbox.created_at
    return (
        sandbox.state if found.fate == "kept" else found.fate,
        sandbox.sandbox_id,
        "" if created is None else f"{created:%Y-%m-%d %H:%M:%S}",
        ", ".join(f"{key}={value}" for key, value in sorted(sandbox.labels.items())),
    )
