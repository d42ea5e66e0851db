"""The file system of the fake: what Linux does, in memory."""

from __future__ import annotations

import errno
import unicodedata
from typing import TYPE_CHECKING, Any

import pytest

from sandboxio.testing._disk.fs import (
    ROOT,
    Directory,
    FileSystem,
    Link,
    Special,
    VirtualDirectory,
    VirtualFile,
    Who,
)

if TYPE_CHECKING:
    from collections.abc import Callable

ALICE, BOB = Who(10001, 10001), Who(10002, 10002)
NFC, NFD = (unicodedata.normalize(form, "é") for form in ("NFC", "NFD"))


class Clock:
    """A time that only moves when it is told to."""

    def __init__(self) -> None:
        self.time = 100.0

    def __call__(self) -> float:
        return self.time


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def fs(clock: Clock) -> FileSystem:
    """A root with Alice's `/work`, a sticky `/tmp`, `/etc/passwd` and a private `/root`."""
    made = FileSystem(now=clock, capacity=1000)
    made.populate("/work", mode=0o755, uid=10001, gid=10001)
    made.populate("/tmp", mode=0o1777)
    made.populate("/root", mode=0o700)
    made.populate("/etc/passwd", b"root\n", mode=0o644)
    return made


def write(fs: FileSystem, path: str, data: bytes = b"data", who: Who = ALICE, **how: Any) -> None:
    how = {"create": True, "truncate": True, **how}
    with fs.open(path, cwd="/work", who=who, write=True, **how) as handle:
        handle.write(data)


def read(fs: FileSystem, path: str, who: Who = ALICE) -> bytes:
    return fs.read(path, cwd="/work", who=who)


def code(act: Callable[..., object], *args: Any, who: Who = ALICE, **how: Any) -> str:
    """Return the name of the error that a call raises."""
    with pytest.raises(OSError, match=r"^\[Errno") as caught:
        act(*args, cwd="/work", who=who, **how)
    assert caught.value.errno is not None
    return errno.errorcode[caught.value.errno]


def names(fs: FileSystem, path: str = "/work") -> list[str]:
    return fs.listdir(path, who=ROOT)


def test_errors_speak_as_linux_does(fs: FileSystem) -> None:
    """An error is the builtin class of its number, with Linux's words and the path as given."""
    with pytest.raises(FileNotFoundError) as caught:
        fs.resolve("a/b", cwd="/work", who=ALICE)
    assert str(caught.value) == f"[Errno {errno.ENOENT}] No such file or directory: 'a/b'"
    with pytest.raises(PermissionError, match="Permission denied"):
        fs.listdir("/root", who=ALICE)
    with pytest.raises(NotADirectoryError, match="Not a directory"):
        fs.listdir("/etc/passwd", who=ALICE)


def test_content_makes_a_round_trip(fs: FileSystem) -> None:
    """A file is what was written to it; ranges end at its end."""
    write(fs, "f", b"0123456789")
    assert read(fs, "f") == b"0123456789"
    assert fs.read("/work/f", 3, 4, who=ALICE) == b"3456"
    assert fs.read("/work/f", 8, 99, who=ALICE) == b"89"
    assert fs.read("/work/f", 99, who=ALICE) == b""
    assert fs.stat("/work/f", who=ALICE).size == 10


@pytest.mark.parametrize(
    "name", ["a b", "a\nb", "-n", "*", "back\\slash", NFC, NFD, "bad\udcffname", "n" * 255]
)
def test_any_name_is_kept_exactly(fs: FileSystem, name: str) -> None:
    """Names are bytes to the file system: none is changed or refused."""
    write(fs, name)
    assert names(fs) == [name]
    assert read(fs, name) == b"data"
    fs.unlink(name, cwd="/work", who=ALICE)
    assert names(fs) == []


def test_two_forms_of_one_letter_are_two_files(fs: FileSystem) -> None:
    """Nothing is normalized; listings are sorted by bytes."""
    for name in (NFC, NFD, "z", "\udcff", "\U0001f600"):
        write(fs, name, name.encode("utf-8", "surrogateescape"))
    assert names(fs) == [NFD, "z", NFC, "\U0001f600", "\udcff"]
    assert read(fs, NFC) != read(fs, NFD)


def test_limits_of_names_and_paths(fs: FileSystem) -> None:
    """A name has 255 bytes and a path 4095, counted in UTF-8."""
    assert code(fs.mkdir, "n" * 256) == "ENAMETOOLONG"
    assert code(fs.mkdir, "é" * 128) == "ENAMETOOLONG"
    assert code(fs.resolve, "./" * 2048) == "ENAMETOOLONG"
    assert fs.resolve("./" * 2047 + ".", cwd="/work", who=ALICE).kind == "directory"
    assert code(fs.resolve, "") == "ENOENT"


