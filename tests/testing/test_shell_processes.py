"""The virtual shell and its processes: background, signals, what ends what, and time."""

from __future__ import annotations

import pytest

from sandboxio.testing._disk.fs import ROOT, File
from sandboxio.testing._machine.process import TERM
from tests.testing.world import World

pytestmark = pytest.mark.anyio


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize(
    ("script", "out"),
    [
        ("(exit 7) & wait $!; echo $?; wait 99999; echo $?", "7\n127\n"),
        ("sleep 5 & kill $!; wait $!; echo $?", "143\n"),
        ("sleep 5 & kill -9 %1; wait; echo done", "done\n"),
        ("cat & wait; echo $?", "0\n"),
        ("seq 3 | while read n; do t=$n; done; echo [$t]", "[]\n"),
        ("true | exit 3; echo $?; exit 4 | true; echo $?", "3\n0\n"),
        ("yes | head -2; while :; do echo y; done | head -1", "y\ny\ny\n"),
        ("[ $$ = $(echo $$) ] && echo same", "same\n"),
    ],
)
async def test_background_and_pipelines(world: World, script: str, out: str) -> None:
    """Processes run beside the shell, and it learns how they ended."""
    assert (await world.run(script)).out == out


@pytest.mark.parametrize(
    ("script", "exit_code", "out"),
    [
        ("trap 'echo bye' EXIT; echo hi; exit 3", 3, "hi\nbye\n"),
        ("trap 'exit 9' EXIT; exit 1", 9, ""),
        ("trap 'echo T' TERM; kill -TERM $$; echo after", 0, "T\nafter\n"),
        ("trap '' TERM; kill $$; sh -c 'kill $$; echo deaf'", 0, "deaf\n"),
        ("trap 'echo T' TERM; trap - TERM; kill $$; echo never", 143, ""),
        ("trap 'echo T' TERM; (kill $$; trap); echo on", 0, "T\non\n"),
        ("trap 'echo T; exit 2' TERM; sleep 50 & (sleep 1; kill $$) & wait; echo no", 2, "T\n"),
        ("kill -9 $$; echo never", 137, ""),
        ("sh -c 'kill -TERM $$'; echo $?", 0, "143\n"),
        ("trap 'echo x' INT; trap", 0, "trap -- 'echo x' INT\n"),
    ],
)
async def test_signals(world: World, script: str, exit_code: int, out: str) -> None:
    """Traps run between commands, ignoring is inherited, and the rest is the end."""
    done = await world.run(script)
    assert (done.exit, done.out) == (exit_code, out)


async def test_a_signal_waits_for_the_foreground(world: World) -> None:
    """A trap runs when the command in the foreground has ended, not before."""
    process = world.start("sh", "-c", "trap 'echo T' TERM; sleep 10; echo end")
    process.signal(TERM)
    world.kernel.run()
    assert world.out.text == ""
    await world.clock.sleep(11)
    assert world.out.text == "T\nend\n"


async def test_processes_show_their_own_command_line(world: World) -> None:
    """Programs are seen as themselves, forked shells as the shell they come from."""
    script = (
        "(setsid sleep 1 &); sleep 2 & sleep 3 | sleep 4 & { sleep 5; :; } & sh -c 'sleep 6' & wait"
    )
    world.start("sh", "-c", script)
    shell = f"sh -c {script}"
    expected = [shell, shell, *(f"sleep {n}" for n in range(1, 7))]
    assert sorted(world.alive()) == sorted(expected)


async def test_orphans_belong_to_the_call(world: World) -> None:
    """A call's processes are found whatever session, parent or deafness they have."""
    script = "(setsid sleep 3001 &); sleep 3002 & sh -c 'trap \"\" TERM; sleep 3003' & wait"
    world.start("sh", "-c", script)
    assert len(world.alive()) == 4
    world.kernel.kill_call(1)
    assert world.kernel.processes == {}


async def test_children_are_reaped(world: World) -> None:
    """What has ended is not kept, so that many short processes are no problem."""
    done = await world.run("for i in $(seq 700); do (true &); true & sleep 0.01; done; echo ok")
    assert done == (0, "ok\n", "")
    assert world.kernel.processes == {}


async def test_a_killed_shell_closes_its_files(world: World) -> None:
    """Files that redirections opened are closed, whoever ends the shell and when."""
    await world.run("{ kill -9 $$; } >f")
    world.start("sh", "-c", "{ sleep 100; exec sleep 100; } >f 3>>f")
    world.kernel.kill_all()
    node = world.fs.resolve("/work/f", who=ROOT)
    assert isinstance(node, File)
    assert node.opened == 0


@pytest.mark.parametrize(
    ("script", "err"),
    [
        ("for i in $(seq 600); do sleep 9 & done; echo never", "Cannot fork"),
        ("f() { f; }; f", "Maximum function recursion depth (40) reached"),
        ("x=a; while :; do x=$x$x; done", "Out of space"),
        ("x=$(yes)", "Out of space"),
        ("(" * 400 + "echo" + ")" * 400, "Syntax error: nested too deeply"),
    ],
)
async def test_what_would_never_end(world: World, script: str, err: str) -> None:
    """Processes, depth and memory have limits, and reaching one ends the shell."""
    done = await world.run(script)
    assert (done.exit, done.out, done.err) == (2, "", f"sh: 1: {err}\n")


@pytest.mark.parametrize(
    "script", ["while :; do :; done", "while true; do true & done", "b() { b | b & }; b; wait"]
)
async def test_endless_scripts_use_up_time(world: World, script: str) -> None:
    """An endless loop, and a fork bomb, make virtual time pass and never hang the tests."""
    world.start("sh", "-c", script)
    await world.clock.sleep(20)
    assert world.clock.time() == 20
    world.kernel.kill_all()


async def test_sleep_takes_no_real_time(world: World) -> None:
    """Time in scripts is virtual."""
    await world.run("sleep 3600; sleep 0.5")
    assert world.clock.time() == pytest.approx(3600.5)


async def test_exec_forgets_handlers(world: World) -> None:
    """A handled signal ends the program that took the shell's place; an ignored one does not."""
    script = "(trap 'echo no' TERM; trap '' HUP; exec sleep 60) & sleep 1; kill -HUP $!; kill $!; wait $!"
    done = await world.run(script)
    assert (done.exit, done.out) == (128 + 15, "")
