"""One exec: its output, its end, and being ended, against an engine made of a dictionary."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import pytest

from sandboxio import ConnectError, LinkLost, PathNotFound, SandboxGone
from sandboxio.adapters import _docker_ending, _docker_exec
from sandboxio.adapters._docker_ending import CallEnding
from sandboxio.adapters._docker_endpoint import Endpoint
from sandboxio.adapters._docker_exec import INIT, MARKER, DockerExec
from sandboxio.adapters._docker_launch import Container, ExecSpec
from sandboxio.core.driver import KillReport
from sandboxio.guest import shell_kill
from tests.adapters.test_docker_stream import frame

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.anyio

NO_PROGRAM = b'OCI runtime exec failed: exec failed: unable to start: exec: "nope": not found\r\n'
NO_CWD = b"OCI runtime exec failed: exec failed: chdir to cwd: no such file or directory\r\n"


class Stream:
    """A raw stream that gives its parts, then ends, breaks or stays silent."""

    def __init__(
        self, *parts: bytes, then: BaseException | None = None, silent: bool = False
    ) -> None:
        self._parts = list(parts)
        self._then = then
        self._silent = silent
        self.sent = b""
        self.closed = False

    async def receive(self, max_bytes: int = 0) -> bytes:
        await anyio.lowlevel.checkpoint()
        if self._parts:
            return self._parts.pop(0)
        if self._silent:
            await anyio.sleep_forever()
        raise self._then or anyio.EndOfStream

    async def send(self, item: bytes) -> None:
        await anyio.lowlevel.checkpoint()
        if self._then is not None:
            raise self._then
        self.sent += item

    async def send_eof(self) -> None:
        raise anyio.BrokenResourceError

    async def aclose(self) -> None:
        self.closed = True
        raise OSError


class Engine:
    """Answers inspections from dictionaries and ending scripts with words."""

    def __init__(self) -> None:
        self.execs: list[dict[str, Any]] = [{"Running": False, "ExitCode": 0, "Pid": 5}]
        self.container: dict[str, Any] = {"State": {"Running": True, "Status": "running"}}
        self.created: list[dict[str, Any]] = []
        self.words: list[bytes | BaseException] = []
        self.limits: list[int] = []
        self.past: list[dict[str, Any]] = []
        self.base_url, self.api_version = "http://engine", "1.44"
        self.endpoint = Endpoint("unix:///run/engine.sock", "a test")

    async def call(self, phase: str, action: Callable[[Any], Any], *, lane: str = "call") -> Any:
        await anyio.lowlevel.checkpoint()
        return action(self)

    async def stream(self, phase: str, path: str, body: object = None) -> tuple[Stream, bytes]:
        await anyio.lowlevel.checkpoint()
        word = self.words.pop(0)
        if isinstance(word, BaseException):
            raise word
        return Stream(frame(1, word)), b""

    def exec_inspect(self, exec_id: str) -> dict[str, Any]:
        state = self.execs.pop(0) if len(self.execs) > 1 else self.execs[0]
        return {"Pid": 5, **state}

    def inspect_container(self, container: str) -> dict[str, Any]:
        return self.container

    def exec_create(self, container: str, argv: list[str], **options: Any) -> dict[str, str]:
        self.created.append({"argv": argv, **options})
        return {"Id": f"e{len(self.created)}"}

    def events(self, **options: Any) -> Iterator[dict[str, Any]]:
        yield from self.past

    def post(self, url: str, json: dict[str, int]) -> Engine:
        self.limits.append(json["PidsLimit"])
        return self

    def raise_for_status(self) -> None: ...


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    """An engine whose exec has ended with 0; waits of the adapter are shortened."""
    for name in ("_CHECK_FIRST", "_CHECK_MAX", "_GAP_LOCAL", "_ENDING"):
        monkeypatch.setattr(_docker_exec, name, 0.02)
    monkeypatch.setattr(_docker_ending, "_SETTLE_PAUSES", (0.0, 0.001))
    monkeypatch.setattr(_docker_ending, "_KILL_PAUSES", (0.001, 0.001))
    return Engine()


def contained(engine: Any) -> Container:
    return Container(engine, "sandboxio-1", pids_limit=512, memory_mb=64)


def made(
    engine: Engine, stream: Any, early: bytes = b"", *, container: Container | None = None
) -> DockerExec:
    where = contained(engine) if container is None else container
    return DockerExec(CallEnding(where, "e0", "10001:10001", "m4rk3r"), stream, early)


async def output(channel: DockerExec) -> list[tuple[str, bytes]]:
    found: list[tuple[str, bytes]] = []
    while (chunk := await channel.receive()) is not None:
        found.append((chunk.stream, chunk.data))
    return found


async def test_output_and_exit_code(engine: Engine) -> None:
    """Early bytes come first; then the stream's; then the code the engine knows."""
    engine.execs = [{"Running": True, "ExitCode": None}, {"Running": False, "ExitCode": 3}]
    channel = made(engine, Stream(frame(2, b"b"), frame(1, b"c")), early=frame(1, b"a"))
    assert await output(channel) == [("stdout", b"a"), ("stderr", b"b"), ("stdout", b"c")]
    assert (await channel.wait()).exit_code == 3