def test_dots_follow_real_directories(fs: FileSystem) -> None:
    """`..` of a link's target is that target's parent, and stays at the root above it."""
    fs.mkdir("a/b", cwd="/work", who=ALICE, parents=True)
    fs.symlink("/work/a/b", "/work/l", who=ALICE)
    assert fs.realpath("l/..", cwd="/work", who=ALICE) == "/work/a"
    assert fs.realpath("l/../../l/.", cwd="/work", who=ALICE) == "/work/a/b"
    assert fs.realpath("../../../..", cwd="/work", who=ALICE) == "/"
    assert code(fs.resolve, "missing/..") == "ENOENT"
    assert code(fs.resolve, "/etc/passwd/..") == "ENOTDIR"


def test_a_trailing_slash_wants_a_directory(fs: FileSystem) -> None:
    """A slash follows a link, and refuses a file; a new file cannot have one."""
    fs.mkdir("/work/d/", who=ALICE)
    fs.symlink("d", "/work/l", who=ALICE)
    write(fs, "f")
    assert fs.resolve("l/", cwd="/work", who=ALICE, follow=False).kind == "directory"
    assert fs.resolve("l", cwd="/work", who=ALICE, follow=False).kind == "link"
    assert code(fs.resolve, "f/") == "ENOTDIR"
    assert code(fs.open, "new/", write=True, create=True) == "EISDIR"
    assert code(fs.symlink, "f", "new/") == "ENOENT"
    assert code(fs.unlink, "l/") == code(fs.rmdir, "l/") == "ENOTDIR"


def test_links_lead_on(fs: FileSystem) -> None:
    """Relative targets begin where the link is; a link is read, renamed and removed itself."""
    fs.mkdir("/work/d", who=ALICE)
    write(fs, "f", b"target")
    fs.symlink("../f", "/work/d/l", who=ALICE)
    assert read(fs, "d/l") == b"target"
    assert fs.readlink("d/l", cwd="/work", who=ALICE) == "../f"
    fs.unlink("/work/d/l", who=ALICE)
    assert read(fs, "f") == b"target"
    assert code(fs.readlink, "f") == "EINVAL"
    assert code(fs.symlink, "", "e") == "ENOENT"


def test_forty_links_are_followed(fs: FileSystem) -> None:
    """One more, or a circle, is an error; the links can still be described."""
    write(fs, "l0")
    for number in range(1, 42):
        fs.symlink(f"l{number - 1}", f"/work/l{number}", who=ALICE)
    assert read(fs, "l40") == b"data"
    assert code(fs.read, "l41") == "ELOOP"
    fs.symlink("circle", "/work/circle", who=ALICE)
    assert code(fs.resolve, "circle/x") == "ELOOP"
    assert fs.stat("/work/circle", who=ALICE, follow=False).size == 6


def test_a_dangling_link_makes_its_target(fs: FileSystem) -> None:
    """Creating follows it; creating exclusively refuses it, and so does `mkdir`."""
    fs.symlink("made", "/work/l", who=ALICE)
    assert not fs.exists("l", cwd="/work", who=ALICE)
    assert code(fs.mkdir, "l") == "EEXIST"
    assert code(fs.open, "l", write=True, create=True, exclusive=True) == "EEXIST"
    write(fs, "l")
    assert names(fs) == ["l", "made"]


def test_permission_bits(fs: FileSystem) -> None:
    """Owner, group and others each have their own bits; the owner is held to the owner's."""
    write(fs, "f")
    fs.chmod("/work/f", 0o047, who=ALICE)
    assert code(fs.read, "f", who=ALICE) == "EACCES"
    assert read(fs, "f", Who(10002, 10001)) == b"data"
    assert code(fs.open, "f", write=True, who=Who(10002, 10001)) == "EACCES"
    write(fs, "f", b"bob", BOB)
    assert read(fs, "f", BOB) == b"bob"
    assert read(fs, "f", ROOT) == b"bob"


