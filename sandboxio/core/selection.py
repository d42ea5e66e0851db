"""Which entries of a tree are wanted: one step for each name, however deep the tree is."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, cast

from sandboxio.core import patterns, requests
from sandboxio.core.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence

_States = tuple[frozenset[int], ...]
"""How far each pattern has come on the way to an entry."""


class Spot(NamedTuple):
    """What is known of one place of a tree."""

    included: bool
    excluded: bool
    include: _States
    exclude: _States

    @property
    def wanted(self) -> bool:
        return self.included and not self.excluded


class Selection:
    """What is included, by itself or for a directory that it is in, unless it is excluded."""

    def __init__(self, include: Sequence[str], exclude: Sequence[str]) -> None:
        self._include = _patterns("include", include)
        self._exclude = _patterns("exclude", exclude)
        self.top = Spot(
            included=not self._include,
            excluded=False,
            include=tuple(pattern.begin() for pattern in self._include),
            exclude=tuple(pattern.begin() for pattern in self._exclude),
        )

    def below(self, spot: Spot, name: str, *, is_dir: bool) -> Spot:
        """Return what is known of an entry of a directory."""
        include, included = _step(self._include, spot.include, name, is_dir=is_dir)
        exclude, excluded = _step(self._exclude, spot.exclude, name, is_dir=is_dir)
        return Spot(spot.included or included, spot.excluded or excluded, include, exclude)


class Walk:
    """Spots of the entries of a list in which directories come before what is in them."""

    def __init__(self, wanted: Selection) -> None:
        self._wanted = wanted
        self._spots: dict[tuple[str, ...], Spot] = {(): wanted.top}

    def spot(self, names: tuple[str, ...], *, is_dir: bool) -> Spot:
        known = len(names) - 1
        while names[:known] not in self._spots:
            known -= 1
        spot = self._spots[names[:known]]
        for at in range(known, len(names)):
            last = at == len(names) - 1
            spot = self._wanted.below(spot, names[at], is_dir=is_dir or not last)
            if is_dir or not last:
                self._spots[names[: at + 1]] = spot
        return spot


def _step(
    among: list[patterns.Pattern], before: _States, name: str, *, is_dir: bool
) -> tuple[_States, bool]:
    after = tuple(pattern.step(states, name) for pattern, states in zip(among, before, strict=True))
    accepted = any(
        pattern.accepts(states) and (is_dir or not pattern.folders)
        for pattern, states in zip(among, after, strict=True)
    )
    return after, accepted


def _patterns(name: str, given: object) -> list[patterns.Pattern]:
    if isinstance(given, str) or not isinstance(given, (list, tuple)):
        raise ConfigurationError(
            f"{name} must be a list or tuple of patterns.", hint=f'For instance {name}=("**/*.py",)'
        )
    found: list[patterns.Pattern] = []
    for pattern in cast("Sequence[object]", given):
        text = requests.path(name, pattern)
        whole = patterns.whole(text)
        if text.startswith("/") or ".." in text.split("/") or not whole.parts:
            raise ConfigurationError(f"{name} has patterns of paths below the directory only.")
        found.append(whole)
    return found
