"""What a call finds inside: its own process, the agent's, and what code sees in either kind."""

from __future__ import annotations

import ast
import json
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from sandboxio import Resources
from tests.docker.hostile import FIRST_GROUP, PRELUDE, callers, status, told, warmed

if TYPE_CHECKING:
    from sandboxio.protocols import AsyncSandbox
    from tests.docker.conftest import Derive, Make
    from tests.docker.outside import Outside

pytestmark = [pytest.mark.docker, pytest.mark.anyio]

anybody = pytest.mark.parametrize("user", [None, "root"], ids=["user", "root"])
SETS = ("CapInh", "CapPrm", "CapEff", "CapAmb")
NONE = "0" * 16
ORDINARY = (1 << 31) - 1
"""The signals that are not the C library's own."""

SELF = """\
lines = dict(line.split(":", 1) for line in open("/proc/self/status"))
stdin = os.read(0, 1) if os.fstat(0) else None
tell({
    "caps": {name: lines[name].strip() for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")},
    "privs": lines["NoNewPrivs"].strip(),
    "seccomp": lines["Seccomp"].strip(),
    "score": int(content("/proc/self/oom_score_adj")),
    "agent's score": int(content("/proc/1/oom_score_adj")),
    "groups": os.getgroups(),
    "descriptors": sorted(map(int, os.listdir("/proc/self/fd")))[:-1],
    "stdin": stdin.decode(),
    "ignored": int(lines["SigIgn"], 16),
    "blocked": int(lines["SigBlk"], 16),
    "session": os.getsid(0) == os.getpid() == os.getpgrp(),
    "umask": lines["Umask"].strip(),
    "interfaces": os.listdir("/sys/class/net"),
    "localhost": socket.gethostbyname("localhost"),
    "cwd": os.getcwd(),
    "variables": dict(os.environ),
})
"""


@anybody
async def test_a_command_has_no_rights_and_nothing_of_the_agent(
    sb: AsyncSandbox, user: str | None
) -> None:
    """No capability, a mark of its own, three descriptors, ordinary signals, an ended stdin."""
    found = await told(sb, SELF.replace("PIPE", ""), user=user)
    variables, groups = found.pop("variables"), found.pop("groups")
    assert found.pop("ignored") & ORDINARY == 1 << 12 | 1 << 24  # by Python itself: PIPE, XFSZ
    assert found == {
        "caps": dict.fromkeys(SETS, NONE),
        "privs": "1",
        "seccomp": "2",
        "score": 500,
        "agent's score": 0,
        "descriptors": [0, 1, 2],
        "stdin": "",
        "blocked": 0,
        "session": True,
        "umask": "0022",
        "interfaces": ["lo"],
        "localhost": "127.0.0.1",
        "cwd": "/work",
    }
    assert sum(group >= FIRST_GROUP for group in groups) == 1
    name, home = ("root", "/root") if user else ("sandbox", "/home/sandbox")
    path = variables.pop("PATH")
    assert path.startswith("/usr/local/")
    assert path.endswith(f":{home}/.local/bin")
    variables.pop("LC_CTYPE", None)  # Python's own
    assert variables == {"HOME": home, "USER": name, "LOGNAME": name}


async def test_ordinary_signals(sb: AsyncSandbox) -> None:
    """A command starts with no signal ignored, caught or blocked."""
    lines = (await sb.run(["cat", "/proc/self/status"])).stdout.splitlines()
    masks = [
        int(line.split()[1], 16) for line in lines if line.startswith(("SigI", "SigC", "SigB"))
    ]
    assert [mask & ORDINARY for mask in masks] == [0, 0, 0]
    assert (await sb.run("yes | head -n 1; sleep 0")).stdout == "y\n"


async def test_each_call_has_a_mark_of_its_own(sb: AsyncSandbox) -> None:
    """Commands, code, and both for any user: no two calls carry the same number."""
    code = "import os; print(max(os.getgroups()))"
    said = [
        (await act).stdout
        for act in (
            sb.run(["python3", "-c", code]),
            sb.run(["python3", "-c", code], user="root"),
            sb.run(["python3", "-c", code], user="1234:5678"),
            sb.run_code(code),
            sb.run_code(code),
            sb.run_code(code, env={"LANG": "C"}),
        )
    ]
    assert len({int(number) for number in said}) == 6
    assert min(map(int, said)) > FIRST_GROUP