def test_every_directory_on_the_way_must_be_open(fs: FileSystem) -> None:
    """Without `x` nothing below is reached, without `r` nothing is listed, without `w` made."""
    fs.mkdir("/work/d/e", who=ALICE, parents=True)
    fs.chmod("/work/d", 0o600, who=ALICE)
    assert code(fs.resolve, "d/e") == "EACCES"
    assert fs.listdir("/work/d", who=ALICE) == ["e"]
    fs.chmod("/work/d", 0o300, who=ALICE)
    assert code(fs.listdir, "d") == "EACCES"
    assert fs.exists("/work/d/e", who=ALICE)
    fs.chmod("/work/d", 0o500, who=ALICE)
    assert code(fs.mkdir, "d/new") == code(fs.rmdir, "d/e") == "EACCES"


def test_the_way_to_the_working_directory_is_no_question(fs: FileSystem) -> None:
    """Whoever is in a directory stays there when one above it is closed."""
    fs.mkdir("/work/d/e", who=ALICE, parents=True)
    fs.chmod("/work/d", 0, who=ALICE)
    write_to = fs.open("f", cwd="/work/d/e", who=ALICE, write=True, create=True)
    write_to.close()
    assert code(fs.resolve, "/work/d/e/f") == "EACCES"
    with pytest.raises(FileNotFoundError):
        fs.resolve("x", cwd="/gone", who=ALICE)


def test_root_is_held_to_execute_bits_alone(fs: FileSystem) -> None:
    """uid 0 reads, writes and searches anything; running a file takes one `x`."""
    write(fs, "f")
    fs.chmod("/work/f", 0, who=ALICE)
    assert fs.access("/work/f", who=ROOT, read=True, write=True)
    assert not fs.access("/work/f", who=ROOT, execute=True)
    fs.chmod("/work/f", 0o010, who=ROOT)
    assert fs.access("/work/f", who=ROOT, execute=True)
    assert not fs.access("/work/f", who=ALICE, execute=True)
    assert not fs.access("/work/missing", who=ROOT)


def test_the_sticky_bit(fs: FileSystem) -> None:
    """In `/tmp` everybody makes files, and removes or renames only their own."""
    write(fs, "/tmp/f", who=ALICE)
    write(fs, "/tmp/g", who=BOB)
    assert code(fs.unlink, "/tmp/f", who=BOB) == "EPERM"
    assert code(fs.rename, "/tmp/f", "/tmp/h", who=BOB) == "EPERM"
    assert code(fs.rename, "/tmp/g", "/tmp/f", who=BOB) == "EPERM"
    fs.unlink("/tmp/f", who=ALICE)
    fs.unlink("/tmp/g", who=ROOT)


def test_only_owners_change_modes(fs: FileSystem) -> None:
    """`chmod` and `utime` are the owner's and root's; a link has no mode of its own."""
    write(fs, "f")
    fs.symlink("f", "/work/l", who=ALICE)
    assert code(fs.chmod, "f", 0o777, who=BOB) == "EPERM"
    assert code(fs.utime, "f", 5.0, who=BOB) == "EPERM"
    with pytest.raises(OSError, match="Operation not supported"):
        fs.chmod("/work/l", 0o600, who=ALICE, follow=False)
    fs.chmod("/work/l", 0o600, who=ALICE)
    fs.utime("/work/f", 5.0, who=ROOT)
    node = fs.stat("/work/f", who=ALICE)
    assert (node.mode, node.mtime) == (0o600, 5.0)


def test_only_root_gives_files_away(fs: FileSystem) -> None:
    """Owners may choose their own group; -1 leaves what is; setuid is lost."""
    write(fs, "f")
    fs.chmod("/work/f", 0o4755, who=ALICE)
    assert code(fs.chown, "f", 10002, -1) == "EPERM"
    assert code(fs.chown, "f", -1, 10002) == "EPERM"
    fs.chown("/work/f", -1, 10001, who=ALICE)
    fs.chown("/work/f", 10002, -1, who=ROOT)
    node = fs.stat("/work/f", who=ALICE)
    assert (node.uid, node.gid, node.mode) == (10002, 10001, 0o755)


def test_umask_and_owner_of_what_is_made(fs: FileSystem) -> None:
    """New entries belong to whoever made them, less the bits of the umask."""
    write(fs, "f", umask=0o077)
    fs.mkdir("/work/d", who=ALICE, umask=0o027)
    fs.mkfifo("/work/p", who=ALICE, umask=0)
    modes = [fs.stat(f"/work/{name}", who=ALICE).mode for name in ("f", "d", "p")]
    assert modes == [0o600, 0o750, 0o666]
    node = fs.stat("/work/f", who=ALICE)
    assert (node.uid, node.gid) == ALICE


