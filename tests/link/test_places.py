"""A link belongs to one event loop and one process."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import anyio
import pytest

from sandboxio.guest import frames
from tests.link.tape import HELLO, Tape, calls_over

if TYPE_CHECKING:
    from sandboxio.guest.driver import LinkCalls

YES = frames.frame(1, frames.RESULT, frames.pack([b"ok", b"1"]))


def tapes() -> list[Tape]:
    return [Tape(HELLO + YES, 65536, 1) for _ in range(2)]


async def ask(calls: LinkCalls) -> None:
    assert await calls.files.exists("f")


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_each_loop_has_its_own(backend: str) -> None:
    """A call in another event loop takes another link."""
    first, second = tapes()
    calls = calls_over(first, second)
    anyio.run(ask, calls, backend=backend)
    anyio.run(ask, calls, backend=backend)
    assert (first.opened, second.opened) == (1, 1)


def test_links_of_loops_that_have_ended() -> None:
    """They are closed when another loop needs one."""
    first, second = tapes()
    calls = calls_over(first, second)
    anyio.run(ask, calls)
    before = first.closed
    anyio.run(ask, calls)
    assert (before, first.closed, second.closed) == (False, True, False)


@pytest.mark.anyio
async def test_after_a_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child takes another link, and leaves that of its parent alone: its stream is shared."""
    first, second = tapes()
    calls = calls_over(first, second)
    await ask(calls)
    parent = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: parent + 1)
    await ask(calls)
    assert (first.opened, second.opened) == (1, 1)
    assert not first.closed
