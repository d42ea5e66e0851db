"""Files: what is checked, what is bounded, and the host's side of a transfer."""

from __future__ import annotations

import gc
import ntpath
import os
import stat
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from sandboxio import (
    Capability,
    CapabilityNotSupported,
    ConfigurationError,
    FileSystemError,
    LinkLost,
    PathNotFound,
)
from tests.stepwise import cancel_at_each_await

if TYPE_CHECKING:
    from collections.abc import Generator

    from sandboxio.core.backend import DriverBackend
    from sandboxio.core.sandbox import Sandbox
    from tests.doubles import DoubleDriver

pytestmark = pytest.mark.anyio


@pytest.fixture
def remote(driver: DoubleDriver) -> str:
    """A file of eleven bytes inside the sandbox."""
    driver.stored["remote"] = b"hello world"
    return "remote"


async def test_bytes_and_text_round_trip(sandbox: Sandbox, driver: DoubleDriver) -> None:
    """Text travels as UTF-8; a mode is handed on; reading gives bytes."""
    await sandbox.files.write("f", "é", mode=0o600)
    assert await sandbox.files.read("f") == "é".encode()
    assert driver.modes["f"] == 0o600
    await sandbox.files.write("empty", b"")
    assert driver.stored["empty"] == b""


@pytest.mark.parametrize(
    ("offset", "length", "expected"),
    [(0, None, b"hello world"), (6, None, b"world"), (0, 5, b"hello"), (6, 2, b"wo"), (3, 0, b"")],
)
async def test_ranges(
    sandbox: Sandbox, remote: str, offset: int, length: int | None, expected: bytes
) -> None:
    """`offset` and `length` select bytes; None reads to the end."""
    assert await sandbox.files.read(remote, offset=offset, length=length) == expected


@pytest.mark.parametrize("options", [{"offset": -1}, {"offset": True}, {"length": -1}])
@pytest.mark.parametrize("value", [None, "1", 1.0])
async def test_odd_ranges_are_refused(
    sandbox: Sandbox, driver: DoubleDriver, options: dict[str, Any], value: object
) -> None:
    """Ranges are whole numbers from 0 up, named when they are not."""
    name = next(iter(options))
    given: dict[str, Any] = options if value is None else {name: value}
    with pytest.raises(ConfigurationError, match=name):
        await sandbox.files.read("f", **given)
    assert "file_read" not in driver.log


@pytest.mark.parametrize("data", [None, 3, ["a"], bytearray(b"x"), "\ud800"])
async def test_odd_data_is_refused(sandbox: Sandbox, driver: DoubleDriver, data: Any) -> None:
    """Only bytes and encodable text are written."""
    with pytest.raises(ConfigurationError):
        await sandbox.files.write("f", data)
    assert "file_write" not in driver.log


@pytest.mark.parametrize("mode", [-1, 0o1000, 0o4755, True, "644", 1.0])
async def test_odd_modes_are_refused(sandbox: Sandbox, driver: DoubleDriver, mode: Any) -> None:
    """A mode is nine permission bits; setuid and its kin are not among them."""
    with pytest.raises(ConfigurationError, match="mode"):
        await sandbox.files.write("f", b"", mode=mode)
    assert "file_write" not in driver.log


@pytest.mark.parametrize("path", ["", "a\0b", "\ud800", "x" * 4096, 3])
async def test_every_operation_checks_its_path(
    sandbox: Sandbox, driver: DoubleDriver, path: Any
) -> None:
    """No operation asks the driver for a path that no file can have."""
    files = sandbox.files
    for call in (files.read, files.stat, files.exists, files.ls, files.mkdir, files.remove):
        with pytest.raises(ConfigurationError, match="path"):
            await call(path)
    with pytest.raises(ConfigurationError, match="path"):
        await files.write(path, b"")
    with pytest.raises(ConfigurationError, match="remote"):
        await files.upload("local", path)
    with pytest.raises(ConfigurationError, match="remote"):
        await files.download(path, "local")
    assert not [step for step in driver.log if step.startswith("file_")]


