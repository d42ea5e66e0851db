"""A sandbox whose agent is a script: what it does with each request is up to a test."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio

from sandboxio.core.errors import SandboxGone
from sandboxio.core.requests import CodeRequest, ExecRequest
from sandboxio.guest import frames
from sandboxio.guest.driver import LinkCalls
from tests.link.peer import DONE, FACTS, PartStream, Peer, WholeStream, ends

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping

    from sandboxio.core.driver import ExecChannel, ExitStatus
    from sandboxio.core.errors import SandboxError

USUAL = {"PATH": "/usr/bin:/bin", "HOME": "/home/sandbox"}
KILLED = (b"ok", b"137", b"0", b"0", b"1", b"1", b"0", b"0", b"0")


class Request:
    """One `OPEN` as the agent got it, and the means to answer it."""

    def __init__(self, agent: Agent, channel: int, fields: list[bytes]) -> None:
        self.agent = agent
        self.channel = channel
        self.service, *self.fields = fields
        self.over = False

    async def say(self, data: bytes, kind: int = frames.DATA) -> None:
        await self.agent.peer.say(self.channel, kind, data)

    async def result(self, *fields: bytes) -> None:
        self.over = True
        await self.agent.peer.result(self.channel, *fields)

    async def fail(self, name: bytes, words: bytes = b"in words") -> None:
        await self.result(b"error", name, words)


class Agent:
    """One link's other end: notes all it hears, and answers by script."""

    def __init__(self, world: World, peer: Peer) -> None:
        self.world = world
        self.peer = peer
        self.requests: dict[int, Request] = {}

    async def run(self) -> None:
        try:
            await self.peer.greet(self.world.facts)
            while True:
                await self._hear(*await self.peer.hear())
        except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
            return

    async def _hear(self, channel: int, kind: int, payload: bytes) -> None:
        world = self.world
        if kind == frames.PING:
            await self.peer.say(0, frames.PONG, payload)
        elif kind == frames.OPEN:
            request = Request(self, channel, frames.unpack(payload))
            self.requests[channel] = request
            world.asked.append(request)
            await world.on_open(request)
        elif channel in self.requests and self.requests[channel].over:
            return
        elif kind == frames.DATA:
            world.given[channel] = world.given.get(channel, b"") + payload
            await self.peer.stream.send(frames.credit(channel, len(payload)))
        elif kind == frames.EOF:
            await world.on_eof(self.requests[channel])
        elif kind == frames.END:
            world.ended.append(channel)
            await world.on_end(self.requests[channel])


class World:
    """A sandbox, its agent, and what a test wants to know of either."""

    def __init__(self, tasks: anyio.abc.TaskGroup) -> None:
        self._tasks = tasks
        self.facts: tuple[str, ...] = FACTS
        self.kind: type[WholeStream] = PartStream
        self.agents: list[Agent] = []
        self.asked: list[Request] = []
        self.given: dict[int, bytes] = {}
        self.ended: list[int] = []
        self.removed: SandboxError | None = None
        self.unreachable: SandboxError | None = None
        self.on_open: Callable[[Request], Awaitable[None]] = nothing
        self.on_eof: Callable[[Request], Awaitable[None]] = nothing
        self.on_end: Callable[[Request], Awaitable[None]] = killed
        self.before_connect: Callable[[], Awaitable[None]] = anyio.lowlevel.checkpoint
        self.calls = LinkCalls(
            self._reconnect,
            caller=lambda user: "0:0:" if user == "root" else "1000:1000:7,8",
            environment=lambda _, env: {**USUAL, **env},
            cwd=lambda cwd: f"/work/{cwd or ''}",
            gone=self._gone,
            memory_mb=512,
            timeout=300,
        )

    async def _reconnect(self) -> WholeStream:
        await self.before_connect()
        if self.removed or self.unreachable:
            raise self.removed or self.unreachable or AssertionError
        stream, peer = ends(self.kind)
        self.agents.append(Agent(self, peer))
        self._tasks.start_soon(self.agents[-1].run)
        return stream

    async def _gone(self) -> SandboxError | None:
        return self.removed

    def remove(self) -> None:
        self.removed = SandboxGone("The sandbox has ended.", outcome="unknown")

    async def break_link(self) -> None:
        await self.agents[-1].peer.stream.aclose()

    async def until_asked(self, count: int = 1) -> Request:
        """Wait until the agent has got so many requests, and return the last one."""
        while len(self.asked) < count:
            await anyio.sleep(0.001)
        return self.asked[-1]


async def nothing(_: Request) -> None:
    """Let it wait."""


async def succeed(request: Request) -> None:
    await request.result(*DONE)


async def killed(request: Request) -> None:
    await request.result(*KILLED)


def answering(**services: tuple[bytes, ...]) -> Callable[[Request], Awaitable[None]]:
    """Answer each service with a result of its own."""

    async def answer(request: Request) -> None:
        await request.result(*services.get(request.service.decode(), DONE))

    return answer


@asynccontextmanager
async def world() -> AsyncGenerator[World]:
    """Yield a sandbox whose agent does nothing yet; nothing takes longer than ten seconds."""
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            made = World(tasks)
            yield made
            await made.calls.aclose()
            tasks.cancel_scope.cancel()


def command(
    cmd: str | tuple[str, ...] = "true",
    *,
    timeout: float = 20,
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
    user: str | None = None,
    stdin: bool = False,
) -> ExecRequest:
    return ExecRequest.build(cmd, timeout=timeout, env=env or {}, cwd=cwd, user=user, stdin=stdin)


def source(
    code: str = "print(1)", *, language: str = "python", env: Mapping[str, str] | None = None
) -> CodeRequest:
    return CodeRequest.build(
        code, language=language, context_id=None, timeout=20, env=env or {}, cwd=None
    )


async def finished(channel: ExecChannel) -> tuple[bytes, ExitStatus]:
    """Take all output, and return it with the end."""
    said = b""
    while (chunk := await channel.receive()) is not None:
        said += chunk.data
    return said, await channel.wait()
