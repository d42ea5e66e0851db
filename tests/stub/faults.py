"""What the stub engine does wrong on purpose, and to which requests."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import threading


@dataclass(frozen=True)
class Answer:
    """One whole HTTP answer."""

    status: int = 200
    body: bytes = b""
    kind: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()
    chunked: bool = False
    """Whether it comes in chunks, as the progress of a pull does."""


def data(value: object, status: int = 200) -> Answer:
    """Return an answer that carries JSON."""
    return Answer(status, json.dumps(value).encode())


def refusal(status: int, message: str) -> Answer:
    """Return an error in the engine's own form."""
    return data({"message": message}, status)


def lines(*values: object) -> Answer:
    """Return a stream of JSON lines."""
    body = b"".join(json.dumps(value).encode() + b"\r\n" for value in values)
    return Answer(body=body, chunked=True)


@dataclass(frozen=True)
class Fault:
    """What happens to requests whose `METHOD /path`, without the version, matches `route`."""

    route: str
    hold: float = 0.0
    """Seconds before the request takes effect."""
    gate: threading.Event | None = None
    """Must be set before the request takes effect."""
    delay: float = 0.0
    """Seconds between its effect and the answer."""
    instead: Answer | bytes | None = None
    """Said in place of the answer, and then there is no effect; bytes go out as they are."""
    first: Answer | None = None
    """Said at once, by somebody in between, while the request is still on its way."""
    passes: int | None = None
    """Bytes that get out, of the answer and of the stream it may turn into; `None` for all."""
    then: Literal["close", "reset", "silence"] = "close"
    """What follows those bytes."""
    skip: int = 0
    """How many requests are spared first."""
    times: int | None = None
    """How many it concerns then; `None` for all."""


def silence(route: str, *, times: int | None = None) -> Fault:
    """Take a request and never say anything; it has no effect."""
    return Fault(route, instead=b"", passes=0, then="silence", times=times)


def lost(route: str, *, skip: int = 0, times: int | None = None) -> Fault:
    """Do what is asked and reset the connection instead of answering."""
    return Fault(route, passes=0, then="reset", skip=skip, times=times)


class Faults:
    """The faults in force, counted; the first that matches strikes."""

    def __init__(self) -> None:
        self._faults: list[Fault] = []
        self._seen: Counter[Fault] = Counter()
        self.met: Counter[Fault] = Counter()
        """How often each has struck."""

    def set(self, *faults: Fault) -> None:
        """Put these in the place of those there are."""
        self._faults = list(faults)

    def strike(self, request: str) -> Fault | None:
        for fault in self._faults:
            if re.fullmatch(fault.route, request) is None:
                continue
            self._seen[fault] += 1
            number = self._seen[fault] - fault.skip
            if number > 0 and (fault.times is None or number <= fault.times):
                self.met[fault] += 1
                return fault
        return None
