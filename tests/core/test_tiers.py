"""Isolation tiers: their order and what satisfies what."""

from __future__ import annotations

import pytest

from sandboxio import IsolationTier

T = IsolationTier
ORDINARY = (T.RUNTIME, T.PROCESS, T.CONTAINER, T.GVISOR, T.MICROVM, T.VM)


def test_every_tier_is_ranked_as_published() -> None:
    """The ranks are public, spaced, and cover every member."""
    assert {tier.name: tier.rank for tier in T} == {
        "UNKNOWN": 0,
        "NONE": 1,
        "RUNTIME": 4,
        "PROCESS": 7,
        "CONTAINER": 10,
        "GVISOR": 20,
        "MICROVM": 30,
        "VM": 40,
    }


@pytest.mark.parametrize("tier", T)
@pytest.mark.parametrize("minimum", T)
def test_what_satisfies_what(tier: IsolationTier, minimum: IsolationTier) -> None:
    """UNKNOWN satisfies nothing and nothing satisfies it; NONE satisfies itself; the rest rank."""
    table = {(strong, weak) for i, weak in enumerate(ORDINARY) for strong in ORDINARY[i:]}
    assert tier.satisfies(minimum) is ((tier, minimum) in {*table, (T.NONE, T.NONE)})


def test_tiers_compare_by_rank() -> None:
    """Sorting tiers orders them from weakest to strongest."""
    assert sorted(T, reverse=True)[0] is T.VM
    assert T.CONTAINER < T.GVISOR <= T.GVISOR < T.VM
    assert T.VM > T.MICROVM >= T.MICROVM
    assert not T.CONTAINER < T.CONTAINER
    assert not T.CONTAINER > T.CONTAINER


def test_a_tier_does_not_compare_with_anything_else() -> None:
    """A number or a name is no tier."""
    with pytest.raises(TypeError):
        assert T.VM > 3
    with pytest.raises(TypeError):
        assert T.VM <= "vm"
