"""The virtual shell: lists, loops, functions, redirections, builtins."""

from __future__ import annotations

import pytest

from tests.testing.world import World

pytestmark = pytest.mark.anyio


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize(
    ("script", "out"),
    [
        ("echo a && false || echo b; true || echo c", "a\nb\n"),
        ("echo a | cat | tr a b && echo c", "b\nc\n"),
        ("echo a | cat | cat\necho b && echo c", "a\nb\nc\n"),
        ("! true | false; echo $?; ! { false; }; echo $?", "0\n0\n"),
        ("if false; then echo a; elif true; then echo b; else echo c; fi", "b\n"),
        (
            "for i in a 'b c'; do echo $i; done; set -- d e; for i; do echo $i; done",
            "a\nb c\nd\ne\n",
        ),
        ("i=0; while [ $i -lt 3 ]; do i=$((i+1)); [ $i = 2 ] && continue; echo $i; done", "1\n3\n"),
        ("until [ ${#x} = 2 ]; do x=x$x; done; echo $x", "xx\n"),
        (
            "for i in 1 2; do for j in a b; do [ $j = b ] && continue 2; echo $i$j; done; done",
            "1a\n2a\n",
        ),
        ("x=cat; case $x in d*|*a*) echo yes;; *) echo no;; esac", "yes\n"),
        ("case '*' in \\*) echo literal;; esac; case a/b in *) echo any; esac", "literal\nany\n"),
        ("(x=1; cd /tmp; echo $x); echo [$x]; pwd", "1\n[]\n/work\n"),
        ("{ echo b; echo a >&2; } 2>&1 | sort", "a\nb\n"),
        ("f() { echo $# $1; return 3; }; f 'a b' c; echo $?", "2 a b\n3\n"),
        ("f() { local x=1; x=2; }; x=9; f; echo $x", "9\n"),
        ("fact() { [ $1 -le 1 ] && echo 1 || echo $(($1 * $(fact $(($1-1))))); }; fact 5", "120\n"),
    ],
)
async def test_control(world: World, script: str, out: str) -> None:
    """Lists, pipelines, loops, cases and functions do what they do in dash."""
    done = await world.run(script)
    assert (done.out, done.err) == (out, "")


async def test_assignments_before_a_command(world: World) -> None:
    """`x=1 command` is seen by the command alone; a special builtin keeps it."""
    done = await world.run(
        "x=1 sh -c 'echo $x'; echo [$x]; y=2 :; echo [$y]; z=3; sh -c 'echo [$z]'"
    )
    assert done.out == "1\n[]\n[2]\n[]\n"


@pytest.mark.parametrize(
    ("script", "out"),
    [
        ("echo a >f; echo b >>f; cat <f", "a\nb\n"),
        ("echo a 2>&1 >f | cat; cat f", "a\n"),
        ("exec 3>f; echo x >&3; exec 3>&-; cat f", "x\n"),
        ("{ echo a >&3; } 3>&1 | tr a b", "b\n"),
        ("for i in 1 2; do echo $i; done >f; while read x; do echo r$x; done <f", "r1\nr2\n"),
        ("f() { cat; }; f <<E\nin\nE", "in\n"),
        ("{ echo err >/dev/stderr; } 2>&1; echo out | cat /dev/stdin", "err\nout\n"),
        ("set -C; echo a >f; echo b >f 2>/dev/null; echo $?; echo c >|f; cat f", "2\nc\n"),
        ("umask 077; echo >f; stat -c %a f", "600\n"),
    ],
)
async def test_redirections(world: World, script: str, out: str) -> None:
    """Descriptors lead where a redirection says, for as long as it says."""
    assert (await world.run(script)).out == out


async def test_here_documents(world: World) -> None:
    """They are expanded unless the word is quoted; `<<-` takes tabs away; two can be pending."""
    texts = "a $x $(echo s)\nA\nb $x\\\nB\n\t$((x+1))\n\tC\n"
    script = f"x=1\ncat <<A - <<'B' | tr a-z A-Z; cat <<-C\n{texts}"
    assert (await world.run(script)).out == "B $X\\\n2\n"


