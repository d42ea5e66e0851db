"""`run()`: commands to their end."""

from __future__ import annotations

import dataclasses
import inspect
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from sandboxio.core.errors import (
    CapabilityNotSupported,
    ConfigurationError,
    ExecutionError,
    ExecutionTimeout,
)
from sandboxio.core.models import Capability, ExecResult
from sandboxio.testing.suite._case import case
from sandboxio.testing.suite._run_output import RunOutput
from sandboxio.testing.suite._run_place import RunPlace

if TYPE_CHECKING:
    from sandboxio.core.protocols import AsyncSandbox

COMMANDS = Capability.RUN_COMMAND
FILES = Capability.RUN_COMMAND | Capability.FILESYSTEM
SIGNALS = (1, 2, 9, 15)
"""HUP, INT, KILL and TERM."""
WORDS = ["$HOME", "&&", "a b", "'", '"', "*", "", "a\nb", "`echo x`", "\\n", "-n", "é", ">f", "#"]
UNSTARTABLE = {
    "absent": (["no-such-program"], 127),
    "absent path": (["/no/such/program"], 127),
    "no program": (["/etc/passwd"], 126),
    "directory": (["/tmp"], 126),  # noqa: S108  # it is a directory of the sandbox
    "builtin": (["cd", "/"], 127),
}
NO_COMMANDS: tuple[Any, ...] = (
    *("", [], [""], None, 7, b"touch ran", {"touch": "ran"}, "touch ran\0", "touch ran \ud800"),
    *(["touch", "r\0n"], ["touch", None], ["touch", b"ran"], ["touch", 7], ["touch", "\udcff"]),
)


