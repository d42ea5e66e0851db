"""What an adapter author sets: the backend, its deviations, and probes that fit its images."""

from __future__ import annotations

import inspect
import socket
import threading
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NoReturn, Protocol

import pytest

from sandboxio.core.clock import LOOP

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from sandboxio.core.clock import Clock
    from sandboxio.core.protocols import AsyncSandbox, Backend


UNLIMITED = 2**62
"""What a cap reads as where there is none, or more: the kernel's own figures vary."""


@dataclass(frozen=True)
class Caps:
    """What the kernel holds a sandbox to; `None` where that cannot be read."""

    memory_bytes: int | None = None
    memory_and_swap_bytes: int | None = None
    cpus: float | None = None
    processes: int | None = None


class Canary(Protocol):
    """Something that listens where a sandbox must not get to, and remembers who came."""

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Hosts and ports at which it can be tried."""
        ...

    @property
    def visitors(self) -> list[str]: ...


class SuiteSettings:
    """Attributes and methods that a subclass may override.

    Only `backend` (or `make_backend()`) has to be given.
    """

    backend: ClassVar[Backend | None] = None
    """The backend under test, used for every case."""
    template: ClassVar[str | None] = None
    """What sandboxes are created from; `None` is the backend's own default."""
    user: ClassVar[str | None] = None
    """Whose calls the cases make, as `create(user=)` takes it; `None` is the backend's default."""
    lifetime: ClassVar[float] = 120.0
    """Seconds that the sandbox of a case lives."""
    loops: ClassVar[tuple[str, ...]] = ("asyncio", "trio")
    """Event loops on which the backend works."""
    deviations: ClassVar[Mapping[str, str]] = {}
    """Cases known to fail, each with the reason: `{"FS-012": "the provider has no links"}`."""
    resource_caps_supported: ClassVar[bool] = True
    """False where caps belong to the template; a caller's caps must then be refused."""
    credential: ClassVar[str | None] = None
    """The environment variable that holds the provider's key, if it needs one."""

    def make_backend(self) -> Backend:
        """Return the backend for one case; override it to have a new one for each."""
        if self.backend is None:
            pytest.fail(
                f"{type(self).__name__} has no backend. Write `backend = MyBackend()` in the "
                "class, or override make_backend()."
            )
        return self.backend

    @property
    def clock(self) -> Clock:
        """The clock by which the backend's sandboxes live."""
        return LOOP

    # Commands. They are POSIX shell and may be overridden for images that have none.

    def hang(self, marker: int) -> str:
        """Return a command that runs until it is killed, as a process marked by the number."""
        return f"sleep {marker}"

    async def alive(self, sandbox: AsyncSandbox, marker: int) -> int:
        """Count the processes of the sandbox that carry the marker of `hang()`.

        They are looked for by name, in /proc, so that no bookkeeping of the backend is trusted.
        """
        found = await sandbox.run(
            "for d in /proc/[0-9]*; do c=$(tr '\\000' ':' 2>/dev/null <$d/cmdline); "
            f'case "$c" in *sleep:{marker}:) echo x;; esac; done; exit 0'
        )
        assert found.exit_code == 0, f"the probe that looks for processes failed: {found}"
        return found.stdout.count("x")

    def connect(self, host: str, port: int) -> str:
        """Return a command that exits with 0 iff a TCP connection comes about, within 5 s.

        Exit code 99 means that the image has no program to try with.
        """
        code = f"import socket; socket.create_connection(('{host}', {port}), 3).close()"
        return (
            f'if command -v python3 >/dev/null; then exec python3 -c "{code}"; fi; '
            f"if command -v curl >/dev/null; then exec curl -sS -m 3 http://{host}:{port}/; fi; "
            f"if command -v nc >/dev/null; then exec nc -w 3 {host} {port} </dev/null; fi; "
            "exit 99"
        )

    async def caps(self, sandbox: AsyncSandbox) -> Caps:
        """Read the caps of the sandbox inside it, from the cgroup files of either version."""
        script = (
            "cd /sys/fs/cgroup 2>/dev/null || exit 0; "
            f"for f in {' '.join(_CGROUP_FILES)}; do [ -r $f ] && echo $f $(cat $f); done; exit 0"
        )
        found = await sandbox.run(script)
        assert found.exit_code == 0, f"the probe that reads the caps failed: {found}"
        lines = (line.partition(" ") for line in found.stdout.splitlines())
        return _caps({name: text for name, _, text in lines})

    def canary(self) -> AbstractContextManager[Canary]:
        """Listen at every address of this host."""
        return _listening()

    # What only an adapter can bring about. Without it the cases that need it are skipped.

    async def remove_behind(self, sandbox: AsyncSandbox) -> None:
        """Remove the sandbox past the library, as an operator would."""
        self._missing("remove_behind")

    async def expire(self, sandbox: AsyncSandbox) -> None:
        """Bring the sandbox to the end of its lifetime."""
        self._missing("expire")

    async def count(self, run: str) -> int:
        """Ask the provider, not the backend, how many sandboxes have metadata `contract_run`."""
        self._missing("count")

    def slow_create(self) -> AbstractContextManager[None]:
        """Make every creation take longer than an hour while the block lasts."""
        self._missing("slow_create")

    def failing_create(self, error: Exception) -> AbstractContextManager[None]:
        """Let the provider fail every creation with that error while the block lasts."""
        self._missing("failing_create")

    def hanging_removal(self) -> AbstractContextManager[None]:
        """Let every removal hang while the block lasts."""
        self._missing("hanging_removal")

    def unauthenticated(self) -> AbstractContextManager[None]:
        """Take the provider's key away while the block lasts; see `credential`."""
        self._missing("unauthenticated")

    def require(self, *probes: str) -> None:
        """Skip unless the probes are there: for cases that use them inside a task group."""
        for probe in probes:
            if not self.has_probe(probe):
                self._missing(probe)

    def has_probe(self, probe: str) -> bool:
        """Say whether a subclass has written the probe."""
        return getattr(type(self), probe) is not getattr(SuiteSettings, probe)

    def _missing(self, probe: str) -> NoReturn:
        claim = inspect.getdoc(getattr(SuiteSettings, probe)) or ""
        purpose = claim.partition(".")[0]
        pytest.skip(reason=f"{type(self).__name__} has no probe {probe}(); override it: {purpose}")


