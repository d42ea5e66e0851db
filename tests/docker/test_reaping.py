"""Programs that are killed: what they leave is removed, and nothing else is."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sandboxio.cli.main import main
from sandboxio.core import owner
from tests.docker.programs import (
    Program,
    Programs,
    at_home_in,
    children,
    descriptors,
    is_running,
    programs_in,
    wait_until,
)
from tests.docker.relay import Fault, relay_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.docker.conftest import Derive
    from tests.docker.outside import Outside

pytestmark = [
    pytest.mark.docker,
    pytest.mark.skipif(not Path("/proc/self/ns/pid").exists(), reason="it looks into /proc"),
]

LASTING = "sb = make(); say(); input()"
CREATE = r"POST \S*/containers/create"
HIDDEN = "a-secret-of-the-program"
IMPATIENT = """\
from sandboxio.adapters import _docker_watcher as w
last = "_docker_watch.main"
w._PROGRAM = w._PROGRAM.replace(last, f"_docker_watch.SECONDS = 5; {last}")
"""
"""Births are waited for 5 s, not 30, so that the test ends."""


@pytest.fixture(scope="module")
def program(outside: Outside, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Programs]:
    """Starts programs; they and what they left are gone when the module ends."""
    with programs_in(tmp_path_factory.mktemp("programs"), outside) as programs:
        yield programs


@pytest.fixture(scope="module")
def lasting(program: Programs) -> Program:
    """A program that has a sandbox and secrets, and stays; for looking at."""
    lasting = program(
        f'sb = make(secrets={{"KEY": "{HIDDEN}"}}, env={{"VALUE": "{HIDDEN}"}}); say(); input()',
        TOKEN=HIDDEN,
        DOCKER_HOST=os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock"),
    )
    lasting.hear()
    return lasting


@pytest.fixture
def namespace() -> tuple[str, ...]:
    """A command that runs another one in a pid namespace of its own."""
    command = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
    if not shutil.which("unshare") or subprocess.run([*command, "true"], check=False).returncode:
        pytest.skip(reason="this user makes no pid namespaces")
    return command


def test_programs_that_end_and_remove_nothing(program: Programs) -> None:
    """LIFE-3: after `os._exit`, SIGTERM, SIGKILL or an exception nothing is left."""
    code = "async def main():\n    sb = await amake(); say(); input(); {}\nanyio.run(main)"
    endings = ("os._exit(1)", "signal.raise_signal(15)", "signal.raise_signal(9)", "1 / 0")
    started = [program(code.format(ending)) for ending in endings]
    for one in started:
        one.hear()
        assert one.left()
        one.go_on()
    assert [one.process.wait(15) for one in started] == [1, -15, -9, 1]
    for one in started:
        one.wait_for_none()


def test_programs_that_are_killed_while_they_create(program: Programs, tmp_path: Path) -> None:
    """LIFE-3: at whatever moment after the watcher's start it comes, nothing is left in the end."""
    moments = (0.0, 0.05, 0.1, 0.2, 0.3, 0.6)
    code = f"{IMPATIENT}say(); input(); make(); input()"
    started = {program(code, HOME=str(tmp_path)): at for at in moments}
    for one, moment in started.items():
        one.hear()
        one.go_on()
        wait_until(one.watchers)
        time.sleep(moment)  # the moment is what the test is about
        one.killed()
    wait_until(lambda: not at_home_in(tmp_path))
    assert [name for one in started for name in one.left()] == []


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "asked",
    [Fault(CREATE, hold=2.5), Fault(CREATE, delay=60)],
    ids=["the request is on its way", "the answer is on its way"],
)
def test_a_program_that_is_killed_before_the_engine_answers(
    program: Programs, outside: Outside, tmp_path: Path, asked: Fault
) -> None:
    """A container that only comes into being when its program is dead is removed all the same."""
    with relay_at(tmp_path / "engine.sock") as relay:
        relay.faults = [asked]
        one = program("make()", DOCKER_HOST=relay.url)
        events = outside.client.events(
            decode=True, filters={"label": f"io.sandboxio.meta.program={one.label}"}
        )
        wait_until(lambda: relay.met[asked])
        if asked.delay:
            wait_until(one.left)
        one.killed()
        killed = time.monotonic()
        seen = [next(events)["Action"]]
        while seen[-1] != "destroy":
            seen.append(next(events)["Action"])
        events.close()
    assert seen[0] == "create"
    assert time.monotonic() - killed < 20