async def test_a_file_too_large_to_hold_is_refused(
    sandbox: Sandbox, remote: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`read()` has a limit; exactly as much as it allows is returned."""
    monkeypatch.setattr("sandboxio.core.files.MAX_READ_BYTES", 10)
    assert len(await sandbox.files.read(remote, length=10)) == 10
    with pytest.raises(FileSystemError, match="more than"):
        await sandbox.files.read(remote)


async def test_transfers_need_their_capability(
    backend: DriverBackend, driver: DoubleDriver, tmp_path: Path
) -> None:
    """Without UPLOAD_DOWNLOAD neither direction starts."""
    driver.capabilities &= ~Capability.UPLOAD_DOWNLOAD
    files = (await backend.create()).files
    with pytest.raises(CapabilityNotSupported, match="UPLOAD_DOWNLOAD"):
        await files.upload(tmp_path / "a", "b")
    with pytest.raises(CapabilityNotSupported, match="UPLOAD_DOWNLOAD"):
        await files.download("b", tmp_path / "a")


@pytest.mark.parametrize(
    ("host", "inside"), [(0o755, 0o755), (0o600, 0o644), (0o4777, 0o755), (0o640, 0o644)]
)
async def test_an_upload_keeps_execute_and_read_bits(
    sandbox: Sandbox, driver: DoubleDriver, tmp_path: Path, host: int, inside: int
) -> None:
    """Inside, a file is readable, executable if it was, and never setuid."""
    local = tmp_path / "local"
    local.write_bytes(b"x" * 600_000)
    local.chmod(host)
    await sandbox.files.upload(str(local), "remote")
    assert (driver.stored["remote"], driver.modes["remote"]) == (b"x" * 600_000, inside)


async def test_what_cannot_be_uploaded_is_said(
    sandbox: Sandbox, driver: DoubleDriver, tmp_path: Path
) -> None:
    """A missing file, a directory and a FIFO of the host are refused by their path."""
    os.mkfifo(tmp_path / "fifo")
    for local in (tmp_path / "missing", tmp_path, tmp_path / "fifo"):
        with pytest.raises(ConfigurationError, match=f"local {str(local)!r}"):
            await sandbox.files.upload(local, "remote")
    assert driver.stored == {}


async def test_a_file_that_grows_during_its_upload(
    sandbox: Sandbox, driver: DoubleDriver, tmp_path: Path
) -> None:
    """The driver is given exactly the bytes it was promised, however the file changes."""
    local = tmp_path / "log"
    local.write_bytes(b"12345")
    driver.steps.call["file_write"] = lambda: local.write_bytes(b"1234567890")
    await sandbox.files.upload(local, "remote")
    assert driver.stored["remote"] == b"12345"


async def test_a_file_that_shrinks_during_its_upload(
    sandbox: Sandbox, driver: DoubleDriver, tmp_path: Path
) -> None:
    """A source that ends early is an error, not a driver waiting for more."""
    local = tmp_path / "log"
    local.write_bytes(b"12345")
    driver.steps.call["file_write"] = lambda: local.write_bytes(b"1")
    with pytest.raises((FileSystemError, ConfigurationError)):
        await sandbox.files.upload(local, "remote")


async def test_a_download_is_a_file_of_its_own(
    sandbox: Sandbox, driver: DoubleDriver, remote: str, tmp_path: Path
) -> None:
    """Content and permission bits are carried over, setuid and setgid are dropped."""
    driver.modes[remote] = 0o6755
    local = tmp_path / "local"
    await sandbox.files.download(remote, local)
    assert local.read_bytes() == b"hello world"
    assert stat.S_IMODE(local.stat().st_mode) == 0o755
    assert list(tmp_path.iterdir()) == [local]


async def test_a_download_replaces_what_is_there(
    sandbox: Sandbox, remote: str, tmp_path: Path
) -> None:
    """An existing file is replaced; a link is replaced, not followed."""
    kept, link, old = tmp_path / "kept", tmp_path / "link", tmp_path / "old"
    kept.write_bytes(b"kept")
    link.symlink_to(kept)
    old.write_bytes(b"something much longer than that")
    for local in (link, old):
        await sandbox.files.download(remote, local)
        assert local.read_bytes() == b"hello world"
        assert not local.is_symlink()
    assert kept.read_bytes() == b"kept"


async def test_places_that_cannot_be_written_are_refused(
    sandbox: Sandbox, driver: DoubleDriver, remote: str, tmp_path: Path
) -> None:
    """A directory, a link to one, a missing directory: named, with nothing read or left."""
    (tmp_path / "directory").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "directory")
    before = sorted(tmp_path.rglob("*"))
    for name in ("directory", "link", "missing/local"):
        with pytest.raises(ConfigurationError, match=name):
            await sandbox.files.download(remote, tmp_path / name)
    assert sorted(tmp_path.rglob("*")) == before
    assert "file_read" not in driver.log


@pytest.mark.parametrize("trouble", ["error", "limit", "cancelled"])
async def test_a_download_that_fails_leaves_nothing(
    sandbox: Sandbox,
    driver: DoubleDriver,
    remote: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    trouble: str,
) -> None:
    """No partial file is left, and what was at `local` before stays as it was."""
    local = tmp_path / "local"
    local.write_bytes(b"before")
    if trouble == "error":
        driver.steps.fail["file_read"] = LinkLost("broken")
    if trouble == "limit":
        monkeypatch.setattr("sandboxio.core.files.MAX_DOWNLOAD_BYTES", 5)
    with anyio.CancelScope() as scope:
        if trouble == "cancelled":
            driver.steps.call["file_read"] = scope.cancel
        with pytest.raises((LinkLost, FileSystemError)):
            await sandbox.files.download(remote, local)
    assert list(tmp_path.iterdir()) == [local]
    assert local.read_bytes() == b"before"


class Changing(dict[str, bytes]):
    """Files whose content is another at each look."""

    def __init__(self, name: str, *contents: bytes) -> None:
        super().__init__({name: contents[0]})
        self._contents = list(contents)

    def __getitem__(self, name: str) -> bytes:
        return self._contents.pop(0)


async def test_a_file_too_large_to_download_is_refused_at_once(
    sandbox: Sandbox, driver: DoubleDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is said to be beyond the limit is not read up to it first."""
    monkeypatch.setattr("sandboxio.core.files.MAX_DOWNLOAD_BYTES", 10)
    driver.stored = Changing("f", b"x" * 11, b"")
    with pytest.raises(FileSystemError, match="at most"):
        await sandbox.files.download("f", tmp_path / "local")
    assert list(tmp_path.iterdir()) == []


async def test_a_file_that_grows_during_its_download(
    sandbox: Sandbox, driver: DoubleDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit holds for what arrives, whatever was said of it."""
    monkeypatch.setattr("sandboxio.core.files.MAX_DOWNLOAD_BYTES", 10)
    driver.stored = Changing("f", b"x" * 10, b"x" * 11)
    with pytest.raises(FileSystemError, match="at most"):
        await sandbox.files.download("f", tmp_path / "local")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform == "win32", reason="rlimits are POSIX")
@pytest.mark.parametrize("size", [70_000, 1_200_000])
async def test_a_host_without_room(
    sandbox: Sandbox, driver: DoubleDriver, remote: str, tmp_path: Path, size: int
) -> None:
    """A disk of the host that is full is a mapped error; nothing is left there."""
    driver.stored[remote] = b"x" * size
    with file_size_limit(65_536), pytest.raises(ConfigurationError, match="written on this host"):
        await sandbox.files.download(remote, tmp_path / "local")
    assert list(tmp_path.iterdir()) == []


@contextmanager
def file_size_limit(most: int) -> Generator[None]:
    """Have this process write no file beyond a size, as if the disk were full."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.skipif(sys.platform != "linux", reason="it finds descriptors in /proc")
async def test_a_host_that_fails_to_read(
    sandbox: Sandbox, driver: DoubleDriver, tmp_path: Path
) -> None:
    """A read error of the host in the middle of an upload is a mapped error."""
    local = tmp_path / "local"
    local.write_bytes(b"x" * 10)
    driver.steps.call["file_write"] = lambda: spoil(local)
    with pytest.raises(ConfigurationError, match="read on this host"):
        await sandbox.files.upload(local, "remote")
    assert driver.stored == {}


def spoil(path: Path) -> None:
    """Make every read of a file that this process has open fail."""
    (number,) = [
        int(entry.name)
        for entry in Path("/proc/self/fd").iterdir()
        if entry.is_symlink() and os.readlink(entry) == str(path)
    ]
    directory = os.open(path.parent, os.O_RDONLY)
    os.dup2(directory, number)
    os.close(directory)


async def test_a_missing_file_is_not_downloaded(sandbox: Sandbox, tmp_path: Path) -> None:
    """The driver's `PathNotFound` arrives, and nothing appears on the host."""
    with pytest.raises(PathNotFound):
        await sandbox.files.download("missing", tmp_path / "local")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("local", ["a\0b", 3, b"bytes", None])
async def test_odd_places_of_the_host_are_refused(
    sandbox: Sandbox, remote: str, local: Any
) -> None:
    """`local` is a path of the host: whatever cannot be one is refused by name, not raw."""
    with pytest.raises(ConfigurationError, match="local"):
        await sandbox.files.upload(local, "x")
    with pytest.raises(ConfigurationError, match="local"):
        await sandbox.files.download(remote, local)


@pytest.mark.skipif(sys.platform != "linux", reason="names that are not UTF-8 need Linux")
async def test_any_name_of_the_host_is_good(sandbox: Sandbox, remote: str, tmp_path: Path) -> None:
    """Awkward names of the host's own files are used as they are."""
    for name in ("a\nb", "-n", "ünï", "\udcff", "x" * 255):
        await sandbox.files.download(remote, tmp_path / name)
        assert (tmp_path / name).read_bytes() == b"hello world"


async def test_transfers_cancelled_at_each_await(sandbox: Sandbox, tmp_path: Path) -> None:
    """Wherever a transfer is cancelled, no file of the host stays open or half written."""
    (tmp_path / "in").write_bytes(b"x" * 100_000)
    await sandbox.files.write("d", "content")
    await cancel_at_each_await(lambda: sandbox.files.upload(tmp_path / "in", "u"))
    await cancel_at_each_await(lambda: sandbox.files.download("d", tmp_path / "out"))
    gc.collect()
    assert {path.name for path in tmp_path.iterdir()} <= {"in", "out"}


async def test_a_windows_host_has_no_say_in_paths(
    sandbox: Sandbox, driver: DoubleDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Paths inside are POSIX on every host: a backslash is a letter, a drive a name."""
    monkeypatch.setattr(os, "path", ntpath)
    monkeypatch.setattr(os, "sep", "\\")
    for path in ("a\\b", "C:/x", "/srv\\..\\f", "C:\\x"):
        await sandbox.files.write(path, "content")
        await sandbox.run(["x"], cwd=path)
    assert list(driver.stored) == ["a\\b", "C:/x", "/srv\\..\\f", "C:\\x"]
    assert [call.request.cwd for call in driver.calls] == list(driver.stored)