def test_a_setgid_directory_hands_its_group_on(fs: FileSystem) -> None:
    """What is made in it has its group, directories its bit too."""
    fs.populate("/shared", mode=0o2777, gid=7)
    fs.mkdir("/shared/d", who=ALICE)
    node = fs.stat("/shared/d", who=ALICE)
    assert (node.uid, node.gid, node.mode) == (10001, 7, 0o2755)


def test_hard_links_are_one_file(fs: FileSystem) -> None:
    """Both names lead to the same node, which goes with the last of them."""
    write(fs, "a", b"12345")
    fs.link("a", "b", cwd="/work", who=ALICE)
    write(fs, "b", b"new")
    node = fs.stat("/work/a", who=ALICE)
    assert node is fs.stat("/work/b", who=ALICE)
    assert (read(fs, "a"), node.nlink) == (b"new", 2)
    fs.unlink("/work/a", who=ALICE)
    assert (read(fs, "b"), node.nlink) == (b"new", 1)


def test_what_cannot_be_linked(fs: FileSystem) -> None:
    """Directories never; what exists is not replaced; others' files only when writable."""
    fs.mkdir("/work/d", who=ALICE)
    write(fs, "f")
    assert code(fs.link, "d", "e") == "EPERM"
    assert code(fs.link, "f", "d") == "EEXIST"
    assert code(fs.link, "/etc/passwd", "p") == "EPERM"
    fs.symlink("nowhere", "/work/l", who=ALICE)
    fs.link("l", "m", cwd="/work", who=ALICE)
    assert fs.readlink("/work/m", who=ALICE) == "nowhere"


def test_an_open_file_outlives_its_name(fs: FileSystem) -> None:
    """Unlinked, it is read and written on; its room comes back when it is closed."""
    write(fs, "f", b"12345")
    before = fs.used
    with fs.open("/work/f", who=ALICE, read=True, write=True) as handle:
        fs.unlink("/work/f", who=ALICE)
        assert handle.read(3) == b"123"
        handle.write(b"67890")
        assert (handle.node.size, handle.node.nlink, fs.used) == (8, 0, before + 3)
    assert fs.used == before - 5


def test_positions_of_an_open_file(fs: FileSystem) -> None:
    """Reads and writes go on where the last ended; a gap reads as zeros."""
    with fs.open("/work/f", who=ALICE, read=True, write=True, create=True) as handle:
        assert handle.write(b"abc") == 3
        handle.seek(5)
        handle.write(b"xyz")
        handle.seek(1)
        assert handle.read(99) == b"bc\0\0xyz"
        assert handle.read(1) == b""
        with pytest.raises(OSError, match="Invalid argument"):
            handle.seek(-1)


def test_appending_goes_to_the_end(fs: FileSystem) -> None:
    """Two writers that append never overwrite each other."""
    write(fs, "f", b"0")
    one = fs.open("/work/f", who=ALICE, append=True)
    two = fs.open("/work/f", who=ALICE, append=True)
    for handle, data in ((one, b"a"), (two, b"b"), (one, b"c")):
        handle.write(data)
    assert read(fs, "f") == b"0abc"


def test_a_handle_does_what_it_was_opened_for(fs: FileSystem) -> None:
    """Other uses, and any use once it is closed, are a bad descriptor."""
    write(fs, "f")
    handle = fs.open("/work/f", who=ALICE, read=True)
    with pytest.raises(OSError, match="Bad file descriptor"):
        handle.write(b"x")
    handle.close()
    handle.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        handle.read(1)


def test_rights_count_when_a_file_is_opened(fs: FileSystem) -> None:
    """What is open stays so when its mode changes, and a new file is open whatever its mode."""
    with fs.open("/work/f", who=ALICE, read=True, write=True, create=True, mode=0) as handle:
        handle.write(b"x")
        handle.seek(0)
        assert handle.read(1) == b"x"
    assert code(fs.read, "f") == "EACCES"


def test_truncating(fs: FileSystem) -> None:
    """A file is cut, or lengthened by zeros, which take no room."""
    write(fs, "f", b"12345")
    before = fs.used
    with fs.open("/work/f", who=ALICE, write=True) as handle:
        handle.truncate(2)
        handle.truncate(4)
    assert (read(fs, "f"), fs.used) == (b"12\0\0", before - 3)
    with fs.open("/work/huge", who=ALICE, write=True, create=True) as handle:
        handle.truncate(10**12)
    assert fs.stat("/work/huge", who=ALICE).size == 10**12
    assert fs.read("/work/huge", 10**11, 3, who=ALICE) == b"\0\0\0"
    assert code(fs.read, "huge") == "EFBIG"


