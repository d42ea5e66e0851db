"""Programs that tell about the system, run others, and reach for the network."""

from __future__ import annotations

import shlex

import pytest

from sandboxio.core.models import NetworkPolicy
from sandboxio.testing._disk.nodes import ROOT, Who

from .bench import Bench


@pytest.mark.parametrize(
    ("command", "out"),
    [
        ("id", "uid=10001(sandbox) gid=10001(sandbox) groups=10001(sandbox)\n"),
        ("id -u", "10001\n"),
        ("id -un", "sandbox\n"),
        ("id -gn", "sandbox\n"),
        ("id root", "uid=0(root) gid=0(root) groups=0(root)\n"),
        ("whoami", "sandbox\n"),
        ("pwd", "/work\n"),
        ("hostname", "bench\n"),
        ("uname", "Linux\n"),
        ("uname -sm", "Linux x86_64\n"),
        ("nproc", "1\n"),
        ("date", "Thu Jan  1 00:00:00 UTC 2026\n"),
        ("date +%s", "1767225600\n"),
        ("date '+%Y-%m-%d %H:%M:%S %j %-d %%'", "2026-01-01 00:00:00 001 1 %\n"),
        ("date -d @0 +%F", "1970-01-01\n"),
        ("date -d '2024-02-29 12:34:56' +%s", "1709210096\n"),
        ("date -d '1 day ago' +%F", "2025-12-31\n"),
        ("printenv HOME", "/home/sandbox\n"),
        ("env -i A=1 B=2", "A=1\nB=2\n"),
        ("env -u HOME A=b printenv A", "b\n"),
        ("env -C /tmp pwd", "/tmp\n"),
        ("which cat nope", "/usr/bin/cat\n"),
        ("setsid echo a", "a\n"),
    ],
)
def test_told(command: str, out: str) -> None:
    """Programs tell what is true of the sandbox, whatever the host."""
    assert Bench().run(shlex.split(command)).out == out.encode()


@pytest.mark.parametrize(
    ("command", "code", "err"),
    [
        ("env nope", 127, "env: 'nope': No such file or directory"),
        ("env /etc/passwd", 126, "env: '/etc/passwd': Permission denied"),
        ("printenv NOPE", 1, ""),
        ("which nope", 1, ""),
        ("false", 1, ""),
        ("id nope", 1, "id: 'nope': no such user"),
        ("date -d foo", 1, "date: invalid date 'foo'"),
        ("setsid nope", 127, "setsid: failed to execute nope: No such file or directory"),
        ("kill 4242", 1, "sh: 1: kill: No such process"),
        ("kill -9 1", 1, "sh: 1: kill: Operation not permitted"),
        ("kill -FOO 1", 2, "sh: 1: kill: invalid signal number or name: FOO"),
        ("xargs nope", 127, "xargs: nope: No such file or directory"),
    ],
)
def test_failure(command: str, code: int, err: str) -> None:
    """Failures have the exit codes and words of the real programs."""
    shown = f"{err}\n" if err else ""
    assert Bench().run(shlex.split(command)) == (code, b"", shown.encode())


def test_user_without_a_name() -> None:
    """A user that the sandbox does not know is a number."""
    bench = Bench()
    bench.who = Who(1234, 5)
    assert bench.run(["id"]).out == b"uid=1234 gid=5 groups=5\n"
    assert bench.run(["whoami"]) == (1, b"", b"whoami: cannot find name for user ID 1234\n")


@pytest.mark.parametrize("name", ["python3", "awk", "sed", "find", "ps", "git", "pip"])
def test_absent_on_purpose(name: str) -> None:
    """These are not there, like in a small image."""
    assert Bench().run([name]).code == 127


@pytest.mark.parametrize(
    ("arguments", "stdin", "out"),
    [
        ("", b"a  b\nc", b"a b c\n"),
        ("-n1", b"a b", b"a\nb\n"),
        ("-n 1 echo x", b"a b", b"x a\nx b\n"),
        ("-I{} echo '[{}]'", b"a b\nc\n", b"[a b]\n[c]\n"),
        ("-0 -n1", b"a b\0c", b"a b\nc\n"),
        ("", b"'a b' \"c d\" e\\ f", b"a b c d e f\n"),
        ("-r", b"", b""),
    ],
)
def test_xargs(arguments: str, stdin: bytes, out: bytes) -> None:
    """Words of stdin become the arguments of a program."""
    assert Bench().run(["xargs", *shlex.split(arguments)], stdin) == (0, out, b"")


