"""The engine's list of a container's processes, and what follows from it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio.lowlevel
import pytest

from sandboxio.adapters._docker_launch import Container
from sandboxio.adapters._docker_outside import Processes, look

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.anyio

SEEN = Processes({10: 1, 11: 10, 20: 2, 21: 20, 22: 21, 30: 10})


class Engine:
    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.asked = 0

    async def call(self, phase: str, action: Callable[[Any], Any], *, lane: str) -> Any:
        await anyio.lowlevel.checkpoint()
        return action(self)

    def top(self, container: str, *, ps_args: str) -> Any:
        self.asked += 1
        return self.answer


def test_what_lives_below_a_process() -> None:
    """Children of children belong to it, and so does it itself; a dead one has nothing."""
    assert SEEN.below(20) == {20, 21, 22}
    assert SEEN.below(99) == frozenset()


def test_what_no_call_holds() -> None:
    """Orphans are what is below no wrapper of a live call."""
    assert SEEN.orphans(frozenset({20})) == {10, 11, 30}
    assert SEEN.orphans(frozenset()) == SEEN.parents.keys()


async def test_a_look() -> None:
    """Zombies do not live; the rest is there with its parents."""
    engine: Any = Engine({"Processes": [["7", "1", "S"], ["8", "7", "Z+"]]})
    seen = await look(Container(engine, "x", 512, visible=True))
    assert seen is not None
    assert seen.parents == {7: 1}


@pytest.mark.parametrize(
    "answer", [None, [], "text", {}, {"Processes": [["7"]]}, {"Processes": [["a", "b", "S"]]}]
)
async def test_an_answer_that_cannot_be_read(answer: Any) -> None:
    """Odd answers mean that nothing is known, and are no exception."""
    engine: Any = Engine(answer)
    assert await look(Container(engine, "x", 512, visible=True)) is None


async def test_a_runtime_that_hides_its_processes() -> None:
    """Of others the engine would list those of its own host, so it is not asked."""
    engine: Any = Engine({"Processes": []})
    assert await look(Container(engine, "x", 512)) is None
    assert engine.asked == 0