async def test_marks_seen_from_the_host(fresh: AsyncSandbox, outside: Outside) -> None:
    """All processes of a call carry its one mark, and no other process carries any."""
    async with fresh.stream("echo up; (setsid sleep 60 &); sleep 60 & sleep 60") as proc:
        await anext(aiter(proc))
        pids = callers(outside, fresh)
        marks = [[g for g in status(p)["Groups"].split() if int(g) > FIRST_GROUP] for p in pids]
        others = {seen.pid for seen in outside.processes(fresh)} - set(pids)
        groups = [status(pid)["Groups"] for pid in others]
    assert len(pids) == 4
    assert (len(marks[0]), marks) == (1, [marks[0]] * 4)
    assert all(int(group) < FIRST_GROUP for line in groups for group in line.split())


async def test_the_agent_is_the_first_process(sb: AsyncSandbox, outside: Outside) -> None:
    """Root's, with three capabilities, spared, the bootstrap in its arguments and no more."""
    (agent,) = [seen for seen in outside.processes(sb) if seen.parent == _shim(outside, sb)]
    found = status(agent.pid)
    assert agent.pid == outside.inspect(sb)["State"]["Pid"]
    assert (found["NSpid"].split()[-1], found["Uid"].split(), found["Gid"].split()) == (
        "1",
        ["0"] * 4,
        ["0"] * 4,
    )
    assert {name: int(found[name], 16) for name in (*SETS, "CapBnd")} == {
        **dict.fromkeys(("CapInh", "CapAmb"), 0),
        **dict.fromkeys(("CapPrm", "CapEff", "CapBnd"), 0xE0),
    }
    arguments = (await sb.run(["cat", "/proc/1/cmdline"])).stdout.split("\0")
    assert arguments[1:4] == ["-I", "-S", "-c"]
    assert arguments[4].startswith("import os,sys\n")
    assert len(arguments[4]) < 300
    assert arguments[-2:] == ["sandboxio agent", ""]


def _shim(outside: Outside, sb: AsyncSandbox) -> int:
    return int(status(outside.inspect(sb)["State"]["Pid"])["PPid"])


async def test_nothing_of_ours_is_on_the_disk(fresh: AsyncSandbox) -> None:
    """New in the image: the two directories, names for the user and hosts, and the socket."""
    await warmed(fresh)
    await fresh.files.remove("/tmp/warmed")
    script = (
        "find / -xdev -newer /proc/1/cmdline -o -xdev -newercm /etc/hostname | sort;"
        "find /dev/shm -mindepth 1"
    )
    found = (await fresh.run(script, user="root")).stdout.splitlines()
    expected = {
        "/work",
        "/home",
        "/home/sandbox",
        "/etc",
        "/etc/passwd",
        "/etc/group",
        "/etc/hosts",
        "/etc/hostname",
        "/etc/resolv.conf",
        "/etc/mtab",
        "/",
        "/.dockerenv",
        "/tmp",
        "/dev",
        "/dev/shm/sandboxio",
        "/dev/shm/sandboxio/python",
        "/dev/shm/sandboxio/link",
    }
    inner = ("/dev/", "/proc", "/sys")
    assert {path for path in found if path not in expected and not path.startswith(inner)} == set()
    assert {path for path in found if path.startswith("/dev/shm/")} <= expected


async def test_the_limits_are_in_the_sandbox(make: Make) -> None:
    """Memory and processes are limited as the engine was asked to, for all calls together."""
    sb = await make(resources=Resources(memory_mb=128))
    program = """\
places = {
    "memory": ("memory/memory.limit_in_bytes", "memory.max"),
    "pids": ("pids/pids.max", "pids.max"),
}
tell({name: int(b"".join(content("/sys/fs/cgroup/" + path) for path in paths))
      for name, paths in places.items()})
"""
    assert await told(sb, program) == {"memory": 128 * 1024 * 1024, "pids": 512}


