"""Getting at an SDK that may not be there."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest

from sandboxio import BackendNotInstalled
from sandboxio.adapters._loader import load

if TYPE_CHECKING:
    from pathlib import Path


def test_a_module_is_loaded() -> None:
    """What is installed is simply imported."""
    assert load("json", backend="x", extra="x") is json


def test_a_missing_sdk_names_the_extra() -> None:
    """The message names the backend and the module, the hint the command that brings it."""
    with pytest.raises(BackendNotInstalled, match="'x' backend needs 'no_such_sdk'") as caught:
        load("no_such_sdk", backend="x", extra="thing")
    assert caught.value.hint == 'pip install "sandboxio[thing]"'
    assert isinstance(caught.value.__cause__, ModuleNotFoundError)


def test_a_broken_sdk_is_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module that is there and does not import says why."""
    (tmp_path / "broken_sdk.py").write_text("raise ImportError('needs libfoo')")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    with pytest.raises(BackendNotInstalled, match="cannot be imported: needs libfoo"):
        load("broken_sdk", backend="x", extra="x")
