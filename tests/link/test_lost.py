"""A link that is lost: what its calls hear, how they are ended, and how there is another one."""

from __future__ import annotations

import anyio
import anyio.lowlevel
import pytest

from sandboxio.core.driver import KillReport
from sandboxio.core.errors import ConnectError, LinkLost, SandboxGone
from tests.link.world import Request, answering, command, finished, succeed, world
from tests.stepwise import cancel_at_each_await

pytestmark = pytest.mark.anyio


async def test_a_call_whose_link_is_lost() -> None:
    """Its outcome is unknown where the sandbox is there still."""
    async with world() as box:
        channel = await box.calls.start(command())
        await box.until_asked()
        await box.break_link()
        with pytest.raises(LinkLost) as caught:
            await channel.receive()
        assert caught.value.outcome == "unknown"


async def test_a_call_whose_sandbox_is_gone() -> None:
    """Where the engine says, be it a little later, that the sandbox has ended, so do we."""
    async with world() as box, anyio.create_task_group() as tasks:
        channel = await box.calls.start(command())
        await box.until_asked()
        await box.break_link()

        async def notice() -> None:
            await anyio.sleep(0.1)
            box.remove()

        tasks.start_soon(notice)
        with pytest.raises(SandboxGone) as caught:
            await channel.receive()
        assert isinstance(caught.value.__cause__, LinkLost)


async def test_the_next_call_has_a_new_link() -> None:
    """A lost link is replaced by the next call that needs one."""
    async with world() as box:
        box.on_open = succeed
        for _ in range(3):
            await finished(await box.calls.start(command()))
            await box.break_link()
        assert len(box.agents) == 3


async def test_one_link_for_many_calls() -> None:
    """Calls that come at once share one link; the first one opens it."""
    async with world() as box, anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(box.calls.start, command())
        await box.until_asked(20)
        assert len(box.agents) == 1


async def test_the_opener_is_cancelled() -> None:
    """Whoever waits for a link opens it when its opener is cancelled; nothing is left half open."""
    async with world() as box:
        box.on_open = succeed

        async def call() -> None:
            await box.calls.aclose()
            await finished(await box.calls.start(command()))

        assert await cancel_at_each_await(call) > 2
        await finished(await box.calls.start(command()))
        await box.calls.aclose()
        assert all(agent.peer.other.closed for agent in box.agents)


async def test_the_next_opener_takes_over() -> None:
    """An opener that is cancelled does not take those with it that wait for its link."""
    async with world() as box, anyio.create_task_group() as tasks:
        box.before_connect = anyio.sleep_forever
        scope = anyio.CancelScope()

        async def first() -> None:
            with scope:
                await box.calls.start(command())

        tasks.start_soon(first)
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(box.calls.start, command("second"))
        await anyio.wait_all_tasks_blocked()
        box.before_connect = anyio.lowlevel.checkpoint
        scope.cancel()
        assert b"second" in (await box.until_asked()).fields


async def test_no_way_to_the_agent() -> None:
    """What the engine says about opening a stream is what a call hears."""
    async with world() as box:
        box.unreachable = ConnectError("The engine cannot be reached.", outcome="not_started")
        with pytest.raises(ConnectError, match="engine"):
            await box.calls.start(command())
        box.remove()
        with pytest.raises(SandboxGone):
            await box.calls.start(command())


async def test_a_silent_link_is_tried_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """A link that has long been silent is not trusted with a call before it has answered."""
    monkeypatch.setattr("sandboxio.guest._link_pool._QUIET", 0.0)
    async with world() as box:
        box.on_open = succeed
        await finished(await box.calls.start(command()))
        await finished(await box.calls.start(command()))
        assert len(box.agents) == 1
        await box.break_link()
        await finished(await box.calls.start(command()))
        assert len(box.agents) == 2


async def test_a_later_link_names_the_one_that_is_lost() -> None:
    """An agent that has not noticed the end of a link hears of it with the next one."""
    async with world() as box:
        box.on_open = succeed
        await finished(await box.calls.start(command()))
        await box.break_link()
        await finished(await box.calls.start(command()))
        first, second = (agent.peer.hello for agent in box.agents)
        assert not any(field.startswith(b"instead=") for field in first)
        assert b"instead=7.1" in second


async def test_ending_a_call_whose_link_is_lost() -> None:
    """Over a new link, the agent is asked about the old one until nothing is left of it."""
    async with world() as box:
        answers = [b"0", b"0", b"1"]

        async def settle(request: Request) -> None:
            if request.service == b"settled":
                await request.result(b"ok", answers.pop(0))

        box.on_open = settle
        channel = await box.calls.start(command())
        await box.until_asked()
        await box.break_link()
        assert await channel.kill() == KillReport(complete=True)
        assert [(one.service, one.fields) for one in box.asked[1:]] == 3 * [(b"settled", [b"7.1"])]
        assert answers == []


async def test_ending_a_call_while_the_link_is_lost() -> None:
    """The link may be lost between the request to end a call and its answer."""
    async with world() as box:
        box.on_end = lambda _: box.break_link()
        box.on_open = _settled
        channel = await box.calls.start(command())
        assert await channel.kill() == KillReport(complete=True)
        assert len(box.agents) == 2


async def _settled(request: Request) -> None:
    if request.service == b"settled":
        await request.result(b"ok", b"1")


async def test_ending_a_call_whose_sandbox_is_gone() -> None:
    """Nothing is left of it."""
    async with world() as box:
        channel = await box.calls.start(command())
        await box.until_asked()
        await box.break_link()
        box.remove()
        assert await channel.kill() == KillReport(complete=True)


@pytest.mark.parametrize("answer", [(b"ok", b"0"), (b"ok", b"evil"), (b"error", b"other", b"")])
async def test_an_agent_that_never_settles(answer: tuple[bytes, ...]) -> None:
    """It is asked for as long as the caller bounds it, and is not believed."""
    async with world() as box:
        channel = await box.calls.start(command())
        await box.until_asked()
        await box.break_link()
        box.on_open = answering(settled=answer)
        with anyio.move_on_after(0.1) as scope:
            await channel.kill()
        assert scope.cancelled_caught


async def test_an_engine_that_is_away_for_a_while() -> None:
    """A new link is tried for again while the engine cannot be reached."""
    async with world() as box, anyio.create_task_group() as tasks:
        channel = await box.calls.start(command())
        await box.until_asked()
        await box.break_link()
        box.unreachable = ConnectError("The engine cannot be reached.")
        box.on_open = _settled

        async def return_later() -> None:
            await anyio.sleep(0.05)
            box.unreachable = None

        tasks.start_soon(return_later)
        assert await channel.kill() == KillReport(complete=True)


async def test_closing() -> None:
    """Closing ends the link, may be repeated, and the next call has another one."""
    async with world() as box:
        box.on_open = succeed
        for _ in range(2):
            await finished(await box.calls.start(command()))
            await box.calls.aclose()
            await box.calls.aclose()
        assert [agent.peer.other.closed for agent in box.agents] == [True, True]