@pytest.mark.parametrize(
    ("script", "exit_code", "err"),
    [
        ("nofoo", 127, "sh: 1: nofoo: not found\n"),
        ("\n./nofoo", 127, "sh: 2: ./nofoo: not found\n"),
        ("/tmp", 126, "sh: 1: /tmp: Permission denied\n"),
        ("cat <nofile", 2, "sh: 1: cannot open nofile: No such file\n"),
        ("echo >/nodir/x", 2, "sh: 1: cannot create /nodir/x: Directory nonexistent\n"),
        ("echo >/tmp", 2, "sh: 1: cannot create /tmp: Is a directory\n"),
        ("echo >&7", 2, "sh: 1: 7: Bad file descriptor\n"),
        ("cd nodir", 2, "sh: 1: cd: can't cd to nodir\n"),
        ("exec nofoo", 127, "sh: 1: exec: nofoo: not found\n"),
        ("mkfifo p; cat <p", 2, "sh: 1: cannot open p: No such device or address\n"),
    ],
)
async def test_failures_go_on(world: World, script: str, exit_code: int, err: str) -> None:
    """What cannot be run or opened is reported in the words of dash."""
    done = await world.run(script)
    assert (done.exit, done.out, done.err) == (exit_code, "", err)


@pytest.mark.parametrize(
    ("script", "err"),
    [
        (": <nofile", "sh: 1: cannot open nofile: No such file\n"),
        ("echo ${x?}", "sh: 1: x: parameter not set\n"),
        ("echo ${x:?gone}", "sh: 1: x: gone\n"),
        ("set -u; echo $x", "sh: 1: x: parameter not set\n"),
        ("echo $((1/0))", 'sh: 1: arithmetic expression: division by zero: "1/0"\n'),
        ("readonly r=1; r=2", "sh: 1: r: is read only\n"),
        ("shift", "sh: 1: shift: can't shift that many\n"),
        (". nofile", "sh: 1: .: nofile: not found\n"),
        ("set -o pipefail", "sh: 1: set: Illegal option -o pipefail\n"),
        ("export 1x=2", "sh: 1: export: 1x: bad variable name\n"),
        ("alias a=b", "sh: 1: alias: the fake's shell has no such builtin\n"),
    ],
)
async def test_failures_end_the_shell(world: World, script: str, err: str) -> None:
    """Errors of expansions and special builtins end the shell with 2, and run no more."""
    done = await world.run(f"{script}; echo never")
    assert (done.exit, done.out, done.err) == (2, "", err)


@pytest.mark.parametrize(
    ("script", "out"),
    [
        ("false; echo never", ""),
        ("if false; then :; fi; false || true; ! true; false && true; echo on", "on\n"),
        ("f() { false; echo in; }; f || echo never; f; echo never", "in\n"),
        ("x=$(false); echo never", ""),
        ("echo $(false) on; (false; echo never)", "on\n"),
    ],
)
async def test_errexit(world: World, script: str, out: str) -> None:
    """`set -e` ends the shell where a command fails that nobody asks about."""
    assert (await world.run(f"set -e; {script}")).out == out


async def test_options_of_the_command_line(world: World) -> None:
    """`-e`, `-u` and `-x` work from the command line; unknown options are refused."""
    assert (await world.call(["sh", "-eux", "-c", "x=a; echo $x; $nope"])).err == (
        "+ x=a\n+ echo a\nsh: 1: nope: parameter not set\n"
    )
    assert await world.call(["sh", "-Z"]) == (2, "", "sh: 0: Illegal option -Z\n")


