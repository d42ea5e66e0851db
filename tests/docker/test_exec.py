"""Commands and code: what reaches the program, and what its end looks like."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import anyio
import pytest

from sandboxio import ConfigurationError, ExecutionTimeout, PathNotFound
from tests.docker.outside import METADATA, TARGET, Outside, host_arguments, unique_seconds

if TYPE_CHECKING:
    from pathlib import Path

    from sandboxio.protocols import AsyncSandbox
    from tests.docker.conftest import Make

pytestmark = [pytest.mark.docker, pytest.mark.anyio]

both_loops = pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"], scope="module")
AWKWARD = {
    "E": "",
    "NL": "a\nb",
    "EQ": "a=b",
    "Q": "'\"$(x)`",
    "U": "é🎉",
    "SP": " a ",
}
SHOW_ENV = "import json, os; print(json.dumps(dict(os.environ)))"


@both_loops
async def test_a_command_runs_and_ends(sb: AsyncSandbox) -> None:
    """EXEC-2: a command without output gives two empty texts and exit code 0."""
    result = await sb.run(["true"])
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")


@pytest.mark.parametrize("_round", [1, 2])
async def test_a_background_child_does_not_hold_up_run(sb: AsyncSandbox, _round: int) -> None:
    """EXEC-1: the command's own end is the end, although a child still holds stdout open."""
    with anyio.fail_after(8):
        result = await sb.run(["sh", "-c", "sleep 60 & echo hi"], timeout=20)
    assert (result.exit_code, result.stdout) == (0, "hi\n")


@pytest.mark.parametrize("_round", [1, 2])
async def test_a_background_child_does_not_hold_up_a_stream(sb: AsyncSandbox, _round: int) -> None:
    """EXEC-1: the same when streamed."""
    with anyio.fail_after(8):
        async with sb.stream(["sh", "-c", "sleep 60 & echo hi"], timeout=20) as proc:
            data = b"".join([chunk.data async for chunk in proc])
            assert (data, (await proc.wait()).exit_code) == (b"hi\n", 0)


async def test_the_exit_code_is_there_as_soon_as_the_stream_ends(sb: AsyncSandbox) -> None:
    """EXEC-2: fifty streams in a row end with 7, by `returncode` and by `wait()`."""
    for _ in range(50):
        async with sb.stream(["sh", "-c", "echo x; exit 7"]) as proc:
            assert [chunk.data async for chunk in proc] == [b"x\n"]
            assert (proc.returncode, (await proc.wait()).exit_code) == (7, 7)


async def test_returncode_is_none_while_the_process_runs(sb: AsyncSandbox) -> None:
    """EXEC-2: `returncode` is None until the end, and 137 after a kill."""
    async with sb.stream(["sh", "-c", "echo x; sleep 60"]) as proc:
        await anext(aiter(proc))
        assert proc.returncode is None
        await proc.kill()
        assert proc.returncode == 137


async def test_a_string_is_read_by_one_shell(sb: AsyncSandbox) -> None:
    """EXEC-3: a string command is one script, not words for several shells."""
    result = await sb.run('echo a && printf %s "$HOME" > home.txt; cat home.txt | wc -c')
    assert result.stdout == f"a\n{len('/home/sandbox')}\n"


async def test_a_list_reaches_the_program_untouched(sb: AsyncSandbox) -> None:
    """EXEC-3: no shell looks at the words of a list."""
    result = await sb.run(["printf", "%s|", "$HOME", "&&", "a b", "'"])
    assert result.stdout == "$HOME|&&|a b|'|"


async def test_a_string_with_newlines_and_quotes(sb: AsyncSandbox) -> None:
    """EXEC-3: several lines, both quotes and a here document survive."""
    result = await sb.run("x='a \"b\"'\ncat <<'END'\n$x it's\nEND\nprintf '%s\\n' \"$x\"")
    assert result.stdout == '$x it\'s\na "b"\n'


@pytest.mark.parametrize("size", [131_000, 131_072, 5_000_000])
async def test_long_code(sb: AsyncSandbox, size: int) -> None:
    """EXEC-4: no limit of an argument list applies to code."""
    result = await sb.run_code(f"x = '{'a' * size}'; print(len(x), __name__)")
    assert (result.stdout, result.stderr) == (f"{size} __main__\n", "")


