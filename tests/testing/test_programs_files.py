"""Programs that make, move, change and list files."""

from __future__ import annotations

import shlex

import pytest

from sandboxio.testing._disk.nodes import ROOT

from .bench import USER, Bench


@pytest.fixture
def bench() -> Bench:
    """A directory `d` with `e`, `.hid` and `sub/g`; files `f` and `t`; links `l` and `dang`."""
    made = Bench()
    made.fs.mkdir("/work/d/sub", who=USER, parents=True)
    made.fs.mkdir("/work/empty", who=USER)
    for name, data in (("f", b"a\n"), ("t", b"text"), ("d/e", b""), ("d/.hid", b"h")):
        made.write(name, data)
    made.write("d/sub/g", b"deep")
    made.fs.symlink("f", "/work/l", who=USER)
    made.fs.symlink("nowhere", "/work/dang", who=USER)
    return made


def _tree(bench: Bench, path: str = "/work") -> list[str]:
    found: list[str] = []
    for name in bench.fs.listdir(path, who=ROOT):
        node = bench.fs.stat(f"{path}/{name}", who=ROOT, follow=False)
        found.append(f"{path}/{name}".removeprefix("/work/"))
        if node.kind == "directory":
            found += _tree(bench, f"{path}/{name}")
    return found


@pytest.mark.parametrize(
    ("command", "came", "went"),
    [
        ("mkdir x", "x", ""),
        ("mkdir -p x/y d", "x x/y", ""),
        ("rmdir empty", "", "empty"),
        ("rm f l", "", "f l"),
        ("rm -f nope f", "", "f"),
        ("rm -r d", "", "d d/.hid d/e d/sub d/sub/g"),
        ("rm -d empty", "", "empty"),
        ("touch x f", "x", ""),
        ("touch -c x", "", ""),
        ("mkfifo p", "p", ""),
        ("truncate -s 1T big", "big", ""),
        ("ln f x", "x", ""),
        ("ln -s nope x", "x", ""),
        ("ln -s ../f ../t d", "d/f d/t", ""),
        ("ln -sf t l", "", ""),
        ("cp f x", "x", ""),
        ("cp f t d", "d/f d/t", ""),
        ("cp -r d empty", "empty/d empty/d/.hid empty/d/e empty/d/sub empty/d/sub/g", ""),
        ("cp -r d/. empty", "empty/.hid empty/e empty/sub empty/sub/g", ""),
        ("cp -a dang x", "x", ""),
        ("mv f x", "x", "f"),
        ("mv f t d", "d/f d/t", "f t"),
        ("mv d/sub .", "sub sub/g", "d/sub d/sub/g"),
        ("mv -f f t", "", "f"),
        ("mv -n f t", "", ""),
    ],
)
def test_changes(bench: Bench, command: str, came: str, went: str) -> None:
    """A program makes and removes exactly these."""
    before = set(_tree(bench))
    assert bench.run(shlex.split(command)) == (0, b"", b"")
    after = set(_tree(bench))
    assert (after - before, before - after) == (set(came.split()), set(went.split()))