async def test_scripts_from_files_and_stdin(world: World) -> None:
    """A script is the text of `-c`, a file with arguments, or stdin; `#!` starts it too."""
    script = "printf '#!/bin/sh\\necho $0 $1\\n' >s; sh s a; chmod +x s; ./s b; sh nofile; echo $?"
    done = await world.run(script)
    assert done.out == "s a\n./s b\n2\n"
    assert done.err == "sh: 0: cannot open nofile: No such file\n"
    assert (await world.call(["sh"], stdin=b"echo in; exit 4")) == (4, "in\n", "")
    assert (await world.run("echo $0 $# $2", "name", "a", "b c")).out == "name 2 b c\n"


@pytest.mark.parametrize(
    ("stdin", "script", "out"),
    [
        (b"a  b c\n", "read x y; echo $x-$y", "a-b c\n"),
        (b"a\\ b\\\nc d\n", "read x y; echo $x-$y", "a bc-d\n"),
        (b"a\\b\n", "read -r x; printf %s $x", "a\\b"),
        (b"1,2,3\n", "IFS=, read x y; echo $x-$y", "1-2,3\n"),
        (b"last", "read x; echo $? $x", "1 last\n"),
        (b"a\nb\nc\n", "read x; cat", "b\nc\n"),
        (b"  a \n\nb", "while IFS= read -r x; do printf '[%s]' \"$x\"; done", "[  a ][]"),
    ],
)
async def test_read(world: World, stdin: bytes, script: str, out: str) -> None:
    """`read` takes one line and no byte more, and shares it out as IFS says."""
    assert (await world.run(script, stdin=stdin)).out == out


@pytest.mark.parametrize(
    ("script", "out"),
    [
        ("eval 'x=1; echo $x'; eval \"f() { echo f; }\"; f", "1\nf\n"),
        ("echo 'echo $1; y=2; return 3' >s; set -- a; . ./s; echo $? $y", "a\n3 2\n"),
        ("export A=1; sh -c 'echo $A'; unset A; sh -c 'echo [$A]'", "1\n[]\n"),
        ("cd /usr/bin; cd ..; pwd; cd - >/dev/null; pwd; echo $OLDPWD", "/usr\n/usr/bin\n/usr\n"),
        (
            "type cd if; command -v ls cd; command -v nofoo; echo $?",
            "cd is a shell builtin\nif is a shell keyword\n/usr/bin/ls\n127\n",
        ),
        ("ls() { echo mine; }; ls; command ls -d /", "mine\n/\n"),
        ("set -- a b c; shift 2; echo $1 $#; set --; echo $#", "c 1\n0\n"),
        ("while getopts ab: o -a -b x; do echo $o$OPTARG; done; echo $OPTIND", "a\nbx\n4\n"),
        ("umask; umask 27; umask -S", "0022\nu=rwx,g=rx,o=\n"),
        ("exec echo replaced; echo never", "replaced\n"),
    ],
)
async def test_builtins(world: World, script: str, out: str) -> None:
    """Builtins work on the shell itself."""
    assert (await world.run(script)).out == out


@pytest.mark.parametrize(
    ("script", "out"),
    [
        ("set -o pipefail; false | true; echo $?", "1\n"),
        ("cat <<<word; echo a &>f; cat f", "word\na\n"),
        ("cat nofile |& wc -l", "1\n"),
        ("echo $'a\\tb'; echo 'a\\nb'; echo -e 'a\\nb'", "a\tb\na\\nb\na\nb\n"),
        ("nofoo 2>&1; echo $?", "bash: line 1: nofoo: command not found\n127\n"),
        ("echo a >f; x=$(<f); echo $x", "a\n"),
    ],
)
async def test_bash(world: World, script: str, out: str) -> None:
    """Under the name `bash` it knows a little of what bash adds, and says things as bash does."""
    assert (await world.run(script, shell="bash")).out == out


async def test_a_full_disk_is_an_error_of_the_command(world: World) -> None:
    """What a builtin cannot write fails it, and not the shell."""
    done = await world.run("echo x >/dev/full; echo $?; pwd >/dev/full; echo $?")
    assert done.out == "1\n1\n"
    assert "No space left on device" in done.err
