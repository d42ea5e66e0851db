"""The diagnosis: what each backend has, lacks and answers, with a fix for every failure.

Calls of `sandboxio.doctor` work whether the name stands for this module or for its function:
importing anything from here makes Python bind the module to that name.
"""

from __future__ import annotations

import os
import platform
import sys
from dataclasses import asdict, dataclass, field
from importlib import import_module, metadata
from types import ModuleType
from typing import Any, Literal

from sandboxio.core import registry
from sandboxio.core.tiers import IsolationTier

Status = Literal["ok", "note", "failed"]

DIAGNOSES = {"docker": "sandboxio.adapters._docker_doctor:diagnose"}
"""Where each built-in backend looks at itself; imported when it is asked."""


@dataclass(frozen=True)
class Variable:
    """An environment variable a backend reads; its value is kept nowhere."""

    name: str
    is_set: bool


@dataclass(frozen=True)
class Check:
    """One thing looked at. A `note` is worth knowing and breaks nothing."""

    name: str
    status: Status
    detail: str
    fix: str = ""
    """What to do about it; never empty where `status` is `"failed"`."""


@dataclass(frozen=True)
class BackendReport:
    """What was found out about one backend."""

    name: str
    origin: str
    """The distribution it comes from."""
    installed: bool
    install: str
    """The command that installs what is missing; empty where nothing is."""
    isolation: str
    """The tier its sandboxes would have; `"unknown"` where nobody can tell without one."""
    packages: dict[str, str] = field(default_factory=dict[str, str])
    """Versions of its SDK, by distribution."""
    variables: tuple[Variable, ...] = ()
    checks: tuple[Check, ...] = ()

    @property
    def healthy(self) -> bool:
        """Whether no check failed; a backend that is not installed has none."""
        return all(check.status != "failed" for check in self.checks)


@dataclass(frozen=True)
class DoctorReport:
    """The whole diagnosis; safe to paste, for no value of a credential is in it.

    Example:
        >>> DoctorReport(sandboxio="1.0", python="3.12.1", platform="Linux x86_64").healthy
        True
    """

    sandboxio: str
    python: str
    platform: str
    backends: tuple[BackendReport, ...] = ()

    @property
    def healthy(self) -> bool:
        """Whether every installed backend is healthy."""
        return all(backend.healthy for backend in self.backends)

    def as_dict(self) -> dict[str, Any]:
        """Return the report as plain data, ready for JSON."""
        backends = [{**asdict(backend), "healthy": backend.healthy} for backend in self.backends]
        return {**asdict(self), "healthy": self.healthy, "backends": backends}


def doctor() -> DoctorReport:
    """Look at every known backend and report; raises nothing for a backend in trouble.

    Asks local engines a few questions, bounded to 15 s each, and no provider anything that
    could cost money. It blocks: from async code use `anyio.to_thread.run_sync`.

    Example:
        report = sandboxio.doctor()
        print(report.healthy, [backend.name for backend in report.backends])
    """
    return DoctorReport(
        sandboxio=version("sandboxio"),
        python=platform.python_version(),
        platform=f"{platform.system()} {platform.machine()}",
        backends=tuple(_examine(name) for name in registry.names()),
    )


def version(distribution: str) -> str:
    """Return the installed version of a distribution, or `"unknown"`."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "unknown"


class _Findings:
    """Collects what is found out about one backend, and keeps it when the rest fails."""

    def __init__(self, name: str, origin: str) -> None:
        self._name, self._origin = name, origin
        self._install = ""
        self._tier = IsolationTier.UNKNOWN
        self._packages: dict[str, str] = {}
        self._variables: list[Variable] = []
        self._checks: list[Check] = []

    def missing(self, install: str) -> None:
        self._install = install

    def package(self, distribution: str) -> None:
        self._packages[distribution] = version(distribution)

    def variables(self, *names: str) -> None:
        self._variables += [Variable(name, bool(os.environ.get(name))) for name in names]

    def isolation(self, tier: IsolationTier) -> None:
        self._tier = tier

    def add(self, name: str, status: Status, detail: str, fix: str = "") -> None:
        self._checks.append(Check(name, status, detail, fix))

    def report(self) -> BackendReport:
        return BackendReport(
            name=self._name,
            origin=self._origin,
            installed=not self._install,
            install=self._install,
            isolation=self._tier.value,
            packages=self._packages,
            variables=tuple(self._variables),
            checks=tuple(self._checks),
        )


def _examine(name: str) -> BackendReport:
    if name in registry.BUILT_IN:
        return _examine_built_in(name)
    owners = _owners(name)
    found = _Findings(name, ", ".join(owners) or "registered in this process")
    for owner in owners:
        found.package(owner)
    if len(owners) > 1:
        found.add(
            "name",
            "failed",
            f"claimed by several distributions: {', '.join(owners)}",
            f"pip uninstall {owners[0]}  (or the other)",
        )
    else:
        found.add("loading", "note", "not looked at: nothing of it is imported here")
    return found.report()


def _examine_built_in(name: str) -> BackendReport:
    found = _Findings(name, "sandboxio")
    module, _, function = DIAGNOSES.get(name, "").partition(":")
    if not module:
        found.add("diagnosis", "note", "sandboxio has none for this backend")
        return found.report()
    try:
        getattr(import_module(module), function)(found)
    except Exception as exc:  # noqa: BLE001  # a diagnosis must not end at what it looks for
        found.add(
            "diagnosis",
            "failed",
            f"it ended early with {type(exc).__name__}",
            "Please report this, with these lines.",
        )
    return found.report()


def _owners(name: str) -> list[str]:
    """Return the distributions that install a backend of that name; imports none of them."""
    points = metadata.entry_points(group=registry.ENTRY_POINT_GROUP)
    return sorted(
        {
            point.dist.name if point.dist is not None else point.value
            for point in points
            if point.name == name
        }
    )


class _CallableModule(ModuleType):
    def __call__(self) -> DoctorReport:
        return doctor()


sys.modules[__name__].__class__ = _CallableModule