ENDINGS = "(sys.exit, lambda: 1 / 0, lambda: os._exit(0), lambda: None)"
FORKS = {
    "sync": f"""\
        sb = make()
        for ending in {ENDINGS}:
            if not os.fork():
                break
            os.wait(); sb.run(["true"])
        else:
            say(); input(); sb.run(["true"]); sb.close(); sys.exit(7)
        ending()
        """,
    "sync, in a block": f"""\
        with make() as sb:
            for ending in {ENDINGS}:
                if not os.fork():
                    ending(); sys.exit()
                os.wait(); sb.run(["true"])
            say(); input(); sb.run(["true"]); sys.exit(7)
        """,
    "async, by multiprocessing": f"""\
        import multiprocessing
        async def main():
            async with await amake() as sb:
                for ending in {ENDINGS}:
                    child = multiprocessing.get_context("fork").Process(target=ending)
                    child.start(); child.join(); await sb.run(["true"])
                say(); input(); await sb.run(["true"]); sys.exit(7)
        anyio.run(main)
        """,
    "async, unwinding": """\
        async def main():
            async with await amake() as sb:
                if not os.fork():
                    signal.alarm(10); sys.exit()
                os.wait(); say(); input(); os._exit(7)  # the loop that both had is broken
        anyio.run(main, backend="trio")
        """,
}


@pytest.mark.parametrize("code", FORKS.values(), ids=FORKS)
def test_the_end_of_a_forked_child(program: Programs, code: str) -> None:
    """PY-4: it removes nothing of its parent's, in whatever way it ends."""
    parent = program(code)
    parent.hear()
    assert len(parent.left()) == 1
    parent.go_on()
    assert parent.process.wait(15) == 7


def test_a_killed_program_whose_forked_child_lives(program: Programs) -> None:
    """PY-4: the child does not hold what tells the watcher that its parent is gone."""
    parent = program("sb = make()\nif not os.fork(): say(os.getpid()); time.sleep(60)\ninput()")
    child = int(parent.told())
    assert parent.left()
    parent.killed()
    parent.wait_for_none()
    assert is_running(child)


def test_a_killed_child_that_had_a_sandbox_of_its_own(program: Programs) -> None:
    """PY-4: the child's is removed, and its parent's stays."""
    parent = program(
        """\
        sb = make()
        if not os.fork():
            mine = make(); say(f"{os.getpid()} {mine.id}"); time.sleep(60)
        os.wait()
        input(); sb.run(["true"]); sb.close(); sys.exit(7)
        """
    )
    child, sandbox = parent.told().split()
    assert len(parent.left()) == 2
    os.kill(int(child), signal.SIGKILL)
    wait_until(lambda: len(parent.left()) < 2)
    assert parent.left() != [f"sandboxio-{sandbox}"]
    parent.go_on()
    assert parent.process.wait(15) == 7


def test_the_sweep_of_owners_that_are_dead(program: Programs, namespace: tuple[str, ...]) -> None:
    """A dead owner's sandboxes go when another program starts; one of another pid namespace
    cannot be judged, and keeps its own."""
    dead, alive = (
        program(LASTING, SBX_DOCKER_REAPER="0"),
        program(f"{LASTING}; sb.run('true')", *namespace),
    )
    dead.hear()
    alive.hear()
    dead.killed()
    sweeper = program(LASTING)
    sweeper.hear()
    watcher = sweeper.watcher()
    sweeper.killed()
    wait_until(lambda: not is_running(watcher))
    assert (dead.left(), len(alive.left())) == ([], 1)
    alive.go_on()
    assert alive.process.wait(15) == 0


