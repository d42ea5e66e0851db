"""What the watcher's process does, on an engine and a clock in memory."""

from __future__ import annotations

import io
import signal
import sys
from typing import TYPE_CHECKING, Any

import pytest

from sandboxio.adapters import _docker_watch as watch
from sandboxio.adapters import _docker_watcher as watcher
from sandboxio.core import owner

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sandboxio.adapters._docker_answers import Answer

SESSION = "0123456789abcdef"


class Client:
    """An engine that lists and removes; it fails as often as it is told to."""

    def __init__(self) -> None:
        self.there: list[Answer] = []
        self.failing = 0
        self.stuck: set[str] = set()

    def add(self, sandbox_id: str, *, session: str = SESSION, name: str = "") -> None:
        labels = {"managed": "true", "name": sandbox_id, "owner.session": session}
        entry = {
            "Id": sandbox_id,
            "Names": [f"/{name or f'sandboxio-{sandbox_id}'}"],
            "Labels": {f"io.sandboxio.{key}": value for key, value in labels.items()},
        }
        self.there.append(entry)

    def containers(self, *, all: bool, filters: object) -> list[Answer]:  # noqa: A002
        if self.failing:
            self.failing -= 1
            raise OSError
        return list(self.there)

    def remove_container(self, container: str, *, force: bool, v: bool) -> None:
        if container in self.stuck:
            raise OSError
        self.there = [entry for entry in self.there if entry["Id"] != container]

    @property
    def ids(self) -> list[str]:
        return [entry["Id"] for entry in self.there]


class Clock:
    """Time that passes by pauses alone."""

    def __init__(self) -> None:
        self.now = 0.0
        self.at: dict[float, Callable[[], None]] = {}

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        if event := self.at.pop(self.now, None):
            event()


ONE, TWO = "1" * 16, "2" * 16


@pytest.fixture
def client() -> Client:
    """An engine on which there is one sandbox of the session."""
    client = Client()
    client.add(ONE)
    return client


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(watch, "time", clock)
    return clock


def mine(told: Mapping[str, str]) -> bool:
    return told.get("session") == SESSION


def test_the_sandboxes_of_the_session_are_removed(client: Client, clock: Clock) -> None:
    """It looks again before it is content, for the engine may take its time."""
    watch.clear(client, mine, 0)
    assert (client.ids, clock.now) == ([], 2)


def test_nothing_to_remove_ends_it_at_once(clock: Clock) -> None:
    """A program that ended well is not survived by its watcher."""
    watch.clear(Client(), mine, 0)
    assert clock.now == 0


def test_births_under_way_are_waited_for(client: Client, clock: Clock) -> None:
    """A creation that lands late is removed too; the wait is over after `SECONDS`."""
    clock.at[20] = lambda: client.add(TWO)
    watch.clear(client, mine, 1)
    assert client.ids == []
    assert watch.SECONDS <= clock.now <= watch.SECONDS + 4


def test_an_engine_that_fails_is_asked_again(client: Client, clock: Clock) -> None:
    """An engine that restarts has its sandboxes removed when it is back."""
    client.failing = 5
    watch.clear(client, mine, 0)
    assert (client.ids, clock.now) == ([], 12)


def test_an_engine_that_is_gone_is_given_up(client: Client, clock: Clock) -> None:
    """The watcher does not stay for ever."""
    client.failing = 1000
    watch.clear(client, mine, 0)
    assert watch.SECONDS <= clock.now <= watch.SECONDS + 4


def test_one_that_cannot_be_removed(client: Client, clock: Clock) -> None:
    """The others are removed all the same, and it is tried until the time is over."""
    client.add(TWO)
    client.stuck = {ONE}
    clock.at[10] = client.stuck.clear
    assert not watch.remove(client, mine)
    assert client.ids == [ONE]
    watch.clear(client, mine, 0)
    assert client.ids == []


@pytest.mark.parametrize("other", [{"session": "f" * 16}, {"session": ""}, {"name": "theirs"}])
def test_what_belongs_to_others(client: Client, other: dict[str, str]) -> None:
    """Another session's sandboxes stay, and so does what only has our labels."""
    client.add(TWO, **other)
    watch.remove(client, mine)
    assert (client.ids, watch.remove(client, mine)) == ([TWO], True)


