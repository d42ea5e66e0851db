"""Code inside that turns against the agent, its helpers, its files and its own ending."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import pytest

from tests.docker.hostile import PRELUDE, assert_works, assert_works_elsewhere, told, warmed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from sandboxio.protocols import AsyncSandbox
    from tests.docker.conftest import Derive, Make

pytestmark = [pytest.mark.docker, pytest.mark.anyio]

anybody = pytest.mark.parametrize("user", [None, "root"], ids=["user", "root"])
DENIED = {"EACCES", "EPERM", "ENOENT"}
"""A descriptor that is not there cannot be opened either."""


@pytest.fixture(scope="module")
async def box(sb: AsyncSandbox) -> AsyncIterator[AsyncSandbox]:
    """A sandbox with all its helpers, and the proof that it has not suffered."""
    await warmed(sb)
    yield sb
    await assert_works(sb)


# Looking at the agent and its helpers, and reaching into them.

READS = """\
names = sys.argv[1].split()
tell({
    f"{role} {name}": attempt(opened, f"/proc/{pid}/{name}")
    for role, pid in keepers().items() for name in names
})
"""


@anybody
async def test_no_helper_can_be_read(box: AsyncSandbox, user: str | None) -> None:
    """Memory, environment, memory maps and open files of the three are closed to everybody."""
    names = "mem environ maps smaps pagemap auxv syscall stack fd/0 fd/1 fd/2 fd/3 fd/4 root exe"
    found = await told(box, READS, names, user=user)
    assert len(found) == 3 * len(names.split())
    assert {how: error for how, error in found.items() if error not in DENIED} == {}


@anybody
async def test_no_stream_of_a_helper_can_be_written_to(box: AsyncSandbox, user: str | None) -> None:
    """What the agent hears and says goes through descriptors that nobody else can open."""
    program = READS.replace('{name}")', '{name}", os.O_WRONLY)')
    found = await told(box, program, "fd/0 fd/1 fd/2 fd/3 fd/4 fd/5 mem", user=user)
    assert {how: error for how, error in found.items() if error not in DENIED} == {}


TRACES = """\
PTRACE_ATTACH, PTRACE_SEIZE, PIDFD_OPEN, PIDFD_GETFD = 16, 0x4206, 434, 438
byte = ctypes.create_string_buffer(1)
class Piece(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("size", ctypes.c_size_t)]

def steal(pid):
    pidfd = libc.syscall(PIDFD_OPEN, pid, 0)
    checked(libc.syscall, PIDFD_GETFD, pidfd, 0, 0)

def peek(pid):
    ours, theirs = Piece(ctypes.addressof(byte), 1), Piece(id(None), 1)
    checked(libc.process_vm_readv, pid, ctypes.byref(ours), 1, ctypes.byref(theirs), 1, 0)

def poke(pid):
    ours, theirs = Piece(ctypes.addressof(byte), 1), Piece(id(None), 1)
    checked(libc.process_vm_writev, pid, ctypes.byref(ours), 1, ctypes.byref(theirs), 1, 0)

ways = {
    "attach": lambda pid: checked(libc.ptrace, PTRACE_ATTACH, pid, None, None),
    "seize": lambda pid: checked(libc.ptrace, PTRACE_SEIZE, pid, None, None),
    "steal": steal, "peek": peek, "poke": poke,
}
tell({f"{role} {name}": attempt(way, pid)
      for role, pid in keepers().items() for name, way in ways.items()})
"""


@anybody
async def test_no_helper_can_be_traced(box: AsyncSandbox, user: str | None) -> None:
    """Attaching, reading and writing memory, taking descriptors: refused for each of the three."""
    found = await told(box, TRACES, user=user)
    assert len(found) == 15
    assert {how: error for how, error in found.items() if error != "EPERM"} == {}


async def test_the_user_can_signal_no_helper(box: AsyncSandbox) -> None:
    """Neither end nor stop, nor anything else, reaches the three from the sandbox's user."""
    program = """\
tell({f"{role} {number}": attempt(os.kill, pid, number)
      for role, pid in keepers().items() for number in (0, *signal.valid_signals())})
"""
    found = await told(box, program)
    assert len(found) > 3 * 60
    assert set(found.values()) == {"EPERM"}