def test_writing_takes_setuid_away(fs: FileSystem) -> None:
    """A changed program no longer runs as its owner, unless root changed it."""
    write(fs, "f")
    fs.chmod("/work/f", 0o4755, who=ALICE)
    write(fs, "f", b"by root", ROOT)
    assert fs.stat("/work/f", who=ALICE).mode == 0o4755
    write(fs, "f", b"by owner")
    assert fs.stat("/work/f", who=ALICE).mode == 0o755


def test_a_full_disk_keeps_what_fits(fs: FileSystem) -> None:
    """A write beyond the capacity stores its beginning and raises; removing makes room."""
    free = fs.room
    with fs.open("/work/f", who=ALICE, write=True, create=True) as handle:
        handle.write(b"x" * (free - 10))
        with pytest.raises(OSError, match="No space left on device") as caught:
            handle.write(b"y" * 11)
        assert caught.value.errno == errno.ENOSPC
        handle.seek(0)
        handle.write(b"overwriting needs no room")
    assert (fs.stat("/work/f", who=ALICE).size, fs.used, fs.room) == (free, 1000, 0)
    fs.unlink("/work/f", who=ALICE)
    assert fs.room == free


def test_room_is_kept_account_of(fs: FileSystem) -> None:
    """Truncating, replacing by rename and removing a tree give room back; links take none."""
    before = fs.used
    fs.mkdir("/work/d", who=ALICE)
    write(fs, "d/a", b"x" * 100)
    write(fs, "d/b", b"x" * 50)
    fs.symlink("a", "/work/d/l", who=ALICE)
    write(fs, "d/a", b"x" * 20)
    assert fs.used == before + 70
    fs.rename("/work/d/a", "/work/d/b", who=ALICE)
    assert fs.used == before + 20
    fs.remove_tree("/work/d", who=ALICE)
    assert fs.used == before


def test_times_of_changes(fs: FileSystem, clock: Clock) -> None:
    """A file's time is that of its content, a directory's that of its entries."""

    def times() -> tuple[float, float]:
        return fs.stat("/work/f", who=ROOT).mtime, fs.stat("/work", who=ROOT).mtime

    clock.time = 200.0
    write(fs, "f")
    clock.time = 300.0
    write(fs, "f", b"again")
    assert times() == (300.0, 200.0)
    clock.time = 400.0
    fs.rename("/work/f", "/work/g", who=ALICE)
    fs.link("/work/g", "/work/f", who=ALICE)
    assert times() == (300.0, 400.0)


def test_touch_makes_or_renews(fs: FileSystem, clock: Clock) -> None:
    """Owners and whoever may write a file set its time to now; a directory too."""
    fs.touch("/work/f", who=ALICE)
    clock.time = 500.0
    fs.touch("/work/f", who=ALICE)
    fs.touch("/work", who=ALICE)
    assert fs.stat("/work/f", who=ALICE).mtime == fs.stat("/work", who=ALICE).mtime == 500.0
    assert code(fs.touch, "/etc/passwd") == "EACCES"
    assert code(fs.touch, "/etc/new") == "EACCES"


def test_renaming_a_file(fs: FileSystem) -> None:
    """It replaces a file, never a directory; two names of one file both stay."""
    write(fs, "a", b"a")
    write(fs, "b", b"b")
    fs.mkdir("/work/d", who=ALICE)
    fs.rename("a", "b", cwd="/work", who=ALICE)
    assert (names(fs), read(fs, "b")) == (["b", "d"], b"a")
    assert code(fs.rename, "b", "d") == "EISDIR"
    assert code(fs.rename, "b", "new/") == "ENOTDIR"
    assert code(fs.rename, "a", "b") == "ENOENT"
    fs.link("/work/b", "/work/c", who=ALICE)
    fs.rename("/work/b", "/work/c", who=ALICE)
    assert names(fs) == ["b", "c", "d"]


def test_renaming_a_directory(fs: FileSystem) -> None:
    """It replaces an empty one, never a full one or a file, and moves into no part of itself."""
    fs.mkdir("/work/a/b", who=ALICE, parents=True)
    fs.mkdir("/work/e", who=ALICE)
    write(fs, "f")
    assert code(fs.rename, "a", "f") == "ENOTDIR"
    assert code(fs.rename, "e", "a") == "ENOTEMPTY"
    assert code(fs.rename, "a", "a/b/c") == "EINVAL"
    assert code(fs.rename, "a/b", "a") == "ENOTEMPTY"
    assert code(fs.rename, "a", ".") == code(fs.rename, "/", "x") == "EBUSY"
    fs.rename("/work/a", "/work/e/", who=ALICE)
    assert (names(fs), names(fs, "/work/e")) == (["e", "f"], ["b"])


