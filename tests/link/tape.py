"""What an agent has once said, played back whatever the host says; and ways to spoil it."""

from __future__ import annotations

import struct
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import anyio.lowlevel

from sandboxio.core.errors import SandboxGone
from sandboxio.guest import frames
from sandboxio.guest.driver import LinkCalls
from tests.link.peer import DONE, FACTS
from tests.link.world import USUAL, command, finished, source

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

    from sandboxio.core.errors import SandboxError

HELLO = frames.frame(
    0, frames.HELLO, frames.pack([frames.NAME, frames.VERSION, *(f.encode() for f in FACTS)])
)

_PATIENCE = 30


class Tape:
    """A stream that plays bytes in pieces; of what is sent it only counts the requests.

    It waits a little, behind the greeting, for as many requests as it has answers to.
    """

    def __init__(self, said: bytes, piece: int, answers: int) -> None:
        self._said = said
        self._piece = piece
        self._answers = answers
        self._at = 0
        self._heard = frames.Decoder(frames.FROM_HOST)
        self.opened = 0
        self.closed = False

    async def until_opened(self, count: int) -> None:
        for _ in range(_PATIENCE):
            if self.opened >= count:
                break
            await anyio.lowlevel.checkpoint()

    async def receive(self, max_bytes: int = 65536) -> bytes:
        await anyio.lowlevel.checkpoint()
        if self._at >= len(HELLO):
            await self.until_opened(self._answers)
        if self.closed:
            raise anyio.ClosedResourceError
        most = self._piece if self._at >= len(HELLO) else min(self._piece, len(HELLO) - self._at)
        piece = self._said[self._at : self._at + min(most, max_bytes)]
        self._at += len(piece)
        if not piece:
            raise anyio.EndOfStream
        return piece

    async def send(self, item: bytes) -> None:
        await anyio.lowlevel.checkpoint()
        self.send_nowait(memoryview(item))

    async def send_some(self, view: memoryview) -> int:
        return self.send_nowait(view)

    def send_nowait(self, view: memoryview) -> int:
        heard = self._heard.feed(bytes(view))
        self.opened += sum(kind == frames.OPEN for _, kind, _ in heard)
        return len(view)

    async def aclose(self) -> None:
        self.closed = True
        await anyio.lowlevel.checkpoint()


def entry(path: bytes, mode: int = 0o100644, target: bytes = b"") -> bytes:
    return struct.pack("!IIQqI", len(path), mode, 3, 1_700_000_000, len(target)) + path + target


async def _none(_: bytes) -> None:
    """Drop a piece."""


async def _write(calls: LinkCalls) -> None:
    async def pieces() -> AsyncGenerator[bytes]:
        yield b"x" * 1000

    async with aclosing(pieces()) as data:
        await calls.files.write("f", data, size=1000, mode=0o600)


async def _run(calls: LinkCalls) -> None:
    await finished(await calls.start(command()))


async def _code(calls: LinkCalls) -> None:
    await finished(await calls.start_code(source("print(1)" * 50_000)))


async def _kill(calls: LinkCalls) -> None:
    channel = await calls.start(command(stdin=True))
    await channel.receive()
    await channel.send(b"input")
    await channel.kill()
    await channel.aclose()


Words = list[tuple[int, bytes]]
"""Kinds and payloads of one channel."""


def words(*data: tuple[int, bytes], result: Sequence[bytes] = (b"ok",)) -> Words:
    return [*data, (frames.RESULT, frames.pack(result))]


OPERATIONS: list[tuple[Callable[[LinkCalls], Awaitable[Any]], Words]] = [
    (_run, words((frames.DATA, b"out"), (frames.ERROUT, b"err"), result=DONE)),
    (_run, words((frames.EOF, b""), result=(b"error", b"not-found", b"no such file"))),
    (_code, words((frames.CREDIT, b"\0\4\0\0"), (frames.DATA, b"1" * 300), result=DONE)),
    (_kill, words((frames.DATA, b"x"), result=(b"ok", b"137", *4 * [b"1"], *3 * [b"0"]))),
    (lambda calls: calls.metrics(), words(result=(b"ok", b"1.5", b"7", b"", b"3"))),
    (lambda calls: calls.files.exists("f"), words(result=(b"ok", b"1"))),
    (
        lambda calls: calls.files.ls("p", recursive=True),
        words((frames.DATA, entry(b"a") + entry(b"d", 0o40755)), (frames.DATA, entry(b"d/e"))),
    ),
    (
        lambda calls: calls.files.glob("p/*"),
        words((frames.DATA, entry(b"p/a") + entry(b"p/l", 0o120777, b"to"))),
    ),
    (lambda calls: calls.files.stat("f", follow=True), words((frames.DATA, entry(b"f")))),
    (
        lambda calls: calls.files.read("f", offset=0, length=9, sink=_none),
        words((frames.DATA, b"content")),
    ),
    (_write, words()),
    (lambda calls: calls.files.edit("f", b"a", b"b", count=None), words(result=(b"ok", b"2"))),
    (
        lambda calls: calls.files.move("a", "b"),
        words(result=(b"error", b"exists", b"it is there")),
    ),
]


