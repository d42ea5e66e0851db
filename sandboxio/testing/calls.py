"""What a fake was asked to do, and assertions about it."""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sandboxio.core.models import NetworkPolicy, Resources

_NEAREST = 3


class Values(Mapping[str, str]):
    """Environment variables whose values can be looked up and compared, and are never printed.

    Example:
        >>> Values({"MODE": "fast"})
        <MODE=…>
        >>> Values({"MODE": "fast"}) == {"MODE": "fast"}
        True
    """

    def __init__(self, values: Mapping[str, str]) -> None:
        self._get = dict(values).__getitem__
        self._names = tuple(values)

    def __repr__(self) -> str:
        return f"<{' '.join(f'{name}=…' for name in self._names)}>"

    def __getitem__(self, name: str) -> str:
        return self._get(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


@dataclass(kw_only=True)
class Call:
    """One call that reached the fake, with its arguments and the policy in force.

    Example:
        assert fake.calls[0].network == NetworkPolicy(egress="deny")
    """

    op: str
    """`create`, `run`, `run_code`, `stream`, `read`, `write`, `stat`, `exists`, `ls`, `glob`,
    `mkdir`, `remove`, `move`, `copy`, `chmod`, `edit`, `metrics`, `kill`, `connect`,
    `list_managed` or `kill_managed`; `upload` and `write_from` are a `write`, `open_read` is a
    `read`, and `download` a `stat` and a `read`."""
    sandbox_id: str
    at: float
    """Virtual seconds of the fake's clock."""
    network: NetworkPolicy
    resources: Resources
    cmd: str | tuple[str, ...] | None = None
    code: str | None = None
    language: str | None = None
    path: str | None = None
    target: str | None = None
    """Where a file was to be moved or copied to."""
    data: bytes | None = field(default=None, repr=False)
    """What was written to a file."""
    stdin: bytes | None = field(default=None, repr=False)
    """What has been written to stdin so far; `None` where it was closed from the start."""
    env: Values = field(default_factory=lambda: Values({}))
    """Variables that are no secrets: those of the sandbox and of the call."""
    secrets: tuple[str, ...] = ()
    """Names of the secrets the call was given."""
    timeout: float | None = None
    cwd: str | None = None
    user: str | None = None
    template: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict[str, str])
    max_output_bytes: int | None = None

    @property
    def text(self) -> str:
        """The command line, the code or the path."""
        if self.cmd is not None:
            return self.cmd if isinstance(self.cmd, str) else shlex.join(self.cmd)
        return self.code or self.path or ""


def matches(match: str | re.Pattern[str] | Callable[[str], bool] | None, text: str) -> bool:
    """Say whether a text is meant: by substring, pattern, predicate, or always for `None`."""
    if match is None:
        return True
    if isinstance(match, str):
        return match in text
    if isinstance(match, re.Pattern):
        return match.search(text) is not None
    return bool(match(text))


def explain(
    calls: Sequence[Call],
    ops: tuple[str, ...],
    match: str | re.Pattern[str] | Callable[[str], bool] | None,
) -> str:
    """Describe the calls that come nearest to what was looked for."""
    texts = [call.text for call in calls if call.op in ops]
    if not texts:
        others = ", ".join(dict.fromkeys(call.op for call in calls)) or "nothing at all"
        return f"There was no such call; the fake saw {others}."
    wanted = match if isinstance(match, str) else getattr(match, "pattern", "")
    near = difflib.get_close_matches(wanted, texts, n=_NEAREST, cutoff=0.0) or texts[-_NEAREST:]
    return "Nearest of what ran:\n" + "\n".join(f"  {text!r}" for text in dict.fromkeys(near))