@pytest.mark.parametrize(
    ("command", "err"),
    [
        ("mkdir d", "mkdir: cannot create directory 'd': File exists"),
        ("mkdir x/y", "mkdir: cannot create directory 'x/y': No such file or directory"),
        ("mkdir /x", "mkdir: cannot create directory '/x': Permission denied"),
        ("mkdir /proc/x", "mkdir: cannot create directory '/proc/x': Read-only file system"),
        ("rmdir d", "rmdir: failed to remove 'd': Directory not empty"),
        ("rm d", "rm: cannot remove 'd': Is a directory"),
        ("rm nope", "rm: cannot remove 'nope': No such file or directory"),
        ("rm -r .", "rm: refusing to remove '.' or '..' directory: skipping '.'"),
        (
            "rm -rf /",
            "rm: it is dangerous to operate recursively on '/'\n"
            "rm: use --no-preserve-root to override this failsafe",
        ),
        ("rm -rf /etc/passwd", "rm: cannot remove '/etc/passwd': Permission denied"),
        ("touch x/y", "touch: cannot touch 'x/y': No such file or directory"),
        ("touch -d foo x", "touch: invalid date format 'foo'"),
        ("chmod 600 /etc", "chmod: changing permissions of '/etc': Operation not permitted"),
        ("chmod 600 nope", "chmod: cannot access 'nope': No such file or directory"),
        ("chown 0 f", "chown: changing ownership of 'f': Operation not permitted"),
        ("chown bob f", "chown: invalid user: 'bob'"),
        ("ln -s x f", "ln: failed to create symbolic link 'f': File exists"),
        ("ln d x", "ln: d: hard link not allowed for directory"),
        ("ln nope x", "ln: failed to access 'nope': No such file or directory"),
        ("mkfifo f", "mkfifo: cannot create fifo 'f': File exists"),
        ("stat nope", "stat: cannot statx 'nope': No such file or directory"),
        ("cp d x", "cp: -r not specified; omitting directory 'd'"),
        ("cp nope x", "cp: cannot stat 'nope': No such file or directory"),
        ("cp f f", "cp: 'f' and 'f' are the same file"),
        ("cp f x/", "cp: cannot create regular file 'x/': Not a directory"),
        ("cp f t x", "cp: target 'x': No such file or directory"),
        ("cp -r d d/x", "cp: cannot copy a directory, 'd', into itself, 'd/x'"),
        ("cp -r d f", "cp: cannot overwrite non-directory 'f' with directory 'd'"),
        ("mv nope x", "mv: cannot stat 'nope': No such file or directory"),
        ("mv f x/y", "mv: cannot move 'f' to 'x/y': No such file or directory"),
        ("mv d f", "mv: cannot overwrite non-directory 'f' with directory 'd'"),
        ("mv d d/x", "mv: cannot move 'd' to a subdirectory of itself, 'd/x'"),
    ],
)
def test_failure(bench: Bench, command: str, err: str) -> None:
    """What cannot be done is said in the words of GNU coreutils, and changes nothing."""
    before = _tree(bench)
    assert bench.run(shlex.split(command)) == (1, b"", f"{err}\n".encode())
    assert _tree(bench) == before


@pytest.mark.parametrize(
    ("command", "err"),
    [
        ("mkdir", "mkdir: missing operand"),
        ("rm -q f", "rm: invalid option -- 'q'"),
        ("cp f", "cp: missing destination file operand after 'f'"),
        ("mv", "mv: missing file operand"),
        ("chmod 9 f", "chmod: invalid mode: '9'"),
        ("chmod 644", "chmod: missing operand after '644'"),
        ("stat", "stat: missing operand"),
    ],
)
def test_misuse(bench: Bench, command: str, err: str) -> None:
    """A wrong command line is explained."""
    hint = f"Try '{command.split()[0]} --help' for more information."
    assert bench.run(shlex.split(command)) == (1, b"", f"{err}\n{hint}\n".encode())


@pytest.mark.parametrize(
    ("mode", "was", "becomes"),
    [
        ("600", 0o644, 0o600),
        ("4755", 0o644, 0o4755),
        ("u+x", 0o644, 0o744),
        ("+x", 0o644, 0o755),
        ("go-r", 0o644, 0o600),
        ("a=rw", 0o755, 0o666),
        ("u=rwx,g=u,o=", 0o644, 0o770),
        ("-x", 0o755, 0o644),
        ("a+X", 0o644, 0o644),
        ("a+X", 0o744, 0o755),
        ("u+s,g+s", 0o755, 0o6755),
        ("+t", 0o755, 0o1755),
    ],
)
def test_modes(bench: Bench, mode: str, was: int, becomes: int) -> None:
    """Octal and symbolic modes change a file as chmod does."""
    bench.fs.chmod("/work/f", was, who=USER)
    assert bench.run(["chmod", mode, "f"]) == (0, b"", b"")
    assert bench.run(["stat", "-c", "%a", "f"]).out == b"%o\n" % becomes


def test_chmod_below_a_directory(bench: Bench) -> None:
    """-R changes everything below, and no file that a link leads to."""
    bench.fs.symlink("../f", "/work/d/link", who=USER)
    assert bench.run(["chmod", "-R", "go-rwx", "d"]).code == 0
    shown = bench.run(["stat", "-c", "%a", "d", "d/e", "d/sub", "d/sub/g", "f"]).out
    assert shown.split() == [b"700", b"600", b"700", b"600", b"644"]


