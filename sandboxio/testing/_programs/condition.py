"""test and [."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sandboxio.testing._disk.nodes import Link, Special
from sandboxio.testing._programs._common import Failure, here, quoted, tool

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sandboxio.testing._disk.nodes import Node
    from sandboxio.testing._machine.process import Process

_INTEGER = re.compile(r"\s*[+-]?\d+\s*")
_RIGHTS = {"-r": "read", "-w": "write", "-x": "execute"}
_COMPARE: dict[str, Callable[[int, int], bool]] = {
    "-eq": lambda left, right: left == right,
    "-ne": lambda left, right: left != right,
    "-lt": lambda left, right: left < right,
    "-le": lambda left, right: left <= right,
    "-gt": lambda left, right: left > right,
    "-ge": lambda left, right: left >= right,
}
_TEXT: dict[str, Callable[[str, str], bool]] = {
    "=": lambda left, right: left == right,
    "==": lambda left, right: left == right,
    "!=": lambda left, right: left != right,
    "<": lambda left, right: left < right,
    ">": lambda left, right: left > right,
}
_PAIRS = ("-nt", "-ot", "-ef")
_BINARY = {*_COMPARE, *_TEXT, *_PAIRS}
_NODES: dict[str, Callable[[Node, Process], bool]] = {
    "-e": lambda node, process: True,
    "-f": lambda node, process: node.kind == "file",
    "-d": lambda node, process: node.kind == "directory",
    "-s": lambda node, process: node.size > 0,
    "-p": lambda node, process: isinstance(node, Special) and node.device is None,
    "-c": lambda node, process: isinstance(node, Special) and node.device is not None,
    "-b": lambda node, process: False,
    "-S": lambda node, process: False,
    "-u": lambda node, process: bool(node.mode & 0o4000),
    "-g": lambda node, process: bool(node.mode & 0o2000),
    "-k": lambda node, process: bool(node.mode & 0o1000),
    "-O": lambda node, process: node.uid == process.who.uid,
    "-G": lambda node, process: node.gid == process.who.gid,
    "-L": lambda node, process: isinstance(node, Link),
    "-h": lambda node, process: isinstance(node, Link),
}
_UNARY = {*_NODES, *_RIGHTS, "-n", "-z", "-t"}


@tool("test")
async def test(process: Process, args: Sequence[str]) -> int:
    """Evaluate a condition: 0 where it holds, 1 where not, 2 where it is none."""
    return int(not evaluate(process, args, "test"))


@tool("[")
async def bracket(process: Process, args: Sequence[str]) -> int:
    """Do what test does, up to a closing bracket."""
    if not args or args[-1] != "]":
        raise Failure("[: missing ']'", 2)
    return int(not evaluate(process, args[:-1], "["))


def evaluate(process: Process, words: Sequence[str], name: str = "test") -> bool:
    """Say whether a condition holds.

    Raises:
        Failure: the words make no condition.
    """
    return _Condition(process, list(words), name).holds()


class _Condition:
    def __init__(self, process: Process, words: list[str], name: str) -> None:
        self._process = process
        self._words = words
        self._name = name
        self._at = 0

    def holds(self) -> bool:
        short = self._short(self._words) if len(self._words) <= 4 else None
        if short is not None:
            return short
        value = self._or()
        if self._at < len(self._words):
            raise self._failure(f"extra argument {quoted(self._words[self._at])}")
        return value

    def _short(self, words: list[str]) -> bool | None:
        """Return what POSIX says of so few words; `None` where it says nothing."""
        if not words:
            return False
        if len(words) == 1:
            return words[0] != ""
        if len(words) == 3 and words[1] in _BINARY:
            return self._binary(*words)
        if words[0] == "!":
            value = self._short(words[1:])
            return None if value is None else not value
        if words[0] == "(" and words[-1] == ")" and len(words) > 2:
            return self._short(words[1:-1])
        return self._other(words)

    def _other(self, words: list[str]) -> bool | None:
        if len(words) == 2 and words[0] in _UNARY:
            return self._unary(*words)
        if len(words) == 2:
            raise self._failure(f"missing argument after {quoted(words[1])}")
        if len(words) == 3 and words[1] not in ("-a", "-o"):
            raise self._failure(f"{quoted(words[1])}: binary operator expected")
        return None

    def _or(self) -> bool:
        value = self._and()
        while self._next_is("-o"):
            self._at += 1
            value = self._and() or value
        return value

    def _and(self) -> bool:
        value = self._primary()
        while self._next_is("-a"):
            self._at += 1
            value = self._primary() and value
        return value

    def _primary(self) -> bool:
        words = self._words[self._at :]
        if not words:
            raise self._failure(f"missing argument after {quoted(self._words[-1])}")
        if len(words) > 2 and words[1] in _BINARY:
            self._at += 3
            return self._binary(*words[:3])
        if words[0] == "!":
            self._at += 1
            return not self._primary()
        if words[0] == "(":
            return self._grouped()
        if words[0] in _UNARY and len(words) > 1:
            self._at += 2
            return self._unary(*words[:2])
        self._at += 1
        return words[0] != ""

    def _grouped(self) -> bool:
        self._at += 1
        value = self._or()
        if not self._next_is(")"):
            raise self._failure("')' expected")
        self._at += 1
        return value

    def _next_is(self, word: str) -> bool:
        return self._words[self._at : self._at + 1] == [word]

    def _unary(self, operator: str, word: str) -> bool:
        if operator in ("-n", "-z"):
            return (word != "") == (operator == "-n")
        if operator == "-t":
            return False
        fs, place = self._process.kernel.fs, here(self._process)
        if operator in _RIGHTS:
            right = _RIGHTS[operator]
            return fs.access(
                word,
                **place,
                read=right == "read",
                write=right == "write",
                execute=right == "execute",
            )
        node = self._node(word, follow=operator not in ("-L", "-h"))
        return node is not None and _NODES[operator](node, self._process)

    def _binary(self, left: str, operator: str, right: str) -> bool:
        if operator in _TEXT:
            return _TEXT[operator](left, right)
        if operator in _COMPARE:
            return _COMPARE[operator](self._integer(left), self._integer(right))
        one, two = self._node(left), self._node(right)
        if operator == "-ef":
            return one is not None and one is two
        times = [node.mtime if node else float("-inf") for node in (one, two)]
        return times[0] > times[1] if operator == "-nt" else times[0] < times[1]

    def _node(self, path: str, *, follow: bool = True) -> Node | None:
        try:
            return self._process.kernel.fs.stat(path, **here(self._process), follow=follow)
        except OSError:
            return None

    def _integer(self, word: str) -> int:
        if not _INTEGER.fullmatch(word):
            raise self._failure(f"invalid integer {quoted(word)}")
        return int(word)

    def _failure(self, message: str) -> Failure:
        return Failure(f"{self._name}: {message}", 2)