async def test_the_user_cannot_slow_a_helper_down(box: AsyncSandbox) -> None:
    """Priorities stay as they are, also while the agent makes the pipes of other calls."""
    program = """\
pids, until = keepers().values(), time.monotonic() + 3
print("up", flush=True)
while time.monotonic() < until:
    for pid in pids:
        for lower in (lambda: os.setpriority(os.PRIO_PROCESS, pid, 19),
                      lambda: os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0)),
                      lambda: os.sched_setaffinity(pid, {0})):
            assert attempt(lower) == "EPERM"
"""

    async def others() -> None:
        while True:
            await box.run(["true"])
            await box.files.exists("x")

    async with (
        anyio.create_task_group() as tasks,
        box.stream(["python3", "-c", PRELUDE + program]) as proc,
    ):
        await anext(aiter(proc))
        tasks.start_soon(others)
        assert (await proc.wait()).exit_code == 0
        tasks.cancel_scope.cancel()


LEAVES = """\
import os, signal, sys
for number in sorted(signal.valid_signals() - {int(n) for n in sys.argv[1:]}):
    os.kill(1, number)
"""


async def test_no_signal_of_root_ends_or_stops_the_agent(fresh: AsyncSandbox) -> None:
    """The kernel keeps a first process from signals of its own namespace, root's too."""
    spared = [str(int(number)) for number in (2, 15)]
    await fresh.run(["python3", "-c", LEAVES, *spared], user="root")
    await assert_works(fresh)


@pytest.mark.parametrize("number", [2, 15])
async def test_no_signal_with_a_handler_of_the_agent_ends_it(
    fresh: AsyncSandbox, number: int
) -> None:
    """INT and TERM, which a Python answers or ours does, end nothing when they are root's."""
    await fresh.run(["kill", f"-{number}", "1"], user="root")
    await assert_works(fresh)


@pytest.mark.parametrize("number", [9, 15, 6])
async def test_helpers_that_root_ends_are_replaced(fresh: AsyncSandbox, number: int) -> None:
    """Nothing is lost with a file worker or a warm interpreter."""
    await warmed(fresh)
    program = f"""\
found = keepers()
for role in ("warm", "worker"):
    os.kill(found[role], {number})
tell(sorted(found))
"""
    await told(fresh, program, user="root")
    await assert_works(fresh)


async def test_helpers_that_root_stops_hold_up_nothing_for_good(fresh: AsyncSandbox) -> None:
    """Code runs in an interpreter of its own, and a file operation that is given up is over."""
    await warmed(fresh)
    program = """\
found = keepers()
for role in ("warm", "worker"):
    os.kill(found[role], signal.SIGSTOP)
tell(sorted(found))
"""
    await told(fresh, program, user="root")
    with anyio.move_on_after(0.5):
        await fresh.files.exists("x")
    with anyio.fail_after(20):
        await assert_works(fresh)


# The socket that later links come by.


async def test_the_user_cannot_reach_the_socket(box: AsyncSandbox) -> None:
    """The directory is root's: it cannot be entered, listed, renamed, removed or replaced."""
    program = """\
place = "/dev/shm/sandboxio"
os.mkdir("/dev/shm/x")
def connect():
    socket.socket(socket.AF_UNIX).connect(place + "/link")
tell({
    "connect": attempt(connect),
    "enter": attempt(os.chdir, place),
    "list": attempt(os.listdir, place),
    "rename": attempt(os.rename, place, "/dev/shm/other"),
    "exchange": attempt(checked, libc.renameat2, -100, place.encode(), -100, b"/dev/shm/x", 2),
    "remove": attempt(os.rmdir, place),
    "unlink": attempt(os.unlink, place + "/link"),
    "open up": attempt(os.chmod, place, 0o777),
    "put in": attempt(os.symlink, "/work", place + "/python"),
    "mount": attempt(checked, libc.mount, b"none", place.encode(), b"tmpfs", 0, None),
})
"""
    found = await told(box, program)
    assert {how: error for how, error in found.items() if error not in DENIED - {"ENOENT"}} == {}
    await assert_works_elsewhere(box)