@pytest.mark.parametrize(
    ("command", "out"),
    [
        ("ls", "d\ndang\nempty\nf\nl\nt\n"),
        ("ls -a d", ".\n..\n.hid\ne\nsub\n"),
        ("ls -A d", ".hid\ne\nsub\n"),
        ("ls -d d .", ".\nd\n"),
        ("ls -R d", "d:\ne\nsub\n\nd/sub:\ng\n"),
        ("ls f d", "f\n\nd:\ne\nsub\n"),
        ("ls -F", "d/\ndang@\nempty/\nf\nl@\nt\n"),
        ("ls -l f", "-rw-r--r-- 1 sandbox sandbox 2 Jan  1 00:00 f\n"),
        ("ls -ln l", "lrwxrwxrwx 1 10001 10001 1 Jan  1 00:00 l -> f\n"),
        (
            "ls -l d",
            "total 4\n-rw-r--r-- 1 sandbox sandbox    0 Jan  1 00:00 e\n"
            "drwxr-xr-x 2 sandbox sandbox 4096 Jan  1 00:00 sub\n",
        ),
        ("stat -c '%a %s %u %g %U %n %F %h' f d", "644 2 10001 10001 sandbox f regular file 1\n"
         "755 4096 10001 10001 sandbox d directory 3\n"),
        ("stat -c '%f %Y %s %n' f", "81a4 1767225600 2 f\n"),
        ("stat -c %N l", "'l' -> 'f'\n"),
        ("stat -L -c %F l", "regular file\n"),
        ("readlink l", "f\n"),
        ("readlink -f l d/../dang", "/work/f\n/work/nowhere\n"),
        ("basename /a/b.txt .txt", "b\n"),
        ("basename -a /a/ b/c", "a\nc\n"),
        ("dirname /a/b c /", "/a\n.\n/\n"),
    ],
)  # fmt: skip
def test_shown(bench: Bench, command: str, out: str) -> None:
    """Files are shown as by the real programs."""
    assert bench.run(shlex.split(command)) == (0, out.encode(), b"")


@pytest.mark.parametrize(
    ("command", "code"), [("ls nope f", 2), ("ls --foo", 2), ("ls /root", 2), ("readlink f", 1)]
)
def test_listing_failure(bench: Bench, command: str, code: int) -> None:
    """ls exits 2 where something could not be shown; readlink is silent."""
    outcome = bench.run(command.split())
    assert (outcome.code, bool(outcome.err)) == (code, code == 2)


def test_directory_that_cannot_be_entered(bench: Bench) -> None:
    """Names need only the right to read; what is below needs the right to enter."""
    bench.fs.chmod("/work/d", 0o444, who=USER)
    assert bench.run(["ls", "d"]).out == b"e\nsub\n"
    refused = bench.run(["chmod", "-R", "444", "d/e", "d"]).err.decode().splitlines()
    assert refused[0] == "chmod: cannot access 'd/e': Permission denied"


def test_times(bench: Bench) -> None:
    """touch sets the time it is given."""
    bench.run(["touch", "-d", "@60", "f"])
    bench.run(["cp", "-p", "f", "copy"])
    assert bench.run(["stat", "-c", "%Y", "f", "copy"]).out == b"60\n60\n"
    assert bench.run(["ls", "-l", "f"]).out.endswith(b"Jan  1  1970 f\n")


def test_copy_keeps_the_mode_within_the_umask(bench: Bench) -> None:
    """A copy has the mode of its original, without what the umask takes."""
    bench.fs.chmod("/work/f", 0o777, who=USER)
    bench.run(["cp", "f", "x"])
    assert bench.run(["stat", "-c", "%a", "x"]).out == b"755\n"


def test_root_may_change_owners(bench: Bench) -> None:
    """chown knows the names of the sandbox."""
    bench.who = ROOT
    assert bench.run(["chown", "root:sandbox", "f"]) == (0, b"", b"")
    assert bench.run(["stat", "-c", "%u:%g", "f"]).out == b"0:10001\n"
