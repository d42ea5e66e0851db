"""The engine's list of a container's processes, and what follows from it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio.lowlevel
import pytest

from sandboxio import ConnectError, SandboxGone
from sandboxio.adapters._docker_launch import Container
from sandboxio.adapters._docker_outside import Processes, look

if TYPE_CHECKING:
    from collections.abc import Callable

SEEN = Processes({10: 1, 11: 10, 20: 2, 21: 20, 22: 21, 30: 10})
"""Two trees: one below 10, whose parent is not of the container, and one below 20."""


@pytest.mark.parametrize(
    ("root", "found"),
    [
        (10, {10, 11, 30}),
        (20, {20, 21, 22}),
        (21, {21, 22}),
        (22, {22}),
        (99, set[int]()),
        (2, set[int]()),
        (0, set[int]()),
    ],
)
def test_what_lives_below_a_process(root: int, found: set[int]) -> None:
    """Children of children belong to it, and so does it itself; one that is dead has nothing."""
    assert SEEN.below(root) == found


def test_the_children_of_a_dead_process() -> None:
    """They are not its any more: whatever has adopted them comes in their own entry."""
    assert Processes({21: 20, 22: 21}).below(20) == frozenset()


@pytest.mark.parametrize(
    ("parents", "found"), [({5: 5}, {5}), ({5: 6, 6: 5}, {5, 6}), ({5: 5, 7: 5}, {5, 7})]
)
def test_a_table_that_no_kernel_gives(parents: dict[int, int], found: set[int]) -> None:
    """Circles come to an end."""
    assert Processes(parents).below(5) == found


def test_a_long_line_listed_backwards() -> None:
    """The order of the table does not matter."""
    line = Processes({pid: pid - 1 for pid in range(600, 1, -1)})
    assert line.below(2) == set(range(2, 601))


@pytest.mark.parametrize(
    ("calls", "orphans"),
    [
        ({20}, {10, 11, 30}),
        ({10, 20}, set[int]()),
        ({21}, {10, 11, 20, 30}),
        ({99}, {10, 11, 20, 21, 22, 30}),
        (set[int](), {10, 11, 20, 21, 22, 30}),
    ],
)
def test_what_no_call_holds(calls: set[int], orphans: set[int]) -> None:
    """Orphans are what is below no wrapper of a live call; a dead wrapper holds nothing."""
    assert SEEN.orphans(frozenset(calls)) == orphans


def test_nothing_at_all() -> None:
    """A container without processes has none below anything, and no orphans."""
    assert Processes().below(1) == frozenset()
    assert Processes().orphans(frozenset({1})) == frozenset()


class Engine:
    """Answers every question about processes with the same thing, or fails."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.asked: list[tuple[str, str]] = []

    async def call(self, phase: str, action: Callable[[Any], Any], *, lane: str) -> Any:
        await anyio.lowlevel.checkpoint()
        return action(self)

    def top(self, container: str, *, ps_args: str) -> Any:
        self.asked.append((container, ps_args))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def container(engine: Engine, *, visible: bool = True) -> Container:
    double: Any = engine
    return Container(double, "x", 512, 64, visible=visible)


@pytest.mark.anyio
async def test_a_look() -> None:
    """Zombies do not live; the rest is there with its parents, of the container asked for."""
    rows = [["7", "1", "S"], ["8", "7", "Z+"], ["9", "7", "T"], ["12", "9", "Rl"]]
    engine = Engine({"Titles": ["PID", "PPID", "STAT"], "Processes": rows})
    assert await look(container(engine)) == Processes({7: 1, 9: 7, 12: 9})
    assert engine.asked == [("x", "-eo pid,ppid,stat")]


ODD: list[Any] = [
    None,
    [],
    "text",
    7,
    {},
    {"message": "no"},
    {"Processes": 7},
    {"Processes": "text"},
    {"Processes": {"7": "1"}},
    {"Processes": [None]},
    {"Processes": [[]]},
    {"Processes": [["7"]]},
    {"Processes": [["7", "1"]]},
    {"Processes": [["7", "1", "S"], ["8"]]},
    {"Processes": [["a", "b", "S"]]},
    {"Processes": [[None, None, "S"]]},
    {"Processes": [["root", "7", "1", "0.0", "?", "00:00:00", "sleep"]]},
    {"Processes": [[None, None, None]]},
    {"Processes": [["7", "1", None]]},
    {"Processes": [["7", "1", 5]]},
]


@pytest.mark.anyio
@pytest.mark.parametrize("answer", ODD)
async def test_an_answer_that_cannot_be_read(answer: Any) -> None:
    """Odd answers mean that nothing is known, and are no exception."""
    assert await look(container(Engine(answer))) is None


@pytest.mark.anyio
async def test_an_engine_that_cannot_tell() -> None:
    """An engine that fails here knows nothing; a sandbox that has gone is news."""
    assert await look(container(Engine(ConnectError("no answer")))) is None
    with pytest.raises(SandboxGone):
        await look(container(Engine(SandboxGone("gone"))))


@pytest.mark.anyio
async def test_a_runtime_that_hides_its_processes() -> None:
    """Of others the engine would list those of its own host, so it is not asked."""
    engine = Engine({"Processes": [["7", "1", "S"]]})
    assert await look(container(engine, visible=False)) is None
    assert engine.asked == []