def test_links_count_directories(fs: FileSystem) -> None:
    """A directory has two names and one more for each directory in it."""
    fs.mkdir("/work/a/b", who=ALICE, parents=True)
    fs.mkdir("/work/c", who=ALICE)
    fs.rename("/work/a/b", "/work/c/b", who=ALICE)
    counts = [fs.stat(f"/work/{name}", who=ALICE).nlink for name in ("", "a", "c", "c/b")]
    assert counts == [4, 2, 3, 2]


@pytest.mark.parametrize(
    ("path", "parents", "expected"),
    [
        ("f", False, "EEXIST"),
        ("f", True, "EEXIST"),
        ("f/new", True, "ENOTDIR"),
        ("missing/new", False, "ENOENT"),
        ("dangling/new", True, "EEXIST"),
        ("loop/new", True, "ELOOP"),
        ("d", False, "EEXIST"),
        ("/etc/a/b", True, "EACCES"),
        ("/", False, "EEXIST"),
    ],
)
def test_what_cannot_be_made(fs: FileSystem, path: str, parents: bool, expected: str) -> None:
    """Each obstacle to a directory has the error that `mkdir` shows."""
    write(fs, "f")
    fs.mkdir("/work/d", who=ALICE)
    fs.symlink("nowhere", "/work/dangling", who=ALICE)
    fs.symlink("loop", "/work/loop", who=ALICE)
    assert code(fs.mkdir, path, parents=parents) == expected


def test_making_parents(fs: FileSystem) -> None:
    """All on the way are made, what exists is accepted, and only the last has the mode."""
    fs.mkdir("a//b/../c/", 0o700, cwd="/work", who=ALICE, parents=True)
    fs.mkdir("a/c", cwd="/work", who=ALICE, parents=True)
    assert names(fs, "/work/a") == ["b", "c"]
    assert fs.stat("/work/a", who=ALICE).mode == 0o755
    assert fs.stat("/work/a/c", who=ALICE).mode == 0o700


def test_what_cannot_be_removed(fs: FileSystem) -> None:
    """Directories are not unlinked, files are no directories, and dots are neither."""
    fs.mkdir("/work/d/e", who=ALICE, parents=True)
    write(fs, "f")
    assert code(fs.unlink, "d") == code(fs.unlink, ".") == "EISDIR"
    assert code(fs.rmdir, "f") == "ENOTDIR"
    assert code(fs.rmdir, "d") == code(fs.rmdir, "d/..") == "ENOTEMPTY"
    assert code(fs.rmdir, "d/.") == "EINVAL"
    assert code(fs.rmdir, "/") == "EBUSY"
    assert code(fs.unlink, "missing") == "ENOENT"


def test_removing_a_tree_follows_no_link(fs: FileSystem) -> None:
    """Links in it are removed themselves; `/`, `.` and `..` are refused."""
    write(fs, "kept")
    fs.mkdir("/work/d/e", who=ALICE, parents=True)
    fs.symlink("/work", "/work/d/e/l", who=ALICE)
    fs.symlink("d", "/work/to-d", who=ALICE)
    assert code(fs.remove_tree, "to-d/") == "ENOTDIR"
    fs.remove_tree("/work/to-d", who=ALICE)
    assert names(fs, "/work/d") == ["e"]
    fs.remove_tree("/work/d/", who=ALICE)
    assert names(fs) == ["kept"]
    assert {code(fs.remove_tree, path) for path in ("/", ".", "..", "/work/..")} == {"EINVAL"}


def test_removing_a_tree_goes_on_after_an_obstacle(fs: FileSystem) -> None:
    """What can be removed is, and each obstacle is told once, by its own path."""
    for name in ("a", "b", "c"):
        fs.mkdir(f"/work/d/{name}/x", who=ALICE, parents=True)
    fs.chmod("/work/d/b", 0o555, who=ALICE)
    fs.chmod("/work/d/c", 0, who=ALICE)
    told: list[OSError] = []
    fs.remove_tree("d", cwd="/work", who=ALICE, on_error=told.append)
    assert [(error.filename, error.errno) for error in told] == [
        ("d/b/x", errno.EACCES),
        ("d/c", errno.EACCES),
    ]
    assert names(fs, "/work/d") == ["b", "c"]
    with pytest.raises(PermissionError):
        fs.remove_tree("/work/d", who=ALICE)


