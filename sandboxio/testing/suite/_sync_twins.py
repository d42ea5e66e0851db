"""Every async member of the ports has a blocking twin."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import sandboxio
from sandboxio.core import file_protocols, protocols, sync, sync_files
from sandboxio.core.models import Capability
from sandboxio.testing.suite._case import case
from sandboxio.testing.suite.fixtures import SuiteFixtures

if TYPE_CHECKING:
    from sandboxio.core.protocols import AsyncSandbox, Backend

AREA = "sync_parity"
TWINS: tuple[tuple[type, type], ...] = (
    (protocols.AsyncSandbox, sync.SyncSandbox),
    (file_protocols.AsyncFileSystem, sync_files.SyncFileSystem),
    (file_protocols.FileReader, sync_files.SyncFileReader),
    (protocols.Process, sync.SyncProcess),
)


class TwinCases(SuiteFixtures):
    """Cases that compare signatures."""

    @case("SYNC-001", area=AREA)
    def test_every_member_has_a_twin(self) -> None:
        """Every public member of the ports is there for blocking code, with the same parameters
        and defaults, and there it need not be awaited; what is an async iterable here is an
        iterable there.
        """
        for port, twin in TWINS:
            for name, member in _public(port).items():
                found = inspect.getattr_static(twin, name)
                assert isinstance(found, property) is isinstance(member, property), name
                if callable(member):
                    assert _parameters(found) == [_blocking(one) for one in _parameters(member)]
                    assert not inspect.iscoroutinefunction(found), name
        assert _parameters(sandboxio.create_sync) == _parameters(sandboxio.create)

    @case("SYNC-002", area=AREA)
    async def test_the_sandbox_is_the_port(self, backend: Backend, sandbox: AsyncSandbox) -> None:
        """The backend's own sandbox, files and processes take what the ports say, with the same
        names and defaults, so that every caller of the port can call them.
        """
        found: list[tuple[type, object]] = [(protocols.AsyncSandbox, sandbox)]
        if Capability.FILESYSTEM in sandbox.capabilities:
            found.append((file_protocols.AsyncFileSystem, sandbox.files))
        if Capability.STREAMING in sandbox.capabilities:
            found.append((protocols.Process, sandbox.stream(["true"])))
        for port, thing in found:
            for name, member in _public(port).items():
                if callable(member):
                    assert _shape(getattr(type(thing), name)) == _shape(member), name
        for name in ("create", "connect"):
            ours, port = getattr(type(backend), name), getattr(protocols.Backend, name)
            assert [each[:2] for each in _shape(ours)] == [each[:2] for each in _shape(port)], name

    @case("SYNC-003", area=AREA)
    async def test_the_sandbox_is_an_instance_of_the_port(
        self, backend: Backend, sandbox: AsyncSandbox
    ) -> None:
        """Backend, sandbox, files and processes pass `isinstance()` with the ports."""
        assert isinstance(backend, protocols.Backend)
        assert isinstance(sandbox, protocols.AsyncSandbox)
        if Capability.FILESYSTEM in sandbox.capabilities:
            assert isinstance(sandbox.files, file_protocols.AsyncFileSystem)
        if Capability.STREAMING in sandbox.capabilities:
            assert isinstance(sandbox.stream(["true"]), protocols.Process)


def _public(port: type) -> dict[str, object]:
    return {name: value for name, value in vars(port).items() if not name.startswith("_")}


def _parameters(function: Any) -> list[inspect.Parameter]:
    return list(inspect.signature(function).parameters.values())


def _blocking(parameter: inspect.Parameter) -> inspect.Parameter:
    annotation = str(parameter.annotation).replace("AsyncIterable", "Iterable")
    known = parameter.annotation is not inspect.Parameter.empty
    return parameter.replace(annotation=annotation) if known else parameter


def _shape(function: Any) -> list[tuple[str, Any, Any]]:
    """Name, kind and default of each parameter; annotations may be written otherwise."""
    return [(each.name, each.kind, each.default) for each in _parameters(function)]