def conversation(operations: Sequence[Words], random: random.Random) -> list[bytes]:
    """Return the frames of an agent that answers so many calls, interleaved anyhow."""
    left = {number: list(said) for number, said in enumerate(operations, 1)}
    said = [HELLO]
    while left:
        number = random.choice(sorted(left))
        kind, payload = left[number].pop(0)
        said.append(frames.frame(number, kind, payload))
        if not left[number]:
            del left[number]
        if random.random() < 0.1:
            said.append(frames.frame(0, frames.PING, b"still there?"))
    return said


def spoiled(said: list[bytes], random: random.Random) -> bytes:
    """Change something in what an agent says, once or a few times."""
    kept = 0 if random.random() < 0.1 else 1  # a bad greeting is soon over
    begun, said = said[:kept], said[kept:]
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        random.choice(_CHANGES)(said, random)
    data = bytearray(b"".join(said))
    for _ in range(random.choice((0, 0, 1, 2, 5))):
        if data:
            data[random.randrange(len(data))] = random.randrange(256)
    end = random.randrange(len(data) + 1) if random.random() < 0.1 else len(data)
    return b"".join(begun) + bytes(data[:end])


def _drop(said: list[bytes], random: random.Random) -> None:
    if said:
        said.pop(random.randrange(len(said)))


def _repeat(said: list[bytes], random: random.Random) -> None:
    if said:
        said.insert(random.randrange(len(said) + 1), random.choice(said))


def _swap(said: list[bytes], random: random.Random) -> None:
    if said:
        one, other = random.randrange(len(said)), random.randrange(len(said))
        said[one], said[other] = said[other], said[one]


def _invent(said: list[bytes], random: random.Random) -> None:
    kind = random.choice((*sorted(frames.FROM_AGENT), random.randrange(256)))
    payload = random.randbytes(random.choice((0, 1, 4, 4, 30, 300)))
    made = frames.frame(random.randrange(4), kind, payload)
    said.insert(random.randrange(len(said) + 1), made)


def _flip(said: list[bytes], random: random.Random) -> None:
    if said:
        at = random.randrange(len(said))
        frame = bytearray(said[at])
        frame[random.randrange(len(frame))] ^= 1 << random.randrange(8)
        said[at] = bytes(frame)


def _refield(said: list[bytes], random: random.Random) -> None:
    """Put another result in the place of one, its frame being right."""
    fields = [random.choice(_FIELDS) for _ in range(random.choice((0, 1, 2, 3, 5, 9, 10)))]
    payload = frames.pack([random.choice((b"ok", b"ok", b"error")), *fields])
    made = frames.frame(random.randrange(1, 4), frames.RESULT, payload)
    said.insert(random.randrange(len(said) + 1), made)


def _describe(said: list[bytes], random: random.Random) -> None:
    """Slip in an entry that is none, its frame being right."""
    path = random.choice((b"", b".", b"..", b"a", b"d/e", b"p/a", b"/a", b"a\0", b"f", b"x" * 300))
    made = bytearray(entry(path, random.randrange(2**32)))
    made[random.randrange(28)] ^= 1 << random.randrange(8)
    payload = frames.frame(random.randrange(1, 4), frames.DATA, bytes(made))
    said.insert(random.randrange(len(said) + 1), payload)


_FIELDS = (b"", b"0", b"1", b"2", b"137", b"-1", b"x", b"9" * 30, b"not-found", b"1.5", b"\xff")
_CHANGES = (_drop, _repeat, _swap, _invent, _flip, _refield, _describe)


def calls_over(*tapes: Tape) -> LinkCalls:
    """Return the calls of a sandbox whose links are tapes, and which ends with the last one."""
    gone = SandboxGone("The sandbox has ended.", outcome="unknown")
    left = list(tapes)

    async def connect() -> Tape:
        if not left:
            raise gone
        return left.pop(0)

    async def ended() -> SandboxError:
        return gone

    return LinkCalls(
        connect,
        caller=lambda _: "1:1:",
        environment=lambda _, env: {**USUAL, **env},
        cwd=lambda _: "/work",
        gone=ended,
        memory_mb=512,
        timeout=300,
    )
