"""Running code: the command table, and the Python loader run by this host's interpreter."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from sandboxio import CapabilityNotSupported
from sandboxio.guest import code

if TYPE_CHECKING:
    from pathlib import Path

ALL = {"python3", "python", "bash"}


@pytest.mark.parametrize(
    ("language", "programs", "program"),
    [
        ("python", ALL, "python3"),
        ("python", {"python"}, "python"),
        ("bash", ALL, "bash"),
    ],
)
def test_the_program_for_a_language(language: str, programs: set[str], program: str) -> None:
    """The first interpreter there is runs the code, which is in none of its arguments."""
    command = code.command(language, "é = 'needle'", programs)
    assert command.argv[0] == program
    assert command.argv[-1] == str(len(command.stdin))
    assert command.stdin == "é = 'needle'".encode()
    assert "needle" not in " ".join(command.argv)


@pytest.mark.parametrize(
    ("language", "programs", "words"),
    [
        ("python", {"bash"}, r"'python' \(python3 or python\); it runs bash"),
        ("python", set[str](), "no language at all"),
        ("ruby", ALL, "'ruby'; it runs python, bash"),
        ("", ALL, "''"),
    ],
)
def test_a_language_without_interpreter(language: str, programs: set[str], words: str) -> None:
    """The refusal names what is missing and what there is."""
    with pytest.raises(CapabilityNotSupported, match=words):
        code.command(language, "x", programs)


def test_languages_are_those_that_can_be_run() -> None:
    """A box is asked by its programs."""
    assert code.languages({"python", "perl"}) == ("python",)
    assert code.languages(ALL) == ("python", "bash")
    assert code.languages(()) == ()


def run(
    source: str, cwd: Path, *, cut: int = 0, more: bytes = b""
) -> subprocess.CompletedProcess[str]:
    """Run source code the way a sandbox does, with this interpreter."""
    command = code.command("python", source, {"python3"})
    return subprocess.run(
        [sys.executable, *command.argv[1:]],
        input=(command.stdin[: len(command.stdin) - cut] + more).decode("utf-8", "replace"),
        cwd=cwd,
        env={"LC_ALL": "C", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )


def test_code_runs_as_main_in_a_clean_namespace(tmp_path: Path) -> None:
    """Names, arguments and `__name__` are those of `python -c`, and no file is left."""
    source = "import sys; print(sorted(n for n in globals() if n != 'sys'), sys.argv, __name__)"
    plain = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, check=True
    )
    ended = run(source, tmp_path)
    assert (ended.stdout, ended.stderr) == (plain.stdout, "")
    assert list(tmp_path.iterdir()) == []


def test_code_may_define_what_the_loader_used(tmp_path: Path) -> None:
    """A function named like the loader's own works, and functions see their globals."""
    ended = run("def load(): return X\nX = 3\nclass A: x = X\nprint(load() + A.x)", tmp_path)
    assert (ended.stdout, ended.stderr) == ("6\n", "")


def test_main_can_be_imported_and_pickled(tmp_path: Path) -> None:
    """`__main__` is the module the code lives in."""
    ended = run(
        "import pickle\nclass A: pass\nprint(type(pickle.loads(pickle.dumps(A()))))", tmp_path
    )
    assert ended.stdout == "<class '__main__.A'>\n"


@pytest.mark.parametrize("size", [131_000, 131_072, 1_000_000])
def test_code_of_any_length(tmp_path: Path, size: int) -> None:
    """No limit of argument lists applies, and reads may come in any size."""
    ended = run(f"x = '{'a' * size}'; print(len(x))", tmp_path)
    assert ended.stdout == f"{size}\n"


def test_code_is_utf_8_whatever_the_locale(tmp_path: Path) -> None:
    """Text survives in both directions under `LC_ALL=C`."""
    assert run("print('é🎉', len('é🎉'))", tmp_path).stdout == "é🎉 2\n"


