"""What recognised Python is made of: its values, its exceptions, and the tables of what is known.

Nothing here looks anything up by a name that the code chose: what is not in a table is refused.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

if TYPE_CHECKING:
    from sandboxio.testing._python.session import Session

Value: TypeAlias = Any
"""A plain value of Python (numbers, text, containers, exceptions, types), or a `Thing`."""
Act = Callable[..., Awaitable[Value]]
"""What a known function does: gets the session and the arguments of the call."""
Sink = Callable[[Value], Awaitable[bool]]
"""Takes one item after another; `True` when it wants no more."""

_Class = TypeVar("_Class", bound=type[Any])
_Act = TypeVar("_Act", bound=Callable[..., Awaitable[Any]])


class Raised(Exception):
    """An exception of the recognised code, and the line on which it arose."""

    def __init__(self, error: BaseException, line: int = 0) -> None:
        super().__init__()
        error.__traceback__ = error.__context__ = error.__cause__ = None
        self.error = error
        self.line = line
        self.before: Raised | None = None
        """The exception that was being handled, or that was named with `from`."""
        self.has_cause = False
        """There was a `from`, be it `from None`."""


class NotUnderstood(Exception):
    """The code wants what is not known; `line` is where, 0 for the line that is being run."""

    def __init__(self, line: int = 0) -> None:
        super().__init__()
        self.line = line


def named(name: str) -> Callable[[_Class], _Class]:
    """Let a class print under the name of what it stands for, in messages of Python too."""
    module, _, short = name.rpartition(".")

    def rename(cls: _Class) -> _Class:
        cls.__module__ = module or "builtins"
        cls.__name__ = cls.__qualname__ = short
        return cls

    return rename


class Thing:
    """A value that is none of Python's own: it has what the tables say and nothing else."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} object at 0x7f0000000000>"


@named("module")
class Module(Thing):
    """An imported module, which is only its name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"<module '{self.name}'>"


@named("builtin_function_or_method")
class Function(Thing):
    """A known function, or a known method of a value, its `receiver`."""

    def __init__(self, name: str, act: Act, *receiver: Value) -> None:
        self.name = name
        self.act = act
        self.receiver = receiver

    def __repr__(self) -> str:
        return f"<built-in function {self.name.rpartition('.')[2]}>"


@named("iterator")
class Once(Thing):
    """Items that can be had once: what `zip()`, `map()` and their like return."""

    def __init__(self, items: Iterator[Value]) -> None:
        self.items = items


@named("generator")
class Generator(Thing):
    """A generator expression, computed when somebody asks for its items."""

    def __init__(self, drain: Callable[[Sink], Awaitable[None]]) -> None:
        self.drain = drain


class Closing(Thing):
    """Something that `with` opens and closes."""

    closed = False

    def close(self) -> None:
        self.closed = True


class Lines(Closing, ABC):
    """Something that is iterated over line by line."""

    @abstractmethod
    async def lines(self, session: Session) -> list[Value]: ...


FUNCTIONS: dict[str, Function] = {}
"""Functions by their full name; built-in ones without a module."""
CONSTRUCTORS: dict[type, Function] = {}
"""What calling a type does."""
CONSTANTS: dict[str, Value] = {}
"""Values by their full name, the same in every run."""
FACTS: dict[str, Callable[[Session], Value]] = {}
"""Values by their full name that differ from run to run."""
METHODS: dict[type, dict[str, Act]] = {}
"""Methods by type and name; they get the session and the value first."""
ATTRIBUTES: dict[type, dict[str, Callable[[Value], Value]]] = {}
"""How to get an attribute, by type and name."""


def function(*names: str) -> Callable[[_Act], _Act]:
    """Enter a function into the table."""

    def enter(act: _Act) -> _Act:
        FUNCTIONS.update({name: Function(name, act) for name in names})
        return act

    return enter


def constructor(kind: type) -> Callable[[_Act], _Act]:
    """Enter what calling a type does into the table."""

    def enter(act: _Act) -> _Act:
        CONSTRUCTORS[kind] = Function(kind.__name__, act)
        return act

    return enter


def method(kind: type, *names: str) -> Callable[[_Act], _Act]:
    """Enter a method into the table."""

    def enter(act: _Act) -> _Act:
        METHODS.setdefault(kind, {}).update(dict.fromkeys(names, act))
        return act

    return enter