@pytest.mark.parametrize("cut", range(1, len(frame(1, b"abc"))))
async def test_an_end_inside_a_frame(engine: Engine, cut: int) -> None:
    """Output cut off in a frame is a lost link, never a complete result."""
    channel = made(engine, Stream(frame(1, b"abc")[:cut]))
    with pytest.raises(LinkLost, match="inside a frame"):
        await output(channel)


@pytest.mark.parametrize("parts", [(frame(1, b"abc")[:9],), ()])
async def test_the_container_ended_in_between(engine: Engine, parts: tuple[bytes, ...]) -> None:
    """Where the container has ended, that is what is told."""
    engine.container = {"State": {"Running": False, "Status": "exited"}}
    channel = made(engine, Stream(*parts, then=anyio.BrokenResourceError()))
    with pytest.raises(SandboxGone, match="exited"):
        await output(channel)


async def test_a_broken_connection(engine: Engine) -> None:
    """A connection that broke while the container runs is a lost link with its cause."""
    with pytest.raises(LinkLost, match="broke") as caught:
        await output(made(engine, Stream(then=ConnectionResetError())))
    assert isinstance(caught.value.__cause__, ConnectionResetError)
    assert caught.value.outcome == "unknown"


@pytest.mark.parametrize("code", [137, 143, 255])
async def test_a_signal_is_told_from_the_end_of_the_sandbox(engine: Engine, code: int) -> None:
    """A high exit code is the command's only while the container runs."""
    engine.execs = [{"Running": False, "ExitCode": code}]
    engine.words = [b"absent\n"]
    channel = made(engine, Stream())
    assert await output(channel) == []
    assert (await channel.wait()).exit_code == code
    engine.container = {"State": {"Running": False}}
    with pytest.raises(SandboxGone):
        await channel.wait()


async def test_a_child_that_keeps_the_stream_open(engine: Engine) -> None:
    """Once the command itself has ended, a silent stream is not waited for."""
    engine.execs = [{"Running": True}, {"Running": False, "ExitCode": 0}]
    channel = made(engine, Stream(frame(1, b"hi\n"), silent=True))
    assert await output(channel) == [("stdout", b"hi\n")]
    assert (await channel.wait()).exit_code == 0


async def test_a_command_that_did_not_start(engine: Engine) -> None:
    """The engine's own words are an error of ours, where no process ever was."""
    engine.execs = [{"Running": False, "ExitCode": 126, "Pid": 0}]
    channel = made(engine, Stream(frame(1, NO_PROGRAM)))
    assert await output(channel) == []
    with pytest.raises(ConnectError, match="exec failed"):
        await channel.wait()


async def test_engine_words_never_seen_before(engine: Engine) -> None:
    """Where no process ever was, unknown words are an error too, if not in time to hold them."""
    engine.execs = [{"Running": False, "ExitCode": 126, "Pid": 0}]
    channel = made(engine, Stream(frame(1, b"some new words")))
    await output(channel)
    with pytest.raises(ConnectError, match="some new words"):
        await channel.wait()


async def test_a_sandbox_that_stopped_before_the_start(engine: Engine) -> None:
    """The engine's words about a stopped container mean that the sandbox is gone."""
    engine.execs = [{"Running": False, "ExitCode": 126, "Pid": 0}]
    channel = made(engine, Stream(frame(1, b"cannot exec in a stopped state: unknown\r\n")))
    assert await output(channel) == []
    with pytest.raises(SandboxGone):
        await channel.wait()


async def test_a_kill_whose_wrapper_is_gone_takes_its_survivors(engine: Engine) -> None:
    """An unasked-for 137 ends what carries the call's marker before it is handed over."""
    engine.execs = [{"Running": False, "ExitCode": 137}]
    engine.words = [b"absent\n"]
    assert (await made(engine, Stream()).wait()).exit_code == 137
    assert engine.created[0]["argv"][-1] == "m4rk3r"


async def test_a_working_directory_that_is_missing(engine: Engine) -> None:
    """A missing cwd is a `PathNotFound` that says nothing was started."""
    engine.execs = [{"Running": False, "ExitCode": 126, "Pid": 0}]
    channel = made(engine, Stream(frame(1, NO_CWD)))
    assert await output(channel) == []
    with pytest.raises(PathNotFound, match="working directory") as caught:
        await channel.wait()
    assert caught.value.outcome == "not_started"


@pytest.mark.parametrize("more", [(), (frame(1, b"more"),)])
async def test_a_program_may_say_the_engine_s_words(
    engine: Engine, more: tuple[bytes, ...]
) -> None:
    """Output that merely looks like the engine's is handed over whole."""
    channel = made(engine, Stream(frame(1, NO_PROGRAM), *more))
    assert b"".join(data for _, data in await output(channel)).startswith(NO_PROGRAM)