def test_a_deep_tree_is_removed(fs: FileSystem) -> None:
    """A tree may be deeper than Python's stack."""
    fs.mkdir("/work/" + "d/" * 2000, who=ALICE, parents=True)
    fs.remove_tree("/work/d", who=ALICE)
    assert names(fs) == []


@pytest.mark.parametrize("who", [ALICE, ROOT])
def test_a_read_only_place(fs: FileSystem, who: Who) -> None:
    """Everything below is refused to everybody, with its own error; reading goes on."""
    fs.populate("/ro/f", b"x", mode=0o666)
    fs.populate("/ro/d", mode=0o777)
    fs.mount_read_only("/ro")
    assert code(fs.open, "/ro/f", write=True, who=who) == "EROFS"
    assert code(fs.open, "/ro/new", write=True, create=True, who=who) == "EROFS"
    assert code(fs.mkdir, "/ro/d/new", who=who) == code(fs.unlink, "/ro/f", who=who) == "EROFS"
    assert code(fs.rename, "/ro/f", "/tmp/f", who=who) == "EROFS"
    assert code(fs.chmod, "/ro", 0o700, who=who) == code(fs.touch, "/ro/f", who=who) == "EROFS"
    assert code(fs.remove_tree, "/ro/d", who=who) == "EROFS"
    assert fs.read("/ro/f", who=who) == b"x"
    assert not fs.access("/ro/f", who=who, write=True)


def test_a_read_only_place_stays_where_it_is(fs: FileSystem) -> None:
    """What is mounted is busy, and a link into it changes nothing about it."""
    fs.populate("/work/ro/f", b"x", mode=0o666, uid=10001)
    fs.mount_read_only("/work/ro")
    fs.symlink("ro", "/work/l", who=ALICE)
    assert code(fs.open, "l/f", append=True, who=ROOT) == "EROFS"
    assert code(fs.rename, "ro", "rw", who=ROOT) == "EBUSY"
    assert code(fs.rmdir, "ro", who=ROOT) == "EBUSY"


def test_devices(fs: FileSystem) -> None:
    """`/dev/null` is empty, `/dev/zero` endless, `/dev/full` full, and none takes room."""
    for device in ("null", "zero", "full"):
        fs.attach(f"/dev/{device}", Special(mode=0o666, device=device))
    before = fs.used
    write(fs, "/dev/null", b"gone")
    write(fs, "/dev/zero", b"gone")
    assert code(write_device, fs) == "ENOSPC"
    assert fs.read("/dev/null", who=ALICE) == b""
    assert fs.read("/dev/zero", length=3, who=ALICE) == b"\0\0\0"
    assert code(fs.read, "/dev/zero") == "EINVAL"
    assert (fs.used, fs.stat("/dev/null", who=ALICE).kind) == (before, "other")


def write_device(fs: FileSystem, *, cwd: str, who: Who) -> None:
    with fs.open("/dev/full", cwd=cwd, who=who, write=True) as handle:
        handle.write(b"")
        handle.write(b"x")


def test_nobody_is_at_the_other_end(fs: FileSystem) -> None:
    """A FIFO and a device without a behaviour refuse at once, where a real one would wait."""
    fs.mkfifo("/work/p", who=ALICE)
    fs.attach("/dev/tty", Special(mode=0o666))
    for path in ("/work/p", "/dev/tty"):
        assert code(fs.read, path) == code(fs.open, path, write=True) == "ENXIO"
    assert code(fs.open, "/work/p", read=True, who=BOB) == "ENXIO"
    assert code(fs.mkfifo, "p") == "EEXIST"


def test_virtual_files_are_computed(fs: FileSystem) -> None:
    """Content and entries are those of the moment, under any name; changes are refused."""
    running = {"1": VirtualDirectory(content=lambda: {"stat": VirtualFile(content=seen)})}
    calls: list[int] = []

    def seen() -> bytes:
        calls.append(1)
        return b"%d" % len(calls)

    fs.attach("/proc", VirtualDirectory(content=lambda: {**running, "self": Link(target="1")}))
    assert fs.listdir("/proc", who=ALICE) == ["1", "self"]
    assert [fs.read("/proc/self/stat", who=ALICE) for _ in range(2)] == [b"1", b"2"]
    assert fs.realpath("/proc/self/..", who=ALICE) == "/proc"
    running.clear()
    assert code(fs.read, "/proc/self/stat") == code(fs.mkdir, "/proc/x", who=ROOT) == "ENOENT"