# Code in a warm interpreter, beside the same code in one of its own.

LOOK = """\
import atexit, json, os, signal, sys
names = dict(globals())
modules = sorted(sys.modules)
lines = dict(line.split(":", 1) for line in open("/proc/self/status"))
with open("/dev/stdout", "w") as again:
    again.write("")
found = {
    "modules": modules,
    "names": sorted(set(names) - {"atexit", "json", "os", "signal", "sys"}),
    "name": __name__, "doc": __doc__, "package": __package__, "spec": repr(__spec__),
    "builtins": repr(__builtins__),
    "path": sys.path, "prefix": sys.prefix, "executable": sys.executable,
    "argv": sys.argv, "flags": repr(sys.flags), "xoptions": repr(sys._xoptions),
    "warnings": sys.warnoptions,
    "descriptors": sorted(map(int, os.listdir("/proc/self/fd")))[:-1],
    "streams": [repr(s) for s in (sys.stdin, sys.stdout, sys.stderr)],
    "buffering": [(s.line_buffering, s.write_through, s.errors) for s in (sys.stdout, sys.stderr)],
    "stdin": sys.stdin.read(),
    "environ": dict(os.environ),
    "encodings": [sys.getdefaultencoding(), sys.getfilesystemencoding()],
    "hooks": [sys.excepthook is sys.__excepthook__, sys.displayhook is sys.__displayhook__],
    "meta": [repr(type(one)) for one in sys.meta_path], "hooked": len(sys.path_hooks),
    "signals": {int(n): str(signal.getsignal(n)) for n in signal.valid_signals() if n < 32},
    "caught": lines["SigCgt"], "ignored": lines["SigIgn"], "blocked": lines["SigBlk"],
    "threads": lines["Threads"], "umask": lines["Umask"],
    "score": open("/proc/self/oom_score_adj").read(),
    "limit": sys.getrecursionlimit(), "switch": sys.getswitchinterval(),
    "session": os.getsid(0) == os.getpid() == os.getpgrp(),
    "mine": os.access("/proc/self/environ", os.R_OK), "cwd": os.getcwd(),
    "ids": [os.getresuid(), os.getresgid(), os.getgroups()[:-1]],
    "caps": [lines[n].strip() for n in ("CapInh", "CapPrm", "CapEff", "CapAmb")],
    "gc": [__import__("gc").isenabled(), __import__("gc").get_threshold()],
    "tracing": [sys.gettrace(), sys.getprofile()],
}
print(json.dumps(found))
"""


async def _compared(sb: AsyncSandbox, **options: Any) -> tuple[Any, Any]:
    warm = json.loads((await sb.run_code(LOOK, **options)).stdout)
    argv = ["python3", "-u", "-X", "utf8", "-c", LOOK]
    return warm, json.loads((await sb.run(argv, **options)).stdout)


async def test_code_finds_what_it_would_find_in_an_interpreter_of_its_own(
    sb: AsyncSandbox,
) -> None:
    """Modules, paths, flags, names, streams, descriptors, signals and variables are the same."""
    warm, own = await _compared(sb, env={"MINE": "1"})
    assert {k: (warm[k], own[k]) for k in own if warm[k] != own[k]} == {}


VENV = """\
mkdir -p /opt/venv/bin /opt/venv/lib/$(basename $(readlink -f /usr/bin/python3))/site-packages
ln -s $(readlink -f /usr/bin/python3) /opt/venv/bin/python3
echo 'home = /usr/bin' >/opt/venv/pyvenv.cfg
echo 'WHO = "venv"' >/opt/venv/lib/$(basename $(readlink -f /usr/bin/python3))/site-packages/it.py
"""


async def test_code_runs_in_the_virtual_environment_of_its_image(
    make: Make, derive: Derive
) -> None:
    """Where the image's PATH begins with one, code finds the modules that are there."""
    sb = await make(derive(VENV, "ENV PATH=/opt/venv/bin:/usr/local/bin:/usr/bin:/bin"))
    assert (await sb.run_code("import it; print(it.WHO)")).stdout == "venv\n"
    warm, own = await _compared(sb)
    names = ("path", "prefix", "executable", "modules", "flags")
    assert [warm[name] for name in names] == [own[name] for name in names]


