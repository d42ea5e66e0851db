"""Scripted answers: which call is meant, and what happens then."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sandboxio.core.errors import ConfigurationError, SandboxError
from sandboxio.core.models import ExecResult, OutputChunk
from sandboxio.testing.calls import matches

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Sequence

    from sandboxio.testing.calls import Call

NOTHING = ExecResult(0, "", "")


@dataclass(frozen=True)
class Answer:
    """What one matching call does."""

    pieces: tuple[tuple[float, OutputChunk], ...]
    """Output, each piece with the seconds after the start at which it is written."""
    ends_at: float
    result: ExecResult
    error: SandboxError | None
    hangs: bool


@dataclass
class Rule:
    """A scripted answer; `calls` are those it has answered.

    Example:
        rule = fake.on_run("pytest", returns=ExecResult(1, "", "1 failed"))
        ...
        assert rule.count == 1
    """

    match: str | re.Pattern[str] | Callable[[str], bool] | None
    answers: tuple[Answer, ...]
    times: int | None = None
    calls: list[Call] = field(default_factory=list["Call"])

    @property
    def count(self) -> int:
        """How many calls it has answered."""
        return len(self.calls)

    def answers_to(self, text: str) -> bool:
        """Say whether a call is meant, and the rule not used up."""
        return (self.times is None or self.count < self.times) and matches(self.match, text)

    def next(self, call: Call) -> Answer:
        """Return the answer to a call; the last of a sequence is given again and again."""
        self.calls.append(call)
        answer = self.answers[min(self.count, len(self.answers)) - 1]
        if answer.error is None:
            return answer
        return Answer(
            answer.pieces, answer.ends_at, answer.result, copy.copy(answer.error), answer.hangs
        )


def build(
    match: str | re.Pattern[str] | Callable[[str], bool] | None,
    *,
    returns: ExecResult | Sequence[ExecResult | SandboxError] | None,
    raises: SandboxError | type[SandboxError] | None,
    streams: Sequence[str | bytes | OutputChunk | tuple[float, str | bytes | OutputChunk]] | None,
    hangs: bool,
    takes: float,
    times: int | None,
) -> Rule:
    """Make a rule of what `on_run()` was given."""
    if hangs and (returns is not None or raises is not None):
        raise ConfigurationError("A call that hangs neither returns nor raises.")
    if returns is not None and raises is not None:
        raise ConfigurationError("A call either returns or raises.")
    outcomes: Sequence[ExecResult | SandboxError]
    if raises is not None:
        outcomes = (_error(raises),)
    elif returns is None or isinstance(returns, ExecResult):
        outcomes = (returns or NOTHING,)
    else:
        outcomes = tuple(returns) or (NOTHING,)
    pieces = tuple(_piece(entry) for entry in streams or ())
    return Rule(match, tuple(_answer(o, pieces, hangs, takes) for o in outcomes), times)


def _error(raises: object) -> SandboxError:
    if isinstance(raises, type) and issubclass(raises, SandboxError):
        return raises("Scripted.")
    if not isinstance(raises, SandboxError):
        raise ConfigurationError(
            "raises must be a SandboxError: no other exception leaves a sandbox.",
            hint='Pass raises=sandboxio.SandboxGone("...").',
        )
    return raises


def _answer(
    outcome: ExecResult | SandboxError,
    pieces: tuple[tuple[float, OutputChunk], ...],
    hangs: bool,
    takes: float,
) -> Answer:
    result = outcome if isinstance(outcome, ExecResult) else NOTHING
    error = None if isinstance(outcome, ExecResult) else outcome
    ends_at = max([takes, *(at for at, _ in pieces)])
    written = [*pieces]
    for name, text in (("stdout", result.stdout), ("stderr", result.stderr)):
        if text:
            data = text.encode("utf-8", "surrogateescape")
            written.append((ends_at, OutputChunk(name, data)))  # type: ignore[arg-type]
    return Answer(tuple(written), ends_at, result, error, hangs)


def _piece(
    entry: str | bytes | OutputChunk | tuple[float, str | bytes | OutputChunk],
) -> tuple[float, OutputChunk]:
    at, what = entry if isinstance(entry, tuple) else (0.0, entry)
    if isinstance(what, OutputChunk):
        return at, what
    return at, OutputChunk("stdout", what.encode() if isinstance(what, str) else what)
