"""The link's frames and fields, as `docs/reference/link-protocol.md` has them; no input or output.

A payload of `DATA` or `ERROUT` is handed on as it arrives and never gathered; every other payload
is gathered up to the limit of its kind, which is checked before its first byte is kept.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

HELLO: Final = 1
OPEN: Final = 2
DATA: Final = 3
ERROUT: Final = 4
EOF: Final = 5
CREDIT: Final = 6
RESULT: Final = 7
SIGNAL: Final = 8
END: Final = 9
PING: Final = 10
PONG: Final = 11

NAME: Final = b"sandboxio-link"
VERSION: Final = b"1"
HEADER_BYTES: Final = 8
PAYLOAD_MAX: Final = 256 * 1024
OPEN_MAX: Final = 4 * 1024 * 1024
FIELDS_MAX: Final = 64 * 1024
PING_MAX: Final = 64
WINDOW: Final = 256 * 1024
CREDIT_MAX: Final = 2**30
SIGNAL_MAX: Final = 64
CHANNEL_MAX: Final = 2**32 - 1

_HEADER = struct.Struct("!II")
_NUMBER = struct.Struct("!I")
_DIGITS = 19


class Rule(NamedTuple):
    """Where a kind of frame may come, and how long its payload may be."""

    name: str
    on_link: bool
    least: int
    most: int


_RULES: Final[Mapping[int, Rule]] = {
    HELLO: Rule("HELLO", True, 0, FIELDS_MAX),
    OPEN: Rule("OPEN", False, 0, OPEN_MAX),
    DATA: Rule("DATA", False, 1, PAYLOAD_MAX),
    ERROUT: Rule("ERROUT", False, 1, PAYLOAD_MAX),
    EOF: Rule("EOF", False, 0, 0),
    CREDIT: Rule("CREDIT", False, 4, 4),
    RESULT: Rule("RESULT", False, 0, FIELDS_MAX),
    SIGNAL: Rule("SIGNAL", False, 1, 1),
    END: Rule("END", False, 0, 0),
    PING: Rule("PING", True, 0, PING_MAX),
    PONG: Rule("PONG", True, 0, PING_MAX),
}
_ONE_WAY = {"host": {OPEN, SIGNAL, END}, "agent": {ERROUT, RESULT}}
FROM_AGENT: Final = {kind: rule for kind, rule in _RULES.items() if kind not in _ONE_WAY["host"]}
FROM_HOST: Final = {kind: rule for kind, rule in _RULES.items() if kind not in _ONE_WAY["agent"]}

Frame = tuple[int, int, bytes]
"""A channel, a kind, and a payload; of `DATA` and `ERROUT`, a piece of one."""


class RuleBroken(Exception):
    """The other side broke a rule of the protocol; the text says which, in words of ours."""


def header(channel: int, kind: int, length: int) -> bytes:
    """Return the eight bytes before a payload."""
    return _HEADER.pack(channel, kind << 24 | length)


def frame(channel: int, kind: int, payload: bytes = b"") -> bytes:
    """Return a whole frame.

    Example:
        >>> frame(1, EOF)
        b'\\x00\\x00\\x00\\x01\\x05\\x00\\x00\\x00'
    """
    return _HEADER.pack(channel, kind << 24 | len(payload)) + payload


def credit(channel: int, count: int) -> bytes:
    """Return the frame that lets the other side send so many more bytes."""
    return _HEADER.pack(channel, CREDIT << 24 | 4) + _NUMBER.pack(count)


def credited(payload: bytes) -> int:
    """Read a `CREDIT`."""
    (count,) = _NUMBER.unpack(payload)
    if not 1 <= count <= CREDIT_MAX:
        raise RuleBroken("a CREDIT is no number between 1 and 2^30")
    return int(count)


def pack(fields: Iterable[bytes]) -> bytes:
    """Return a payload of fields."""
    return b"".join([part for field in fields for part in (_NUMBER.pack(len(field)), field)])


def unpack(payload: bytes) -> list[bytes]:
    """Read a payload of fields.

    Example:
        >>> unpack(pack([b"ok", b""]))
        [b'ok', b'']
    """
    fields: list[bytes] = []
    at, end = 0, len(payload)
    while at < end:
        if end - at < 4:
            raise RuleBroken("fields do not parse")
        start = at + 4
        at = start + _NUMBER.unpack_from(payload, at)[0]
        if at > end:
            raise RuleBroken("fields do not parse")
        fields.append(payload[start:at])
    return fields


def number(field: bytes, most: int) -> int:
    """Read a decimal number between 0 and `most`."""
    if not field.isdigit() or len(field) > _DIGITS:
        raise RuleBroken("a field is not the number it has to be")
    value = int(field)
    if value > most:
        raise RuleBroken("a number is out of range")
    return value


def flag(field: bytes) -> bool:
    """Read a `0` or a `1`."""
    if field not in (b"0", b"1"):
        raise RuleBroken("a field is neither 0 nor 1")
    return field == b"1"


class Decoder:
    """Cuts a stream into frames as its bytes arrive, whatever their pieces.

    What was whole before the place where a rule is broken still comes out.
    """

    def __init__(self, rules: Mapping[int, Rule] = FROM_AGENT) -> None:
        self._rules = rules
        self._begun = b""
        """The start of a header."""
        self._channel = self._kind = 0
        self._left = 0
        self._gathered = bytearray()

    @property
    def at_boundary(self) -> bool:
        """Whether the bytes so far end with a whole frame."""
        return not self._begun and not self._left

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Yield what the bytes complete; raises `RuleBroken`."""
        at, end = 0, len(data)
        while at < end:
            if not self._left:
                at = self._begin(data, at)
                if not self._left and not self._begun:
                    yield self._channel, self._kind, b""
                continue
            upto = min(end, at + self._left)
            self._left -= upto - at
            whole = at == 0 and upto == end
            piece = data if whole else data[at:upto]
            at = upto
            if self._kind in (DATA, ERROUT):
                yield self._channel, self._kind, piece
            elif self._left:
                self._gathered += piece
            else:
                yield self._channel, self._kind, self._complete(piece)

    def _complete(self, piece: bytes) -> bytes:
        if not self._gathered:
            return piece
        payload = bytes(self._gathered + piece)
        self._gathered = bytearray()
        return payload

    def _begin(self, data: bytes, at: int) -> int:
        """Read a header, or the part of one that is there; return where it ends."""
        if not self._begun and len(data) - at >= HEADER_BYTES:
            channel, word = _HEADER.unpack_from(data, at)
            at += HEADER_BYTES
        else:
            piece = data[at : at + HEADER_BYTES - len(self._begun)]
            self._begun += piece
            at += len(piece)
            if len(self._begun) < HEADER_BYTES:
                return at
            channel, word = _HEADER.unpack(self._begun)
            self._begun = b""
        self._check(channel, word >> 24, word & 0xFFFFFF)
        return at

    def _check(self, channel: int, kind: int, length: int) -> None:
        rule = self._rules.get(kind)
        if rule is None:
            raise RuleBroken("a frame is of no kind that may come from this side")
        if rule.on_link != (channel == 0):
            raise RuleBroken(f"{rule.name} came on a channel where it does not belong")
        if not rule.least <= length <= rule.most:
            raise RuleBroken(f"the length of {rule.name} is out of bounds")
        self._channel, self._kind, self._left = channel, kind, length
