"""One fake sandbox: its files, its processes, its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import anyio.lowlevel

from sandboxio.core.errors import ConfigurationError, NotADirectory, PathNotFound, SandboxGone
from sandboxio.core.models import Metrics
from sandboxio.guest import code as guest_code
from sandboxio.testing import _programs
from sandboxio.testing._channel import Channel, OutputFd, ScriptedChannel, VirtualChannel
from sandboxio.testing._disk.fs import FileSystem
from sandboxio.testing._disk.nodes import ROOT, Directory, Who
from sandboxio.testing._machine import image
from sandboxio.testing._machine.fds import NullFd
from sandboxio.testing._machine.kernel import Kernel
from sandboxio.testing._machine.launch import DEFAULT_PATH, PROGRAMS, CannotRun, execute
from sandboxio.testing._machine.network import Network
from sandboxio.testing._python.program import python
from sandboxio.testing._recorded import RecordedFiles
from sandboxio.testing._shell import interpreter

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence
    from datetime import datetime
    from typing import Any

    from sandboxio.core.driver import ExecChannel
    from sandboxio.core.models import Capability
    from sandboxio.core.requests import CodeRequest, CreateRequest, ExecRequest
    from sandboxio.core.tiers import IsolationTier
    from sandboxio.testing._driver import FakeDriver
    from sandboxio.testing._machine.process import Fd, Process
    from sandboxio.testing._rules import Rule
    from sandboxio.testing.calls import Call
    from sandboxio.testing.clock import FakeClock, Timer

WORK = "/work"
USER, UID = "sandbox", 10001
MEMORY_MB, CPU, PROCESSES = 512, 1.0, 512
"""Caps where the caller names none, as on Docker."""
MEMORY_PER_PROCESS, CPU_PER_CALL = 1024 * 1024, 0.01
"""What `metrics()` says of virtual processes: bytes, and seconds."""
INTERPRETERS = frozenset({"python3", "bash"})

_ = (_programs, interpreter)  # they enter their programs into the table
State = Literal["running", "stopped", "removed"]


class Inside:
    """The `DriverSandbox` of the fake; `sb.native` gives it to tests.

    Its files are in `fs`, its processes in `kernel`.
    """

    def __init__(self, driver: FakeDriver, sandbox_id: str, request: CreateRequest) -> None:
        self._driver = driver
        self.id = sandbox_id
        self.request = request
        self.clock: FakeClock = driver.clock
        self.created_at: datetime = self.clock.wall()
        self.state: State = "running"
        self.channels: set[Channel] = set()
        self._started = 0
        self._lifetime: Timer | None = None
        self._why = ""
        disk = request.resources.disk_mb
        self.fs = FileSystem(
            now=lambda: self.clock.wall().timestamp(),
            capacity=None if disk is None else disk * 1024 * 1024,
        )
        network = Network(sandbox_id, request.network, driver.attempts.append)
        self.kernel = Kernel(self.clock, self.fs, network, limit=PROCESSES)
        self.kernel.memory = self.memory_mb * 1024 * 1024
        image.build(
            self.fs,
            self.kernel,
            user=USER,
            uid=UID,
            gid=UID,
            hostname=sandbox_id,
            memory_mb=self.memory_mb,
            cpus=request.resources.cpu or CPU,
            processes=PROCESSES,
        )
        self._who = self._identity(request.user)
        self.fs.chown(WORK, self._who.uid, self._who.gid, who=ROOT)
        self.files = RecordedFiles(self)

    @property
    def capabilities(self) -> Capability:
        return self._driver.capabilities

    @property
    def isolation(self) -> IsolationTier:
        return self._driver.isolation

    @property
    def timeout(self) -> float:
        return self.request.timeout

    @property
    def metadata(self) -> Mapping[str, str]:
        return self.request.metadata

    @property
    def native(self) -> Inside:
        return self

    @property
    def memory_mb(self) -> int:
        return self.request.resources.memory_mb or MEMORY_MB

    @property
    def who(self) -> Who:
        """The sandbox's own user."""
        return self._who

    def explain(self, capability: Capability) -> str | None:
        return None

    async def start(self, request: ExecRequest) -> ExecChannel:
        op = "stream" if request.max_output_bytes is None else "run"
        call = self._driver.note(op, self, request=request)
        await self.begin()
        if request.user is not None:
            self._identity(request.user)
        return self._answer(call, self._driver.on_run) or self._start(
            call,
            request.argv,
            _program(request.argv),
            who=self._who if request.user is None else self._identity(request.user),
            env=request.env,
            cwd=request.cwd,
            stdin=request.stdin,
        )

    async def start_code(self, request: CodeRequest) -> ExecChannel:
        call = self._driver.note("run_code", self, request=request)
        await self.begin()
        command = guest_code.command(request.language, request.code, INTERPRETERS)
        return self._answer(call, self._driver.on_run_code) or self._start(
            call,
            command.argv[:1],
            _interpreter(request),
            who=self._who,
            env=request.env,
            cwd=request.cwd,
            stdin=False,
        )

    async def metrics(self) -> Metrics:
        """Virtual processes use what they are said to: the same in every run."""
        self.note("metrics")
        await self.begin()
        running = sum(one.exit_code is None for one in self.kernel.processes.values())
        return Metrics(
            cpu_seconds=CPU_PER_CALL * self._started,
            memory_bytes=min(MEMORY_PER_PROCESS * (1 + running), self.kernel.memory),
            memory_limit_bytes=self.kernel.memory,
            processes=1 + running,
        )

    async def remove(self) -> None:
        self._driver.note("kill", self)
        await anyio.lowlevel.checkpoint()
        await self._driver.before_removal()
        self.end("removed", "It was removed.")

    def note(self, op: str, *, path: str | None = None) -> Call:
        return self._driver.note(op, self, path=path)

    async def begin(self) -> None:
        """What every call goes through first: latency, faults, and whether it still exists."""
        if self._lifetime is None:
            until = self.clock.time() + self.timeout
            self._lifetime = self.clock.call_at(until, self.expire, late=True)
        await self._driver.before_call()
        self.require_alive()

    def require_alive(self) -> None:
        """Raise when the sandbox has ended."""
        over = self._lifetime is not None and self.clock.time() > self._lifetime.at
        if over and self.state == "running":
            self.expire()
        if self.state != "running":
            raise SandboxGone(f"The fake sandbox {self.id} no longer exists. {self._why}")

    def expire(self) -> None:
        """Come to the end of the lifetime."""
        self.end("stopped", "Its lifetime is over; create() takes a longer timeout=.")

    def end(self, state: State, why: str) -> None:
        """Stop or disappear, with all calls in progress."""
        if self.state == "removed":
            return
        self.state, self._why = state, self._why or why
        if self._lifetime is not None:
            self._lifetime.cancel()
        self.kernel.kill_all()
        for channel in tuple(self.channels):
            channel.wake()

    def _answer(self, call: Call, rules: Sequence[Rule]) -> ExecChannel | None:
        error = self._driver.faults.of_exec(self.memory_mb)
        if error is not None:
            raise error
        rule = next((rule for rule in reversed(rules) if rule.answers_to(call.text)), None)
        return None if rule is None else self._open(ScriptedChannel(self, call, rule.next(call)))

    def _start(
        self,
        call: Call,
        argv: Sequence[str],
        main: Callable[[Process], Coroutine[Any, Any, int]],
        *,
        who: Who,
        env: Mapping[str, str],
        cwd: str | None,
        stdin: bool,
    ) -> ExecChannel:
        folder = self._directory(cwd, who)
        self._started += 1
        number = self._started
        reader: Fd
        reader, writer = self.kernel.pipe() if stdin else (NullFd(), None)
        channel = VirtualChannel(self, call, number, writer)
        process = self.kernel.spawn(
            main,
            argv,
            call=number,
            env={**self._defaults(who), **env},
            cwd=folder,
            who=who,
            fds={0: reader, 1: OutputFd(channel, "stdout"), 2: OutputFd(channel, "stderr")},
        )
        channel.attach(process)
        self._open(channel)
        self.kernel.run()
        return channel

    def _open(self, channel: Channel) -> Channel:
        self.channels.add(channel)
        return channel

    def _directory(self, cwd: str | None, who: Who) -> str:
        if cwd is None and not self.fs.exists(WORK, who=ROOT):
            self.fs.mkdir(WORK, who=ROOT)
            self.fs.chown(WORK, self._who.uid, self._who.gid, who=ROOT)
        try:
            node = self.fs.resolve(cwd or ".", cwd=WORK, who=who)
            folder = self.fs.realpath(cwd or ".", cwd=WORK, who=who)
        except NotADirectoryError as exc:
            raise NotADirectory(f"cwd {cwd!r} is not a directory.", outcome="not_started") from exc
        except OSError as exc:
            raise PathNotFound(
                f"cwd {cwd!r}: {exc.strerror}.",
                hint="Make it with sb.files.mkdir(..., parents=True), or pass another cwd=.",
                outcome="not_started",
            ) from exc
        if not isinstance(node, Directory):
            raise NotADirectory(f"cwd {cwd!r} is not a directory.", outcome="not_started")
        return folder

    def _defaults(self, who: Who) -> dict[str, str]:
        name, home = {0: ("root", "/root"), UID: (USER, f"/home/{USER}")}.get(who.uid, ("", "/"))
        name = name or str(who.uid)
        path = f"{DEFAULT_PATH}:{home.rstrip('/')}/.local/bin"
        return {"PATH": path, "HOME": home, "USER": name, "LOGNAME": name}

    def _identity(self, user: str | None) -> Who:
        """Return the ids of a `user=`: a name of the sandbox, `uid` or `uid:gid`."""
        name, _, group = (user or USER).partition(":")
        known = {"root": 0, USER: UID}
        uid = int(name) if name.isdecimal() else known.get(name)
        gid = uid if not group else int(group) if group.isdecimal() else known.get(group)
        if uid is None or gid is None:
            raise ConfigurationError(
                f"The sandbox has no user {user!r}.",
                hint='Give a number, as in user="1000:1000".',
            )
        return Who(uid, gid)


def _program(argv: Sequence[str]) -> Callable[[Process], Coroutine[Any, Any, int]]:
    async def main(process: Process) -> int:
        try:
            return await execute(process, argv)
        except CannotRun as exc:
            await process.err(f"{argv[0]}: {exc.reason}\n")
            return exc.exit_code

    return main


def _interpreter(request: CodeRequest) -> Callable[[Process], Coroutine[Any, Any, int]]:
    async def main(process: Process) -> int:
        if request.language == "bash":
            return await PROGRAMS["bash"](process, ["-c", request.code])
        return await python(process, request.code)

    return main