async def test_code_sees_modules_of_the_user(fresh: AsyncSandbox) -> None:
    """The working directory and the user's own site are looked in, as they are at that moment."""
    await fresh.files.write("mine.py", "WHO = 'cwd'\n")
    site = (await fresh.run(["python3", "-m", "site", "--user-site"])).stdout.strip()
    await fresh.files.mkdir(site, parents=True)
    await fresh.files.write(f"{site}/theirs.py", "WHO = 'site'\n")
    await fresh.files.write(f"{site}/x.pth", "import os; os.environ['PTH'] = 'ran'\n")
    code = "import mine, theirs, os; print(mine.WHO, theirs.WHO, os.environ['PTH'])"
    assert (await fresh.run_code(code)).stdout == "cwd site ran\n"
    warm, own = await _compared(fresh)
    assert warm["path"] == own["path"]


async def test_a_hash_seed_is_a_secret_of_the_sandbox(make: Make) -> None:
    """Hashes are randomised, and differ from those of another sandbox."""
    code = "import sys; print(hash('x'), sys.flags.hash_randomization)"
    said = [(await (await make()).run_code(code)).stdout.split() for _ in range(2)]
    assert said[0][0] != said[1][0]
    assert (said[0][1], said[1][1]) == ("1", "1")


ENDS = {
    "nothing": ("pass", 0),
    "a number": ("import sys; sys.exit(7)", 7),
    "words": ("import sys; sys.exit('words')", 1),
    "an error": ("1 / 0", 1),
    "no syntax": ("def", 1),
    "an exit at once": ("import os; os._exit(9)", 9),
    "a signal": ("import os; os.kill(os.getpid(), 9)", 137),
    "an abort": ("import os; os.abort()", 134),
    "a broken pipe": (
        "import os, signal; signal.signal(13, signal.SIG_DFL); os.kill(os.getpid(), 13)",
        141,
    ),
    "a large number": ("import sys; sys.exit(300)", 44),
    "no number": ("import sys; sys.exit(None)", 0),
}


@pytest.mark.parametrize("end", ENDS)
async def test_code_ends_as_in_an_interpreter_of_its_own(sb: AsyncSandbox, end: str) -> None:
    """Exit codes and signals are those of any Python."""
    code, expected = ENDS[end]
    warm = await sb.run_code(code)
    own = await sb.run(["python3", "-u", "-X", "utf8", "-c", code])
    assert (warm.exit_code, own.exit_code) == (expected, expected)
    assert warm.stdout == own.stdout == ""
    assert bool(warm.stderr) == bool(own.stderr)


LAST = """\
import atexit, sys, threading, time
atexit.register(lambda: print("at exit"))
kept = open("kept", "w")
kept.write("flushed")
def late():
    time.sleep(0.3)
    print("joined")
threading.Thread(target=late).start()
threading.Thread(target=time.sleep, args=(99,), daemon=True).start()
def in_a_cycle():
    return kept
class Last:
    def __del__(self):
        print("finalised")
last = Last()
sys.stdout.write("no newline ")
"""


async def test_what_python_does_at_its_end_is_done(fresh: AsyncSandbox) -> None:
    """Threads are joined, `atexit` runs, objects are finalised and open files are flushed."""
    own = await fresh.run(["python3", "-u", "-X", "utf8", "-c", LAST])
    await fresh.files.remove("kept")
    warm = await fresh.run_code(LAST)
    assert warm.stdout == own.stdout == "no newline joined\nat exit\nfinalised\n"
    assert await fresh.files.read("kept") == b"flushed"


SECRET = "planted-5d1e7c90a4"
SEARCH = """\
import os, re
half = "planted-5d1e", "7c90a4"
wanted, kept = re.compile(re.escape(half[0]).encode() + b"(?=" + half[1].encode() + b")"), []
with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb", 0) as memory:
    for line in maps:
        begin, end = (int(part, 16) for part in line.split()[0].split("-"))
        if line.split()[1][0] == "r" and line.split()[-1] not in ("[vvar]", "[vsyscall]"):
            try:
                kept.append(len(wanted.findall(os.pread(memory.fileno(), end - begin, begin))))
            except OSError:
                pass
print(len(kept) > 20, sum(kept))
print(half[0].encode() in open("/proc/self/environ", "rb").read())
"""