def test_xargs_tells_of_failures() -> None:
    """A program that failed makes xargs exit 123."""
    assert Bench().run(["xargs", "false"], b"a").code == 123


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("command", "code", "seconds"),
    [
        ("sleep 1.5", 0, 1.5),
        ("sleep 1m 1s", 0, 61),
        ("timeout 5 sleep 1", 0, 1),
        ("timeout 5 sleep 60", 124, 5),
        ("timeout -s KILL 5 sleep 60", 137, 5),
        ("timeout 5 false", 1, 0),
        ("timeout 1 nope", 127, 0),
        ("timeout x true", 125, 0),
        ("env sleep 2", 0, 2),
    ],
)
async def test_takes_virtual_time(command: str, code: int, seconds: float) -> None:
    """Waiting takes exactly the time of the virtual clock."""
    bench = Bench()
    running = bench.start(shlex.split(command))
    if seconds:
        await bench.clock.sleep(seconds - 0.25)
        assert running.process.exit_code is None
        await bench.clock.sleep(0.25)
    assert running.outcome.code == code


def test_sleep_refuses_what_is_no_time() -> None:
    """A time that is none is refused at once."""
    code, _, err = Bench().run(["sleep", "x"])
    assert (code, err.splitlines()[0]) == (1, b"sleep: invalid time interval 'x'")


@pytest.mark.anyio
async def test_kill_ends_a_process() -> None:
    """A signal ends what does not handle it; 0 only asks whether it is there."""
    bench = Bench()
    sleeper = bench.start(["sleep", "infinity"])
    pid = str(sleeper.process.pid)
    assert bench.run(["kill", "-0", pid]) == (0, b"", b"")
    assert bench.run(["kill", "-s", "TERM", pid]) == (0, b"", b"")
    assert sleeper.outcome.code == 143
    assert bench.run(["kill", "-0", pid]).code == 1


@pytest.mark.anyio
async def test_kill_reaches_a_session() -> None:
    """A negative number stands for all processes of a session, and for no others."""
    bench = Bench()
    first, second = bench.start(["timeout", "99", "sleep", "9"]), bench.start(["sleep", "9"])
    assert bench.run(["kill", "-KILL", f"-{first.process.pid}"]).code == 0
    assert first.process.exit_code == 137
    assert [p.argv[0] for p in bench.kernel.processes.values()] == ["sleep"]
    bench.kernel.end(second.process, 137)


@pytest.mark.anyio
async def test_kill_spares_what_is_roots() -> None:
    """Only root may end processes of root."""
    bench = Bench()
    bench.who = ROOT
    sleeper = bench.start(["sleep", "infinity"])
    bench.who = Who(10001, 10001)
    refused = bench.run(["kill", str(sleeper.process.pid)])
    assert refused == (1, b"", b"sh: 1: kill: Operation not permitted\n")
    bench.kernel.end(sleeper.process, 137)


@pytest.mark.parametrize(
    ("arguments", "code", "err"),
    [
        ("https://api.example.org/simple", 0, ""),
        ("api.example.org:8443", 0, ""),
        ("http://198.51.100.3", 0, ""),
        ("https://example.com/", 6, "curl: (6) Could not resolve host: example.com"),
        ("-sS example.com", 6, "curl: (6) Could not resolve host: example.com"),
        ("-s example.com", 6, ""),
        (
            "http://1.2.3.4:81",
            7,
            "curl: (7) Failed to connect to 1.2.3.4 port 81 after 0 ms: Couldn't connect to server",
        ),
        (
            "localhost",
            7,
            "curl: (7) Failed to connect to localhost port 80 after 0 ms: "
            "Couldn't connect to server",
        ),
        ("http://", 3, "curl: (3) URL using bad/illegal format or missing URL"),
        ("http://a:b/", 3, "curl: (3) URL using bad/illegal format or missing URL"),
    ],
)
def test_curl(arguments: str, code: int, err: str) -> None:
    """The policy decides; a name that is denied looks as if there were no such name."""
    bench = Bench(policy=NetworkPolicy(allow=("api.example.org", "198.51.100.0/24")))
    shown = f"{err}\n" if err else ""
    assert bench.run(["curl", *arguments.split()]) == (code, b"", shown.encode())


def test_curl_writes_a_file() -> None:
    """-o makes an empty file, -w tells the status."""
    bench = Bench(policy=NetworkPolicy(egress="allow"))
    assert bench.run(["curl", "-so", "x", "-w", "%{http_code}", "a.test"]).out == b"200"
    assert bench.read("x") == b""


def test_curl_refuses_unknown_options() -> None:
    """An option it does not simulate is refused."""
    code, _, err = Bench().run(["curl", "-Z", "a.test"])
    assert (code, err.splitlines()[0]) == (2, b"curl: option -Z: is unknown")