class RunSuite(RunOutput, RunPlace):
    """Cases of `run()`; those of its output, and of where and as whom it runs, are in bases."""

    @case("RUN-001", needs=COMMANDS)
    async def test_exit_codes(self, sandbox: AsyncSandbox) -> None:
        """The exit code is the command's own, for every value a process can end with."""
        for code in (0, 1, 2, 7, 42, 126, 255):
            assert (await sandbox.run(["sh", "-c", f"exit {code}"])).exit_code == code

    @case("RUN-002", needs=COMMANDS)
    async def test_streams_are_apart(self, sandbox: AsyncSandbox) -> None:
        """stdout and stderr arrive apart, with nothing added and nothing stripped."""
        done = await sandbox.run(r"printf '\101\r\n\102\n'; printf '\103\n' >&2")
        assert (done.stdout, done.stderr) == ("A\r\nB\n", "C\n")

    @case("RUN-003", needs=COMMANDS)
    async def test_signals(self, sandbox: AsyncSandbox) -> None:
        """A command that a signal ended has the exit code 128 + N, as a string and as a list."""
        for number in SIGNALS:
            script = f"kill -{number} $$; sleep 5"
            assert (await sandbox.run(script)).exit_code == 128 + number
            assert (await sandbox.run(["sh", "-c", script])).exit_code == 128 + number

    @case("RUN-004", needs=COMMANDS)
    async def test_no_output(self, sandbox: AsyncSandbox) -> None:
        """A command that writes nothing gives two empty texts, no bytes, and nothing cut."""
        done = await sandbox.run(["true"])
        assert (done.stdout, done.stderr, done.stdout_bytes, done.stderr_bytes) == ("", "", 0, 0)
        assert (type(done.stdout), type(done.stderr)) == (str, str)
        assert (done.stdout_truncated, done.stderr_truncated) == (False, False)

    @case("RUN-005", needs=COMMANDS)
    async def test_the_result(self, sandbox: AsyncSandbox) -> None:
        """The result is a frozen `ExecResult`; it is not one of a stream and has no display
        outputs.
        """
        done = await sandbox.run("echo x; exit 3")
        assert isinstance(done, ExecResult)
        assert (done.ok, done.streamed, done.results) == (False, False, None)
        assert type(done.duration_ms) is int
        changed: Any = done
        with pytest.raises(dataclasses.FrozenInstanceError):
            changed.exit_code = 0

    @case("RUN-006", needs=COMMANDS)
    async def test_raise_for_status(self, sandbox: AsyncSandbox) -> None:
        """`raise_for_status()` gives the result back, or raises `ExecutionError` that holds it."""
        good = await sandbox.run(["true"])
        assert good.raise_for_status() is good
        bad = await sandbox.run("echo reason >&2; exit 9")
        with pytest.raises(ExecutionError) as caught:
            bad.raise_for_status()
        assert caught.value.result is bad
        assert caught.value.outcome == "done"
        assert "9" in caught.value.message

    @case("RUN-007", needs=COMMANDS)
    async def test_a_list_goes_through_no_shell(self, sandbox: AsyncSandbox) -> None:
        """A list reaches the program word by word as it is; no shell looks at it."""
        done = await sandbox.run(["printf", "%s|", *WORDS])
        assert done.stdout == "".join(f"{word}|" for word in WORDS)
        await self.sh(sandbox, "test ! -e f")

    @case("RUN-008", needs=COMMANDS)
    async def test_a_string_is_read_by_one_shell(self, sandbox: AsyncSandbox) -> None:
        """A string is one script of one shell: what one of its commands sets the next one sees."""
        script = 'x="a  b"; mkdir d && cd d && echo "$x" >f; cat f | wc -l | tr -d " "; echo $#'
        assert await self.sh(sandbox, script) == "1\n0\n"
        assert await self.sh(sandbox, "cat d/f") == "a  b\n"

    @case("RUN-009", needs=COMMANDS)
    async def test_a_string_of_several_lines(self, sandbox: AsyncSandbox) -> None:
        """Several lines, both kinds of quotes, and text in place reach the shell as they are."""
        script = "x='a \"b\"'\ncat <<'END'\n$x it's \\n\nEND\nprintf '%s\\n' \"$x\" # end"
        assert await self.sh(sandbox, script) == '$x it\'s \\n\na "b"\n'

    @case("RUN-010", needs=COMMANDS)
    async def test_a_program_by_its_path(self, sandbox: AsyncSandbox) -> None:
        """A program may be named by a path, relative to the command's directory, and is given
        its words.
        """
        script = (
            "mkdir d; printf '%s\\n' '#!/bin/sh' 'printf \"%s|\" \"$@\"' >d/show; chmod +x d/show"
        )
        await self.sh(sandbox, script)
        words = ["a b", "", "$x", "*"]
        for done in (
            await sandbox.run(["d/show", *words]),
            await sandbox.run(["./show", *words], cwd="d"),
        ):
            assert done.stdout == "a b||$x|*|"

    @pytest.mark.parametrize("kind", UNSTARTABLE)
    @case("RUN-011", needs=COMMANDS)
    async def test_what_cannot_start(self, sandbox: AsyncSandbox, kind: str) -> None:
        """A command that cannot start is a result: 127 where there is no such program, 126 where
        it is none; the reason is on stderr, and nothing on stdout.
        """
        command, code = UNSTARTABLE[kind]
        done = await sandbox.run(command)
        assert (done.exit_code, done.stdout) == (code, "")
        assert done.stderr.strip()
        assert done.stderr_bytes > 0

    @case("RUN-012", needs=COMMANDS)
    async def test_strings_that_cannot_start(self, sandbox: AsyncSandbox) -> None:
        """A string whose program cannot start ends as its shell says."""
        for command, code in {"no-such-program --x": 127, "/etc/passwd": 126, "if": 2}.items():
            done = await sandbox.run(command)
            assert (done.exit_code, done.stdout) == (code, "")
            assert done.stderr.strip()

    @pytest.mark.parametrize("number", range(len(NO_COMMANDS)))
    @case("RUN-013", needs=COMMANDS)
    async def test_what_is_no_command(self, sandbox: AsyncSandbox, number: int) -> None:
        """What can be no command is refused with `ConfigurationError`, and nothing runs."""
        with pytest.raises(ConfigurationError) as caught:
            await sandbox.run(NO_COMMANDS[number])
        assert caught.value.outcome == "not_started"
        await self.sh(sandbox, "test ! -e ran")

    @case("RUN-014", needs=COMMANDS)
    async def test_long_arguments(self, sandbox: AsyncSandbox) -> None:
        """One argument of 100,000 characters, and five thousand arguments, arrive whole."""
        long = "abcdefghi " * 10_000
        assert (await sandbox.run(["printf", "%s", long])).stdout == long
        many = [f"{i:0100}" for i in range(5_000)]
        done = await sandbox.run(["sh", "-c", 'echo $#; shift 4999; printf %s "$1"', "sh", *many])
        assert done.stdout == f"5000\n{many[-1]}"

    @case("RUN-015", needs=COMMANDS)
    async def test_arguments_that_are_too_long(self, sandbox: AsyncSandbox) -> None:
        """What is longer than a program can be given is refused by `ConfigurationError`; nothing
        runs, and nothing is cut.
        """
        for command in (
            ["sh", "-c", "echo x >ran", "x" * 140_000],
            ["sh", "-c", "echo x >ran", *["x" * 1_000] * 3_000],
            f"echo x >ran; : {'x' * 140_000}",
        ):
            with pytest.raises(ConfigurationError):
                await sandbox.run(command)
        await self.sh(sandbox, "test ! -e ran")

    @case("RUN-016", needs=COMMANDS)
    async def test_keywords_are_typed(self, sandbox: AsyncSandbox) -> None:
        """Every option has a name of its own: an unknown keyword is a `TypeError`; nothing runs."""
        run: Any = sandbox.run
        with pytest.raises(TypeError):
            await run(["touch", "ran"], text=True)
        with pytest.raises(TypeError):
            await run(["touch", "ran"], 5)
        kinds = {parameter.kind for parameter in inspect.signature(run).parameters.values()}
        assert kinds == {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY}
        await self.sh(sandbox, "test ! -e ran")

    @case("RUN-017", needs=COMMANDS)
    async def test_a_command_runs_once(self, sandbox: AsyncSandbox, marker: int) -> None:
        """A command is run exactly once, also when it fails, is ended by a signal or times out."""
        for end in ("true", "exit 7", "kill -9 $$"):
            await sandbox.run(f"echo x >>runs; {end}")
        with pytest.raises(ExecutionTimeout):
            await sandbox.run(f"echo x >>runs; {self.hang(marker)}", timeout=2)
        await sandbox.run(["sh", "-c", "echo x >>runs; exit 127"])
        assert (await self.sh(sandbox, "wc -l <runs")).split() == ["5"]

    @pytest.mark.parametrize("start", ["{hang} &", "{hang} & {hang} 2>&1 &", "(setsid {hang} &);"])
    @case("RUN-018", needs=COMMANDS)
    async def test_a_background_child(self, sandbox: AsyncSandbox, marker: int, start: str) -> None:
        """A command is over when it ends itself, although a child in the background holds its
        output open, and again so.
        """
        begin = self.clock.time()
        for _ in range(2):
            done = await sandbox.run(f"{start.format(hang=self.hang(marker))} echo hi", timeout=40)
            assert (done.exit_code, done.stdout) == (0, "hi\n")
        assert self.clock.time() - begin < 20

    @case("RUN-019", needs=COMMANDS)
    async def test_all_output_beside_a_child(self, sandbox: AsyncSandbox, marker: int) -> None:
        """All that a command wrote before its end arrives, although a child holds the output
        open.
        """
        done = await sandbox.run(f"{self.hang(marker)} & seq 100000; exit 3", timeout=40)
        assert done.exit_code == 3
        assert done.stdout == "".join(f"{i}\n" for i in range(1, 100_001))

    @case("RUN-020", needs=COMMANDS)
    async def test_a_command_that_closes_its_output(self, sandbox: AsyncSandbox) -> None:
        """A command that gives its output up and goes on is waited for."""
        done = await sandbox.run("echo a; exec >/dev/null 2>&1; sleep 2; echo x >f; exit 7")
        assert (done.exit_code, done.stdout, done.stderr) == (7, "a\n", "")
        await self.sh(sandbox, "test -s f")

    @case("RUN-021", needs=COMMANDS)
    async def test_no_zombies(self, sandbox: AsyncSandbox) -> None:
        """Children that outlive their parents are reaped: none stays behind as a zombie."""
        for _ in range(3):
            await self.sh(sandbox, "for i in $(seq 200); do (true &); done; sleep 1")
        count = (
            "n=0; for f in /proc/[0-9]*/stat; do line=$(cat $f 2>/dev/null); "
            'case "$line" in *") Z "*) n=$((n + 1));; esac; done; echo $n'
        )

        async def none() -> bool:
            return await self.sh(sandbox, count) == "0\n"

        await self.eventually(none)

    @case("RUN-022", needs=COMMANDS)
    async def test_many_at_once(self, sandbox: AsyncSandbox) -> None:
        """Thirty commands that run at once each get their own output and exit code."""
        found: dict[int, tuple[int, str, str]] = {}

        async def one(n: int) -> None:
            script = f"echo {n} >&2; seq {n} {n + 300}; sleep 0.2; echo end {n}; exit {n}"
            done = await sandbox.run(script, timeout=60)
            found[n] = (done.exit_code, done.stdout, done.stderr)

        async with anyio.create_task_group() as tasks:
            for number in range(30):
                tasks.start_soon(one, number)
        for n in range(30):
            numbers = "".join(f"{i}\n" for i in range(n, n + 301))
            assert found[n] == (n, f"{numbers}end {n}\n", f"{n}\n")

    @case("RUN-023", needs=COMMANDS)
    async def test_calls_run_beside_each_other(self, sandbox: AsyncSandbox) -> None:
        """Calls of one sandbox do not wait for each other: one can wait for what another does."""
        codes: list[int] = []

        async def wait() -> None:
            codes.append((await sandbox.run("until [ -e go ]; do sleep 0.1; done")).exit_code)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await self.sh(sandbox, "sleep 1; echo x >go")
        assert codes == [0]

    @case("RUN-024", needs=COMMANDS)
    async def test_the_loop_goes_on(self, sandbox: AsyncSandbox) -> None:
        """While a command runs, other tasks of the event loop go on."""
        ticks: list[float] = []

        async def tick() -> None:
            while True:
                await self.clock.sleep(0.1)
                ticks.append(self.clock.time())

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(tick)
            await sandbox.run("sleep 3")
            tasks.cancel_scope.cancel()
        assert len(ticks) > 10

    @case("RUN-025", needs=COMMANDS)
    async def test_calls_share_files_and_nothing_else(self, sandbox: AsyncSandbox) -> None:
        """Calls share the file system; directory, variables and functions do not outlast a call."""
        await self.sh(sandbox, "mkdir d; echo kept >d/f; cd d; export A=1; f() { :; }; umask 077")
        left = "cat d/f; echo ${A-unset}; command -v f; echo x >g; stat -c %a g"
        done = await sandbox.run(left)
        assert done.stdout.split() == ["kept", "unset", "644"]

    @case("RUN-026", needs=FILES)
    async def test_relative_paths_are_those_of_files(self, sandbox: AsyncSandbox) -> None:
        """A relative path is the same file for a command and for `files`."""
        await sandbox.files.write("ours", "from the API")
        assert await self.sh(sandbox, "cat ours; echo from a command >theirs") == "from the API"
        assert await sandbox.files.read("theirs") == b"from a command\n"
        here = (await self.sh(sandbox, "pwd")).strip()
        assert await sandbox.files.read(f"{here}/theirs") == b"from a command\n"

    @case("RUN-027", lacks=COMMANDS)
    async def test_without_commands(self, sandbox: AsyncSandbox) -> None:
        """A sandbox that runs no commands says so, for a string and for a list."""
        for command in ("true", ["true"]):
            with pytest.raises(CapabilityNotSupported) as caught:
                await sandbox.run(command)
            assert caught.value.outcome == "not_started"
            assert "RUN_COMMAND" in str(caught.value)
