"""The methods of Python's own values that are known, and how large their results can be."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from sandboxio.testing._python.objects import ATTRIBUTES, NotUnderstood, Value, method
from sandboxio.testing._python.operators import template
from sandboxio.testing._python.session import ITEM, PLAIN

if TYPE_CHECKING:
    from sandboxio.testing._python.objects import Act
    from sandboxio.testing._python.session import Session

Host = Callable[..., Value]

ENCODINGS = (
    *("utf-8", "utf8", "utf_8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"),
    *("ascii", "us-ascii", "latin-1", "latin1", "latin_1", "iso-8859-1"),
)
"""Python imports a module for any other, of a name that the code would choose."""
ERROR_WAYS = (
    *("strict", "ignore", "replace", "backslashreplace", "xmlcharrefreplace"),
    *("surrogateescape", "surrogatepass"),
)

_TEXT: dict[str, Host] = {
    "capitalize": str.capitalize,
    "casefold": str.casefold,
    "center": str.center,
    "count": str.count,
    "endswith": str.endswith,
    "expandtabs": str.expandtabs,
    "find": str.find,
    "index": str.index,
    "isalnum": str.isalnum,
    "isalpha": str.isalpha,
    "isascii": str.isascii,
    "isdecimal": str.isdecimal,
    "isdigit": str.isdigit,
    "isidentifier": str.isidentifier,
    "islower": str.islower,
    "isnumeric": str.isnumeric,
    "isprintable": str.isprintable,
    "isspace": str.isspace,
    "istitle": str.istitle,
    "isupper": str.isupper,
    "join": str.join,
    "ljust": str.ljust,
    "lower": str.lower,
    "lstrip": str.lstrip,
    "partition": str.partition,
    "removeprefix": str.removeprefix,
    "removesuffix": str.removesuffix,
    "replace": str.replace,
    "rfind": str.rfind,
    "rindex": str.rindex,
    "rjust": str.rjust,
    "rpartition": str.rpartition,
    "rsplit": str.rsplit,
    "rstrip": str.rstrip,
    "split": str.split,
    "splitlines": str.splitlines,
    "startswith": str.startswith,
    "strip": str.strip,
    "swapcase": str.swapcase,
    "title": str.title,
    "upper": str.upper,
    "zfill": str.zfill,
}
_BYTES: dict[str, Host] = {
    "count": bytes.count,
    "endswith": bytes.endswith,
    "find": bytes.find,
    "hex": bytes.hex,
    "index": bytes.index,
    "isdigit": bytes.isdigit,
    "join": bytes.join,
    "lower": bytes.lower,
    "lstrip": bytes.lstrip,
    "replace": bytes.replace,
    "rfind": bytes.rfind,
    "rstrip": bytes.rstrip,
    "split": bytes.split,
    "splitlines": bytes.splitlines,
    "startswith": bytes.startswith,
    "strip": bytes.strip,
    "upper": bytes.upper,
}
_LIST: Value = list  # without the types of items, which nobody knows
_TUPLE: Value = tuple
_DICT: Value = dict
_SET: Value = set
_FROZENSET: Value = frozenset
_LISTS: dict[type, dict[str, Host]] = {
    list: {
        "append": _LIST.append,
        "clear": _LIST.clear,
        "copy": _LIST.copy,
        "count": _LIST.count,
        "extend": _LIST.extend,
        "index": _LIST.index,
        "insert": _LIST.insert,
        "pop": _LIST.pop,
        "remove": _LIST.remove,
        "reverse": _LIST.reverse,
    },
    tuple: {"count": _TUPLE.count, "index": _TUPLE.index},
    dict: {
        "clear": _DICT.clear,
        "copy": _DICT.copy,
        "get": _DICT.get,
        "items": _DICT.items,
        "keys": _DICT.keys,
        "pop": _DICT.pop,
        "popitem": _DICT.popitem,
        "setdefault": _DICT.setdefault,
        "update": _DICT.update,
        "values": _DICT.values,
    },
    set: {
        "add": _SET.add,
        "clear": _SET.clear,
        "copy": _SET.copy,
        "difference": _SET.difference,
        "discard": _SET.discard,
        "intersection": _SET.intersection,
        "isdisjoint": _SET.isdisjoint,
        "issubset": _SET.issubset,
        "issuperset": _SET.issuperset,
        "remove": _SET.remove,
        "symmetric_difference": _SET.symmetric_difference,
        "union": _SET.union,
        "update": _SET.update,
    },
    frozenset: {
        "difference": _FROZENSET.difference,
        "intersection": _FROZENSET.intersection,
        "issubset": _FROZENSET.issubset,
        "union": _FROZENSET.union,
    },
    int: {"bit_length": int.bit_length},
    float: {"is_integer": float.is_integer},
}
_WHOLE = ("count", "index", "remove")
"""Methods of lists that compare every item."""
_WALKING = (
    *("difference", "extend", "intersection", "isdisjoint", "issubset", "issuperset"),
    *("symmetric_difference", "union", "update"),
)
"""Methods that iterate over what they are given."""
_KEPT = ("get", "items", "keys", "pop", "popitem", "setdefault", "values")
"""Methods whose result was there before."""


def _simple(name: str, host: Host) -> Act:
    async def act(session: Session, value: Value, *given: Value, **named: Value) -> Value:
        walks = name in _WALKING
        arguments = [await session.plain(item) if walks else item for item in given]
        session.guard(*arguments, *named.values())
        if name in _WHOLE:
            session.guard(value)
        result = host(value, *arguments, **named)
        return result if name in _KEPT else session.made(result)

    return act


def _textual(name: str, host: Host) -> Act:
    largest = _LARGEST.get(name)

    async def act(session: Session, value: Value, *given: Value, **named: Value) -> Value:
        walks = name == "join"
        arguments = [await session.plain(item) if walks else item for item in given]
        session.guard(value, *arguments, *named.values())
        if largest is not None:
            session.need(largest(value, *arguments, *named.values()))
        return session.made(host(value, *arguments, **named))

    return act


def _joined(value: Value, items: Value = (), *_: Value) -> int:
    if not isinstance(items, PLAIN):
        return 0
    return sum(len(value) + (len(item) if isinstance(item, str | bytes) else 1) for item in items)


def _padded(value: Value, width: Value = 0, *_: Value) -> int:
    return len(value) + (max(0, width) if isinstance(width, int) else 0)


def _tabbed(value: str, size: Value = 8) -> int:
    return len(value) + value.count("\t") * (max(0, size) if isinstance(size, int) else 8)


def _replaced(value: Value, old: Value = None, new: Value = None, *_: Value) -> int:
    if not isinstance(old, type(value)) or not isinstance(new, type(value)):
        return len(value)
    return int(len(value) + value.count(old) * len(new))


def _pieces(value: Value, separator: Value = None, *_: Value) -> int:
    """Return the room for the pieces of a split, which each are a value of their own."""
    blank: Value = " \t\n\r" if type(value) is str else b" \t\n\r"
    if isinstance(separator, type(value)) and separator:
        return int((value.count(separator) + 1) * ITEM + len(value))
    blanks = sum(int(value.count(blank[n : n + 1])) for n in range(len(blank)))
    return blanks * ITEM + len(value)


def _line_pieces(value: Value, *_: Value) -> int:
    return _pieces(value)


_LARGEST: dict[str, Callable[..., int]] = {
    "center": _padded,
    "expandtabs": _tabbed,
    "join": _joined,
    "ljust": _padded,
    "replace": _replaced,
    "rjust": _padded,
    "rsplit": _pieces,
    "split": _pieces,
    "splitlines": _line_pieces,
    "zfill": _padded,
}


def require_codec(encoding: Value, errors: Value) -> None:
    """Refuse a codec that is not known; `None` stands for the usual one."""
    if encoding is not None and str(encoding).lower() not in ENCODINGS:
        raise NotUnderstood
    if errors is not None and errors not in ERROR_WAYS:
        raise NotUnderstood


@method(str, "encode")
async def _encode(
    session: Session, value: str, encoding: str = "utf-8", errors: str = "strict"
) -> bytes:
    require_codec(encoding, errors)
    return bytes(session.made(value.encode(encoding, errors)))


@method(bytes, "decode")
async def _decode(
    session: Session, value: bytes, encoding: str = "utf-8", errors: str = "strict"
) -> str:
    require_codec(encoding, errors)
    return str(session.made(value.decode(encoding, errors)))


@method(str, "format")
async def _format(session: Session, value: str, *given: Value, **named: Value) -> str:
    return str(session.made(template(session, value, given, named)))


for _name, _host in _TEXT.items():
    method(str, _name)(_textual(_name, _host))
for _name, _host in _BYTES.items():
    method(bytes, _name)(_textual(_name, _host))
for _kind, _table in _LISTS.items():
    for _name, _host in _table.items():
        method(_kind, _name)(_simple(_name, _host))

ATTRIBUTES[BaseException] = {"args": lambda error: error.args}
ATTRIBUTES[OSError] = {
    "errno": lambda error: error.errno,
    "filename": lambda error: error.filename,
    "strerror": lambda error: error.strerror,
}
ATTRIBUTES[SystemExit] = {"code": lambda error: error.code}
ATTRIBUTES[StopIteration] = {"value": lambda error: error.value}
ATTRIBUTES[ImportError] = {"name": lambda error: error.name}
