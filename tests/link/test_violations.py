"""Everything an agent may not do, by name: each closes the link, and the message says which."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import anyio
import pytest

from sandboxio.core.errors import ConfigurationError, LinkLost
from sandboxio.guest import frames
from sandboxio.guest.link import Link
from tests.link.peer import FACTS, conversation, ends

if TYPE_CHECKING:
    from tests.link.peer import Peer

pytestmark = pytest.mark.anyio

EVIL = b"evil\x1b[2J"
HELLO = frames.pack([frames.NAME, frames.VERSION, b"link=1"])


def result(*fields: bytes) -> bytes:
    return frames.frame(1, frames.RESULT, frames.pack(fields))


VIOLATIONS = {
    "a kind nobody knows": (frames.frame(1, 99, EVIL), "no kind"),
    "a kind of the host": (frames.frame(1, frames.OPEN, EVIL), "no kind"),
    "an END from the agent": (frames.frame(1, frames.END), "no kind"),
    "a SIGNAL from the agent": (frames.frame(1, frames.SIGNAL, b"\x09"), "no kind"),
    "DATA on the link": (frames.frame(0, frames.DATA, EVIL), "DATA came on a channel"),
    "a RESULT on the link": (frames.frame(0, frames.RESULT, EVIL), "RESULT came on a channel"),
    "a PING on a channel": (frames.frame(1, frames.PING, EVIL), "PING came on a channel"),
    "empty DATA": (frames.frame(1, frames.DATA), "length of DATA"),
    "empty ERROUT": (frames.frame(1, frames.ERROUT), "length of ERROUT"),
    "DATA that is too long": (frames.header(1, frames.DATA, 2**18 + 1), "length of DATA"),
    "a RESULT that is too long": (frames.header(1, frames.RESULT, 2**16 + 1), "length of RESULT"),
    "an EOF with a payload": (frames.frame(1, frames.EOF, EVIL), "length of EOF"),
    "a CREDIT of three bytes": (frames.frame(1, frames.CREDIT, b"abc"), "length of CREDIT"),
    "a CREDIT of nothing": (frames.credit(1, 0), "CREDIT"),
    "a CREDIT beyond 2^30": (frames.credit(1, 2**30 + 1), "CREDIT"),
    "credit beyond 2^30": (frames.credit(1, 2**30), "credit went beyond"),
    "a PING that is too long": (frames.frame(0, frames.PING, bytes(65)), "length of PING"),
    "a PONG that nobody asked for": (frames.frame(0, frames.PONG, EVIL), "PONG came without"),
    "HELLO twice": (frames.frame(0, frames.HELLO, HELLO), "HELLO came twice"),
    "a channel never opened": (frames.frame(7, frames.DATA, EVIL), "not open"),
    "output after a RESULT": (result(b"ok") + frames.frame(1, frames.DATA, EVIL), "not open"),
    "a RESULT twice": (2 * result(b"ok"), "not open"),
    "output after EOF": (
        frames.frame(1, frames.EOF) + frames.frame(1, frames.ERROUT, EVIL),
        "after EOF",
    ),
    "EOF twice": (2 * frames.frame(1, frames.EOF), "EOF came twice"),
    "output beyond its credit": (
        2 * frames.frame(1, frames.DATA, bytes(2**17)) + frames.frame(1, frames.ERROUT, EVIL),
        "beyond its credit",
    ),
    "fields that end too early": (frames.frame(1, frames.RESULT, b"\0\0\0\x09ok"), "parse"),
    "fields with a rest": (frames.frame(1, frames.RESULT, b"\0\0\0\x02ok\0"), "parse"),
    "a field of 4 GiB": (frames.frame(1, frames.RESULT, b"\xff\xff\xff\xffok"), "parse"),
    "a RESULT without fields": (frames.frame(1, frames.RESULT), "neither ok"),
    "a RESULT that is neither": (result(EVIL), "neither ok"),
    "an error without a name": (result(b"error"), "neither ok"),
    "an error nobody knows": (result(b"error", EVIL, b"words"), "neither ok"),
}

GREETINGS = {
    "something before HELLO": (frames.frame(0, frames.PING, EVIL), "before HELLO"),
    "output before HELLO": (frames.frame(1, frames.DATA, EVIL), "before HELLO"),
    "a shell's prompt": (b"sh-5.1# ", "kind|channel"),
    "HTTP": (b"HTTP/1.1 400 Bad Request\r\n\r\n", "kind|channel"),
    "another protocol": (frames.frame(0, frames.HELLO, frames.pack([EVIL, b"1"])), "another"),
    "another version": (frames.frame(0, frames.HELLO, frames.pack([frames.NAME, b"2"])), "version"),
    "no name": (frames.frame(0, frames.HELLO, HELLO[:-10]), "name the link"),
    "an empty name": (frames.frame(0, frames.HELLO, HELLO[:-10] + b"\0\0\0\x05link="), "name"),
    "a fact twice": (frames.frame(0, frames.HELLO, HELLO + b"\0\0\0\x06link=2"), "twice"),
    "no fact": (frames.frame(0, frames.HELLO, HELLO + b"\0\0\0\x04evil"), "fact"),
    "fields that do not parse": (frames.frame(0, frames.HELLO, HELLO + b"\0"), "parse"),
}


async def broken(link: Link, peer: Peer, said: bytes) -> list[LinkLost]:
    """Have the agent say something, and return what two calls then hear."""
    channels = [await link.open(b"exec"), await link.open(b"exec")]
    await peer.stream.send(said)
    heard: list[LinkLost] = []
    for channel in reversed(channels):
        try:
            while await channel.receive() is not None:
                pass
        except LinkLost as exc:
            heard.append(exc)
    return heard


@pytest.mark.parametrize("name", VIOLATIONS)
async def test_a_broken_rule(name: str) -> None:
    """The link is closed at once, with our own words, and every call hears why."""
    said, words = VIOLATIONS[name]
    async with conversation() as (link, peer):
        heard = await broken(link, peer, said)
        assert heard
        for error in heard:
            assert (error.code, error.outcome) == ("SBX_E1205", "unknown")
            assert words in error.message
            assert "evil" not in error.message
        assert link.lost is not None
        assert peer.other.closed


@pytest.mark.parametrize("name", VIOLATIONS)
async def test_a_broken_rule_byte_by_byte(name: str) -> None:
    """It makes no difference in what pieces it comes."""
    said, words = VIOLATIONS[name]
    async with conversation() as (link, peer), anyio.create_task_group() as tasks:

        async def dribble() -> None:
            with suppress(anyio.BrokenResourceError):
                for at in range(0, len(said), len(said) // 100 + 1):
                    await peer.stream.send(said[at : at + len(said) // 100 + 1])

        channel = await link.open(b"exec")
        other = await link.open(b"exec")
        tasks.start_soon(dribble)
        with pytest.raises(LinkLost, match=words.replace("^", r"\^")):
            await other.receive()
        del channel
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("name", GREETINGS)
async def test_a_bad_greeting(name: str) -> None:
    """No link comes of it: nothing was started, and the stream is closed."""
    said, words = GREETINGS[name]
    stream, peer = ends()
    await peer.stream.send(said)
    with anyio.fail_after(10), pytest.raises(LinkLost, match=words) as caught:
        await Link.begin(stream, {})
    assert caught.value.outcome == "not_started"
    assert "evil" not in caught.value.message
    assert stream.closed


async def test_settings_that_are_too_long() -> None:
    """They are refused here, before an agent would."""
    stream, _ = ends()
    with pytest.raises(ConfigurationError, match="65536"):
        await Link.begin(stream, {"loader": b"x" * 2**16})
    assert stream.closed


async def test_facts_no_agent_of_ours_has() -> None:
    """A fact that we do not know, or whose bytes are not UTF-8, is none of our business."""
    stream, peer = ends()
    fields = [frames.NAME, frames.VERSION, *(fact.encode() for fact in FACTS), b"new=\xff"]
    await peer.say(0, frames.HELLO, frames.pack(fields))
    link = await Link.begin(stream, {"user": "1:1:", "loader": b"\xff"})
    assert link.facts["new"] == "\udcff"
    await link.aclose()
