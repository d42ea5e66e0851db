"""Whole conversations with an agent that is hostile, or mad: nothing hangs, nothing grows, and
nothing but our own errors leaves.
"""

from __future__ import annotations

import gc
import random
import resource
import sys
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandboxio.core.errors import SandboxError
from sandboxio.guest import frames
from sandboxio.guest.driver import LinkCalls
from tests.link.tape import HELLO, OPERATIONS, Tape, calls_over, conversation, spoiled

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence


SPOILED = 10_000
AT_ONCE = 3
GROWTH_KIB = 64 * 1024


async def played(
    said: bytes, operations: Sequence[Callable[[LinkCalls], Awaitable[Any]]], piece: int
) -> list[SandboxError]:
    """Have calls talk to a tape, and return their errors; any other exception goes on."""
    tape = Tape(said, piece, len(operations))
    calls = calls_over(tape)
    failed: list[SandboxError] = []

    async def one(act: Callable[[LinkCalls], Awaitable[Any]]) -> None:
        try:
            await act(calls)
        except SandboxError as exc:
            failed.append(exc)

    with anyio.fail_after(10):
        await one(LinkCalls.link)
        async with anyio.create_task_group() as tasks:
            for number, act in enumerate(operations, 1):
                tasks.start_soon(one, act)
                await tape.until_opened(number)
        await calls.aclose()
    assert tape.closed
    return failed


def chosen(seed: int) -> tuple[random.Random, list[Any], list[bytes]]:
    """Return some operations, and what an agent that means well says to them."""
    source = random.Random(seed)
    picked = source.sample(OPERATIONS, AT_ONCE)
    return source, [act for act, _ in picked], conversation([said for _, said in picked], source)


@pytest.mark.anyio
async def test_the_corpus_itself() -> None:
    """What is going to be spoiled is in order: calls fail as the agent says, and not otherwise."""
    for seed in range(300):
        source, operations, said = chosen(seed)
        failed = await played(b"".join(said), operations, source.choice((1, 7, 65536)))
        codes = {error.code for error in failed}
        assert codes <= {"SBX_E1701", "SBX_E1702"}, failed


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_spoiled_conversations(backend: str) -> None:
    """Ten thousand conversations, each of them spoiled in another way."""
    before = _resident()

    async def all_of_them() -> int:
        lost = 0
        for seed in range(SPOILED // 2):
            source, operations, said = chosen(seed if backend == "asyncio" else -1 - seed)
            data = spoiled(said, source)
            failed = await played(data, operations, source.choice((1000, 65536)))
            lost += bool(failed)
        return lost

    assert anyio.run(all_of_them, backend=backend) > SPOILED // 8
    gc.collect()
    assert _resident() - before < GROWTH_KIB


@given(
    st.lists(
        st.tuples(
            st.integers(0, 4),
            st.sampled_from(sorted(frames.FROM_AGENT)),
            st.one_of(
                st.binary(max_size=40),
                st.lists(st.sampled_from([b"ok", b"error", b"0", b"1", b"other"])).map(frames.pack),
            ),
        ),
        max_size=12,
    ),
    st.integers(1, 50),
    st.integers(0, 1000),
)
@settings(max_examples=300, deadline=None)
def test_invented_conversations(said: list[frames.Frame], piece: int, seed: int) -> None:
    """Frames that are right, each by itself, in any order and with any content."""
    data = HELLO + b"".join(frames.frame(*one) for one in said)
    _, operations, _ = chosen(seed)
    anyio.run(played, data, operations, piece)


@given(st.binary(max_size=300))
@settings(max_examples=200, deadline=None)
def test_noise(said: bytes) -> None:
    """Whatever the other end of a stream says that is no agent at all."""
    failed = anyio.run(played, said, [act for act, _ in OPERATIONS[:2]], 100)
    assert len(failed) == 3


def _resident() -> int:
    """Return the most memory this process has had, in KiB."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most // 1024 if sys.platform == "darwin" else most
