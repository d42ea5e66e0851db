"""The statements that are recognised, carried out one by one on virtual values."""

from __future__ import annotations

import ast
import sys
from enum import Enum, auto
from typing import TYPE_CHECKING, ClassVar

from sandboxio.testing._python.objects import (
    Closing,
    Module,
    NotUnderstood,
    Raised,
    Value,
)
from sandboxio.testing._python.operators import binary
from sandboxio.testing._python.values import FAILURES, Values

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_ELSEWHERE = frozenset(
    ("_msi", "_overlapped", "_scproxy", "_winapi", "msilib", "msvcrt", "nt", "winreg", "winsound")
)
TALKING = frozenset(("__hello__", "__phello__", "antigravity", "this"))
"""Modules that do something when they are imported."""
STANDARD = sys.stdlib_module_names - _ELSEWHERE - TALKING
"""Modules of the standard library on Linux; to import one is understood, whatever it holds."""


class Flow(Enum):
    """How a block ended, other than with its last statement."""

    BREAK = auto()
    CONTINUE = auto()


class Run(Values):
    """A session that carries out statements."""

    async def block(self, body: list[ast.stmt]) -> Flow | None:
        """Carry out statements one after another."""
        for statement in body:
            await self.statement()
            flow = await self._statement(statement)
            if flow is not None:
                return flow
        return None

    async def _statement(self, node: ast.stmt) -> Flow | None:
        before = self.handling
        try:
            return await self.STATEMENTS[type(node)](self, node)
        except BrokenPipeError:
            raise
        except FAILURES as exc:
            raised = Raised(exc, node.lineno)
        except NotUnderstood as exc:
            exc.line = exc.line or node.lineno
            raise
        except Raised as exc:
            raised = exc
        raised.line = raised.line or node.lineno
        if raised.before is None and not raised.has_cause and before is not raised:
            raised.before = before
        raise raised

    async def _nothing(self, node: ast.Pass) -> None:
        return None

    async def _break(self, node: ast.Break) -> Flow:
        return Flow.BREAK

    async def _continue(self, node: ast.Continue) -> Flow:
        return Flow.CONTINUE

    async def _expression(self, node: ast.Expr) -> None:
        await self.value(node.value)

    async def _assign(self, node: ast.Assign) -> None:
        value = await self.value(node.value)
        for target in node.targets:
            await self.assign(target, value)

    async def _annotated(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            await self.assign(node.target, await self.value(node.value))

    async def _augmented(self, node: ast.AugAssign) -> None:
        operation, target = type(node.op), node.target
        if isinstance(target, ast.Name):
            old = await self.value(_loaded(target))
            value = await self.plain(await self.value(node.value))
            await self.assign(target, binary(self, operation, old, value, in_place=True))
        elif isinstance(target, ast.Subscript):
            container, key = await self.value(target.value), await self.key(target.slice)
            old = container[key]
            value = await self.plain(await self.value(node.value))
            container[key] = binary(self, operation, old, value, in_place=True)

    async def _delete(self, node: ast.Delete) -> None:
        for target in node.targets:
            if isinstance(target, ast.Name):
                await self.value(_loaded(target))
                self.scopes[-1].pop(target.id, None)
            elif isinstance(target, ast.Subscript):
                container = await self.value(target.value)
                del container[await self.key(target.slice)]

    async def _if(self, node: ast.If) -> Flow | None:
        while not await self.value(node.test):
            if len(node.orelse) != 1 or not isinstance(node.orelse[0], ast.If):
                return await self.block(node.orelse)
            node = node.orelse[0]
        return await self.block(node.body)

    async def _for(self, node: ast.For) -> Flow | None:
        items = await self.iterable(await self.value(node.iter))
        self.held.append(items)
        try:
            for item in self.each(items):
                await self.round()
                await self.assign(node.target, item)
                if await self.block(node.body) is Flow.BREAK:
                    return None
        finally:
            self.held.pop()
        return await self.block(node.orelse)

    async def _while(self, node: ast.While) -> Flow | None:
        while await self.value(node.test):
            await self.round()
            if await self.block(node.body) is Flow.BREAK:
                return None
        return await self.block(node.orelse)

    async def _import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._find_module(alias.name)
            top = alias.name.partition(".")[0]
            self.scopes[-1][alias.asname or top] = Module(alias.name if alias.asname else top)

    async def _import_from(self, node: ast.ImportFrom) -> None:
        module = node.module or ""
        self._find_module(module)
        for alias in node.names:
            value = self.global_name(f"{module}.{alias.name}")
            self.scopes[-1][alias.asname or alias.name] = value

    def _find_module(self, name: str) -> None:
        top = name.partition(".")[0]
        if top in STANDARD:
            return
        process, files = self.process, self.process.kernel.fs
        for folder in (process.cwd, *self.environ.get("PYTHONPATH", "").split(":")):
            for path in (f"{folder or '.'}/{top}", f"{folder or '.'}/{top}.py"):
                if files.exists(path, cwd=process.cwd, who=process.who):
                    raise NotUnderstood
        raise Raised(ModuleNotFoundError(f"No module named {top!r}", name=top))

    async def _raise(self, node: ast.Raise) -> None:
        if node.exc is None:
            if self.handling is None:
                raise Raised(RuntimeError("No active exception to reraise"))
            raise self.handling
        error = _exception(await self.value(node.exc))
        if self.handling is not None and error is self.handling.error:
            raise self.handling
        raised = Raised(error, node.lineno)
        if node.cause is not None:
            raised.has_cause = True
            raised.before = self._cause(await self.value(node.cause))
        raise raised

    def _cause(self, value: Value) -> Raised | None:
        if value is None:
            return None
        if self.handling is not None and self.handling.error is value:
            return self.handling
        return Raised(_exception(value, "exception causes must derive from BaseException"))

    async def _assert(self, node: ast.Assert) -> None:
        if not await self.value(node.test):
            given = [] if node.msg is None else [await self.value(node.msg)]
            raise Raised(AssertionError(*given))

    async def _with(self, node: ast.With) -> Flow | None:
        opened: list[Closing] = []
        try:
            for item in node.items:
                value = await self.value(item.context_expr)
                if not isinstance(value, Closing):
                    kind = type(value).__name__
                    raise TypeError(
                        f"{kind!r} object does not support the context manager protocol"
                    )
                opened.append(value)
                if item.optional_vars is not None:
                    await self.assign(item.optional_vars, value)
            return await self.block(node.body)
        finally:
            for value in reversed(opened):
                value.close()

    async def _try(self, node: ast.Try) -> Flow | None:
        outcome = await self._attempt(node)
        before = self.handling
        self.handling = outcome if isinstance(outcome, Raised) else before
        flow = await self.block(node.finalbody)
        self.handling = before
        if flow is None and isinstance(outcome, Raised):
            raise outcome
        return outcome if flow is None and isinstance(outcome, Flow) else flow

    async def _attempt(self, node: ast.Try) -> Flow | Raised | None:
        """Carry out everything but `finally`, and return how it ended."""
        try:
            try:
                flow = await self.block(node.body)
            except Raised as raised:
                return await self._handle(node, raised)
            return flow or await self.block(node.orelse)
        except Raised as raised:
            return raised

    async def _handle(self, node: ast.Try, raised: Raised) -> Flow | None:
        before, self.handling = self.handling, raised
        try:
            for handler in node.handlers:
                if handler.type is None or await self._matches(handler.type, raised):
                    return await self._caught(handler, raised)
        finally:
            self.handling = before
        raise raised

    async def _matches(self, node: ast.expr, raised: Raised) -> bool:
        wanted = await self.value(node)
        kinds: Value = wanted if wanted.__class__ is tuple else (wanted,)
        if all(isinstance(kind, type) and issubclass(kind, BaseException) for kind in kinds):
            return isinstance(raised.error, kinds)
        wrong = "catching classes that do not inherit from BaseException is not allowed"
        failure = Raised(TypeError(wrong), node.lineno)
        failure.before = raised
        raise failure

    async def _caught(self, handler: ast.ExceptHandler, raised: Raised) -> Flow | None:
        if handler.name is None:
            return await self.block(handler.body)
        self.scopes[-1][handler.name] = raised.error
        try:
            return await self.block(handler.body)
        finally:
            self.scopes[-1].pop(handler.name, None)

    STATEMENTS: ClassVar[dict[type[ast.stmt], Callable[[Run, Value], Awaitable[Flow | None]]]] = {
        ast.AnnAssign: _annotated,
        ast.Assert: _assert,
        ast.Assign: _assign,
        ast.AugAssign: _augmented,
        ast.Break: _break,
        ast.Continue: _continue,
        ast.Delete: _delete,
        ast.Expr: _expression,
        ast.For: _for,
        ast.If: _if,
        ast.Import: _import,
        ast.ImportFrom: _import_from,
        ast.Pass: _nothing,
        ast.Raise: _raise,
        ast.Try: _try,
        ast.While: _while,
        ast.With: _with,
    }


def _loaded(target: ast.Name) -> ast.expr:
    """Return the expression that reads the name which this one writes."""
    return ast.copy_location(ast.Name(target.id, ast.Load()), target)


def _exception(
    value: Value, complaint: str = "exceptions must derive from BaseException"
) -> BaseException:
    if isinstance(value, type) and issubclass(value, BaseException):
        return value()
    if isinstance(value, BaseException):
        return value
    raise TypeError(complaint)