class Broken(io.BytesIO):
    """A pipe whose reader is gone."""

    def write(self, data: object, /) -> int:
        raise BrokenPipeError


@pytest.fixture
def run(client: Client, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Callable[..., io.BytesIO]:
    """Runs the watcher for a program that says the words and ends."""

    def connected(*_: object, **__: object) -> Client:
        return client

    def run(words: bytes, out: io.BytesIO, session: str | None = SESSION) -> io.BytesIO:
        monkeypatch.setattr(watch, "connected", connected)
        monkeypatch.setattr(watch, "_silence", lambda: None)
        monkeypatch.setattr(signal, "signal", dict[Any, Any]().__setitem__)
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(words)))
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(out, write_through=True))
        watch.main(endpoint="unix:///nowhere.sock", tls_directory=None, session=session)
        return out

    return run


@pytest.mark.parametrize(
    ("words", "waits"),
    [
        (b"", False),
        (b"+\n-\n", False),
        (b"\n+\n\n-\n", False),
        (b"+\n", True),
        (b"+\n+\n-\n", True),
        (b"+\n+\n-\n-\n", False),
    ],
)
def test_births_are_counted(
    run: Callable[..., io.BytesIO], clock: Clock, words: bytes, waits: bool
) -> None:
    """Only what the engine was asked for and has not answered is waited for."""
    assert run(words, io.BytesIO()).getvalue() == b"armed\n"
    assert (clock.now >= watch.SECONDS) == waits


def test_a_program_that_ends_before_the_handshake(
    run: Callable[..., io.BytesIO], client: Client
) -> None:
    """Nobody hears it, and what the program had asked for is removed all the same."""
    run(b"+\n", Broken())
    assert client.ids == []


def test_a_watcher_without_a_session(run: Callable[..., io.BytesIO], client: Client) -> None:
    """It shows that it can be had, and removes nothing, not even of the dead."""
    client.add(TWO, session="dead")
    assert run(b"", io.BytesIO(), None).getvalue() == b"armed\n"
    assert client.ids == [ONE, TWO]


def _said_dead(told: Mapping[str, str]) -> bool:
    return told["session"] == "dead"


def test_the_dead_are_swept_before_the_program_ends(
    run: Callable[..., io.BytesIO], client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sandboxes of dead owners go at the start, while the program is still there."""
    client.add(TWO, session="dead")
    left: list[list[str]] = []
    monkeypatch.setattr(owner, "is_dead", _said_dead)

    def clear(*_: object) -> None:
        left.append(client.ids)

    monkeypatch.setattr(watch, "clear", clear)
    run(b"", io.BytesIO())
    assert left == [[ONE]]


@pytest.mark.parametrize("executable", ["/usr/sbin/uwsgi", "/opt/app", "", None])
def test_an_executable_that_is_no_python(
    monkeypatch: pytest.MonkeyPatch, executable: str | None
) -> None:
    """Where Python is embedded, nothing can be started that would run our code."""
    monkeypatch.setattr(sys, "executable", executable)
    assert "no Python interpreter" in str(watcher.unable())


@pytest.mark.parametrize("name", ["python", "python3.12", "pypy3", "Python", "pythonw.exe"])
def test_an_executable_that_is_python(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Under each of its names."""
    monkeypatch.setattr(sys, "executable", f"/somewhere/{name}")
    assert watcher.unable() is None


def test_a_frozen_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its executable is the program itself, which would start once more."""
    monkeypatch.setattr(sys, "executable", "/opt/python")
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    assert watcher.unable() is not None


def test_the_watcher_ignores_what_asks_it_to_end(
    client: Client, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INT, TERM and HUP are ignored before anything else is done."""
    ignored: dict[Any, Any] = {}

    def stop(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(signal, "signal", ignored.__setitem__)
    monkeypatch.setattr(watch, "connected", stop)
    with pytest.raises(ZeroDivisionError):
        watch.main(endpoint="unix:///nowhere.sock", tls_directory=None, session=SESSION)
    assert set(ignored) == {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    assert set(ignored.values()) == {signal.SIG_IGN}