async def test_code_is_in_no_argument_list(sb: AsyncSandbox, outside: Outside) -> None:
    """EXEC-4: while code runs, no process of the whole host has it in its arguments."""
    mark = unique_seconds()
    seen: list[str] = []

    async def look() -> None:
        await anyio.sleep(0.7)
        seen.extend(args for _, args in host_arguments())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(look)
        await sb.run_code(f"import time\nmark = {mark}\ntime.sleep(1.5)\nprint(mark)")
    assert any(args.startswith("python3 -u") for args in seen)
    assert [args for args in seen if mark in args] == []


async def test_tracebacks_show_the_callers_own_lines(sb: AsyncSandbox) -> None:
    """EXEC-4: line numbers are those of the code given, and nothing of ours is in between."""
    result = await sb.run_code("def f():\n    raise ValueError('boom')\n\nf()\n")
    assert result.exit_code == 1
    assert "line 4, in <module>\n    f()" in result.stderr
    assert "line 2, in f\n    raise ValueError('boom')" in result.stderr
    assert result.stderr.count('File "') == 2


async def test_code_leaves_no_helper_file(fresh: AsyncSandbox) -> None:
    """EXEC-4: after success, failure and timeout the places code could lie in are unchanged."""
    look = "ls -laR /work /tmp /home /dev/shm /var/tmp"
    before = (await fresh.run(look)).stdout
    await fresh.run_code("print(1)")
    await fresh.run_code("1/0")
    with pytest.raises(ExecutionTimeout):
        await fresh.run_code("import time; time.sleep(60)", timeout=1)
    assert (await fresh.run(look)).stdout == before


def test_stdin_is_at_its_end_and_the_hosts_is_not_touched(tmp_path: Path) -> None:
    """EXEC-5: with data waiting on the host's stdin, commands read end of file at once."""
    child = tmp_path / "child.py"
    child.write_text(
        "import json, sys, sandboxio\n"
        f"with sandboxio.create_sync({TARGET!r}, timeout=60, metadata={METADATA!r}) as sb:\n"
        "    read = [sb.run_code('input()', timeout=5), sb.run(['cat'], timeout=5),\n"
        "            sb.run(['python3'], timeout=5)]\n"
        "print(json.dumps([[r.exit_code, r.stdout] for r in read]))\n"
        "print(sys.stdin.read())\n"
    )
    done = subprocess.run(
        [sys.executable, str(child)], input="host's own", capture_output=True, text=True, check=True
    )
    results, rest = done.stdout.split("\n", 1)
    assert json.loads(results) == [[1, ""], [0, ""], [0, ""]]
    assert rest == "host's own\n"


async def test_input_at_end_of_file_is_an_eof_error(sb: AsyncSandbox) -> None:
    """EXEC-5: `input()` in code raises EOFError."""
    result = await sb.run_code("input()", timeout=5)
    assert (result.exit_code, "EOFError" in result.stderr) == (1, True)


@pytest.mark.parametrize(
    ("command", "code"),
    [(["no-such-program"], 127), (["/etc/passwd"], 126), (["cd", "/"], 127)],
)
async def test_a_command_that_cannot_start(sb: AsyncSandbox, command: list[str], code: int) -> None:
    """EXEC-6: 127, or 126 when not executable; the reason is on stderr, stdout is empty."""
    result = await sb.run(command)
    assert (result.exit_code, result.stdout) == (code, "")
    assert result.stderr
    async with sb.stream(command) as proc:
        streams = {chunk.stream async for chunk in proc}
        assert (streams, (await proc.wait()).exit_code) == ({"stderr"}, code)


async def test_environment_values_round_trip_from_create(make: Make) -> None:
    """EXEC-7: awkward values given to `create()` come back exactly, in commands and code."""
    sb = await make(env=AWKWARD)
    for result in (await sb.run(["python3", "-c", SHOW_ENV]), await sb.run_code(SHOW_ENV)):
        assert json.loads(result.stdout).items() >= AWKWARD.items()


async def test_environment_values_round_trip_per_call(make: Make) -> None:
    """EXEC-7: a call's value wins, for that call only."""
    sb = await make(env={"NL": "of create", "OTHER": "stays"})
    result = await sb.run(["python3", "-c", SHOW_ENV], env=AWKWARD)
    assert json.loads(result.stdout).items() >= {**AWKWARD, "OTHER": "stays"}.items()
    assert (await sb.run(["printenv", "NL"])).stdout == "of create\n"


