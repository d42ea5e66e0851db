"""Faults of lives: of calls that are ended, of sandboxes that are made, found and removed."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import anyio

from sandboxio.core.driver import KillReport
from sandboxio.core.errors import (
    ConnectError,
    ExecutionTimeout,
    LinkLost,
    SandboxError,
    SandboxGone,
)
from sandboxio.core.models import ExecResult, OutputChunk
from sandboxio.core.requests import CreateRequest
from tests.contract.around import ChannelAround, DriverAround, HandleAround

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from sandboxio.core.driver import DriverSandbox
    from sandboxio.core.models import ManagedSandbox

UNENDED = KillReport(complete=True)


class ReturnsPartOfIt(HandleAround):
    """A command that ran out of time returns what it had written, as a result."""

    async def ran(self, act: Callable[[], Awaitable[ExecResult]]) -> ExecResult:
        try:
            return await act()
        except ExecutionTimeout as exc:
            if not exc.partial.stdout:
                raise
            return ExecResult(124, exc.partial.stdout, exc.partial.stderr)


class LeavesLateCommands(ChannelAround):
    """A command that ran out of time goes on."""

    async def kill(self) -> KillReport:
        return UNENDED if self.is_late and not self.is_stream else await self.inner.kill()


class LeavesCancelledCommands(ChannelAround):
    """A command whose call is cancelled goes on."""

    async def kill(self) -> KillReport:
        return await self.inner.kill() if self.is_late or self.is_stream else UNENDED


class LeavesStreamedCommands(ChannelAround):
    """A command whose stream is left goes on."""

    async def kill(self) -> KillReport:
        return await self.inner.kill() if self.is_late or not self.is_stream else UNENDED


class SwallowsCancellation(HandleAround):
    """A cancelled command returns a result."""

    async def ran(self, act: Callable[[], Awaitable[ExecResult]]) -> ExecResult:
        try:
            return await act()
        except anyio.get_cancelled_exc_class():
            return ExecResult(137, "", "")


class WrapsCancellation(HandleAround):
    """A cancelled command raises an error of the library."""

    async def ran(self, act: Callable[[], Awaitable[ExecResult]]) -> ExecResult:
        try:
            return await act()
        except anyio.get_cancelled_exc_class() as exc:
            raise LinkLost("The command was cancelled.") from exc


class IgnoresTheTimeout(HandleAround):
    """Code may run as long as the sandbox lives, whatever its timeout."""

    def seconds(self, timeout: float | None) -> float | None:
        return None if isinstance(timeout, float | int) and timeout >= 1 else timeout


class RaisesTheBuiltinTimeout(HandleAround):
    """Code that ran out of time raises Python's own `TimeoutError`."""

    async def ran_code(self, act: Callable[[], Awaitable[ExecResult]]) -> ExecResult:
        try:
            return await act()
        except ExecutionTimeout as exc:
            raise TimeoutError(str(exc)) from exc


class KillsOnce(HandleAround):
    """A second `kill()` raises."""

    async def kill(self) -> None:
        if self._gone:
            raise SandboxGone("This sandbox has been removed.", outcome="not_started")
        await super().kill()


class RunsInNothing(HandleAround):
    """A command in a sandbox that is gone has a result."""

    async def ran(self, act: Callable[[], Awaitable[ExecResult]]) -> ExecResult:
        gone = self._gone
        try:
            return await act()
        except SandboxGone:
            if not gone:
                raise
            return ExecResult(137, "", "")


class TakesRemovalForAnEnd(ChannelAround):
    """A command whose sandbox is removed passes for one that a signal ended."""

    async def receive(self) -> OutputChunk | None:
        try:
            return await self.inner.receive()
        except SandboxGone:
            await self.inner.kill()
            return None


class DiffersByThread(ChannelAround):
    """For blocking callers, who have a thread of their own, stderr is lost."""

    async def receive(self) -> OutputChunk | None:
        chunk = await self.inner.receive()
        main = threading.current_thread() is threading.main_thread()
        return chunk if main or chunk is None else replace(chunk, stream="stdout")


class ConnectsToAnything(DriverAround):
    """`connect()` with an id that nobody has makes a sandbox."""

    async def connect(self, sandbox_id: str) -> DriverSandbox:
        try:
            return await super().connect(sandbox_id)
        except ConnectError:
            if sandbox_id in self.inner.sandboxes:
                raise
            return await self.provision(CreateRequest())


class RaisesTheProvidersError(DriverAround):
    """What the provider raises while it creates comes out as it is."""

    async def provision(self, request: CreateRequest) -> DriverSandbox:
        try:
            return await super().provision(request)
        except SandboxError as exc:
            raise exc.__cause__ or exc from None


class LeavesFailedCreations(DriverAround):
    """A creation that fails leaves its sandbox behind."""

    async def provision(self, request: CreateRequest) -> DriverSandbox:
        try:
            return await super().provision(request)
        except SandboxError:
            self.leave(request)
            raise

    def leave(self, request: CreateRequest) -> None:
        left = self.inner.make(request)
        self.inner.sandboxes[left.id] = left


class LeavesCancelledCreations(LeavesFailedCreations):
    """A creation that is cancelled leaves its sandbox behind."""

    async def provision(self, request: CreateRequest) -> DriverSandbox:
        try:
            return await DriverAround.provision(self, request)
        except anyio.get_cancelled_exc_class():
            self.leave(request)
            raise


class StoresOneLabel(DriverAround):
    """Of the metadata only the first entry is stored."""

    async def provision(self, request: CreateRequest) -> DriverSandbox:
        first = dict([*request.metadata.items()][:1])
        return await super().provision(replace(request, metadata=first))


class ListsWithoutLabels(DriverAround):
    """What is listed has lost its metadata."""

    async def list_managed(self, labels: Mapping[str, str]) -> list[ManagedSandbox]:
        return [replace(one, labels={}) for one in await super().list_managed(labels)]


class ListsByKey(DriverAround):
    """`labels` compares keys, and no values."""

    async def list_managed(self, labels: Mapping[str, str]) -> list[ManagedSandbox]:
        return [one for one in await super().list_managed({}) if labels.keys() <= one.labels.keys()]


class RemovesByPrefix(DriverAround):
    """`kill_managed()` takes the beginning of an id for the id."""

    async def remove_managed(self, sandbox_id: str) -> bool:
        found = [one for one in self.inner.sandboxes if one.startswith(sandbox_id)]
        return await super().remove_managed(found[0] if found else sandbox_id)