@pytest.mark.parametrize("who", [ALICE, ROOT])
def test_virtual_files_stay_as_they_are(fs: FileSystem, who: Who) -> None:
    """Nobody writes, removes or gives away what is computed."""
    file = VirtualFile(content=lambda: b"5.0 5.0\n")
    fs.attach("/proc", VirtualDirectory(content=lambda: {"uptime": file}))
    assert code(fs.open, "/proc/uptime", write=True, who=who) == "EACCES"
    assert code(fs.chmod, "/proc/uptime", 0o777, who=who) == "EPERM"
    assert code(fs.unlink, "/proc/uptime", who=ROOT) == "EPERM"
    assert fs.stat("/proc/uptime", who=who).size == 0


def test_directories_have_no_content(fs: FileSystem) -> None:
    """They are neither read nor written as files."""
    assert code(fs.read, "/work") == "EISDIR"
    assert code(fs.open, "/work", write=True) == "EISDIR"
    assert code(fs.open, "/work", read=True, create=True) == "EISDIR"


def test_an_image_is_built_without_rights(fs: FileSystem) -> None:
    """`populate` makes parents, replaces files and re-owns directories; `attach` any node."""
    fs.populate("/usr/bin/tool", b"#!", mode=0o755)
    fs.attach("/bin", Link(target="usr/bin"))
    fs.populate("/bin/tool", b"#!/bin/sh", mode=0o755)
    assert fs.read("/usr/bin/tool", who=ALICE) == b"#!/bin/sh"
    assert fs.stat("/usr", who=ALICE).mode == 0o755
    fs.populate("/work", mode=0o700, uid=10002, gid=10002)
    assert code(fs.listdir, "/work") == "EACCES"
    with pytest.raises(OSError, match="busy"):
        fs.attach("/", Directory(mode=0o755))
    inodes = {fs.stat(path, who=ROOT).ino for path in ("/", "/usr", "/usr/bin", "/bin/tool")}
    assert len(inodes) == 4


@pytest.fixture
def tree(fs: FileSystem) -> FileSystem:
    """Names for patterns, in `/work`."""
    for name in ("a", "b", "c.txt", "B", ".hidden", "d/x.txt", "d/.y", "e/x.txt", "[a]", "a*", "1"):
        fs.populate(f"/work/{name}", b"", mode=0o644)
    for name in (NFC, "\udcff", "a\nb"):
        fs.populate(f"/work/d/{name}", b"", mode=0o644)
    fs.attach("/work/l", Link(target="nowhere"))
    return fs


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*", ["1", "B", "[a]", "a", "a*", "b", "c.txt", "d", "e", "l"]),
        ("?", ["1", "B", "a", "b", "d", "e", "l"]),
        (".*", [".", "..", ".hidden"]),
        ("\\.h*", [".hidden"]),
        ("[.]*", []),
        ("[ab]", ["a", "b"]),
        ("[!a-c]", ["1", "B", "d", "e", "l"]),
        ("[[:upper:]1]", ["1", "B"]),
        ("[b-a]", []),
        ("[[]a]", ["[a]"]),
        ("\\[*", ["[a]"]),
        ("a\\*", ["a*"]),
        ("a[\\*]", ["a*"]),
        ("[a", []),
        ("*.txt", ["c.txt"]),
        ("*/x.txt", ["d/x.txt", "e/x.txt"]),
        ("./*/", ["./d/", "./e/"]),
        ("/work//[de]/x*", ["/work//d/x.txt", "/work//e/x.txt"]),
        ("../w*/c*", ["../work/c.txt"]),
        ("d/?", ["d/" + NFC, "d/\udcff"]),
        ("d/a?b", ["d/a\nb"]),
        ("nothing*", []),
        ("missing/*", []),
        ("c.txt/*", []),
        ("*/missing", []),
        ("", []),
    ],
)
def test_patterns(tree: FileSystem, pattern: str, expected: list[str]) -> None:
    """A pattern matches what it would in `sh`, sorted by bytes."""
    assert tree.glob(pattern, cwd="/work", who=ALICE) == expected


def test_patterns_see_what_the_user_sees(tree: FileSystem) -> None:
    """A directory that cannot be listed matches nothing."""
    tree.chmod("/work/d", 0o711, who=ROOT)
    assert tree.glob("*/x.txt", cwd="/work", who=ALICE) == ["d/x.txt", "e/x.txt"]
    assert tree.glob("d/*", cwd="/work", who=ALICE) == []