@pytest.mark.parametrize("bad", [{"A=B": "v-secret"}, {"": "v-secret"}, {"K": None}, {"K": 1}])
async def test_a_bad_environment_is_refused_before_anything_runs(
    sb: AsyncSandbox, bad: dict[str, str]
) -> None:
    """EXEC-7: names and types a variable cannot have are refused, without showing the value."""
    with pytest.raises(ConfigurationError) as caught:
        await sb.run(["touch", "ran"], env=bad)
    assert "v-secret" not in str(caught.value)
    assert not await sb.files.exists("ran")


async def test_a_quiet_command_outlasts_the_clients_own_timeouts(sb: AsyncSandbox) -> None:
    """EXEC-8: six silent seconds, more than any transport timeout of the client, are no error."""
    result = await sb.run(["sh", "-c", "sleep 6; echo done"], timeout=60)
    assert (result.exit_code, result.stdout) == (0, "done\n")


@pytest.mark.parametrize(
    "name",
    [
        "a'; touch pwned; '",
        "$(touch pwned)",
        "`touch pwned`",
        "-rf",
        "--reference=bystander",
        "*",
        "a b",
    ],
)
async def test_paths_are_data_never_code(fresh: AsyncSandbox, name: str) -> None:
    """EXEC-9: every file operation uses the exact name; nothing in it is run or expanded."""
    files = fresh.files
    await files.write("bystander", b"")
    await files.write(name, b"content")
    assert await files.read(name) == b"content"
    assert [info.path for info in await files.ls()] == sorted(["bystander", name])
    await files.remove(name)
    await files.mkdir(name)
    await files.write(f"{name}/x", b"")
    assert [info.path for info in await files.ls(name)] == [f"{name}/x"]
    await files.remove(name, recursive=True)
    assert [info.path for info in await files.ls()] == ["bystander"]


@both_loops
async def test_a_large_stdin_arrives_whole(sb: AsyncSandbox) -> None:
    """5 MB given to `run(stdin=)` reach the program, then end of file."""
    result = await sb.run(["wc", "-c"], stdin=b"x" * 5_000_000)
    assert result.stdout == "5000000\n"


async def test_stdin_that_nobody_reads_is_no_error(sb: AsyncSandbox) -> None:
    """A program that ends without reading its large stdin still gives its result."""
    result = await sb.run(["sh", "-c", "echo early; exit 4"], stdin=b"x" * 5_000_000)
    assert (result.exit_code, result.stdout) == (4, "early\n")


@both_loops
async def test_a_live_conversation_over_stdin(sb: AsyncSandbox) -> None:
    """`write()` reaches the running program at once; `close_stdin()` lets it read the end."""
    script = 'while read -r line; do echo "got $line"; done; echo bye'
    async with sb.stream(["sh", "-c", script], stdin=True) as proc:
        for word in ("one", "two"):
            await proc.write(f"{word}\n")
            assert (await anext(aiter(proc))).data == f"got {word}\n".encode()
        await proc.close_stdin()
        assert b"".join([chunk.data async for chunk in proc]) == b"bye\n"


async def test_many_runs_at_once_keep_their_outputs_apart(sb: AsyncSandbox) -> None:
    """Twenty concurrent calls each get their own output and exit code."""
    found: dict[int, tuple[int, str]] = {}

    async def one(number: int) -> None:
        result = await sb.run(f"sleep 0.1; seq {number} {number + 500}; exit {number}")
        found[number] = (result.exit_code, result.stdout)

    async with anyio.create_task_group() as tasks:
        for number in range(20):
            tasks.start_soon(one, number)
    assert found == {n: (n, "".join(f"{i}\n" for i in range(n, n + 501))) for n in range(20)}


async def test_a_working_directory_that_is_not_there(sb: AsyncSandbox) -> None:
    """`cwd=` naming nothing is `PathNotFound`, not the command's own failure."""
    with pytest.raises(PathNotFound):
        await sb.run(["pwd"], cwd="not/there")


async def test_cwd_is_relative_to_the_working_directory(sb: AsyncSandbox) -> None:
    """A relative `cwd=` starts at /work, for commands and for code."""
    await sb.files.mkdir("deep/er", parents=True)
    assert (await sb.run(["pwd"], cwd="deep/er")).stdout == "/work/deep/er\n"
    code = "import os; print(os.getcwd())"
    assert (await sb.run_code(code, cwd="deep")).stdout == "/work/deep\n"
