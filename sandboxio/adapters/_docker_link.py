"""The stream of a guest link through a Docker engine: an attach at first, an exec later."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

import anyio

from sandboxio.adapters import _docker_launch as launch
from sandboxio.adapters._docker_answers import ContainerDescription
from sandboxio.adapters._docker_launch import Container, ExecSpec
from sandboxio.adapters._docker_stream import READ_BYTES, FrameDecoder
from sandboxio.core.errors import LinkLost, SandboxGone
from sandboxio.core.lifecycle import undone
from sandboxio.guest import frames, probe, program
from sandboxio.guest.code import LOADER
from sandboxio.guest.link import Link

if TYPE_CHECKING:
    from sandboxio.adapters._docker_engine import Engine
    from sandboxio.adapters._docker_image import User
    from sandboxio.adapters._docker_stream import ByteStream
    from sandboxio.core.errors import SandboxError

ORPHAN_GRACE = 30.0
"""Seconds that a sandbox outlives its last link."""
AGENT_CAPS_MASK = 0xE0
"""SETGID, SETUID and KILL: no process of a caller has them, and no-new-privileges keeps it so."""
_LAST_WORDS = 2048
_ENDING_PAUSES = (0.0, 0.02, 0.05, 0.1, 0.2, 0.4)


class EngineStream:
    """Both directions of a process's standard streams, without the engine's own framing."""

    def __init__(self, stream: ByteStream, early: bytes = b"") -> None:
        self._stream = stream
        self._early = early
        self._decoder = FrameDecoder()
        self.last_words = b""
        """The end of what the process said on stderr."""
        for ability in ("send_some", "send_nowait"):  # of those streams that have it
            if hasattr(stream, ability):
                setattr(self, ability, getattr(stream, ability))

    async def receive(self, max_bytes: int = READ_BYTES) -> bytes:
        while True:
            data, self._early = self._early, b""
            pieces = self._pieces(data or await self._stream.receive(READ_BYTES))
            if pieces:
                return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _pieces(self, data: bytes) -> list[bytes]:
        pieces: list[bytes] = []
        for chunk in self._decoder.feed(data):
            if chunk.stream == "stdout":
                pieces.append(chunk.data)
            else:
                self.last_words = (self.last_words + chunk.data)[-_LAST_WORDS:]
        return pieces

    async def send(self, item: bytes) -> None:
        await self._stream.send(item)

    async def aclose(self) -> None:
        await self._stream.aclose()


class Ended(NamedTuple):
    """A first process that is no agent, and the end of what it said."""

    words: bytes


class Greeting(NamedTuple):
    """What the agent is told at first."""

    account: str
    lifetime: float
    orders: list[bytes]
    """What it is to make, as the protocol has it."""

    def settings(self) -> dict[str, str | bytes]:
        return {
            "lifetime": f"{self.lifetime:.3f}",
            "orphan": f"{ORPHAN_GRACE:g}",
            "user": self.account,
            "prepare": frames.pack(self.orders),
            "loader": LOADER,
        }


async def begin(engine: Engine, container: str, greeting: Greeting) -> Link | Ended | None:
    """Start a container and greet the agent in it; nothing where none can run.

    That is where there is no Python that is new enough, where the kernel does not shield the
    agent from its users, and for root where its calls could not be rid of capabilities.
    """
    stream = await _attach(engine, container)
    try:
        await engine.call("create", lambda client: client.start(container))
        await stream.send(program.source())
        link = await Link.begin(stream, greeting.settings())
    except BaseException as exc:
        await undone(stream.aclose)
        if not isinstance(exc, LinkLost | anyio.EndOfStream | anyio.BrokenResourceError):
            raise
        code = await _exit_code(engine, container)
        return None if code == program.NO_PYTHON else Ended(stream.last_words)
    if link.facts.get("dumpable") != "0" or (
        greeting.account.startswith("0:") and link.facts.get("root") != "1"
    ):
        await undone(link.aclose)
        return None
    return link


def account(user: User, groups: tuple[int, ...]) -> str:
    """Write a user as the agent reads it."""
    return f"{user.uid}:{user.gid}:{','.join(map(str, groups))}"


async def _exit_code(engine: Engine, container: str) -> object:
    for pause in _ENDING_PAUSES:
        described = await engine.call(
            "create", lambda client: ContainerDescription(client.inspect_container(container))
        )
        if not described.running:
            return described.exit_code
        await anyio.sleep(pause)
    return None


def verify(link: Link, *, network: bool) -> None:
    """Compare what a process of the sandbox's user has with what was asked of the engine.

    Raises:
        CreationError: a control that was asked for did not take effect.
    """
    facts = {name.removeprefix("status."): value for name, value in link.facts.items()}
    allowed = int(facts.get("CapBnd", "") or "ff", 16) & ~AGENT_CAPS_MASK
    report = probe.Report({**facts, "CapBnd": f"{allowed:x}"}, link.interfaces, link.programs)
    probe.verify(report, network=network)


async def _attach(engine: Engine, container: str) -> EngineStream:
    path = f"/containers/{quote(container)}/attach?stream=1&stdin=1&stdout=1&stderr=1"
    return EngineStream(*await engine.stream("create", path))


async def relay(container: Container) -> EngineStream:
    """Open a further stream to the agent of a running container.

    Raises:
        SandboxGone: there is no agent any more.
    """
    argv = (program.RELAY_PYTHON, "-I", "-S", "-c", program.RELAY)
    exec_id = await launch.create(container, ExecSpec(argv, "0:0", "/", {}, stdin=True))
    return EngineStream(*await launch.attach(container, exec_id))


async def gone(container: Container) -> SandboxError | None:
    """Say whether a container has ended, for whom a link to it is lost."""
    try:
        found = await launch.describe(container)
    except SandboxGone as exc:
        return exc
    if found.running:
        return None
    return SandboxGone(f"The sandbox has ended ({found.status}).", outcome="unknown")
