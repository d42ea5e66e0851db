"""The demo, on a sandbox in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import sandboxio
from sandboxio.core.errors import BackendNotInstalled, ConnectError
from sandboxio.core.models import Capability, NetworkPolicy, Resources
from tests.cli import world as networks

if TYPE_CHECKING:
    from tests.cli.conftest import Ended, Run
    from tests.cli.world import World

STEPS = ["create", "run_code", "stream", "egress", "teardown"]


def statuses(ended: Ended) -> dict[str, str]:
    return {step["name"]: step["status"] for step in ended.json["steps"]}


def test_closed_sandbox_passes_five_timed_steps(run: Run, world: World) -> None:
    """Five steps in the documented order, each timed; exit code 0."""
    ended = run("demo", "--backend", "world://", "--json")
    assert ended.code == 0
    assert statuses(ended) == dict.fromkeys(STEPS, "ok")
    assert all(step["seconds"] >= 0 for step in ended.json["steps"])
    assert not world.there


def test_humans_see_the_same_steps(run: Run, world: World) -> None:
    """Both renderings tell of the same steps, in the same order."""
    ended = run("demo", "--backend", "world://")
    shown = [line.split()[1] for line in ended.out.splitlines() if line.startswith("ok ")]
    assert shown == STEPS


def test_policy_is_the_default_one(run: Run, world: World) -> None:
    """The demo asks for nothing weaker than what `create()` gives by itself."""
    run("demo", "--backend", "world://")
    request = world.created[0]
    assert (request.network, request.resources) == (NetworkPolicy(), Resources())
    assert (request.env, request.secrets, request.user) == ({}, {}, None)


@pytest.mark.parametrize("network", [networks.leaking, networks.lying])
def test_open_sandbox_fails_the_demo(run: Run, world: World, network: networks.Network) -> None:
    """A way out fails the demo, also where the sandbox denies it; teardown is done anyway."""
    world.network = network
    ended = run("demo", "--backend", "world://", "--json")
    assert ended.code == 1
    assert statuses(ended)["egress"] == "failed"
    assert statuses(ended)["teardown"] == "ok"
    assert any(attempt["reached"] for attempt in ended.json["probe"]["attempts"])


def test_probe_that_cannot_connect_at_all_proves_nothing(run: Run, world: World) -> None:
    """A sandbox in which no socket works is not taken for a closed one."""
    world.network = networks.deaf
    ended = run("demo", "--backend", "world://")
    assert ended.code == 1
    assert "nothing is proven" in ended.out


def test_stream_is_skipped_visibly_where_not_declared(run: Run, world: World) -> None:
    """Without STREAMING the step is named as skipped, and the demo passes."""
    world.capabilities &= ~Capability.STREAMING
    ended = run("demo", "--backend", "world://", "--json")
    assert (ended.code, statuses(ended)["stream"]) == (0, "skipped")


def test_sandbox_that_outlives_its_teardown_fails_the_demo(run: Run, world: World) -> None:
    """Teardown is proven by asking the backend, not believed."""
    world.immortal = True
    ended = run("demo", "--backend", "world://", "--json")
    assert (ended.code, statuses(ended)["teardown"]) == (1, "failed")


def test_error_in_a_step_still_removes_the_sandbox(run: Run, world: World) -> None:
    """The error is shown once with its fix, and nothing is left."""
    world.trouble["code"] = ConnectError("The engine went away.")
    ended = run("demo", "--backend", "world://")
    assert ended.code == 1
    assert ended.err.count("SBX_E1202") == 2  # in the message, and in the address of its page
    assert not world.there


def test_missing_extra_prints_the_install_command(run: Run) -> None:
    """The exact command from `BackendNotInstalled`, and exit code 1."""

    def absent() -> sandboxio.protocols.Backend:
        raise BackendNotInstalled("No SDK.", hint='pip install "sandboxio[world]"')

    sandboxio.register("absent", absent)
    try:
        ended = run("demo", "--backend", "absent://")
    finally:
        sandboxio.unregister("absent")
    assert ended.code == 1
    assert 'pip install "sandboxio[world]"' in ended.err


@pytest.mark.parametrize(
    "argv",
    [
        ("demo", "--backend", "docker://image?api_key=hunter2"),
        ("demo", "--backend", "hunter2"),
        ("demo", "docker://hunter2"),
        ("docker://hunter2",),
    ],
)
def test_refused_target_is_not_repeated(run: Run, argv: tuple[str, ...]) -> None:
    """A target that is no good is a usage error, and may hold what must not be shown."""
    ended = run(*argv)
    assert ended.code == 2
    assert "hunter2" not in ended.out + ended.err


def test_escapes_of_a_sandbox_are_spelled_out(run: Run, world: World) -> None:
    """What a sandbox says cannot steer the terminal."""
    world.said = "5050 \x1b]0;owned\x07\r\u202e"
    ended = run("demo", "--backend", "world://")
    assert ended.code == 0
    assert r"\x1b]0;owned\x07" in ended.out
    assert not {"\x1b", "\x07", "\r", "\u202e"} & set(ended.out)
