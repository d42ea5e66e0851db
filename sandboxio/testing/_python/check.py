"""The look at the whole of a program before any of it runs: is every construct known?"""

from __future__ import annotations

import ast
import builtins
from typing import TYPE_CHECKING

from sandboxio.testing._python.objects import ATTRIBUTES, FUNCTIONS, METHODS, Value
from sandboxio.testing._python.operators import BINARY, COMPARISONS, UNARY
from sandboxio.testing._python.run import STANDARD, TALKING, Run
from sandboxio.testing._python.session import MOST_BITS
from sandboxio.testing._python.values import BUILTINS, MODULES, known

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DEEPEST = 100
"""Most nodes within each other."""
NAMES = frozenset(name for table in (*METHODS.values(), *ATTRIBUTES.values()) for name in table)
"""Attributes that a value may be asked for."""
_PARTS = (ast.Module, ast.ExceptHandler, ast.Starred, ast.keyword, ast.withitem)
_SILENT = (ast.alias, ast.boolop, ast.cmpop, ast.expr_context, ast.operator, ast.unaryop)
"""Nodes that the one above them has been asked about."""
_ANNOTATIONS = (ast.Name, ast.Subscript, ast.Tuple, ast.BinOp, ast.BitOr, ast.Constant, ast.Load)