@pytest.mark.parametrize("later", ["code", "own code", "command"])
async def test_nothing_of_a_call_is_in_the_memory_of_a_later_one(make: Make, later: str) -> None:
    """Code, variables, stdin and output of earlier calls are not there to be found."""
    sb = await make()
    code = f"import os; text = {SECRET!r} * 2; print(text, os.environ['TOKEN'])"
    for _ in range(3):
        assert (await sb.run_code(code, env={"TOKEN": SECRET})).ok
        await sb.run_code(code, env={"TOKEN": SECRET, "LANG": "C"})
        await sb.run(["cat"], env={"TOKEN": SECRET}, stdin=SECRET)
        await sb.files.write("gone", SECRET)
        await sb.files.read("gone")
    if later == "command":
        found = await sb.run(["python3", "-c", SEARCH])
    else:
        found = await sb.run_code(SEARCH, env={"LANG": "C"} if later == "own code" else None)
    assert found.stdout == "True 0\nFalse\n"


OWN = {
    "PYTHONPATH": "/work/here",
    "PYTHONHASHSEED": "7",
    "PYTHONOPTIMIZE": "1",
    "LD_PRELOAD": "/work/none.so",
    "LANG": "C",
    "LC_ALL": "POSIX",
    "MALLOC_ARENA_MAX": "1",
    "GLIBC_TUNABLES": "glibc.malloc.check=1",
    "PATH": "/usr/bin:/bin",
}


@pytest.mark.parametrize("name", OWN)
async def test_what_python_reads_at_its_start_takes_an_interpreter_of_its_own(
    sb: AsyncSandbox, name: str
) -> None:
    """It is there from the start, in the kernel's copy of the variables too."""
    code = """\
import os, sys
start = dict(v.split("=", 1) for v in open("/proc/self/environ").read().split("\\0") if v)
print((start, sys.path, sys.flags.optimize, hash("x")))
"""
    warm = ast.literal_eval((await sb.run_code(code)).stdout)
    own = ast.literal_eval((await sb.run_code(code, env={name: OWN[name]})).stdout)
    assert own[0][name] == OWN[name]
    assert name not in warm[0] or warm[0][name] != OWN[name]
    assert ("/work/here" in own[1]) == (name == "PYTHONPATH")
    assert own[2] == (name == "PYTHONOPTIMIZE")


async def test_an_ordinary_variable_takes_none(sb: AsyncSandbox) -> None:
    """With others the warm interpreter is used, and only this call has them."""
    code = "import os; print(os.environ.get('MINE'), os.getppid() != 1)"
    assert (await sb.run_code(code, env={"MINE": "x"})).stdout == "x True\n"
    assert (await sb.run_code(code)).stdout == "None True\n"


async def test_calls_of_code_at_the_same_time_share_nothing(sb: AsyncSandbox) -> None:
    """Each has its own names, modules, directory and variables."""
    code = """\
import os, sys, time
assert "leaked" not in globals() and not hasattr(sys, "leaked")
leaked = sys.leaked = os.environ["NUMBER"]
os.chdir("/tmp"); os.environ["LEAKED"] = leaked
time.sleep(0.2)
print(leaked, sys.leaked, os.environ["NUMBER"])
"""
    said: dict[int, str] = {}

    async def run(number: int) -> None:
        said[number] = (await sb.run_code(code, env={"NUMBER": str(number)})).stdout

    async with anyio.create_task_group() as tasks:
        for number in range(20):
            tasks.start_soon(run, number)
    assert said == {number: f"{number} {number} {number}\n" for number in range(20)}


async def test_a_prelude_is_no_part_of_a_call(sb: AsyncSandbox) -> None:
    """The agent's source is in no process of a call that could read it."""
    program = "tell([b'class WarmInterpreter' in content(f'/proc/{n}/cmdline') for n in (1,)])"
    assert await told(sb, program) == [False]
    assert "WarmInterpreter" not in PRELUDE