_CGROUP_FILES = (
    *("memory.max", "memory.swap.max", "cpu.max", "pids.max"),
    *("memory/memory.limit_in_bytes", "memory/memory.memsw.limit_in_bytes", "pids/pids.max"),
    *("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"),
)


def _caps(files: Mapping[str, str]) -> Caps:
    def number(*names: str) -> int | None:
        text = next((files[name] for name in names if name in files), None)
        return UNLIMITED if text == "max" else None if text is None else int(text)

    memory = number("memory.max", "memory/memory.limit_in_bytes")
    both, swap = number("memory/memory.memsw.limit_in_bytes"), number("memory.swap.max")
    if memory is not None and swap is not None:
        both = memory + swap
    return Caps(memory, both, _cpus(files), number("pids.max", "pids/pids.max"))


def _cpus(files: Mapping[str, str]) -> float | None:
    old = (files.get("cpu/cpu.cfs_quota_us"), files.get("cpu/cpu.cfs_period_us"))
    quota, period = files["cpu.max"].split() if "cpu.max" in files else old
    if quota is None or period is None:
        return None
    return UNLIMITED if quota in ("max", "-1") else int(quota) / int(period)


class _Listener:
    def __init__(self) -> None:
        self.visitors: list[str] = []
        self._server = socket.create_server(("0.0.0.0", 0))  # noqa: S104  # it is the canary
        self._port: int = self._server.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Loopback is left out: it is the sandbox's own."""
        found = {info[4][0] for info in socket.getaddrinfo(socket.gethostname(), None)}
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(("192.0.2.1", 9))  # documentation range: sends nothing, picks a source
            found.add(probe.getsockname()[0])
        return [(str(ip), self._port) for ip in sorted(found, key=str) if ":" not in str(ip)]

    def close(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)  # closing alone would leave the thread in accept()
        self._server.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, address = self._server.accept()
            except OSError:
                return
            self.visitors.append(str(address[0]))
            connection.close()


@contextmanager
def _listening() -> Generator[Canary]:
    listener = _Listener()
    try:
        yield listener
    finally:
        listener.close()
