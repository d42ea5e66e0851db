"""What a fake sandbox contains before anything has happened, and what `/proc` tells of it."""

from __future__ import annotations

import pytest

from sandboxio.testing._disk.nodes import ROOT, Directory, File, Special, Who
from sandboxio.testing._machine.launch import PROGRAMS

from .bench import USER, Bench


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.mark.parametrize(
    ("path", "mode", "uid"),
    [
        ("/work", 0o755, 10001),
        ("/home/sandbox", 0o755, 10001),
        ("/tmp", 0o1777, 0),
        ("/var/tmp", 0o1777, 0),
        ("/dev/shm", 0o1777, 0),
        ("/root", 0o700, 0),
        ("/etc/passwd", 0o644, 0),
        ("/bin/sh", 0o755, 0),
        ("/dev/null", 0o666, 0),
        ("/proc", 0o555, 0),
    ],
)
def test_places(bench: Bench, path: str, mode: int, uid: int) -> None:
    """Directories and files have the modes and owners of a small Linux."""
    node = bench.fs.stat(path, who=ROOT)
    assert (node.mode, node.uid) == (mode, uid)


def test_no_sandbox_sees_another(bench: Bench) -> None:
    """Whatever is done to the files of an image, the next one is as the first was."""
    fs, before = bench.fs, _described(Bench())
    for path in ("/usr/bin/cat", "/etc/passwd"):
        with fs.open(path, who=ROOT, write=True, append=True) as file:
            file.write(b"changed")
    with fs.open("/etc/group", who=ROOT, write=True) as file:
        file.write(b"CHANGED")
    fs.chmod("/tmp", 0o700, who=ROOT)
    fs.chown("/work", 5, 5, who=ROOT)
    fs.unlink("/dev/null", who=ROOT)
    fs.utime("/bin", 5.0, who=ROOT, follow=False)
    fs.rename("/usr/bin/ls", "/usr/bin/sl", who=ROOT)
    fs.mkdir("/new", who=ROOT)
    assert _described(bench) != before
    assert _described(Bench()) == before
    assert Bench().fs.used != fs.used


def test_every_program_has_a_file(bench: Bench) -> None:
    """What is in the table can be found along PATH."""
    assert set(PROGRAMS) <= set(bench.fs.listdir("/bin", who=USER))


def test_devices(bench: Bench) -> None:
    """The devices swallow, give zeros, or are full."""
    for name in ("null", "zero", "full"):
        node = bench.fs.stat(f"/dev/{name}", who=USER)
        assert isinstance(node, Special)
        assert node.device == name


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("memory.max", b"536870912\n"),
        ("memory.swap.max", b"0\n"),
        ("cpu.max", b"100000 100000\n"),
        ("pids.max", b"512\n"),
    ],
)
def test_caps(bench: Bench, name: str, value: bytes) -> None:
    """The caps stand where cgroup v2 shows them."""
    assert bench.read(f"/sys/fs/cgroup/{name}") == value


@pytest.mark.parametrize("path", ["/proc/x", "/sys/x", "/sys/fs/cgroup/memory.max"])
def test_kernel_files_are_read_only(bench: Bench, path: str) -> None:
    """Not even root changes `/proc` and `/sys`."""
    with pytest.raises(OSError, match="Read-only file system"):
        bench.write(path, b"1", who=ROOT)


def test_first_process(bench: Bench) -> None:
    """Process 1 is root's `sleep infinity`."""
    assert bench.read("/proc/1/cmdline") == b"sleep\0infinity\0"
    status = bench.read("/proc/1/status").decode()
    assert "Name:\tsleep\nState:\tS (sleeping)\n" in status
    assert "Uid:\t0\t0\t0\t0\n" in status


def test_own_process(bench: Bench) -> None:
    """A program finds itself in `/proc/self`."""
    assert bench.run(["cat", "/proc/self/cmdline"]).out == b"cat\0/proc/self/cmdline\0"
    lines = bench.run(["cat", "/proc/self/status"]).out.decode().splitlines()
    assert {"Name:\tcat", "State:\tR (running)", "PPid:\t1", "CapEff:\t" + "0" * 16} <= set(lines)
    assert "Uid:\t" + "\t".join(["10001"] * 4) in lines


def test_own_process_is_unknown_from_outside(bench: Bench) -> None:
    """Who looks from the host is no process."""
    assert not bench.fs.exists("/proc/self", who=ROOT)


@pytest.mark.anyio
async def test_environ_is_private(bench: Bench) -> None:
    """An environment is shown to the same user and to root, and to nobody else."""
    bench.env["TOKEN"] = "x"
    running = bench.start(["sleep", "infinity"])
    path = f"/proc/{running.process.pid}/environ"
    assert b"TOKEN=x\0" in bench.fs.read(path, 0, 4096, who=USER)
    assert bench.fs.read(path, 0, 4096, who=ROOT)
    with pytest.raises(PermissionError):
        bench.fs.read(path, 0, 4096, who=Who(1, 1))
    bench.kernel.end(running.process, 137)


@pytest.mark.anyio
async def test_zombie(bench: Bench) -> None:
    """A process that nobody has waited for is a zombie without a command line."""
    parent = bench.start(["timeout", "99", "sleep", "9"])
    child = next(iter(parent.process.children))
    child.kernel.end(child, 137)
    where = f"/proc/{child.pid}"
    assert bench.read(f"{where}/cmdline") == b""
    assert b"State:\tZ (zombie)\n" in bench.read(f"{where}/status")
    assert bench.read(f"{where}/stat").split()[1:4] == [
        b"(sleep)",
        b"Z",
        b"%d" % parent.process.pid,
    ]
    bench.kernel.end(parent.process, 137)


def test_processes_are_listed(bench: Bench) -> None:
    """`/proc` shows who is there at the time of the look."""
    listed = bench.run(["ls", "/proc"]).out.decode().split()
    assert [name for name in listed if name.isdecimal()] == ["1", "2"]
    assert {"self", "meminfo", "uptime", "loadavg", "net"} <= set(listed)


def test_no_interface_but_loopback(bench: Bench) -> None:
    """The network of a fake is not there."""
    lines = bench.read("/proc/net/dev").decode().splitlines()[2:]
    assert [line.split(":")[0].strip() for line in lines] == ["lo"]


def _described(bench: Bench) -> dict[str, tuple[object, ...]]:
    """Return all there is to say of everything but `/proc`."""
    found: dict[str, tuple[object, ...]] = {}
    pending = [""]
    while pending:
        path = pending.pop()
        node = bench.fs.stat(path or "/", who=ROOT, follow=False)
        said = (node.kind, node.mode, node.uid, node.gid, node.mtime, node.ino, node.nlink)
        found[path] = (*said, node.size)
        if isinstance(node, File):
            found[path] += (bytes(node.data),)
        if isinstance(node, Directory) and path != "/proc":
            pending += [f"{path}/{name}" for name in node.names()]
    return found
