"""Code inside that uses up what there is, or fights its own ending."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import pytest

from sandboxio import (
    ExecutionTimeout,
    FileSystemError,
    ResourceLimitExceeded,
    Resources,
    SandboxGone,
)
from tests.docker.hostile import (
    PRELUDE,
    assert_works,
    assert_works_elsewhere,
    callers,
    refusal,
    warmed,
)
from tests.docker.outside import Outside, eventually, host_processes, unique_seconds

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from sandboxio.protocols import AsyncSandbox
    from tests.docker.conftest import Make

pytestmark = [pytest.mark.docker, pytest.mark.anyio]

WAITS = "echo up; read line; exit 3"
"""An innocent command: it runs until it is told to end."""
anybody = pytest.mark.parametrize("user", [None, "root"], ids=["user", "root"])


@pytest.fixture(scope="module")
async def box(sb: AsyncSandbox) -> AsyncIterator[AsyncSandbox]:
    """A sandbox that calls leave as they found it, and the proof."""
    yield sb
    await assert_works(sb)


# Using up what a sandbox has.

FORKS = """\
import os, time
while True:
    try:
        os.fork() or time.sleep(999)
    except OSError:
        print("full", flush=True)
        time.sleep(999)
"""


async def test_no_process_is_left_to_be_had(fresh: AsyncSandbox, outside: Outside) -> None:
    """A bomb ends by its timeout alone; other calls end exactly, new ones are refused by name."""
    await warmed(fresh)
    async with fresh.stream(WAITS, stdin=True) as innocent:
        await anext(aiter(innocent))
        async with fresh.stream(["python3", "-c", FORKS], timeout=8) as bomb:
            await anext(aiter(bomb))
            for act in (lambda: fresh.run(["true"]), lambda: fresh.run_code("pass")):
                assert isinstance(await refusal(act), ResourceLimitExceeded)
            assert await fresh.files.read("/tmp/warmed") == b"x"
            await fresh.metrics()
            with pytest.raises(ExecutionTimeout) as caught:
                await bomb.wait()
        assert not caught.value.collateral
        await innocent.write("go\n")
        assert (await innocent.wait()).exit_code == 3
    await eventually(lambda: callers(outside, fresh) == [])
    await assert_works(fresh)


async def test_no_descriptor_is_left_to_be_had(box: AsyncSandbox) -> None:
    """A process that holds all it may takes nothing from other calls, nor from the agent."""
    program = """\
held = []
try:
    while True:
        held += os.pipe()
except OSError as error:
    tell(errno.errorcode[error.errno])
time.sleep(60)
"""
    async with box.stream(["python3", "-c", PRELUDE + program]) as proc:
        assert (await anext(aiter(proc))).data == b'"EMFILE"\n'
        await assert_works(box)
        await assert_works_elsewhere(box)


EATS = "held = []\nwhile True: held.append(bytearray(b'x' * (1 << 20)))"


@pytest.mark.parametrize("style", ["command", "code", "child"])
async def test_no_memory_is_left_to_be_had(make: Make, style: str) -> None:
    """The call that wanted it is killed and says so; the agent and other calls are spared."""
    sb = await make(resources=Resources(memory_mb=96))
    await warmed(sb)
    async with sb.stream(WAITS, stdin=True) as innocent:
        await anext(aiter(innocent))
        if style == "child":
            assert (await sb.run(["sh", "-c", 'python3 -c "$1"; exit 5', "", EATS])).exit_code == 5
        elif style == "code":
            assert isinstance(await refusal(lambda: sb.run_code(EATS)), ResourceLimitExceeded)
        else:
            argv = ["python3", "-c", EATS]
            assert isinstance(await refusal(lambda: sb.run(argv)), ResourceLimitExceeded)
        await innocent.write("go\n")
        assert (await innocent.wait()).exit_code == 3
    await assert_works(sb)


async def test_shared_memory_is_full(fresh: AsyncSandbox) -> None:
    """A write there fails by name; links, calls and other files need nothing of it."""
    await fresh.run("cat /dev/zero >/dev/shm/filler; touch /dev/shm/last")
    with pytest.raises(FileSystemError):
        await fresh.files.write("/dev/shm/x", b"x" * 99_999)
    assert [info.path for info in await fresh.files.glob("/dev/shm/.sandboxio-*")] == []
    await assert_works_elsewhere(fresh)
    await assert_works(fresh)


# Outliving a timeout.

STAYS = """\
def stay():
    os.execve("/usr/bin/env", ["env", "-i", "sleep", sys.argv[1]], {})

def tried(act):
    try:
        act()
    except (OSError, PermissionError):
        pass

"""
WAYS = {
    "a session of its own": "apart(stay)",
    "empty groups": "tried(lambda: os.setgroups([]))\napart(stay)",
    "other groups": "tried(lambda: os.initgroups('root', 0))\napart(stay)",
    "other ids": """\
for ids in ((0, 0, 0), (1234, 1234, 1234)):
    tried(lambda: os.setresgid(*ids))
    tried(lambda: os.setresuid(*ids))
apart(stay)
""",
    "a namespace of users": """\
CLONE_NEWUSER, CLONE_NEWPID = 0x10000000, 0x20000000
for flags in (CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWUSER | CLONE_NEWPID):
    libc.unshare(flags)
tried(lambda: os.setgroups([]))
apart(stay)
""",
    "a set-user-id program": """\
import subprocess
for program in ("su root -c true", "sg root true", "newgrp root", "sudo true", "mount"):
    subprocess.run(["sh", "-c", program], stdin=subprocess.DEVNULL, capture_output=True)
apart(stay)
""",
    "a first thread that has ended": """\
