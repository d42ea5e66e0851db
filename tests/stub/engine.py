"""The stub engine: enough of the engine's HTTP API to make sandboxes that only seem to run.

It executes nothing, and listens on a socket in a folder of the test or on loopback alone.
"""

from __future__ import annotations

import os
import re
import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from tests.stub.faults import Answer, Fault, Faults, refusal
from tests.stub.routes import ROUTES
from tests.stub.wire import Over, Request, Wire
from tests.stub.world import World

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Self


_POLL = 0.02
_JOIN = 10.0


class StubEngine:
    """An engine of the given API version; `faults` are what it does wrong."""

    def __init__(self, path: Path | None = None, *, api: str = "1.45", least: str = "1.24") -> None:
        self.api, self.least = api, least
        self.world = World()
        self.faults = Faults()
        self.asked: list[str] = []
        """Every request so far, as `METHOD /path`."""
        self.versions: set[str | None] = set()
        """API versions that requests named."""
        self._path = path
        self._port = 0
        self._listener: socket.socket | None = None
        self._wires: set[Wire] = set()
        self._threads: list[threading.Thread] = []

    @property
    def url(self) -> str:
        return f"tcp://127.0.0.1:{self._port}" if self._path is None else f"unix://{self._path}"

    def __enter__(self) -> Self:
        self.up()
        return self

    def __exit__(self, *exc: object) -> None:
        self.down()

    def up(self) -> None:
        """Listen, after `down()` at the same address as before."""
        if self._path is None:
            listener = socket.create_server(("127.0.0.1", self._port), backlog=64)
            self._port = int(listener.getsockname()[1])
        else:
            self._path.unlink(missing_ok=True)
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(os.fspath(self._path))
            listener.listen(64)
        listener.settimeout(_POLL)
        self._listener = listener
        self._thread(self._accept, listener)

    def down(self) -> None:
        """Refuse connections and end those there are."""
        listener, self._listener = self._listener, None
        if listener is not None:
            self._threads[0].join(_JOIN)
            listener.close()
        self.hang_up()
        for thread in self._threads:
            thread.join(_JOIN)
        assert not any(thread.is_alive() for thread in self._threads)
        self._threads.clear()

    def hang_up(self) -> None:
        """End the connections there are."""
        with self.world.changed:
            for wire in self._wires:
                wire.hang_up()
            self.world.changed.notify_all()

    def heard(self, route: str, times: int = 1, seconds: float = 10.0) -> bool:
        """Block until a route was asked for; False when it was not in time."""
        with self.world.changed:
            return self.world.changed.wait_for(
                lambda: sum(bool(re.fullmatch(route, one)) for one in self.asked) >= times, seconds
            )

    def emptied(self, seconds: float = 10.0) -> bool:
        """Block until no container is left; False when one is."""
        with self.world.changed:
            return self.world.changed.wait_for(lambda: not self.world.boxes, seconds)

    def _thread(self, work: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=work, args=args, daemon=True, name="stub-engine")
        self._threads.append(thread)
        thread.start()

    def _accept(self, listener: socket.socket) -> None:
        while self._listener is listener:
            try:
                client, _ = listener.accept()
            except TimeoutError:
                continue
            except OSError:
                return
            client.settimeout(None)
            wire = Wire(client)
            with self.world.changed:
                self._wires.add(wire)
            self._thread(self._serve, wire)

    def _serve(self, wire: Wire) -> None:
        try:
            with suppress(Over):
                for request in wire.requests():
                    self._one(wire, request)
        finally:
            with self.world.changed:
                self._wires.discard(wire)
                wire.close()

    def _one(self, wire: Wire, request: Request) -> None:
        with self.world.changed:
            self.asked.append(request.route)
            self.versions.add(request.version)
            fault = self.faults.strike(request.route)
            self.world.changed.notify_all()
        if fault is not None and fault.first is not None:
            wire.answer(fault.first)
        wire.suffer(fault)
        if fault is not None and fault.instead is not None:
            _instead(wire, fault, fault.instead)
            return
        answer = self._refused(request) or self._answer(wire, request)
        if answer is not None and (fault is None or fault.first is None):
            wire.answer(answer)

    def _refused(self, request: Request) -> Answer | None:
        version = request.version
        if version is not None and _number(version) < _number(self.least):
            return refusal(
                400,
                f"client version {version} is too old. Minimum supported API version is "
                f"{self.least}, please upgrade your client to a newer version",
            )
        if version is not None and _number(version) > _number(self.api):
            return refusal(
                400,
                f"client version {version} is too new. Maximum supported API version is {self.api}",
            )
        return None

    def _answer(self, wire: Wire, request: Request) -> Answer | None:
        for pattern, handler in ROUTES:
            if found := re.fullmatch(pattern, request.route):
                return handler(self, wire, request, *found.groups())
        return refusal(404, "page not found")


def _instead(wire: Wire, fault: Fault, said: Answer | bytes) -> None:
    if isinstance(said, Answer):
        wire.answer(said)
        return
    wire.pause(fault.delay)
    wire.raw(said)
    wire.fail()


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
