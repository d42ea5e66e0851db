"""The value of an expression, found from its syntax tree, which nothing ever executes."""

from __future__ import annotations

import ast
import builtins
from typing import TYPE_CHECKING, ClassVar

from sandboxio.testing._python import (
    data,
    files,
    network,
    paths,
    system,
    types,
)
from sandboxio.testing._python.calls import attribute, call
from sandboxio.testing._python.objects import (
    CONSTANTS,
    CONSTRUCTORS,
    FACTS,
    FUNCTIONS,
    Generator,
    Module,
    NotUnderstood,
    Raised,
    Sink,
    Thing,
    Value,
)
from sandboxio.testing._python.operators import UNARY, binary, compare, formatted
from sandboxio.testing._python.session import Session

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sandboxio.testing._machine.process import Process

# these fill the tables
_ = (data, files, network, paths, system, types)
_GROUPS = ("BaseExceptionGroup", "ExceptionGroup")
BUILTINS: dict[str, Value] = {
    **{kind.__name__: kind for kind in CONSTRUCTORS if kind.__module__ == "builtins"},
    **{
        name: kind
        for name, kind in vars(builtins).items()
        if isinstance(kind, type) and issubclass(kind, BaseException) and name not in _GROUPS
    },
    "__name__": "__main__",
}
"""What has a name everywhere, apart from functions."""
FAILURES = (
    ArithmeticError,
    EOFError,
    LookupError,
    MemoryError,
    OSError,
    RecursionError,
    TypeError,
    ValueError,
)
"""What operations of Python raise on plain values; others would be mistakes of this module."""
MODULES = frozenset(
    name[:place]
    for name in (*FUNCTIONS, *CONSTANTS, *FACTS)
    for place in range(len(name))
    if name[place] == "."
)
"""Every module of which anything is known."""


def known(name: str) -> bool:
    """Say whether a full name, such as `os.path.join`, is in the tables."""
    return name in FUNCTIONS or name in CONSTANTS or name in FACTS or name in MODULES


