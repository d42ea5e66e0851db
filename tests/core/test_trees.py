"""Directories between host and sandbox: what is chosen, and what no name can do to the host."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from sandboxio.core import host_trees
from sandboxio.core.errors import ConfigurationError, FileSystemError
from sandboxio.core.models import FileInfo
from sandboxio.core.selection import Selection, Walk
from tests.doubles import DoubleFiles

if TYPE_CHECKING:
    from pathlib import Path

    from sandboxio.core.sandbox import Sandbox

EVERYTHING = Selection((), ())
HOSTILE = ("..", "../x", "a/../../x", "", ".", "a//b", "/etc/x", "a\0b")
ODD_ON_WINDOWS = ("c:x", "a\\b", "NUL", "con.txt", "COM¹.csv", "conout$", "a.", "a ", "a\x07", "q?")


@pytest.mark.parametrize("name", HOSTILE)
def test_names_that_lead_out(tmp_path: Path, name: str) -> None:
    """No name that a sandbox tells is a way out of the directory of the host."""
    with pytest.raises(FileSystemError, match="named so"):
        host_trees.Target(tmp_path).place(tuple(name.split("/")))


@pytest.mark.parametrize("name", ODD_ON_WINDOWS)
def test_names_of_another_host(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What Windows takes for a device, a drive or another name is refused there, and only there."""
    assert host_trees.Target(tmp_path).place((name,)) == tmp_path / name
    monkeypatch.setattr(host_trees, "_WINDOWS", True)
    with pytest.raises(FileSystemError, match="named so"):
        host_trees.Target(tmp_path).place(("d", name))


def test_names_that_are_one_on_this_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where names differ in more than their case, one does not replace another."""
    monkeypatch.setattr(host_trees, "_FOLDS_NAMES", True)
    target = host_trees.Target(tmp_path)
    target.place(("d", "README"))
    target.place(("e", "readme"))
    with pytest.raises(FileSystemError, match="has that name"):
        target.place(("D", "readme"))


def test_a_link_on_the_way(tmp_path: Path) -> None:
    """A link below the top is not followed, wherever on the way it is."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "l").symlink_to(tmp_path.parent, target_is_directory=True)
    target = host_trees.Target(tmp_path)
    target.make_directories(("a", "b"))
    with pytest.raises(FileSystemError, match="is a link"):
        target.make_directories(("a", "l", "c"))


def test_what_is_neither_file_nor_directory(tmp_path: Path) -> None:
    """Links, pipes and sockets of the host are listed as what they are, and never entered."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "file").touch()
    found = host_trees.listed(tmp_path, EVERYTHING)
    assert [(one.names, one.is_dir, one.is_file) for one in found] == [
        (("file",), False, True),
        (("link",), False, False),
        (("pipe",), False, False),
    ]


def test_too_many_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory of the host with more entries than are held in memory is refused."""
    monkeypatch.setattr(host_trees, "MAX_ENTRIES", 3)
    for name in "abc":
        (tmp_path / name).touch()
    assert len(host_trees.listed(tmp_path, EVERYTHING)) == 3
    (tmp_path / "d").mkdir()
    with pytest.raises(ConfigurationError, match="more than 3 entries"):
        host_trees.listed(tmp_path, EVERYTHING)


@pytest.mark.parametrize(
    ("include", "exclude", "expected"),
    [
        ((), (), "a a/b a/b/c"),
        (("a/b",), (), "a/b a/b/c"),
        (("**/c",), (), "a/b/c"),
        (("a/*/",), (), "a/b a/b/c"),
        (("a/b/c/",), (), ""),
        (("a",), ("**/b",), "a"),
        (("**",), ("a/**",), "a"),
        (["[a]"], ("a/b/?",), "a a/b"),
    ],
)
def test_what_is_wanted(include: list[str], exclude: list[str], expected: str) -> None:
    """A directory that matches stands for what is in it, and what is excluded stays out."""
    walk = Walk(Selection(include, exclude))
    tree = {"a": True, "a/b": True, "a/b/c": False}
    found = [
        path
        for path, is_dir in tree.items()
        if walk.spot(tuple(path.split("/")), is_dir=is_dir).wanted
    ]
    assert " ".join(found) == expected


def test_a_list_without_the_directories_on_the_way() -> None:
    """What is wanted is the same where a backend leaves out the directories."""
    walk = Walk(Selection(("a/**/d",), ("a/x",)))
    assert walk.spot(("a", "b", "c", "d", "e"), is_dir=False).wanted
    assert not walk.spot(("a", "x", "d"), is_dir=False).wanted


@pytest.mark.parametrize("pattern", [".", "./", "/", "a/..", ".//."])
def test_patterns_of_the_top_itself(pattern: str) -> None:
    """A pattern that can match nothing below the directory is refused."""
    with pytest.raises(ConfigurationError, match="exclude"):
        Selection((), [pattern])


def test_what_is_excluded_is_not_entered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not counted, and it need not be readable."""
    monkeypatch.setattr(host_trees, "MAX_ENTRIES", 2)
    for name in ("keep/a", "out/b", "out/c", "out/d"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    found = host_trees.listed(tmp_path, Selection((), ("out",)))
    assert [entry.names for entry in found] == [("keep",), ("keep", "a")]


def test_a_tree_deeper_than_the_stack(tmp_path: Path) -> None:
    """A directory of the host may be as deep as its paths allow."""
    deep = tmp_path
    for _ in range(1100):
        deep /= "a"
        deep.mkdir()
    found = host_trees.listed(tmp_path, EVERYTHING)
    while deep != tmp_path:  # pytest's own removal is recursive
        deep.rmdir()
        deep = deep.parent
    assert len(found) == 1100


@pytest.mark.parametrize("way", [("d", "f"), ("d",)])
def test_what_has_become_a_link_is_not_read(tmp_path: Path, way: tuple[str, ...]) -> None:
    """Neither a file nor a directory on the way that is exchanged after it was listed."""
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "f").write_text("secret")
    (tmp_path / "top" / "d").mkdir(parents=True)
    (tmp_path / "top" / "d" / "f").write_text("x")
    with host_trees.opened(tmp_path / "top", ("d", "f")) as file:
        assert file.read() == b"x"
    place = tmp_path.joinpath("top", *way)
    place.rename(tmp_path / "away")
    place.symlink_to(tmp_path.joinpath("secret", *way[1:]))
    with pytest.raises(ConfigurationError, match="cannot be read"):
        host_trees.opened(tmp_path / "top", ("d", "f"))


def test_what_has_become_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    """A file that is exchanged for a pipe after it was listed is refused at once."""
    os.mkfifo(tmp_path / "f")
    with pytest.raises(ConfigurationError, match="no regular file"):
        host_trees.opened(tmp_path, ("f",))


@pytest.mark.anyio
async def test_a_lying_list_writes_nothing_outside(
    sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backend that lists what is not below the directory leads to no file anywhere."""
    lies = [FileInfo(path, 1, is_dir=False, mtime=datetime.now(UTC)) for path in ("/x", "t/../y")]

    async def ls(_: object, path: str, *, recursive: bool) -> list[FileInfo]:
        return [lies.pop()]

    monkeypatch.setattr(DoubleFiles, "ls", ls)
    for _ in range(2):
        with pytest.raises(FileSystemError, match="named so"):
            await sandbox.files.download_dir("t", tmp_path / "back")
    assert [path.name for path in tmp_path.rglob("*")] == ["back"]
