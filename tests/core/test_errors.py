"""The error tree, its catalogue, and what an error shows."""

from __future__ import annotations

import builtins
import pickle
import re

import pytest

import sandboxio
from sandboxio.core import errors
from sandboxio.core.catalog import CATALOG, url_for
from sandboxio.core.errors import (
    CapabilityNotSupported,
    ConfigurationError,
    CreateTimeout,
    CreationError,
    ExecutionError,
    ExecutionTimeout,
    LinkLost,
    PathNotFound,
    RateLimitError,
    SandboxError,
    SandboxGone,
    SandboxTimeout,
    SandboxWarning,
)
from sandboxio.core.models import ExecResult, PartialOutput

CLASSES = [
    value
    for value in vars(errors).values()
    if isinstance(value, type) and issubclass(value, SandboxError)
]
WARNINGS = [
    value
    for value in vars(errors).values()
    if isinstance(value, type) and issubclass(value, SandboxWarning)
]


def test_classes_and_catalogue_name_each_other() -> None:
    """Every class with a code has an entry under its own name, and every entry a class."""
    carried = sorted((cls.code, cls.__name__) for cls in CLASSES if cls.code)
    assert carried == sorted((code, entry.name) for code, entry in CATALOG.items())


def test_only_the_bases_have_no_code() -> None:
    """A class a user can be handed has a code; codes are unique and have one form."""
    codes = [cls.code for cls in CLASSES if cls not in (SandboxError, SandboxTimeout)]
    assert len(set(codes)) == len(codes)
    assert all(re.fullmatch(r"SBX_E\d{4}", code) for code in codes)


def test_the_drawn_tree_is_the_real_one() -> None:
    """The tree at the top of the file names each class with its own code."""
    drawn = re.findall(r"(\w+) +(SBX_E\d{4})", errors.__doc__ or "")
    assert sorted(drawn) == sorted((cls.__name__, cls.code) for cls in CLASSES if cls.code)


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_no_error_inherits_a_builtin(cls: type[SandboxError]) -> None:
    """`except TimeoutError`, `except PermissionError` and the like never catch ours."""
    ancestors = {base for base in cls.__mro__ if base.__module__ == "builtins"}
    assert ancestors == {object, BaseException, Exception}


def test_no_public_name_shadows_a_builtin() -> None:
    """A star import or a careless alias hides nothing of Python's own."""
    assert set(sandboxio.__all__).isdisjoint(dir(builtins))
    assert {cls.__name__ for cls in CLASSES + WARNINGS}.isdisjoint(dir(builtins))


def test_the_public_module_holds_all_of_them() -> None:
    """`sandboxio.errors` and `sandboxio` offer every class under the name it prints."""
    for cls in CLASSES + WARNINGS:
        assert getattr(sandboxio.errors, cls.__name__) is cls
        assert getattr(sandboxio, cls.__name__) is cls


def test_an_error_shows_fact_fix_and_page() -> None:
    """The first line states the fact with its code; the fix and the page follow."""
    error = PathNotFound("'a.txt' is not there.", hint="sb.files.ls()")
    assert str(error).splitlines() == [
        "[SBX_E1701] 'a.txt' is not there.",
        "  Fix:  sb.files.ls()",
        f"  Docs: {url_for('SBX_E1701')}",
    ]


@pytest.mark.parametrize("cls", [c for c in CLASSES if c.code], ids=lambda cls: cls.__name__)
def test_every_error_has_a_fix_without_being_given_one(cls: type[SandboxError]) -> None:
    """The catalogue's hint is shown where the error brings none, and its page ends in the code."""
    error = cls("Something happened.")
    assert f"  Fix:  {CATALOG[cls.code].hint}" in str(error).splitlines()
    assert error.url.endswith(f"/{cls.code}")


def test_a_base_without_code_shows_no_page() -> None:
    """An error without a code renders as its message alone."""
    assert str(SandboxError("Just this.")) == "Just this."


def test_what_may_be_repeated_is_said() -> None:
    """`retryable` comes from the catalogue; the one who raises may know better."""
    assert RateLimitError("x").retryable
    assert CreateTimeout("x").retryable
    assert not ExecutionTimeout("x").retryable
    assert LinkLost("x", retryable=True).retryable


def test_what_took_effect_is_said() -> None:
    """Refusals say that nothing started; a timeout does not know; others default to unknown."""
    assert ConfigurationError("x").outcome == "not_started"
    assert CapabilityNotSupported("x").outcome == "not_started"
    assert ExecutionTimeout("x").outcome == "unknown"
    assert SandboxGone("x").outcome == "unknown"
    assert PathNotFound("x", outcome="done").outcome == "done"


@pytest.mark.parametrize("caught", [CreationError, SandboxTimeout])
def test_a_create_timeout_is_caught_both_ways(caught: type[SandboxError]) -> None:
    """It is a failed creation and a timeout, and not an execution's timeout."""
    with pytest.raises(caught):
        raise CreateTimeout("late")
    assert not issubclass(CreateTimeout, ExecutionTimeout)


def test_gone_is_not_a_timeout() -> None:
    """A handler for timeouts does not swallow the loss of the sandbox."""
    assert not issubclass(SandboxGone, SandboxTimeout)


def test_a_result_raises_for_its_status() -> None:
    """`raise_for_status()` hands back success, and carries the result otherwise."""
    good, bad = ExecResult(0, "", ""), ExecResult(3, "o", "e")
    assert good.raise_for_status() is good
    with pytest.raises(ExecutionError, match="exit code 3") as caught:
        bad.raise_for_status()
    assert caught.value.result is bad


def test_errors_cross_process_borders() -> None:
    """An error sent through a process pool keeps its class and what it carries."""
    sent = ExecutionTimeout("late", partial=PartialOutput("one\n"), collateral=True)
    copy: object = pickle.loads(pickle.dumps(sent))
    assert isinstance(copy, ExecutionTimeout)
    assert (copy.partial.stdout, copy.collateral, str(copy)) == ("one\n", True, str(sent))
