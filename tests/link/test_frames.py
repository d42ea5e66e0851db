"""Frames and fields: what goes out comes in, in whatever pieces, and nothing else does."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxio.guest import frames
from sandboxio.guest.frames import Decoder, Frame, RuleBroken

STREAMED = (frames.DATA, frames.ERROUT)
PAYLOADS = {
    frames.HELLO: st.binary(max_size=300),
    frames.DATA: st.binary(min_size=1, max_size=300),
    frames.ERROUT: st.binary(min_size=1, max_size=300),
    frames.EOF: st.just(b""),
    frames.CREDIT: st.binary(min_size=4, max_size=4),
    frames.RESULT: st.binary(max_size=300),
    frames.PING: st.binary(max_size=64),
    frames.PONG: st.binary(max_size=64),
}
ON_LINK = (frames.HELLO, frames.PING, frames.PONG)


@st.composite
def allowed(draw: st.DrawFn) -> Frame:
    """A frame that an agent may send."""
    kind = draw(st.sampled_from(sorted(PAYLOADS)))
    channel = 0 if kind in ON_LINK else draw(st.integers(1, frames.CHANNEL_MAX))
    return channel, kind, draw(PAYLOADS[kind])


def joined(pieces: list[Frame]) -> list[Frame]:
    """Put together again what was handed on in pieces."""
    whole: list[Frame] = []
    for channel, kind, payload in pieces:
        if kind in STREAMED and whole and whole[-1][:2] == (channel, kind):
            payload = whole.pop()[2] + payload
        whole.append((channel, kind, payload))
    return whole


@given(st.lists(allowed(), max_size=8), st.lists(st.integers(1, 40), min_size=1))
def test_pieces_of_any_size(sent: list[Frame], sizes: list[int]) -> None:
    """Frames come out as they went in, wherever the stream is cut."""
    data = b"".join(frames.frame(*one) for one in sent)
    decoder, got, at = Decoder(), list[Frame](), 0
    for turn in range(len(data)):
        size = sizes[turn % len(sizes)]
        got += decoder.feed(data[at : at + size])
        at += size
    assert joined(got) == joined(sent)
    assert decoder.at_boundary


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_any_bytes(first: bytes, second: bytes) -> None:
    """Whatever arrives is taken or breaks a rule; no other exception leaves."""
    decoder = Decoder()
    try:
        for data in (first, second):
            for channel, kind, payload in decoder.feed(data):
                assert (channel == 0) == (kind in ON_LINK)
                assert len(payload) <= 200
    except RuleBroken:
        pass


@given(st.lists(st.binary(max_size=50), max_size=8))
def test_fields(fields: list[bytes]) -> None:
    """Fields are read as they were written."""
    assert frames.unpack(frames.pack(fields)) == fields


@given(st.binary(max_size=64))
def test_any_fields(payload: bytes) -> None:
    """A payload is fields, all of it, or breaks a rule."""
    with contextlib.suppress(RuleBroken):
        assert frames.pack(frames.unpack(payload)) == payload


@given(st.binary(max_size=24))
def test_any_number(field: bytes) -> None:
    """A number is decimal digits within its bounds, or breaks a rule."""
    try:
        assert frames.number(field, 10**6) == int(field)
    except RuleBroken:
        assert not field.isdigit() or len(field) > 19 or int(field) > 10**6


def test_data_is_not_gathered() -> None:
    """A piece of a payload is there as soon as it has arrived, and is not kept."""
    decoder = Decoder()
    start = frames.header(1, frames.DATA, frames.PAYLOAD_MAX)
    assert list(decoder.feed(start + b"ab")) == [(1, frames.DATA, b"ab")]
    piece = b"x" * 1000
    ((_, _, same),) = decoder.feed(piece)
    assert same is piece
    assert not decoder.at_boundary


@pytest.mark.parametrize("kind", sorted(frames.FROM_AGENT))
def test_a_length_beyond_its_limit(kind: int) -> None:
    """The header alone tells that a frame is too long: nothing of it is kept."""
    channel = 0 if kind in ON_LINK else 1
    with pytest.raises(RuleBroken, match="length"):
        list(Decoder().feed(frames.header(channel, kind, frames.FROM_AGENT[kind].most + 1)))


@pytest.mark.parametrize("kind", [frames.DATA, frames.ERROUT, frames.CREDIT])
def test_a_length_below_its_limit(kind: int) -> None:
    """A frame that has to have a payload has one."""
    with pytest.raises(RuleBroken, match="length"):
        list(Decoder().feed(frames.header(1, kind, 0)))


@pytest.mark.parametrize("kind", sorted(frames.FROM_AGENT))
def test_the_wrong_channel(kind: int) -> None:
    """What belongs to the link comes on channel 0, and nothing else does."""
    channel = 1 if kind in ON_LINK else 0
    with pytest.raises(RuleBroken, match="channel"):
        list(Decoder().feed(frames.header(channel, kind, 4)))


@pytest.mark.parametrize("kind", [0, frames.OPEN, frames.SIGNAL, frames.END, 12, 255])
def test_a_kind_of_the_other_side(kind: int) -> None:
    """What only a host says, or nobody, does not come from an agent."""
    with pytest.raises(RuleBroken, match="kind"):
        list(Decoder().feed(frames.header(1, kind, 0)))


def test_what_came_before_the_breach() -> None:
    """Frames before the place where a rule is broken come out, however the bytes are cut."""
    data = frames.frame(1, frames.EOF) + bytes(8)
    feed = Decoder().feed(data)
    assert next(feed) == (1, frames.EOF, b"")
    with pytest.raises(RuleBroken):
        next(feed)


@pytest.mark.parametrize("count", [0, 2**30 + 1, 2**32 - 1])
def test_credit_out_of_range(count: int) -> None:
    """A credit is at least 1 byte and at most 2^30."""
    payload = frames.credit(1, count)[frames.HEADER_BYTES :]
    with pytest.raises(RuleBroken, match="CREDIT"):
        frames.credited(payload)


@pytest.mark.parametrize("field", [b"", b"-1", b"+1", b" 1", b"1_0", b"0x1", b"9" * 20, b"101"])
def test_no_number(field: bytes) -> None:
    """Signs, spaces, other notations, too many digits and too much are refused."""
    with pytest.raises(RuleBroken):
        frames.number(field, 100)