def test_the_sweep_leaves_what_only_has_our_labels(
    program: Programs, outside: Outside, foreign: Callable[..., str], derive: Derive
) -> None:
    """A container of an image that carries every label of a dead owner's sandbox is not ours."""
    sandbox_id = secrets.token_hex(8)
    theirs = {f"owner.{key}": value for key, value in {**owner.owner(), "start": "1"}.items()}
    labels = {"managed": "true", "name": sandbox_id, "session": owner.session(), **theirs}
    image = derive("true", *[f"LABEL io.sandboxio.{key}={value}" for key, value in labels.items()])
    container = foreign(f"inherits-{sandbox_id}", {}, image)
    outside.client.containers.create(image, name=f"sandboxio-{sandbox_id}")
    sweeper = program(LASTING)
    sweeper.hear()
    wait_until(lambda: f"sandboxio-{sandbox_id}" not in outside.names())
    watcher = sweeper.watcher()
    sweeper.killed()
    wait_until(lambda: not is_running(watcher))
    assert outside.client.containers.get(container).status == "running"


def test_a_watcher_that_is_not_wanted(
    program: Programs, capsys: pytest.CaptureFixture[str]
) -> None:
    """LIFE-3: `SBX_DOCKER_REAPER=0` starts none; `reap` lists what there is and removes it."""
    one = program(LASTING, SBX_DOCKER_REAPER="0")
    one.hear()
    assert (one.watchers(), children(one.pid)) == ([], [])
    (name,) = one.left()
    for options in ([], ["--kill"]):
        assert (
            main(["reap", "--backend", "docker", "--label", f"program={one.label}", *options]) == 0
        )
        assert name.removeprefix("sandboxio-") in capsys.readouterr().out
        assert bool(one.left()) == (not options)


def test_a_clean_end(program: Programs) -> None:
    """A program does not wait for its watcher, which ends soon after it, for all is removed."""
    one = program("with make(): pass\nsay(); input()")
    one.hear()
    watcher = one.watcher()
    os.kill(watcher, signal.SIGSTOP)
    one.go_on()
    assert one.process.wait(5) == 0
    assert is_running(watcher)
    os.kill(watcher, signal.SIGCONT)
    wait_until(lambda: not is_running(watcher), within=10)


def test_a_watcher_that_is_signalled(program: Programs) -> None:
    """It ignores what asks it to end, and an interrupt of its program's group is not its own."""
    one = program("sb = make(); say(); signal.sigwait([2]); say('on'); input()")
    one.hear()
    watcher = one.watcher()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(watcher, number)
    os.killpg(one.pid, signal.SIGINT)
    one.killed()
    one.wait_for_none()


def test_the_diagnosis_in_a_program_that_has_sandboxes(program: Programs, tmp_path: Path) -> None:
    """`doctor()` starts a watcher of its own, whose end costs nobody a sandbox."""
    one = program(
        """\
        sb = make(); say(); input()
        docker = sandboxio.doctor().backends[0]
        say({check.name: check.detail for check in docker.checks}["crash clean-up"])
        input(); sb.run(["true"]); sb.close(); sys.exit(7)
        """,
        HOME=str(tmp_path),
    )
    one.hear()
    one.go_on()
    one.hear("on: a watcher started and answered")
    wait_until(lambda: sorted(at_home_in(tmp_path)) == sorted([one.pid, one.watcher()]))
    one.go_on()
    assert one.process.wait(15) == 7


def test_a_watcher_is_nobodys_child(lasting: Program) -> None:
    """It has a session of its own, and its program has no child and no zombie to wait for."""
    watcher = lasting.watcher()
    assert os.getsid(watcher) != os.getsid(lasting.pid)
    assert os.getpgid(watcher) != os.getpgid(lasting.pid)
    assert children(lasting.pid) == []


@pytest.mark.parametrize("name", ["cmdline", "environ"])
def test_what_others_can_read_of_a_watcher(lasting: Program, name: str) -> None:
    """Neither where the engine is nor a secret stands in its arguments and its environment."""
    told = Path(f"/proc/{lasting.watcher()}/{name}").read_bytes()
    assert told
    assert [word for word in (HIDDEN, "docker.sock", "DOCKER_HOST") if word.encode() in told] == []


def test_what_a_watcher_holds(lasting: Program) -> None:
    """Its end of the pipe, nothing where output would go, and links to the engine of its own."""
    held = descriptors(lasting.watcher())
    pipe = held.pop(0)
    assert pipe.startswith("pipe:")
    assert (held.pop(1), held.pop(2)) == ("/dev/null", "/dev/null")
    assert [link for link in held.values() if not link.startswith("socket:")] == []
    assert set(held.values()).isdisjoint(descriptors(lasting.pid).values())
