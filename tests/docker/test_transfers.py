"""Transfers between host and sandbox: large ones, and those that end half-way."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING

import anyio
import pytest

from sandboxio import ConfigurationError, FileSystemError
from tests.docker.outside import METADATA, TARGET, eventually

if TYPE_CHECKING:
    from pathlib import Path

    from sandboxio.protocols import AsyncSandbox

pytestmark = [pytest.mark.docker, pytest.mark.anyio]

both_loops = pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"], scope="module")
MIB = 1024 * 1024
SIZE = 256 * MIB
HALF_WAY = 32 * MIB
ENDLESS = 4096 * MIB
"""So much that a transfer of it is still under way when the first of it has arrived."""
THERE_AND_BACK = """\
import hashlib, json, sys
import sandboxio

def peak():
    return int(next(s for s in open("/proc/self/status") if s.startswith("VmHWM")).split()[1])

target, metadata, local, back = sys.argv[1], json.loads(sys.argv[2]), *sys.argv[3:]
with sandboxio.create_sync(target, metadata=metadata) as sb:
    sb.files.write("small", "x")
    before = peak()
    sb.files.upload(local, "large")
    inside = sb.run(["sha256sum", "large"]).stdout.split()[0]
    sb.files.download("large", back)
    grown = peak() - before
outside = [hashlib.file_digest(open(name, "rb"), "sha256").hexdigest() for name in (local, back)]
print(json.dumps({"grown_kib": grown, "digests": [inside, *outside]}))
"""


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """A file of 256 MiB with random parts at both ends and in between."""
    path = tmp_path / "large"
    with path.open("wb") as file:
        for start in range(0, SIZE, SIZE // 8):
            file.seek(start + MIB + 1)
            file.write(os.urandom(MIB))
        file.truncate(SIZE)
    return path


@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read in /proc")
async def test_large_transfers_take_little_memory(large: Path, tmp_path: Path) -> None:
    """FS-8: 256 MiB go in and out unchanged while the host's peak memory grows by < 64 MB."""
    command = [sys.executable, "-W", "error", "-c", THERE_AND_BACK, TARGET, json.dumps(METADATA)]
    with anyio.fail_after(60):
        done = await anyio.run_process([*command, str(large), str(tmp_path / "back")], stderr=None)
    found = json.loads(done.stdout)
    assert len(set(found["digests"])) == 1
    assert found["grown_kib"] * 1024 < 64_000_000
    assert (tmp_path / "back").stat().st_size == SIZE


@pytest.fixture
def endless(tmp_path: Path) -> Path:
    """A sparse file of the host that takes long to be uploaded."""
    with (tmp_path / "endless").open("wb") as file:
        file.truncate(ENDLESS)
    return tmp_path / "endless"


@both_loops
@pytest.mark.parametrize("before", ["", "echo old > f"])
async def test_an_upload_cancelled_half_way(
    fresh: AsyncSandbox, endless: Path, before: str
) -> None:
    """FS-8: no new file appears, an old one is as it was, and no part is left in the sandbox."""
    kept = (await fresh.run(f"{before}; cat * .[!.]*")).stdout
    arrived = "until [ $(cat .sandboxio-* | head -c {0} | wc -c) = {0} ]; do sleep 0.1; done"
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(fresh.files.upload, endless, "f")
        await fresh.run(arrived.format(HALF_WAY), timeout=30)
        tasks.cancel_scope.cancel()
    assert (await fresh.run("cat * .[!.]*")).stdout == kept
    assert (await fresh.run("echo /tmp/* /tmp/.[!.]*")).stdout == "/tmp/* /tmp/.[!.]*\n"


@both_loops
@pytest.mark.parametrize("before", [None, "old"])
async def test_a_download_cancelled_half_way(
    fresh: AsyncSandbox, tmp_path: Path, before: str | None
) -> None:
    """FS-8: nothing appears at `local` or beside it, and what was there before stays."""
    await fresh.run(["truncate", "-s", str(ENDLESS), "endless"])
    if before is not None:
        (tmp_path / "back").write_text(before)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(fresh.files.download, "endless", tmp_path / "back")
        await eventually(lambda: sum(p.stat().st_size for p in tmp_path.iterdir()) > HALF_WAY)
        tasks.cancel_scope.cancel()
    await eventually(lambda: {p.name for p in tmp_path.iterdir()} <= {"back"})
    assert [p.read_text() for p in tmp_path.iterdir()] == ([] if before is None else [before])


