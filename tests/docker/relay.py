"""A relay between the library and the engine that delays, throttles and cuts its answers."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

ENGINE = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock").removeprefix("unix://")
_REQUEST = re.compile(rb"^(?:GET|POST|PUT|DELETE|HEAD) (\S+) HTTP")


@dataclass(frozen=True)
class Fault:
    """What happens to the answers of requests whose path matches a pattern."""

    path: str
    delay: float = 0.0
    """Seconds before the answer is passed on."""
    cut_after: int | None = None
    """Bytes of the answer after which the connection is closed."""
    per_second: int | None = None
    """Bytes of the answer that pass in a second."""
    times: int = 1000
    """How many requests it concerns."""


class Relay:
    """Listens on a socket of its own; `faults` may change at any time."""

    def __init__(self, path: Path) -> None:
        self.url = f"unix://{path}"
        self.faults: list[Fault] = []
        self._used: dict[Fault, int] = {}
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        engine = socket.socket(socket.AF_UNIX)
        engine.connect(ENGINE)
        current: list[Fault | None] = [None]
        answers = threading.Thread(target=self._answer, args=(engine, client, current), daemon=True)
        answers.start()
        with contextlib.suppress(OSError):
            while data := client.recv(65536):
                if found := _REQUEST.match(data):
                    current[0] = self._fault(found[1].decode())
                engine.sendall(data)
            engine.shutdown(socket.SHUT_WR)
        answers.join()
        engine.close()
        client.close()

    def _fault(self, path: str) -> Fault | None:
        for fault in self.faults:
            if re.search(fault.path, path) and self._used.get(fault, 0) < fault.times:
                self._used[fault] = self._used.get(fault, 0) + 1
                return fault
        return None

    def _answer(
        self, engine: socket.socket, client: socket.socket, current: list[Fault | None]
    ) -> None:
        passed = 0
        with contextlib.suppress(OSError):
            while data := engine.recv(65536):
                fault = current[0]
                if fault is None:
                    client.sendall(data)
                elif not self._spoil(fault, client, data, passed):
                    break
                passed += len(data)
        for side in (client, engine):
            with contextlib.suppress(OSError):
                side.shutdown(socket.SHUT_RDWR)

    def _spoil(self, fault: Fault, client: socket.socket, data: bytes, passed: int) -> bool:
        """Pass on what the fault allows; False when the connection is to be cut."""
        time.sleep(0 if passed else fault.delay)
        if fault.cut_after is not None and passed + len(data) > fault.cut_after:
            client.sendall(data[: fault.cut_after - passed])
            return False
        for at in range(0, len(data), 16384):
            piece = data[at : at + 16384]
            if fault.per_second is not None:
                time.sleep(len(piece) / fault.per_second)
            client.sendall(piece)
        return True


@contextlib.contextmanager
def relay_at(path: Path) -> Generator[Relay]:
    """A relay for the length of the block."""
    made = Relay(path)
    try:
        yield made
    finally:
        made.close()
