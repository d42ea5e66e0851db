"""A numbered case of the contract: its claim, and when it applies."""

from __future__ import annotations

import functools
import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar

import pytest

from sandboxio.core.models import Capability

if TYPE_CHECKING:
    from collections.abc import Callable

    from sandboxio.core.clock import Clock

P = ParamSpec("P")
R = TypeVar("R")

NOTHING = Capability(0)
_OUTCOMES = (pytest.fail.Exception, pytest.skip.Exception)
PATIENCE = 90.0
"""Seconds a case may take, on the clock of its suite."""


@dataclass(frozen=True)
class Case:
    """What is promised, and to which sandboxes the promise applies."""

    number: str
    area: str
    claim: str
    needs: Capability
    lacks: Capability

    def unfit(self, declared: Capability) -> str | None:
        """Say why the case does not apply to a sandbox that declares this, if it does not."""
        missing = self.needs & ~declared
        if missing:
            return f"{self.number} needs {_names(missing)}, which this sandbox does not declare"
        if self.lacks & declared:
            return f"{self.number} is for sandboxes that do not declare {_names(self.lacks)}"
        return None


CASES: dict[str, Case] = {}
"""Every case by its number."""


class HasClock(Protocol):
    """A suite, as far as the guard of a case needs it."""

    @property
    def clock(self) -> Clock: ...


S = TypeVar("S", bound=HasClock)


def case(
    number: str,
    *,
    needs: Capability = NOTHING,
    lacks: Capability = NOTHING,
    patience: float = PATIENCE,
    area: str | None = None,
) -> Callable[[Callable[Concatenate[S, P], R]], Callable[Concatenate[S, P], R]]:
    """Number a test of the suite; its docstring is the claim.

    `needs` are capabilities without which it is skipped, `lacks` one with which it is. An async
    case that is not over after `patience` seconds fails. `area` is where it belongs, unless that
    is the module it stands in.
    """

    def decorate(test: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
        if number in CASES:
            raise ValueError(f"{number} exists already")
        where = area or test.__module__.rpartition(".")[2]
        claim = " ".join(inspect.cleandoc(test.__doc__ or "").split())
        CASES[number] = Case(number, where, claim, needs, lacks)
        guarded: Any = _guarded(test, number, patience)
        guarded.case = CASES[number]
        return guarded  # type: ignore[no-any-return]

    return decorate


def case_of(test: object) -> Case | None:
    """Return the case a test function is, if it is one."""
    found = getattr(test, "case", None)
    return found if isinstance(found, Case) else None


def _guarded(test: Any, number: str, patience: float) -> Any:
    if not inspect.iscoroutinefunction(test):

        @functools.wraps(test)
        def plain(self: HasClock, *args: Any, **kwargs: Any) -> Any:
            return test(self, *args, **kwargs)

        return plain

    @functools.wraps(test)
    async def guarded(self: HasClock, *args: Any, **kwargs: Any) -> None:
        with self.clock.limit(self.clock.time() + patience):
            try:
                await test(self, *args, **kwargs)
            except BaseExceptionGroup as group:
                found = _outcome(group)
                if found is None:
                    raise
                raise found from group
            return
        pytest.fail(f"{number} was not over after {patience:g} s: something waits without a bound")

    return guarded


def _outcome(group: BaseExceptionGroup[BaseException]) -> BaseException | None:
    """Return the failure or skip that a task group has wrapped, which no test runner looks for."""
    if group.subgroup((KeyboardInterrupt, SystemExit)) is not None:
        return None
    found: BaseExceptionGroup[BaseException] | None = group.subgroup(_OUTCOMES)
    while found is not None:
        first = found.exceptions[0]
        if not isinstance(first, BaseExceptionGroup):
            return first
        found = first
    return None


def _names(flags: Capability) -> str:
    return ", ".join(flag.name or "" for flag in flags)
