"""`run_code()`: source code in a fresh interpreter."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import pytest

from sandboxio.core.errors import (
    CapabilityNotSupported,
    ExecutionTimeout,
    PathNotFound,
)
from sandboxio.core.models import Capability
from sandboxio.testing.suite._case import case
from sandboxio.testing.suite._run_code_refusals import CodeRefusals

if TYPE_CHECKING:
    from sandboxio.core.models import ExecResult
    from sandboxio.core.protocols import AsyncSandbox
    from sandboxio.testing.suite.fixtures import Create

CODE = Capability.RUN_CODE
BOTH = Capability.RUN_CODE | Capability.RUN_COMMAND
FILES = Capability.RUN_CODE | Capability.FILESYSTEM
TOKEN = "hunter2-and-more"  # noqa: S105  # it is what must not show
COUNTED = 'before = open("runs").read()\nopen("runs", "w").write(before + "x")\n'
FAILURES = {
    "1 / 0": "ZeroDivisionError",
    "undefined_name": "NameError: name 'undefined_name' is not defined",
    'raise ValueError("boom")': "ValueError: boom",
    'open("none").read()': "FileNotFoundError",
}


class RunCodeSuite(CodeRefusals):
    """Cases of `run_code()`; what it refuses is in the base."""

    @case("CODE-001", needs=CODE)
    async def test_code_runs(self, sandbox: AsyncSandbox) -> None:
        """Code runs as Python, and what it prints is the output."""
        done = await sandbox.run_code("x = 6\nprint(x * 7)")
        assert (done.exit_code, done.stdout, done.stderr) == (0, "42\n", "")
        assert (done.ok, done.streamed, done.stdout_bytes) == (True, False, 3)

    @pytest.mark.parametrize("statement", FAILURES)
    @case("CODE-002", needs=CODE)
    async def test_exceptions_of_code(self, sandbox: AsyncSandbox, statement: str) -> None:
        """An exception ends the code with exit code 1 and a traceback on stderr, which names the
        exception and the caller's own line; what was printed before is kept.
        """
        done = await sandbox.run_code(f'print("before")\n\n{statement}\nprint("after")')
        assert (done.exit_code, done.stdout) == (1, "before\n")
        assert "line 3" in done.stderr
        assert FAILURES[statement] in done.stderr

    @case("CODE-003", needs=CODE)
    async def test_line_numbers_of_long_code(self, sandbox: AsyncSandbox) -> None:
        """The line that a traceback names is the caller's own, however far down."""
        done = await sandbox.run_code("x = 1\n" * 1999 + "1 / 0\n")
        assert done.exit_code == 1
        assert "line 2000" in done.stderr

    @case("CODE-004", needs=CODE)
    async def test_syntax_errors(self, sandbox: AsyncSandbox) -> None:
        """Code with a syntax error ends with exit code 1, the error and its line on stderr; none
        of it runs.
        """
        done = await sandbox.run_code('print("before")\nx = = 1\n')
        assert (done.exit_code, done.stdout) == (1, "")
        assert "SyntaxError" in done.stderr
        assert "line 2" in done.stderr

    @case("CODE-005", needs=CODE)
    async def test_exit_codes_of_code(self, sandbox: AsyncSandbox) -> None:
        """Code may end itself with an exit code of its own, and is over then, in silence."""
        for statement in ("sys.exit({})", "raise SystemExit({})"):
            for code in (0, 1, 7, 255):
                text = f'import sys\nprint("a")\n{statement.format(code)}\nprint("b")'
                done = await sandbox.run_code(text)
                assert (done.exit_code, done.stdout, done.stderr) == (code, "a\n", "")

    @case("CODE-006", needs=CODE)
    async def test_stdin_of_code(self, sandbox: AsyncSandbox) -> None:
        """stdin of code is at its end from the start: `input()` is an EOFError, at once."""
        begin = self.clock.time()
        done = await sandbox.run_code('print("a")\ninput()\nprint("b")', timeout=60)
        assert (done.exit_code, done.stdout) == (1, "a\n")
        assert "EOFError" in done.stderr
        rest = await sandbox.run_code("import sys\nprint(len(sys.stdin.read()))", timeout=60)
        assert rest.stdout == "0\n"
        assert self.clock.time() - begin < 20

    @pytest.mark.parametrize("size", [131_000, 131_072, 1_000_000])
    @case("CODE-007", needs=CODE)
    async def test_long_code(self, sandbox: AsyncSandbox, size: int) -> None:
        """Code may be longer than an argument, or all arguments, of a program can be."""
        done = await sandbox.run_code(f'x = "{"a" * size}"\nprint(len(x))')
        assert (done.exit_code, done.stdout, done.stderr) == (0, f"{size}\n", "")

    @case("CODE-008", needs=BOTH)
    async def test_nothing_is_left(self, sandbox: AsyncSandbox) -> None:
        """Code leaves no file behind that it did not make: not when it works, when it fails, when
        it is long, nor when it times out.
        """
        look = 'ls -A . /tmp /var/tmp "$HOME"'
        before = await self.sh(sandbox, look)
        for code in ("print(1)", "1 / 0", "x = = 1", f'x = "{"a" * 200_000}"'):
            await sandbox.run_code(code)
        with pytest.raises(ExecutionTimeout):
            await sandbox.run_code("import time\ntime.sleep(600)", timeout=2)
        assert await self.sh(sandbox, look) == before

    @case("CODE-009", needs=BOTH)
    async def test_code_is_in_no_arguments(self, sandbox: AsyncSandbox, marker: int) -> None:
        """While code runs, no process has it among its arguments."""
        code = f'x = {marker}\nopen("up", "w").write("x")\nimport time\ntime.sleep(4)\nprint(x)'
        look = (
            "n=0; for f in /proc/[0-9]*/cmdline; do c=$(tr '\\000' ' ' 2>/dev/null <$f); "
            'n=$((n + 1)); case "$c" in *"$MARK"*) echo "$c";; esac; done; '
            "[ $n -gt 0 ] && echo looked"
        )
        results: list[ExecResult] = []

        async def call() -> None:
            results.append(await sandbox.run_code(code))

        async def up() -> bool:
            return (await sandbox.run("test -s up")).ok

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await self.eventually(up)
            assert await self.sh(sandbox, look, env={"MARK": str(marker)}) == "looked\n"
            assert results == []
        assert results[0].stdout == f"{marker}\n"

    @case("CODE-010", needs=CODE)
    async def test_it_is_the_main_program(self, sandbox: AsyncSandbox) -> None:
        """Code is the program itself: `__name__` is `"__main__"`."""
        code = 'print(__name__)\nif __name__ == "__main__":\n    print("ran")'
        assert (await sandbox.run_code(code)).stdout == "__main__\nran\n"

    @case("CODE-011", needs=CODE)
    async def test_code_is_utf8(self, sandbox: AsyncSandbox) -> None:
        """Code and output are UTF-8, whatever locale the sandbox has."""
        code = 'import sys\nx = "é🎉"\nprint(x, len(x))\nprint("\\u00fc", file=sys.stderr)'
        for env in ({}, {"LC_ALL": "C"}, {"LANG": "C", "LC_ALL": "POSIX"}):
            done = await sandbox.run_code(code, env=env)
            assert (done.exit_code, done.stdout, done.stderr) == (0, "é🎉 2\n", "ü\n")
        assert done.stdout_bytes == len("é🎉 2\n".encode())

    @case("CODE-012", needs=CODE)
    async def test_code_is_not_interpreted(self, sandbox: AsyncSandbox) -> None:
        """No shell and no template looks at code: quotes, `$`, `%`, braces and backslashes mean
        what they mean in Python.
        """
        text = "'\"$HOME`x`$(x)${x} %s %d {0} {{ \\ \t&&;|>f"
        done = await sandbox.run_code(f"x = {text!r}\nprint(x)")
        assert (done.stdout, done.stderr) == (f"{text}\n", "")
        assert (await sandbox.run_code('a = 1\r\nprint("b")\r\n')).stdout == "b\n"

    @case("CODE-013", needs=CODE)
    async def test_streams_of_code_are_apart(self, sandbox: AsyncSandbox) -> None:
        """stdout and stderr of code arrive apart, and a last line without an end gets none."""
        code = 'import sys\nprint("a", end="")\nprint("b", "c", sep="-", end="", file=sys.stderr)'
        done = await sandbox.run_code(code)
        assert (done.exit_code, done.stdout, done.stderr) == (0, "a", "b-c")

    @case("CODE-014", needs=CODE)
    async def test_calls_keep_no_state(self, sandbox: AsyncSandbox) -> None:
        """Each call has an interpreter of its own: no name of an earlier one is known."""
        assert (await sandbox.run_code("x = 41\nprint(x)")).stdout == "41\n"
        done = await sandbox.run_code("print(x)")
        assert (done.exit_code, done.stdout) == (1, "")
        assert "NameError" in done.stderr

    @case("CODE-015", needs=CODE)
    async def test_much_code_at_once(self, sandbox: AsyncSandbox) -> None:
        """Code that runs at the same time keeps names, outputs and exit codes apart."""
        found: dict[int, tuple[int, str]] = {}

        async def one(n: int) -> None:
            code = f"import sys, time\nx = {n}\ntime.sleep(0.5)\nprint(x)\nsys.exit(x)"
            done = await sandbox.run_code(code, timeout=60)
            found[n] = (done.exit_code, done.stdout)

        async with anyio.create_task_group() as tasks:
            for number in range(8):
                tasks.start_soon(one, number)
        assert found == {n: (n, f"{n}\n") for n in range(8)}

    @case("CODE-016", needs=CODE)
    async def test_variables_of_code(self, create: Create) -> None:
        """Code has the sandbox's variables and secrets, and its call's own, which win for that
        call only; all exact.
        """
        odd = "é\n'"
        sandbox = await create(env={"A": "sandbox", "B": odd}, secrets={"TOKEN": TOKEN})
        code = (
            'import os\nprint(os.environ["A"], repr(os.environ["B"]), len(os.environ["TOKEN"]))\n'
            'print(os.environ.get("C"))'
        )
        called = await sandbox.run_code(code, env={"A": "call", "C": " x "})
        assert called.stdout == f"call {odd!r} {len(TOKEN)}\n x \n"
        assert (await sandbox.run_code(code)).stdout.startswith("sandbox ")
        assert (await sandbox.run_code(code)).stdout.endswith("\nNone\n")

    @case("CODE-017", needs=BOTH)
    async def test_the_directory_of_code(self, sandbox: AsyncSandbox) -> None:
        """Code runs where commands do, or in `cwd`; one that is not there is `PathNotFound`, and
        the code does not run.
        """
        here = (await self.sh(sandbox, "mkdir d; pwd")).strip()
        code = "import os\nprint(os.getcwd())"
        assert (await sandbox.run_code(code)).stdout == f"{here}\n"
        for cwd in ("d", f"{here}/d"):
            assert (await sandbox.run_code(code, cwd=cwd)).stdout == f"{here}/d\n"
        with pytest.raises(PathNotFound):
            await sandbox.run_code(f'open("{here}/ran", "w").write("x")', cwd="none")
        await self.sh(sandbox, "test ! -e ran")

    @case("CODE-018", needs=BOTH)
    async def test_the_user_of_code(self, sandbox: AsyncSandbox) -> None:
        """Code runs as the user of commands."""
        done = await sandbox.run_code("import os\nprint(os.getuid())")
        assert done.stdout == await self.sh(sandbox, "id -u")

    @case("CODE-019", needs=BOTH)
    async def test_files_are_shared_with_commands(self, sandbox: AsyncSandbox) -> None:
        """Code and commands see each other's files, by relative paths too."""
        await sandbox.run_code('open("ours", "w").write("from code")')
        assert await self.sh(sandbox, "cat ours; echo from a command >theirs") == "from code"
        assert (await sandbox.run_code('print(open("theirs").read())')).stdout.split() == [
            *("from", "a", "command")
        ]

    @case("CODE-020", needs=FILES)
    async def test_files_are_shared_with_the_api(self, sandbox: AsyncSandbox) -> None:
        """Code and `files` see each other's files, by relative paths too."""
        await sandbox.files.write("ours", "from the API")
        code = 'print(open("ours").read())\nopen("theirs", "w").write("from code")'
        assert (await sandbox.run_code(code)).stdout == "from the API\n"
        assert await sandbox.files.read("theirs") == b"from code"

    @case("CODE-021", needs=CODE)
    async def test_large_output_of_code(self, sandbox: AsyncSandbox) -> None:
        """Some megabytes that code prints arrive whole."""
        done = await sandbox.run_code('print("é" * 1500000)\nprint("end")', timeout=60)
        assert done.stdout == "é" * 1_500_000 + "\nend\n"
        assert (done.stdout_bytes, done.stdout_truncated) == (3_000_005, False)

    @case("CODE-022", needs=CODE)
    async def test_a_cap_on_code(self, sandbox: AsyncSandbox) -> None:
        """Beyond `max_output_bytes` beginning and end are kept, the result says so, and the code
        runs to its own end.
        """
        code = "import sys\nfor i in range(1000):\n    print(i)\nsys.exit(3)"
        done = await sandbox.run_code(code, max_output_bytes=1000)
        assert (done.exit_code, done.stdout_truncated, done.stderr_truncated) == (3, True, False)
        assert done.stdout_bytes == sum(len(f"{i}\n") for i in range(1000))
        assert 900 <= len(done.stdout) <= 1000
        assert done.stdout.startswith("0\n1\n2\n")
        assert done.stdout.endswith("\n999\n")

    @case("CODE-023", needs=BOTH)
    async def test_code_runs_once(self, sandbox: AsyncSandbox) -> None:
        """Code is run exactly once, also when it fails or times out."""
        await self.sh(sandbox, ": >runs")
        for end in ("", "1 / 0", "import sys\nsys.exit(3)"):
            await sandbox.run_code(COUNTED + end)
        with pytest.raises(ExecutionTimeout):
            await sandbox.run_code(COUNTED + "import time\ntime.sleep(600)", timeout=3)
        assert await self.sh(sandbox, "cat runs") == "xxxx"

    @case("CODE-024", needs=CODE)
    async def test_bash_code(self, sandbox: AsyncSandbox) -> None:
        """`language="bash"` runs a script of several lines as it is, or is refused."""
        script = 'x=\'a "b"\'\necho "$x" $#\necho e >&2\nread y || echo no input\nexit 3'
        try:
            done = await sandbox.run_code(script, language="bash")
        except CapabilityNotSupported as exc:
            pytest.skip(reason=f"this sandbox runs no bash: {exc.message}")
        assert (done.exit_code, done.stdout, done.stderr) == (3, 'a "b" 0\nno input\n', "e\n")
        assert (await sandbox.run_code(f"x={'a' * 200_000}; echo ${{#x}}", language="bash")).ok
