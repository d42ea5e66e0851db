"""The examples in docstrings, run as they stand."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import sandboxio

MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(sandboxio.__path__, "sandboxio.")
    if not module.name.endswith("__main__")
)


@pytest.mark.parametrize("name", MODULES)
def test_examples_of_a_module(name: str) -> None:
    """Whatever a docstring shows after `>>>` is what happens."""
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_there_are_examples() -> None:
    """The search finds some, so that the test above is not empty."""
    finder = doctest.DocTestFinder()
    module = importlib.import_module("sandboxio.core.models")
    assert sum(bool(test.examples) for test in finder.find(module)) > 5
