"""A relay in front of the engine that holds, delays, throttles and cuts what passes."""

from __future__ import annotations

import contextlib
import math
import os
import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import anyio
from anyio.from_thread import start_blocking_portal

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator
    from pathlib import Path

    from anyio.abc import SocketStream
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

ENGINE = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock").removeprefix("unix://")
_REQUEST = re.compile(rb"([A-Z]+ \S+) HTTP/1")
_PIECE = 16 * 1024
_BROKEN = (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError)


@dataclass(frozen=True)
class Fault:
    """What happens to requests whose method and path match a pattern."""

    pattern: str
    hold: float = 0.0
    """Seconds before the request is passed on."""
    delay: float = 0.0
    """Seconds before the answer is passed on."""
    cut_after: int | None = None
    """Bytes of the answer after which the connection is closed; 0 drops the answer."""
    per_second: int | None = None
    """Bytes of the answer that pass in a second; the engine itself is not held up."""
    skip: int = 0
    """How many requests are spared first."""
    times: int | None = None
    """How many it concerns then; `None` for all."""


class Relay:
    """Passes on every byte, except where one of `faults` says otherwise."""

    def __init__(self, path: Path, engine: str = ENGINE) -> None:
        self.url = f"unix://{path}"
        self.engine = engine
        self.faults: list[Fault] = []
        self.met: Counter[Fault] = Counter()
        """How often each fault has struck."""
        self._seen: Counter[Fault] = Counter()
        self._path = path

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncGenerator[None]:
        listener = await anyio.create_unix_listener(self._path)
        async with listener, anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, self._serve)
            yield
            tasks.cancel_scope.cancel()

    async def _serve(self, client: SocketStream) -> None:
        async with client:
            try:
                engine = await anyio.connect_unix(self.engine)
            except OSError:  # it is away, which is what the client gets to see
                return
            async with engine:
                await _Link(self, client, engine).run()

    def strike(self, request: str) -> Fault | None:
        for fault in self.faults:
            if not re.search(fault.pattern, request):
                continue
            self._seen[fault] += 1
            number = self._seen[fault] - fault.skip
            if number > 0 and (fault.times is None or number <= fault.times):
                self.met[fault] += 1
                return fault
        return None


class _Link:
    """One connection of a client, and the one to the engine that serves it."""

    def __init__(self, relay: Relay, client: SocketStream, engine: SocketStream) -> None:
        self._relay = relay
        self._client = client
        self._engine = engine
        self._fault: Fault | None = None
        self._passed = 0

    async def run(self) -> None:
        kept, arrived = anyio.create_memory_object_stream[bytes](math.inf)
        async with anyio.create_task_group() as tasks, arrived:
            tasks.start_soon(self._requests)
            tasks.start_soon(self._collect, kept)
            with contextlib.suppress(*_BROKEN):
                await self._answers(arrived)
            tasks.cancel_scope.cancel()

    async def _requests(self) -> None:
        with contextlib.suppress(*_BROKEN):
            async for data in self._client:
                if found := _REQUEST.match(data):
                    self._fault, self._passed = self._relay.strike(found[1].decode()), 0
                    await anyio.sleep(self._fault.hold if self._fault else 0)
                await self._engine.send(data)
            await self._engine.send_eof()

    async def _collect(self, kept: MemoryObjectSendStream[bytes]) -> None:
        """Take what the engine says at once, however slowly it is passed on."""
        with kept, contextlib.suppress(*_BROKEN):
            async for data in self._engine:
                await kept.send(data)

    async def _answers(self, arrived: MemoryObjectReceiveStream[bytes]) -> None:
        async for data in arrived:
            fault = self._fault
            if fault is None:
                await self._client.send(data)
            elif not await self._spoiled(fault, data):
                return

    async def _spoiled(self, fault: Fault, data: bytes) -> bool:
        """Pass on what the fault allows; False when the connection is to be closed."""
        if not self._passed:
            await anyio.sleep(fault.delay)
        left = math.inf if fault.cut_after is None else fault.cut_after - self._passed
        self._passed += len(data)
        allowed = data[: int(min(left, len(data)))]
        for at in range(0, len(allowed), _PIECE):
            piece = allowed[at : at + _PIECE]
            await anyio.sleep(len(piece) / fault.per_second if fault.per_second else 0)
            await self._client.send(piece)
        return len(data) < left


@contextlib.contextmanager
def relay_at(path: Path, engine: str = ENGINE) -> Generator[Relay]:
    """Serve a relay on a socket, from a thread of its own, for the length of the block."""
    relay = Relay(path, engine)
    with (
        start_blocking_portal("trio") as portal,
        portal.wrap_async_context_manager(relay.listening()),
    ):
        yield relay