def test_stdin_is_at_its_end(tmp_path: Path) -> None:
    """Code that reads gets end of file, not the rest of what carried the code."""
    source = "import sys; print(repr(sys.stdin.read())); input()"
    ended = run(source, tmp_path, more=b"not for the code\n")
    assert ended.stdout == "''\n"
    assert ended.stderr.endswith("EOFError: EOF when reading a line\n")
    assert ended.returncode == 1


def test_a_traceback_shows_the_caller_s_lines_alone(tmp_path: Path) -> None:
    """Line numbers are the caller's; the loader is in no frame."""
    ended = run("def f():\n    return 1 // 0\n\nf()\n", tmp_path)
    lines = ended.stderr.splitlines()
    assert [line for line in lines if "File " in line] == [
        '  File "<code>", line 4, in <module>',
        '  File "<code>", line 2, in f',
    ]
    assert lines[-1].startswith("ZeroDivisionError")
    assert (lines[0], ended.returncode) == ("Traceback (most recent call last):", 1)


def test_a_chained_traceback_stays_whole(tmp_path: Path) -> None:
    """The cause of an exception is shown with it."""
    ended = run(
        "try:\n    1 // 0\nexcept Exception as e:\n    raise KeyError('k') from e", tmp_path
    )
    assert "ZeroDivisionError" in ended.stderr
    assert "direct cause" in ended.stderr
    assert ended.stderr.endswith("KeyError: 'k'\n")


def test_a_syntax_error_points_at_the_caller_s_line(tmp_path: Path) -> None:
    """No frame is shown but the place of the error."""
    ended = run("x = 1\ny = = 2\n", tmp_path)
    assert ended.stderr.splitlines()[0] == '  File "<code>", line 2'
    assert "    y = = 2" in ended.stderr.splitlines()
    assert ended.stderr.endswith("SyntaxError: invalid syntax\n")
    assert ended.returncode == 1


@pytest.mark.parametrize(
    ("source", "code", "said"),
    [
        ("import sys; sys.exit()", 0, ""),
        ("import sys; sys.exit(7)", 7, ""),
        ("raise SystemExit('bye')", 1, "bye\n"),
        ("raise SystemExit", 0, ""),
        ("import os; os._exit(9)", 9, ""),
        ("", 0, ""),
    ],
)
def test_exit_codes(tmp_path: Path, source: str, code: int, said: str) -> None:
    """`SystemExit` means what it means in any program."""
    ended = run(source, tmp_path)
    assert (ended.returncode, ended.stderr, ended.stdout) == (code, said, "")


def test_an_excepthook_of_the_caller_is_used(tmp_path: Path) -> None:
    """Code that sets `sys.excepthook` gets its own exception there."""
    hook = "lambda kind, error, trace: print('mine', kind.__name__, trace.tb_lineno)"
    source = f"import sys\nsys.excepthook = {hook}\n1//0"
    ended = run(source, tmp_path)
    assert (ended.stdout, ended.stderr) == ("mine ZeroDivisionError 3\n", "")


def test_code_that_arrived_incomplete_does_not_run(tmp_path: Path) -> None:
    """A cut-off transfer ends with a code of its own."""
    ended = run("print(1)\nprint(2)", tmp_path, cut=3)
    assert (ended.returncode, ended.stdout) == (125, "")


def test_the_exit_handlers_of_the_caller_run(tmp_path: Path) -> None:
    """Threads and atexit behave as in any program, after an error too."""
    ended = run("import atexit\natexit.register(print, 'bye')\n1//0", tmp_path)
    assert ended.stdout == "bye\n"


def test_bash_code(tmp_path: Path) -> None:
    """Bash code runs with no arguments and nothing on stdin."""
    command = code.command("bash", 'echo $# "$0"; cat; exit 3', {"bash"})
    ended = subprocess.run(
        command.argv, input=command.stdin, cwd=tmp_path, capture_output=True, check=False
    )
    assert (ended.stdout, ended.stderr, ended.returncode) == (b"0 bash\n", b"", 3)
