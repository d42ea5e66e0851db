"""Files in places that are not the user's, have no room, or are described by tools that lie."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import pytest

from sandboxio import FileSystemError, PermissionDenied

if TYPE_CHECKING:
    from pathlib import Path

    from sandboxio.protocols import AsyncSandbox
    from tests.docker.conftest import Derive, Make

pytestmark = [pytest.mark.docker, pytest.mark.anyio]

MIB = 1024 * 1024
SHM = 64 * MIB
"""What an engine gives `/dev/shm`."""


@pytest.mark.parametrize("path", ["/proc/x", "/sys/x", "/etc/x", "/dev/x", "/etc/hosts", "ours/x"])
async def test_a_place_that_cannot_be_written(
    fresh: AsyncSandbox, tmp_path: Path, path: str
) -> None:
    """FS-6: `PermissionDenied`, which says how an image or a sandbox gets the right."""
    await fresh.run("mkdir -m 555 ours")
    (tmp_path / "local").write_text("x")
    with pytest.raises(PermissionDenied) as caught:
        await fresh.files.write(path, "x")
    assert 'user="root"' in caught.value.hint
    assert "COPY --chown" in caught.value.hint
    with pytest.raises(PermissionDenied):
        await fresh.files.upload(tmp_path / "local", path)


async def test_a_volume_with_files_of_another_owner(
    make: Make, derive: Derive, tmp_path: Path
) -> None:
    """FS-6: what is another's is `PermissionDenied` to change, and stays as it is."""
    script = "mkdir /data; echo theirs > /data/f; chmod 640 /data/f; chown -R 4242 /data"
    files = (await make(derive(script, "VOLUME /data"))).files
    for act in (files.read, files.remove, files.mkdir):
        with pytest.raises(PermissionDenied) as caught:
            await act("/data/f" if act != files.mkdir else "/data/d")
        assert "COPY --chown" in caught.value.hint
    for path in ("/data/f", "/data/new"):
        with pytest.raises(PermissionDenied):
            await files.write(path, "ours")
    with pytest.raises(PermissionDenied):
        await files.download("/data/f", tmp_path / "back")
    assert [(info.path, info.size) for info in await files.ls("/data")] == [("/data/f", 7)]


async def test_a_copied_file_of_the_user_can_be_changed(make: Make, derive: Derive) -> None:
    """FS-6: what the hint says works: a place that is given to the user, and `user="root"`."""
    image = derive("mkdir /data /roots; chown 10001:10001 /data")
    await (await make(image)).files.write("/data/f", "x")
    await (await make(image, user="root")).files.write("/roots/f", "x")


async def test_a_full_disk_takes_no_part_of_a_file(fresh: AsyncSandbox, tmp_path: Path) -> None:
    """FS-6: too large for its tmpfs: soon `FileSystemError` about the space, and no new file."""
    with (tmp_path / "local").open("wb") as file:
        file.truncate(2 * SHM)
    with anyio.fail_after(20):
        with pytest.raises(FileSystemError, match="No space left"):
            await fresh.files.upload(tmp_path / "local", "/dev/shm/new")
        with pytest.raises(FileSystemError, match="No space left"):
            await fresh.files.write("/dev/shm/new", b"x" * (SHM + 1))
    assert await fresh.files.ls("/dev/shm") == []


async def test_a_full_disk_leaves_an_old_file_as_it_was(fresh: AsyncSandbox) -> None:
    """FS-6: where the new content has no room the old one stays, and the sandbox works on."""
    await fresh.files.write("/dev/shm/old", b"o" * (40 * MIB))
    with pytest.raises(FileSystemError, match="No space left"):
        await fresh.files.write("/dev/shm/old", b"n" * (30 * MIB))
    assert [info.path for info in await fresh.files.ls("/dev/shm")] == ["/dev/shm/old"]
    assert await fresh.files.read("/dev/shm/old", offset=40 * MIB - 3) == b"ooo"
    await fresh.files.write("/dev/shm/small", "x")


async def test_a_time_that_no_datetime_holds(fresh: AsyncSandbox) -> None:
    """FS-5: a file of the year 3170843 is listed, without a time, and hides no other."""
    await fresh.run("touch -d @99999999999999 /dev/shm/odd; touch /dev/shm/plain")
    odd, plain = await fresh.files.ls("/dev/shm")
    assert (odd.path, odd.mtime) == ("/dev/shm/odd", None)
    assert plain.mtime is not None
    assert await fresh.files.stat("/dev/shm/odd") == odd


TOOLS = ("sh", "stat", "cat", "find", "head", "tail", "wc", "mv", "rm", "mkdir", "readlink", "ls")
LIE = f"""\
for tool in {" ".join(TOOLS)}; do
  printf '#!/bin/sh\\necho a lie; exit 0\\n' > "$1/$tool" && chmod 755 "$1/$tool"
done
"""


