"""The image of a fake sandbox: a small Linux, of which nothing comes from the host."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from sandboxio.testing._disk.fs import FileSystem
from sandboxio.testing._disk.nodes import Link, Special
from sandboxio.testing._machine.launch import MAGIC
from sandboxio.testing._machine.proc import proc
from sandboxio.testing._programs import PROGRAMS

if TYPE_CHECKING:
    from sandboxio.testing._disk.fs import Snapshot
    from sandboxio.testing._machine.kernel import Kernel

MIB = 1024 * 1024
CPU_PERIOD = 100_000
"""Microseconds, of which `cpu.max` gives a part."""
_OS_RELEASE = """\
PRETTY_NAME="sandboxio fake sandbox"
NAME="sandboxio fake"
ID=sandboxio-fake
ID_LIKE=debian
VERSION_ID="1"
"""
_STREAMS = ("stdin", "stdout", "stderr")


def build(
    fs: FileSystem,
    kernel: Kernel,
    *,
    user: str = "sandbox",
    uid: int = 10001,
    gid: int = 10001,
    hostname: str = "sandbox",
    memory_mb: int = 512,
    cpus: float = 1.0,
    processes: int = 512,
) -> None:
    """Fill an empty file system; `memory_mb` in MiB, `cpus` in cores.

    Programs that are in the table by now get a file each in `/usr/bin`. `/proc` shows the
    processes of the kernel.
    """
    programs = tuple(sorted({"sh", *PROGRAMS}))
    fs.restore(_common(programs, user, uid, gid, memory_mb, cpus, processes))
    _names(fs, hostname)
    fs.attach("/proc", proc(kernel, memory=memory_mb * MIB))
    for path in ("/proc", "/sys"):
        fs.mount_read_only(path)


@lru_cache(maxsize=16)
def _common(
    programs: tuple[str, ...],
    user: str,
    uid: int,
    gid: int,
    memory_mb: int,
    cpus: float,
    processes: int,
) -> Snapshot:
    """Return what sandboxes have in common: to make it takes ten times as long as to copy it."""
    fs = FileSystem(now=lambda: 0.0)
    _system(fs, programs)
    _accounts(fs, user, uid, gid)
    _places(fs, user, uid, gid)
    _devices(fs)
    _cgroup(fs, memory_mb * MIB, cpus, processes)
    return fs.snapshot()


def _system(fs: FileSystem, programs: tuple[str, ...]) -> None:
    fs.fill("/usr/bin", {name: MAGIC + name.encode() + b"\n" for name in programs}, mode=0o755)
    for name in ("bin", "sbin"):
        fs.populate(f"/usr/{name}", mode=0o755)
        fs.attach(f"/{name}", Link(target=f"usr/{name}"))
    fs.populate("/usr/local/bin", mode=0o755)
    fs.populate("/etc/os-release", _OS_RELEASE.encode(), mode=0o644)


def _accounts(fs: FileSystem, user: str, uid: int, gid: int) -> None:
    passwd = f"root:x:0:0:root:/root:/bin/sh\n{user}:x:{uid}:{gid}::/home/{user}:/bin/sh\n"
    group = f"root:x:0:\n{user}:x:{gid}:\n"
    for name, text in (("passwd", passwd), ("group", group)):
        fs.populate(f"/etc/{name}", text.encode(), mode=0o644)


def _names(fs: FileSystem, hostname: str) -> None:
    hosts = f"127.0.0.1\tlocalhost\n::1\tlocalhost\n127.0.1.1\t{hostname}\n"
    for name, text in (("hostname", f"{hostname}\n"), ("hosts", hosts)):
        fs.populate(f"/etc/{name}", text.encode(), mode=0o644)


def _places(fs: FileSystem, user: str, uid: int, gid: int) -> None:
    for path in ("/tmp", "/var/tmp", "/dev/shm"):  # noqa: S108 - of the fake, not of the host
        fs.populate(path, mode=0o1777)
    for path in ("/work", f"/home/{user}"):
        fs.populate(path, mode=0o755, uid=uid, gid=gid)
    fs.populate("/root", mode=0o700)


def _devices(fs: FileSystem) -> None:
    fs.attach("/dev/null", Special(mode=0o666, device="null"))
    fs.attach("/dev/zero", Special(mode=0o666, device="zero"))
    fs.attach("/dev/full", Special(mode=0o666, device="full"))
    fs.attach("/dev/fd", Link(target="/proc/self/fd"))
    for number, name in enumerate(_STREAMS):
        fs.attach(f"/dev/{name}", Link(target=f"/proc/self/fd/{number}"))


def _cgroup(fs: FileSystem, memory: int, cpus: float, processes: int) -> None:
    for name, value in (
        ("memory.max", str(memory)),
        ("memory.swap.max", "0"),
        ("cpu.max", f"{round(cpus * CPU_PERIOD)} {CPU_PERIOD}"),
        ("pids.max", str(processes)),
    ):
        fs.populate(f"/sys/fs/cgroup/{name}", f"{value}\n".encode(), mode=0o444)
