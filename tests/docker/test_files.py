"""Files: the API and the commands of a sandbox see the same, under the exact names."""

from __future__ import annotations

import hashlib
import os
import unicodedata
from typing import TYPE_CHECKING

import anyio
import pytest

from sandboxio import FileSystemError, PathNotFound
from tests.docker.outside import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from sandboxio.protocols import AsyncSandbox
    from tests.docker.conftest import Derive, Make

pytestmark = [pytest.mark.docker, pytest.mark.anyio]

both_loops = pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"], scope="module")
LINKS = (
    "echo target > file; mkdir dir; ln -s file good; "
    "ln -s none dangling; ln -s self self; ln -s dir to-dir"
)


@pytest.fixture
async def links(fresh: AsyncSandbox) -> AsyncSandbox:
    assert (await fresh.run(LINKS)).ok
    return fresh


async def test_a_link_to_a_file_gives_its_content(links: AsyncSandbox, tmp_path: Path) -> None:
    """FS-1: `read` and `download` follow a link, as `cat` would."""
    assert await links.files.read("good") == b"target\n"
    await links.files.download("good", tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == b"target\n"
    assert not (tmp_path / "copy").is_symlink()


@pytest.mark.parametrize("way", ["read", "download"])
@pytest.mark.parametrize("name", ["dangling", "self", "to-dir"])
async def test_links_that_lead_to_no_file(
    links: AsyncSandbox, tmp_path: Path, way: str, name: str
) -> None:
    """FS-1: dangling is `PathNotFound`, a loop or directory another `FileSystemError`."""
    files = links.files
    act = files.read(name) if way == "read" else files.download(name, tmp_path / "copy")
    with pytest.raises(FileSystemError) as caught:
        await act
    assert isinstance(caught.value, PathNotFound) == (name == "dangling")
    assert list(tmp_path.iterdir()) == []


async def test_links_are_listed_as_links(links: AsyncSandbox) -> None:
    """FS-1: `ls` describes each link itself, and where it points."""
    found = {info.path: (info.kind, info.target) for info in await links.files.ls()}
    assert found == {
        "file": ("file", None),
        "dir": ("directory", None),
        "good": ("link", "file"),
        "dangling": ("link", "none"),
        "self": ("link", "self"),
        "to-dir": ("link", "dir"),
    }


@pytest.mark.parametrize("name", ["/etc", "fifo", "/dev/zero", "sparse"])
async def test_download_refuses_what_is_no_sensible_file(
    fresh: AsyncSandbox, tmp_path: Path, name: str
) -> None:
    """FS-2: a directory, FIFO, device or boundless file ends soon and leaves nothing behind."""
    await fresh.run("mkfifo fifo; truncate -s 1T sparse")
    files = fresh.files
    act = files.read(name) if name == "sparse" else files.download(name, tmp_path / "copy")
    with anyio.fail_after(60), pytest.raises(FileSystemError):
        await act
    assert list(tmp_path.iterdir()) == []


async def test_download_carries_no_setuid_bit(fresh: AsyncSandbox, tmp_path: Path) -> None:
    """FS-2: permission bits come along, setuid and setgid do not."""
    await fresh.run("echo x > tool; chmod 6755 tool")
    await fresh.files.download("tool", tmp_path / "tool")
    assert (tmp_path / "tool").stat().st_mode & 0o7777 == 0o755


AWKWARD = [
    "a\nb",
    "tab\t",
    "quote'\"",
    "$HOME",
    "back\\slash",
    "-n",
    " lead",
    "trail ",
    "ünï",
    unicodedata.normalize("NFC", "é"),
    unicodedata.normalize("NFD", "é"),
    "n" * 255,
    "new\n",
    "%s\\n",
]


@pytest.mark.parametrize("name", AWKWARD, ids=ascii)
async def test_awkward_names_round_trip(fresh: AsyncSandbox, tmp_path: Path, name: str) -> None:
    """FS-3: write, ls, stat, read, download and remove use the exact name."""
    files = fresh.files
    await files.write(name, name)
    assert [info.path for info in await files.ls()] == [name]
    assert (await files.stat(name)).size == len(name.encode())
    assert await files.read(name) == name.encode()
    await files.download(name, tmp_path / "copy")
    assert (tmp_path / "copy").read_text() == name
    await files.remove(name)
    assert await files.ls() == []


async def test_two_forms_of_one_letter_are_two_files(fresh: AsyncSandbox) -> None:
    """FS-3: composed and decomposed é are different names."""
    names = [unicodedata.normalize(form, "é") for form in ("NFC", "NFD")]
    for name in names:
        await fresh.files.write(name, name)
    assert [info.path for info in await fresh.files.ls()] == sorted(names)


async def test_a_name_that_is_not_utf8(fresh: AsyncSandbox) -> None:
    """FS-3: it is listed in a form that `read` and `remove` accept."""
    await fresh.run(r"""printf content > "$(printf 'bad\377name')" """)
    (found,) = await fresh.files.ls()
    assert os.fsencode(found.path) == b"bad\xffname"
    assert await fresh.files.read(found.path) == b"content"
    await fresh.files.remove(found.path)
    assert await fresh.files.ls() == []


@pytest.mark.parametrize("image", ["user-1000", "user-named"])
async def test_files_belong_to_the_images_own_user(make: Make, tmp_path: Path, image: str) -> None:
    """FS-4: what the API makes is owned by the user of `run()`, directories on the way too."""
    sb = await make(f"sandboxio-test/{image}")
    (tmp_path / "local").write_text("local")
    await sb.files.write("f", "some")
    await sb.files.mkdir("d/e", parents=True)
    await sb.files.upload(tmp_path / "local", "d/e/up")
    owners = await sb.run("stat -c %u:%g f d d/e d/e/up; id -u; id -g")
    *found, uid, gid = owners.stdout.split()
    assert set(found) == {f"{uid}:{gid}"}
    assert (await sb.run("echo more >> f && touch d/e/x && rm -r f d")).ok


async def test_time_stamps_are_of_now(fresh: AsyncSandbox, tmp_path: Path) -> None:
    """FS-5: a written file carries the sandbox's time, and zip accepts it."""
    await fresh.files.write("a.txt", "x")
    age = await fresh.run("echo $(($(date +%s) - $(stat -c %Y a.txt)))")
    assert abs(int(age.stdout)) < 300
    assert (await fresh.run(["python3", "-m", "zipfile", "-c", "z.zip", "a.txt"])).ok


async def test_upload_keeps_the_execute_bit(fresh: AsyncSandbox, tmp_path: Path) -> None:
    """FS-5: a script can be run; a private file can be read by the sandbox's user."""
    script, private = tmp_path / "script", tmp_path / "private"
    script.write_text("#!/bin/sh\necho ran\n")
    script.chmod(0o755)
    private.write_text("private")
    private.chmod(0o600)
    old = os.umask(0o077)
    try:
        await fresh.files.upload(script, "script")
        await fresh.files.upload(private, "private")
    finally:
        os.umask(old)
    assert (await fresh.run(["./script"])).stdout == "ran\n"
    assert (await fresh.run(["cat", "private"])).stdout == "private"


async def test_tmpfs_is_one_place(fresh: AsyncSandbox) -> None:
    """FS-6: in a mounted file system the API and commands see the same files."""
    await fresh.files.write("/dev/shm/x", "by api")
    assert (await fresh.run(["cat", "/dev/shm/x"])).stdout == "by api"
    await fresh.run("printf 'by run' > /dev/shm/y")
    assert await fresh.files.read("/dev/shm/y") == b"by run"
    assert {info.path for info in await fresh.files.ls("/dev/shm")} == {"/dev/shm/x", "/dev/shm/y"}


async def test_a_volume_of_the_image_is_one_place(make: Make, derive: Derive) -> None:
    """FS-6: the same under a path of the image's VOLUME."""
    sb = await make(derive("mkdir -m 777 /data", "VOLUME /data"))
    await sb.files.write("/data/x", "by api")
    assert (await sb.run(["cat", "/data/x"])).stdout == "by api"


@pytest.mark.parametrize("path", ["/proc/x", "/sys/x", "/etc/x", "/root/x"])
async def test_places_that_cannot_be_written(sb: AsyncSandbox, path: str) -> None:
    """FS-6: a write that could not be seen is an error, never a success."""
    with pytest.raises(FileSystemError):
        await sb.files.write(path, "x")
    assert not await sb.files.exists(path)


@both_loops
async def test_a_write_is_seen_by_the_next_command(sb: AsyncSandbox) -> None:
    """FS-7: twenty times in both directions, and one name with ever other sizes."""
    for i in range(20):
        await sb.files.write(f"f{i}", f"content {i}")
        assert (await sb.run(["cat", f"f{i}"])).stdout == f"content {i}"
        await sb.run(f"echo {i} > g{i}")
        assert await sb.files.read(f"g{i}") == f"{i}\n".encode()
        await sb.files.write("same", "x" * (i * 7919 % 50_000))
        assert (await sb.run("wc -c < same")).stdout == f"{i * 7919 % 50_000}\n"


@both_loops
async def test_a_large_file_goes_in_and_out_unchanged(sb: AsyncSandbox, tmp_path: Path) -> None:
    """FS-8: 32 MB of random bytes come back equal, and are equal inside."""
    local, back = tmp_path / "local", tmp_path / "back"
    local.write_bytes(os.urandom(32_000_000))
    digest = hashlib.sha256(local.read_bytes()).hexdigest()
    await sb.files.upload(local, "large")
    assert (await sb.run(["sha256sum", "large"])).stdout.split()[0] == digest
    await sb.files.download("large", back)
    assert hashlib.sha256(back.read_bytes()).hexdigest() == digest
    await sb.files.remove("large")


async def test_a_download_cancelled_midway_leaves_nothing(sb: AsyncSandbox, tmp_path: Path) -> None:
    """FS-8: no partial file passes for a whole one on the host."""
    with anyio.move_on_after(0.5) as scope:
        await sb.run("truncate -s 4G /work/sparse")
        await sb.files.download("sparse", tmp_path / "back")
    assert scope.cancelled_caught
    await eventually(lambda: list(tmp_path.iterdir()) == [])
    await sb.files.remove("sparse")


async def test_ranges_of_a_file(sb: AsyncSandbox) -> None:
    """`read(offset=, length=)` gives exactly that part, also beyond the end."""
    await sb.files.write("letters", "abcdefghij")
    assert await sb.files.read("letters", offset=3) == b"defghij"
    assert await sb.files.read("letters", offset=3, length=4) == b"defg"
    assert await sb.files.read("letters", length=2) == b"ab"
    assert await sb.files.read("letters", length=0) == b""
    assert await sb.files.read("letters", offset=99) == b""


async def test_a_file_operation_is_by_the_sandboxes_user(sb: AsyncSandbox) -> None:
    """Files have the rights that commands have, no more."""
    with pytest.raises(FileSystemError):
        await sb.files.read("/etc/shadow")
    with pytest.raises(FileSystemError):
        await sb.files.remove("/etc/passwd")
    assert (await sb.run(["test", "-e", "/etc/passwd"])).ok