@pytest.fixture
async def fooled(make: Make, derive: Derive) -> AsyncSandbox:
    """A sandbox whose code has put its own programs first on PATH, in the image's way."""
    sb = await make(derive("mkdir -m 777 /tools", "ENV PATH=/tools:/usr/bin:/bin"))
    assert (await sb.run(["sh", "-c", LIE, "sh", "/tools"])).ok
    assert (await sb.run(["cat", "/etc/passwd"])).stdout == "a lie\n"
    return sb


async def test_programs_of_the_user_decide_nothing(fooled: AsyncSandbox, tmp_path: Path) -> None:
    """What lies first on the image's PATH answers commands, and not the file API."""
    files = fooled.files
    await files.mkdir("d/e", parents=True)
    await files.write("d/f", "content")
    assert await files.read("d/f", offset=1, length=3) == b"ont"
    await files.download("d/f", tmp_path / "back")
    assert (tmp_path / "back").read_text() == "content"
    assert [(info.path, info.kind) for info in await files.ls("d")] == [
        ("d/e", "directory"),
        ("d/f", "file"),
    ]
    await files.remove("d", recursive=True)
    assert not await files.exists("d")


async def test_the_callers_path_is_for_commands(make: Make) -> None:
    """`create(env={"PATH": ...})` leads commands elsewhere, and the file API nowhere."""
    sb = await make(env={"PATH": "/work/bin:/usr/bin:/bin", "TMPDIR": "/nowhere"})
    await sb.files.mkdir("bin")
    assert (await sb.run(["/bin/sh", "-c", LIE, "sh", "bin"])).ok
    assert (await sb.run(["cat", "/etc/passwd"])).stdout == "a lie\n"
    await sb.files.write("f", "content")
    assert await sb.files.read("f") == b"content"
    assert (await sb.files.stat("f")).size == 7


@pytest.fixture
def liars(derive: Derive) -> str:
    """An image whose own tools do what `/work/lie` says, where there is one."""
    return derive(
        "for t in stat find cat wc mkdir; do mv /usr/bin/$t /usr/bin/$t.true; "
        "printf '#!/bin/sh\\n[ -e /work/lie ] && . /work/lie\\nexec %s \"$@\"\\n' "
        "/usr/bin/$t.true > /usr/bin/$t; chmod 755 /usr/bin/$t; done"
    )


@pytest.mark.parametrize(
    "lie",
    [
        "exec yes",
        "exec yes >&2",
        """printf '%s 81a4 99999999999999999999999 0 ./x\\n' "${2%%%*}"; exit""",
        """printf '%s 81a4 1 1 ./../../etc/passwd\\n' "${9%% *}"; exit""",
        "kill -9 $$",
    ],
)
async def test_tools_of_the_image_that_lie(make: Make, liars: str, lie: str) -> None:
    """Endless, absurd or broken answers of `stat` and `find` are a `FileSystemError`, soon."""
    sb = await make(liars)
    await sb.files.write("f", "content")
    await sb.files.write("lie", f"case $0 in */stat|*/find) {lie};; esac")
    with anyio.fail_after(20):
        with pytest.raises(FileSystemError):
            await sb.files.ls()
        with pytest.raises(FileSystemError):
            await sb.files.stat("f")
    assert await sb.files.read("f") == b"content"


@pytest.mark.parametrize("lie", ["exec yes >&2", "exit 3", "kill -9 $$"])
async def test_tools_of_the_image_that_do_not_work(
    make: Make, liars: str, tmp_path: Path, lie: str
) -> None:
    """Nor do `cat`, `wc` and `mkdir` keep a call waiting, or leave part of a file."""
    sb = await make(liars)
    await sb.files.write("f", "content")
    await sb.files.write("lie", f"case $0 in */cat|*/wc|*/mkdir) {lie};; esac")
    with anyio.fail_after(40):
        for act in (sb.files.read, sb.files.mkdir):
            with pytest.raises(FileSystemError):
                await act("d" if act == sb.files.mkdir else "f")
        with pytest.raises(FileSystemError):
            await sb.files.write("new", b"x" * MIB)
    assert [info.path for info in await sb.files.ls()] == ["f", "lie"]


@pytest.mark.parametrize("tool", ["stat", "find", "tail"])
async def test_a_tool_that_the_image_lacks(make: Make, derive: Derive, tool: str) -> None:
    """Without it the operation is a `FileSystemError` that names it, never an empty answer."""
    files = (await make(derive(f"rm /usr/bin/{tool}"))).files
    await files.write("f", "content")
    asked = files.read("f", offset=1, length=3) if tool == "tail" else files.ls()
    with pytest.raises(FileSystemError, match=f"{tool}: not found"):
        await asked