class Misplaced(Exception):
    """What only a compiler finds, in the words of its `SyntaxError`."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line


class Check:
    """The look at one program."""

    def __init__(self, tree: ast.Module) -> None:
        self._tree = tree
        self._bound: set[str] = set()
        self._modules: dict[str, str] = {}
        """Names of modules that are known, or at least there."""
        self._missing: set[str] = set()
        """Names that an import would bind, if it did not fail."""
        for node in ast.walk(tree):
            self._bind(node)

    def first_unknown(self) -> int:
        """Return the line of the first construct that is not known, 0 if there is none.

        Raises:
            Misplaced: a compiler would refuse it.
        """
        pending: list[tuple[ast.AST, int, bool]] = [(self._tree, 0, False)]
        line = 1
        while pending:
            node, depth, looped = pending.pop()
            line = getattr(node, "lineno", line)
            if isinstance(node, ast.Break | ast.Continue) and not looped:
                raise Misplaced(_OUTSIDE[type(node)], line)
            if depth > DEEPEST or not self._is_known(node):
                return line
            below = [(child, depth + step, looped or inner) for child, step, inner in _below(node)]
            pending.extend(reversed(below))
        return 0

    def _bind(self, node: ast.AST) -> None:
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            self._bound.add(node.id)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            self._bound.add(node.name)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                self._bind_module(alias.asname or top, alias.name if alias.asname else top)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                if full in MODULES or fails(node):
                    self._bind_module(alias.asname or alias.name, full)
                else:
                    self._bound.add(alias.asname or alias.name)

    def _bind_module(self, name: str, module: str) -> None:
        if module.partition(".")[0] not in STANDARD:
            self._missing.add(name)
        elif self._modules.setdefault(name, module) != module:
            self._bound.add(name)

    def _is_known(self, node: ast.AST) -> bool:
        rule = self._RULES.get(type(node))
        if rule is not None:
            return rule(self, node)
        return (
            type(node) in Run.STATEMENTS
            or type(node) in Run.EXPRESSIONS
            or (isinstance(node, _PARTS))
        )

    def _attribute(self, node: ast.Attribute) -> bool:
        if not isinstance(node.ctx, ast.Load):
            return False
        if node.attr == "__name__":
            return self._names_type(node.value)
        path = _dotted(node)
        root = path.partition(".")[0]
        if not root or root in self._bound:
            return node.attr in NAMES
        if root in self._modules:
            full = self._modules[root] + path[len(root) :]
            above = full.rpartition(".")[0]
            is_module = above in MODULES or above == self._modules[root]
            return known(full) if is_module else node.attr in NAMES
        return root not in BUILTINS and root not in FUNCTIONS  # the name is refused or an error

    def _names_type(self, node: ast.expr) -> bool:
        """Say whether `.__name__` is asked of a type."""
        if isinstance(node, ast.Call):
            return isinstance(node.func, ast.Name) and node.func.id == "type"
        if isinstance(node, ast.Attribute):
            return node.attr == "__class__"
        return isinstance(node, ast.Name) and isinstance(BUILTINS.get(node.id), type)

    def _name(self, node: ast.Name) -> bool:
        name = node.id
        if name in self._bound or name in self._modules or name in self._missing:
            return True
        if name in FUNCTIONS or name in BUILTINS:
            return True
        return not name.startswith("__") and name not in vars(builtins)

    def _annotated(self, node: ast.AnnAssign) -> bool:
        parts = list(ast.walk(node.annotation))
        return all(isinstance(part, _ANNOTATIONS) for part in parts) and all(
            part.id in BUILTINS or part.id in self._bound
            for part in parts
            if isinstance(part, ast.Name)
        )

    def _import_from(self, node: ast.ImportFrom) -> bool:
        if node.level or any(alias.name == "*" for alias in node.names):
            return False
        if _top(node.module) in TALKING:
            return False
        return fails(node) or all(known(f"{node.module}.{alias.name}") for alias in node.names)

    def _import(self, node: ast.Import) -> bool:
        names = [alias.name for alias in node.names]
        if any(_top(name) in TALKING for name in names):
            return False
        there = [name for name in names if _top(name) in STANDARD]
        return all("." not in name or name in MODULES for name in there)

    _RULES: dict[type[ast.AST], Callable[[Check, Value], bool]] = {  # noqa: RUF012
        ast.AnnAssign: _annotated,
        ast.Attribute: _attribute,
        ast.AugAssign: lambda self, node: type(node.op) in BINARY and not _slices(node.target),
        ast.BinOp: lambda self, node: type(node.op) in BINARY,
        ast.Call: lambda self, node: (
            isinstance(node.func, ast.Name | ast.Attribute)
            and all(item.arg is not None for item in node.keywords)
        ),
        ast.Compare: lambda self, node: COMPARISONS.issuperset(map(type, node.ops)),
        ast.Constant: lambda self, node: _is_plain(node.value),
        ast.Delete: lambda self, node: all(
            isinstance(target, ast.Name | ast.Subscript) and not _slices(target)
            for target in node.targets
        ),
        ast.Import: _import,
        ast.ImportFrom: _import_from,
        ast.Name: _name,
        ast.UnaryOp: lambda self, node: type(node.op) in UNARY,
        ast.comprehension: lambda self, node: not node.is_async,
    }


_OUTSIDE: dict[type[ast.AST], str] = {
    ast.Break: "'break' outside loop",
    ast.Continue: "'continue' not properly in loop",
}


def fails(node: ast.stmt) -> bool:
    """Say whether a statement imports what is not there, so that nothing after it is reached."""
    if isinstance(node, ast.Import):
        return any(_top(alias.name) not in STANDARD for alias in node.names)
    return isinstance(node, ast.ImportFrom) and _top(node.module) not in STANDARD


def _below(node: ast.AST) -> Iterator[tuple[ast.AST, int, bool]]:
    """Return the nodes below one: how much deeper each is, and whether it is in a loop."""
    loops = isinstance(node, ast.For | ast.While)
    for name, value in ast.iter_fields(node):
        if name == "annotation":
            continue
        for child in _reached(value):
            if isinstance(child, _SILENT):
                continue
            if isinstance(child, ast.Slice):
                yield from _below(child)
                continue
            if isinstance(child, ast.Attribute) and child.attr == "__class__":
                child = child.value if getattr(node, "attr", "") == "__name__" else child
            chained = name == "orelse" and isinstance(child, ast.If) and isinstance(node, ast.If)
            yield child, 0 if chained else 1, loops and name == "body"


def _reached(value: Value) -> Iterator[ast.AST]:
    """Return the nodes of one field; of a block, those up to an import that fails."""
    children: Value = value if value.__class__ is list else [value]
    for child in children:
        if isinstance(child, ast.AST):
            yield child
            if isinstance(child, ast.stmt) and fails(child):
                return


def _top(module: str | None) -> str:
    return (module or "").partition(".")[0]


def _dotted(node: ast.expr) -> str:
    """Return `a.b.c` for a chain of attributes of a name, else nothing."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


def _slices(node: ast.expr) -> bool:
    return isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice)


def _is_plain(value: Value) -> bool:
    if isinstance(value, int):
        return value.bit_length() <= MOST_BITS
    return value is None or isinstance(value, str | bytes | float)