async def test_a_file_beyond_the_limit_is_refused_soon(fresh: AsyncSandbox, tmp_path: Path) -> None:
    """FS-2: a 1 TB sparse file fills neither the host's disk nor its memory."""
    await fresh.run("truncate -s 1T sparse; ln -s sparse link")
    with anyio.fail_after(15):
        for name in ("sparse", "link"):
            with pytest.raises(FileSystemError, match="at most 16 GiB"):
                await fresh.files.download(name, tmp_path / "back")
        with pytest.raises(FileSystemError, match="256 MiB"):
            await fresh.files.read("sparse")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform != "linux", reason="these places are Linux's")
@pytest.mark.parametrize("local", ["/proc/copy", "/sys/copy", "/proc/self/status/copy"])
async def test_a_place_of_the_host_that_takes_no_file(fresh: AsyncSandbox, local: str) -> None:
    """FS-2: a `local` in a read-only directory is a `ConfigurationError` that names it."""
    await fresh.files.write("f", "content")
    with pytest.raises(ConfigurationError, match=local):
        await fresh.files.download("f", local)


async def test_a_transfer_takes_any_name(fresh: AsyncSandbox, tmp_path: Path) -> None:
    """FS-3: upload, ls and download use exactly the name, on both sides."""
    names = ["n" * 255, "é" * 127, "new\n", "-rf", "bad\udcffname", "trail  ", "\n", "\\n"]
    for name in names:
        (tmp_path / name).write_bytes(os.fsencode(name))
        await fresh.files.upload(tmp_path / name, name)
        (tmp_path / name).unlink()
    assert [info.path for info in await fresh.files.ls()] == sorted(names)
    for name in names:
        await fresh.files.download(name, tmp_path / name)
        assert (tmp_path / name).read_bytes() == os.fsencode(name)
    assert sorted(os.listdir(tmp_path)) == sorted(names)


async def test_a_name_that_no_file_can_have(fresh: AsyncSandbox, tmp_path: Path) -> None:
    """FS-3: 256 bytes are refused on either side, and nothing is left on either."""
    (tmp_path / "local").write_text("content")
    with pytest.raises(FileSystemError):
        await fresh.files.upload(tmp_path / "local", "n" * 256)
    await fresh.files.upload(tmp_path / "local", "f")
    with pytest.raises(ConfigurationError):
        await fresh.files.download("f", tmp_path / ("n" * 256))
    assert [info.path for info in await fresh.files.ls()] == ["f"]
    assert os.listdir(tmp_path) == ["local"]


async def test_dots_lead_where_they_do_for_commands(fresh: AsyncSandbox, tmp_path: Path) -> None:
    """FS-2: `..` after a link to a directory is that directory's parent, inside and on the host."""
    await fresh.run("mkdir -p a/b; ln -s a/b link; echo inside > a/f")
    for name in ("a", "a/b"):
        (tmp_path / name).mkdir()
    (tmp_path / "link").symlink_to("a/b")
    await fresh.files.download("link/../f", tmp_path / "link" / ".." / "back")
    assert (tmp_path / "a" / "back").read_text() == "inside\n"
    await fresh.files.upload(tmp_path / "link" / ".." / "back", "link/../up")
    assert (await fresh.run(["cat", "a/up"])).stdout == "inside\n"


async def test_a_directory_of_many_entries(fresh: AsyncSandbox) -> None:
    """2,000 files and 500 links are listed whole, within seconds, whatever they are called."""
    await fresh.run("mkdir d; cd d; seq -f 'f %05.0f' 2000 | xargs -d '\\n' touch")
    await fresh.run("cd d; for i in $(seq 500); do ln -s 'f 00001' \"l$i\"; done")
    with anyio.fail_after(10):
        listed = await fresh.files.ls("d")
    files = [f"d/f {i:05}" for i in range(1, 2001)]
    links = [f"d/l{i}" for i in range(1, 501)]
    assert [info.path for info in listed] == sorted(files + links)
    assert {info.target for info in listed} == {None, "f 00001"}