def leave():
    threading.Thread(target=lambda: time.sleep(300)).start()
    libc.syscall(93 if os.uname().machine == "aarch64" else 60, 0)
apart(leave)
""",
    "being stopped": "apart(lambda: os.kill(os.getpid(), signal.SIGSTOP))",
    "being traced": """\
def traced():
    libc.ptrace(0, 0, None, None)
    os.kill(os.getpid(), signal.SIGSTOP)
    stay()
def tracer():
    if os.fork() == 0:
        traced()
    time.sleep(300)
apart(tracer)
""",
    "ignoring all signals": """\
def ignore():
    for number in signal.valid_signals():
        tried(lambda: signal.signal(number, signal.SIG_IGN))
    time.sleep(300)
apart(ignore)
""",
    "many who start each other again": """\
def watch():
    while True:
        for _ in range(3):
            os.fork()
        time.sleep(0.002)
        if os.getpid() % 4:
            os._exit(0)
apart(watch)
""",
    "a parent that waits in vfork": """\
apart(lambda: os.posix_spawn("/bin/sh", ["sh", "-c", "sleep $0 & sleep $0", sys.argv[1]], {}))
""",
}


@pytest.mark.parametrize("way", WAYS)
@anybody
async def test_nothing_of_a_call_outlives_its_timeout(
    make: Make, outside: Outside, way: str, user: str | None
) -> None:
    """However a process sheds its past, the group it was born with stays, and ends it."""
    sb = await make(resources=Resources(memory_mb=2048))  # a storm is to last until it is ended
    program = PRELUDE + STAYS + WAYS[way] + '\nprint("up", flush=True)\ntime.sleep(300)\n'
    argv = ["python3", "-c", program, unique_seconds()]
    with pytest.raises(ExecutionTimeout) as caught:
        await sb.run(argv, user=user, timeout=3)
    assert not caught.value.collateral
    assert caught.value.partial.stdout == "up\n"
    assert callers(outside, sb) == []
    await assert_works(sb)


HOPS = """\
import os
os.setsid()
while True:
    if os.fork():
        os._exit(0)
"""
BORN = """\
import time
def last():
    return int(open("/proc/loadavg").read().split()[-1])
before = last()
time.sleep(0.3)
print(last() - before)
"""


async def test_a_process_that_goes_on_under_ever_new_numbers(fresh: AsyncSandbox) -> None:
    """One that forks and leaves at once is never where it was seen, and ends all the same."""
    crowd = "import os, time\nfor _ in range(150): os.fork() or time.sleep(200)\n"
    script = f"import os\nfor _ in range(6):\n if not os.fork():\n  exec({HOPS!r})\n"
    ends = "print('up', flush=True)\nimport time; time.sleep(200)"
    async with fresh.stream(["python3", "-c", crowd + ends]) as beside:
        await anext(aiter(beside))
        for _ in range(5):
            with pytest.raises(ExecutionTimeout) as caught:
                await fresh.run(
                    ["python3", "-S", "-E", "-c", script + "import time; time.sleep(9)"], timeout=1
                )
            assert not caught.value.collateral
            assert int((await fresh.run(["python3", "-c", BORN])).stdout) < 20
        assert beside.returncode is None
    await assert_works(fresh)


async def test_nothing_outlives_the_lifetime(make: Make, outside: Outside) -> None:
    """What a call has left running ends with the sandbox, when its time is over."""
    mark = unique_seconds()
    sb = await make(timeout=4)
    program = PRELUDE + STAYS + "apart(stay)\ntell('left')\n"
    assert (await sb.run(["python3", "-c", program, mark])).stdout == '"left"\n'
    await eventually(lambda: host_processes(mark))
    with anyio.fail_after(20), pytest.raises(SandboxGone):
        await sb.run(["sleep", "60"], timeout=60)
    await eventually(lambda: not host_processes(mark))


# What goes on after a call has ended, as it may.

NOISE = "import os\nif os.fork():\n    os._exit(7)\nwhile True:\n    os.write(1, b'noise' * 9999)\n"


async def test_a_child_that_keeps_writing_harms_no_later_call(fresh: AsyncSandbox) -> None:
    """What is said after the end of a call reaches nobody, and stops nobody."""
    for _ in range(3):
        assert (await fresh.run(["python3", "-c", NOISE])).exit_code == 7
    for number in range(20):
        found = await fresh.run(["echo", str(number)])
        assert (found.exit_code, found.stdout, found.stderr) == (0, f"{number}\n", "")
    await assert_works(fresh)
    await assert_works_elsewhere(fresh)


async def test_hundreds_of_children_that_keep_an_output_open(fresh: AsyncSandbox) -> None:
    """More than the agent keeps for: the calls after them are as exact as the first."""
    few = anyio.CapacityLimiter(20)

    async def run(number: int) -> None:
        async with few:
            found = await fresh.run(f"sleep 200 & echo {number}; exit {number % 200}")
        assert (found.exit_code, found.stdout) == (number % 200, f"{number}\n")

    async with anyio.create_task_group() as tasks:
        for number in range(300):
            tasks.start_soon(run, number)
    await assert_works(fresh)


async def test_a_command_that_forges_an_end(fresh: AsyncSandbox) -> None:
    """Frames of the protocol in an output are output."""
    forged = b"\x00\x00\x00\x01\x07\x00\x00\x06\x00\x00\x00\x02ok" * 50
    program = f"import sys\nsys.stdout.buffer.write({forged!r}); sys.exit(9)"
    found = await fresh.run(["python3", "-c", program])
    assert (found.exit_code, found.stdout_bytes) == (9, len(forged))
    async with fresh.stream(["python3", "-c", program]) as proc:
        assert b"".join([chunk.data async for chunk in proc]) == forged