class Values(Session):
    """A session that evaluates expressions."""

    def __init__(self, process: Process) -> None:
        super().__init__(process)
        self.handling: Raised | None = None

    async def value(self, node: ast.expr) -> Value:
        """Return the value of an expression."""
        try:
            return await self.EXPRESSIONS[type(node)](self, node)
        except BrokenPipeError:
            raise
        except FAILURES as exc:
            raise Raised(exc, node.lineno) from None
        except (Raised, NotUnderstood) as exc:
            exc.line = exc.line or node.lineno
            raise

    def global_name(self, name: str) -> Value:
        """Return what a full name of the tables stands for."""
        if name in FUNCTIONS:
            return FUNCTIONS[name]
        if name in CONSTANTS:
            return CONSTANTS[name]
        if name in FACTS:
            return FACTS[name](self)
        if name in MODULES:
            return Module(name)
        raise NotUnderstood

    async def assign(self, target: ast.expr, value: Value) -> None:
        """Bind a name, several, or an item of a container."""
        if isinstance(target, ast.Name):
            self.scopes[-1][target.id] = value
        elif isinstance(target, ast.Subscript):
            await self._store(target, value)
        elif isinstance(target, ast.Tuple | ast.List):
            await self._unpack(target.elts, value)

    async def key(self, node: ast.expr) -> Value:
        """Return the index or key between brackets."""
        key = await self.value(node)
        self.guard(key)
        return key

    async def _constant(self, node: ast.Constant) -> Value:
        return node.value

    async def _name(self, node: ast.Name) -> Value:
        name = node.id
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        if name in FUNCTIONS:
            return FUNCTIONS[name]
        if name in BUILTINS:
            return BUILTINS[name]
        raise Raised(NameError(f"name {name!r} is not defined"), node.lineno)

    async def _attribute(self, node: ast.Attribute) -> Value:
        inner = node.value
        if node.attr == "__name__" and isinstance(inner, ast.Attribute):
            return type(await self.value(inner.value)).__name__
        value = await self.value(inner)
        if node.attr == "__name__" and isinstance(value, type):
            return value.__name__
        if isinstance(value, Module):
            return self.global_name(f"{value.name}.{node.attr}")
        try:
            return attribute(value, node.attr)
        except AttributeError as exc:
            raise Raised(exc, node.lineno) from None

    async def _call(self, node: ast.Call) -> Value:
        target = await self.value(node.func)
        given = await self._listed(node.args)
        named = {item.arg or "": await self.value(item.value) for item in node.keywords}
        return await call(self, target, given, named)

    async def _listed(self, nodes: list[ast.expr]) -> list[Value]:
        found: list[Value] = []
        for node in nodes:
            if isinstance(node, ast.Starred):
                found.extend(await self.items(await self.value(node.value)))
            else:
                found.append(await self.value(node))
        return found

    async def _list(self, node: ast.List) -> Value:
        return self.made(await self._listed(node.elts))

    async def _tuple(self, node: ast.Tuple) -> Value:
        return self.made(tuple(await self._listed(node.elts)))

    async def _set(self, node: ast.Set) -> Value:
        found = await self._listed(node.elts)
        self.guard(found)
        return self.made(set(found))

    async def _dict(self, node: ast.Dict) -> Value:
        made: dict[Value, Value] = {}
        for key, item in zip(node.keys, node.values, strict=True):
            value = await self.value(item)
            if key is None:
                made.update(value)
            else:
                made[await self.key(key)] = value
        return self.made(made)

    async def _binary(self, node: ast.BinOp) -> Value:
        left = await self.value(node.left)
        return binary(self, type(node.op), left, await self.value(node.right))

    async def _unary(self, node: ast.UnaryOp) -> Value:
        value = await self.value(node.operand)
        if isinstance(node.op, ast.Invert) and isinstance(value, bool):
            value = int(value)  # Python warns of it
        return UNARY[type(node.op)](value)

    async def _logic(self, node: ast.BoolOp) -> Value:
        wanted, value = isinstance(node.op, ast.Or), None
        for item in node.values:
            value = await self.value(item)
            if bool(value) is wanted:
                break
        return value

    async def _compare(self, node: ast.Compare) -> Value:
        left = await self.value(node.left)
        for operation, item in zip(node.ops, node.comparators, strict=True):
            right = await self.value(item)
            if not compare(self, type(operation), left, right):
                return False
            left = right
        return True

    async def _choice(self, node: ast.IfExp) -> Value:
        return await self.value(node.body if await self.value(node.test) else node.orelse)

    async def _item(self, node: ast.Subscript) -> Value:
        value = await self.value(node.value)
        if isinstance(value, type | Thing):
            raise NotUnderstood
        if isinstance(node.slice, ast.Slice):
            return self.made(value[await self._slice(node.slice)])
        return value[await self.key(node.slice)]

    async def _slice(self, node: ast.Slice) -> slice:
        parts = [part and await self.value(part) for part in (node.lower, node.upper, node.step)]
        return slice(*parts)

    async def _joined(self, node: ast.JoinedStr) -> Value:
        parts = [str(await self.value(part)) for part in node.values]
        self.need(sum(map(len, parts)))
        return self.made("".join(parts))

    async def _field(self, node: ast.FormattedValue) -> Value:
        value = await self.value(node.value)
        spec = await self.value(node.format_spec) if node.format_spec else ""
        conversion = chr(node.conversion) if node.conversion > 0 else None
        return formatted(self, value, conversion, spec)

    async def _list_of(self, node: ast.ListComp) -> Value:
        return self.made(await self._gathered(node.generators, node.elt))

    async def _set_of(self, node: ast.SetComp) -> Value:
        found = await self._gathered(node.generators, node.elt)
        self.guard(found)
        return self.made(set(found))

    async def _dict_of(self, node: ast.DictComp) -> Value:
        pair = ast.Tuple([node.key, node.value], ast.Load(), lineno=node.lineno)
        found = await self._gathered(node.generators, pair)
        self.guard([key for key, _ in found])
        return self.made(dict(found))

    async def _generator(self, node: ast.GeneratorExp) -> Value:
        scopes = list(self.scopes)

        async def drain(sink: Sink) -> None:
            outside, self.scopes = self.scopes, [*scopes, {}]
            try:
                await self._clauses(node.generators, node.elt, sink)
            finally:
                self.scopes = outside

        return Generator(drain)

    async def _gathered(self, clauses: list[ast.comprehension], item: ast.expr) -> list[Value]:
        made: list[Value] = []

        async def take(value: Value) -> bool:
            made.append(value)
            return False

        self.scopes.append({})
        try:
            await self._clauses(clauses, item, take)
        finally:
            self.scopes.pop()
        return made

    async def _clauses(self, clauses: list[ast.comprehension], item: ast.expr, sink: Sink) -> bool:
        """Go through the `for` and `if` of a comprehension; `True` when nobody wants more."""
        if not clauses:
            return await sink(await self.value(item))
        clause, *inner = clauses
        items = await self.iterable(await self.value(clause.iter))
        for each in self.each(items):
            await self.round()
            await self.assign(clause.target, each)
            if await self._passes(clause.ifs) and await self._clauses(inner, item, sink):
                return True
        return False

    async def _passes(self, conditions: list[ast.expr]) -> bool:
        for condition in conditions:
            if not await self.value(condition):
                return False
        return True

    async def _store(self, target: ast.Subscript, value: Value) -> None:
        container = await self.value(target.value)
        if isinstance(target.slice, ast.Slice):
            container[await self._slice(target.slice)] = await self.items(value)
        elif container is self.environ and not isinstance(value, str):
            raise TypeError(f"str expected, not {type(value).__name__}")
        else:
            container[await self.key(target.slice)] = value

    async def _unpack(self, targets: list[ast.expr], value: Value) -> None:
        if isinstance(value, int | float) or value is None:
            raise TypeError(f"cannot unpack non-iterable {type(value).__name__} object")
        items = await self.items(value)
        star = next((n for n, t in enumerate(targets) if isinstance(t, ast.Starred)), None)
        wanted = len(targets) - (star is not None)
        if len(items) < wanted:
            least = "at least " if star is not None else ""
            raise ValueError(
                f"not enough values to unpack (expected {least}{wanted}, got {len(items)})"
            )
        if star is None and len(items) > wanted:
            raise ValueError(f"too many values to unpack (expected {wanted})")
        if star is not None:
            end = len(items) - (wanted - star)
            items[star:end] = [items[star:end]]
        for target, item in zip(targets, items, strict=True):
            await self.assign(target.value if isinstance(target, ast.Starred) else target, item)

    EXPRESSIONS: ClassVar[dict[type[ast.expr], Callable[[Values, Value], Awaitable[Value]]]] = {
        ast.Attribute: _attribute,
        ast.BinOp: _binary,
        ast.BoolOp: _logic,
        ast.Call: _call,
        ast.Compare: _compare,
        ast.Constant: _constant,
        ast.Dict: _dict,
        ast.DictComp: _dict_of,
        ast.FormattedValue: _field,
        ast.GeneratorExp: _generator,
        ast.IfExp: _choice,
        ast.JoinedStr: _joined,
        ast.List: _list,
        ast.ListComp: _list_of,
        ast.Name: _name,
        ast.Set: _set,
        ast.SetComp: _set_of,
        ast.Subscript: _item,
        ast.Tuple: _tuple,
        ast.UnaryOp: _unary,
    }