SPEAKS = """\
def pack(*fields):
    return b"".join(struct.pack("!I", len(field)) + field for field in fields)

def frame(channel, kind, payload):
    return struct.pack("!II", channel, kind << 24 | len(payload)) + payload

def connected():
    link = socket.socket(socket.AF_UNIX)
    link.connect("/dev/shm/sandboxio/link")
    link.settimeout(5)
    return link

def heard(link):
    try:
        link.sendall(frame(0, 1, pack(b"sandboxio-link", b"1")))
        return link.recv(65536)
    except (BrokenPipeError, ConnectionResetError):
        return b""

"""


async def test_a_call_as_root_opens_no_link(box: AsyncSandbox) -> None:
    """What the agent starts for others would not be ended with the call that asked for it."""
    program = SPEAKS + 'tell(attempt(lambda: heard(connected()).decode("latin-1")))'
    assert await told(box, program, user="root") in ("''", *DENIED)


async def test_connections_of_root_that_say_nothing(fresh: AsyncSandbox) -> None:
    """A full backlog keeps no link out, nor does it keep a sandbox alive."""
    program = PRELUDE + SPEAKS + "links = [connected() for _ in range(300)]\ntell(len(links))\n"
    async with fresh.stream(["python3", "-c", program + "time.sleep(99)"], user="root") as proc:
        await anext(aiter(proc))
        await assert_works_elsewhere(fresh)
    await assert_works(fresh)


async def test_frames_of_root_that_break_rules(fresh: AsyncSandbox) -> None:
    """Nonsense on a link of its own ends that link at most."""
    program = (
        SPEAKS
        + """\
nonsense = [frame(0, 1, b""), frame(1, 8, b""), b"\\xff" * 64, frame(1, 2, b"\\0\\0\\0\\1"),
            frame(1, 2, pack(b"exec", b"0", b"/", b"x", b"", b"0")), frame(0, 10, b"x" * 70)]
opening = frame(1, 2, pack(b"exec", b"0:0:", b"/", b"9000", b"i", b"1", b"cat"))
spoilt = [frame(1, kind, data) for kind in range(16) for data in (b"", b"\\0", b"\\0" * 5)]
for before in (b"", frame(0, 1, pack(b"sandboxio-link", b"1"))):
    for bad in nonsense + [opening + bad for bad in spoilt]:
        link = connected()
        try:
            link.sendall(before + bad)
            link.shutdown(socket.SHUT_WR)
            while link.recv(65536):
                pass
        except (BrokenPipeError, ConnectionResetError):
            pass
tell("said")
"""
    )
    assert await told(fresh, program, user="root") == "said"
    await assert_works(fresh)


FAKE = """\
#!/bin/sh
umask 0
grep -E 'Uid|CapEff' /proc/self/status >>/tmp/ran-as
exec /usr/bin/python3 "$@"
"""


async def test_a_replaced_interpreter_runs_with_nobody_elses_rights(
    make: Make, derive: Derive
) -> None:
    """Where the image's own user may replace the Python of its PATH, root does not run it."""
    script = (
        "useradd -m -u 1500 app; mkdir -p /home/app/bin; ln -s /usr/bin/python3 /home/app/bin/; "
        "chown -R app /home/app; chmod 755 /home/app"
    )
    image = derive(script, "USER app", "ENV PATH=/home/app/bin:/usr/bin:/bin")
    sb = await make(image)
    await sb.run("rm ~/bin/python3; touch /tmp/ran-as; chmod 666 /tmp/ran-as")
    await sb.files.write("/home/app/bin/python3", FAKE, mode=0o755)
    await assert_works_elsewhere(sb)
    await sb.run_code("pass", env={"LANG": "C"})
    lines = (await sb.files.read("/tmp/ran-as")).decode().splitlines()
    assert {line.split()[1] for line in lines if line.startswith("Uid")} <= {"1500"}
    assert {line.split()[1] for line in lines if line.startswith("CapEff")} <= {"0" * 16}
