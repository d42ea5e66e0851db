"""Listing and removing what is left, on a backend in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import sandboxio
from sandboxio.core.errors import BackendNotInstalled, ConnectError

if TYPE_CHECKING:
    from tests.cli.conftest import Ended, Run
    from tests.cli.world import World


def fates(ended: Ended) -> dict[str, str]:
    found = [sandbox for backend in ended.json["backends"] for sandbox in backend["sandboxes"]]
    return {sandbox["id"]: sandbox["fate"] for sandbox in found}


def test_listing_is_the_default_and_succeeds(run: Run, world: World) -> None:
    """A dry run removes nothing, and exits 0 however much it finds."""
    world.add("a")
    ended = run("reap", "--backend", "world", "--json")
    assert (ended.code, fates(ended)) == (0, {"a": "kept"})
    assert "a" in world.there


def test_kill_removes_what_the_labels_match(run: Run, world: World) -> None:
    """All labels must match; what does not match them stays."""
    world.add("a", team="red", run="1")
    world.add("b", team="red")
    ended = run(
        "reap", "--backend", "world", "--label", "team=red", "--label", "run=1", "--kill", "--json"
    )
    assert (ended.code, fates(ended)) == (0, {"a": "removed"})
    assert set(world.there) == {"b"}


def test_kill_cannot_be_shortened(run: Run, world: World) -> None:
    """An option that removes things is written out, or it is a usage error."""
    world.add("a")
    assert run("reap", "--backend", "world", "--kil").code == 2
    assert "a" in world.there


def test_kill_that_fails_is_told_and_the_others_go_on(run: Run, world: World) -> None:
    """One failure makes the exit code 1, and is no reason to stop."""
    world.add("a")
    world.add("b")
    world.trouble["a"] = ConnectError("It is stuck.")
    ended = run("reap", "--backend", "world", "--kill", "--json")
    assert (ended.code, fates(ended)) == (1, {"a": "failed", "b": "removed"})


def test_already_gone_is_no_failure(
    run: Run, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sandbox that ended between listing and removal is what everybody wanted."""
    world.add("a")

    async def gone(_: str) -> bool:
        return False

    monkeypatch.setattr(world, "remove_managed", gone)
    ended = run("reap", "--backend", "world", "--kill", "--json")
    assert (ended.code, fates(ended)) == (0, {"a": "already gone"})


def test_backend_that_cannot_list_fails_and_the_others_are_listed(run: Run, world: World) -> None:
    """Exit code 1, with the reason, after every other backend had its turn."""
    world.add("a")
    ended = run("reap", "--backend", "nowhere", "--backend", "world", "--json")
    assert (ended.code, fates(ended)) == (1, {"a": "kept"})
    assert ended.json["backends"][0]["error"]["code"] == "SBX_E1001"


@pytest.mark.parametrize(
    ("cause", "status", "code"),
    [(ModuleNotFoundError("sdk"), "not installed", 0), (ImportError("broken"), "failed", 1)],
)
def test_missing_extra_is_no_failure_and_a_broken_one_is(
    run: Run, cause: Exception, status: str, code: int
) -> None:
    """An extra nobody installed holds no sandboxes; one that does not load may."""

    def absent() -> sandboxio.protocols.Backend:
        raise BackendNotInstalled("No SDK.") from cause

    sandboxio.register("absent", absent)
    ended = run("reap", "--backend", "absent", "--json")
    sandboxio.unregister("absent")
    assert (ended.json["backends"][0]["status"], ended.code) == (status, code)


def test_silent_backend_is_given_up(
    run: Run, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backend that does not answer does not hold the command for ever."""
    monkeypatch.setattr("sandboxio.cli.reap.CALL_SECONDS", 0.05)
    world.hangs = True
    ended = run("reap", "--backend", "world", "--json")
    assert (ended.code, ended.json["backends"][0]["status"]) == (1, "failed")


@pytest.mark.parametrize("label", ["team", "=red", "team=red --label team=blue"])
def test_unusable_labels_are_usage_errors(run: Run, label: str) -> None:
    """A filter that could mean something else is not guessed at."""
    assert run("reap", "--label", *label.split()).code == 2


def test_labels_from_the_engine_cannot_steer_the_terminal(run: Run, world: World) -> None:
    """A label is somebody else's text: one row, and no escape in it."""
    world.add("a", note="x\x1b[2J\nrunning  forged")
    ended = run("reap", "--backend", "world")
    assert "\x1b" not in ended.out
    assert len(ended.out.splitlines()) == 2