async def test_input(engine: Engine) -> None:
    """The preface is sent before the first output; sending to a closed program is silent."""
    stream = Stream(frame(1, b"x"))
    channel = made(engine, stream)
    channel.preface(b"code")
    await output(channel)
    assert stream.sent == b"code"
    await made(engine, Stream(then=BrokenPipeError())).send(b"unread")
    await channel.close_stdin()
    await channel.aclose()
    assert stream.closed


async def test_a_command_runs_under_a_wrapper_of_its_own(engine: Any) -> None:
    """The wrapper, the marker, user, cwd and environment are what the engine is asked for."""
    engine.words = [b"out"]
    container = contained(engine)
    spec = ExecSpec(("ls", "-l"), "10001:10001", "/work", {"A": "b=c"})
    channel = await _docker_exec.start(container, spec)
    asked = engine.created[0]
    assert asked["argv"] == [*INIT, "ls", "-l"]
    assert (asked["user"], asked["workdir"], asked["stdin"]) == ("10001:10001", "/work", False)
    assert asked["environment"][0] == "A=b=c"
    assert asked["environment"][1].startswith(f"{MARKER}=")
    assert await output(channel) == [("stdout", b"out")]
    assert "b=c" not in repr(spec)


async def test_two_calls_have_two_markers(engine: Any) -> None:
    """A call is known by a value nobody can guess."""
    engine.words = [b"", b""]
    container = contained(engine)
    for _ in range(2):
        await _docker_exec.start(container, ExecSpec(("x",), "0:0", "/", {}))
    markers = {asked["environment"][0] for asked in engine.created}
    assert len(markers) == 2
    assert all(len(marker) > 40 for marker in markers)


async def test_an_exact_kill(engine: Engine) -> None:
    """The ending script gets the marker, runs as the call's user, and touches nothing else."""
    engine.words = [b"ended\n"]
    engine.execs = [{"Running": True}, {"Running": False, "ExitCode": 137}]
    report = await made(engine, Stream()).kill()
    assert report == KillReport(complete=True, collateral=False)
    (asked,) = engine.created
    assert asked["argv"] == ["/bin/sh", "-c", shell_kill.END_CALL, "sh", "m4rk3r"]
    assert asked["user"] == "10001:10001"


async def test_a_call_that_ended_by_itself(engine: Engine) -> None:
    """No wrapper, and a code that is not of a kill: nothing has to be ended."""
    engine.words = [b"absent\n"]
    engine.execs = [{"Running": False, "ExitCode": 3}]
    assert await made(engine, Stream()).kill() == KillReport(complete=True)


async def test_a_wrapper_that_was_tampered_with(engine: Engine) -> None:
    """When the call cannot be told apart, all of its user is ended and that is said."""
    engine.words = [b"busy\n", b"ended\n"]
    engine.execs = [{"Running": False, "ExitCode": 137}]
    report = await made(engine, Stream()).kill()
    assert report == KillReport(complete=True, collateral=True)
    assert engine.created[-1]["argv"][2:] == [shell_kill.END_ORPHANS, "sh", "m4rk3r"]


async def test_a_wrapper_that_is_gone_with_all_below_it(engine: Engine) -> None:
    """A killed command that left nothing costs nobody anything."""
    engine.words = [b"absent\n", b"absent\n"]
    engine.execs = [{"Running": False, "ExitCode": 137}]
    report = await made(engine, Stream()).kill()
    assert report == KillReport(complete=True, collateral=False)


@pytest.mark.parametrize("last", [b"busy\n", b"", b"nonsense"])
async def test_a_kill_that_is_not_complete(engine: Engine, last: bytes) -> None:
    """Unless the second script says that it is done, the report says that it is not."""
    engine.words = [b"busy\n", *[last] * 4]
    engine.execs = [{"Running": False, "ExitCode": 137}]
    assert not (await made(engine, Stream()).kill()).complete


async def test_a_call_that_still_runs_is_not_ended(engine: Engine) -> None:
    """A script's word does not count while the engine says otherwise."""
    engine.words = [b"ended\n", b"ended\n"]
    engine.execs = [{"Running": True}]
    assert not (await made(engine, Stream()).kill()).complete


async def test_a_call_that_used_up_all_processes(engine: Engine) -> None:
    """When the script cannot start, the limit is raised for it and put back."""
    engine.words = [ConnectError("fork: try again"), b"ended\n"]
    engine.execs = [{"Running": False, "ExitCode": 137}]
    assert (await made(engine, Stream()).kill()).complete
    assert engine.limits == [640, 512]


async def test_the_engine_refusing_the_script_counts_as_a_failure(engine: Engine) -> None:
    """Its words on stdout are not taken for the script's."""
    engine.words = [NO_PROGRAM, b"ended\n"]
    engine.execs = [{"Running": False, "ExitCode": 137}]
    assert (await made(engine, Stream()).kill()).complete
    assert engine.limits == [640, 512]
