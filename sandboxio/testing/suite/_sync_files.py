"""Files and metrics for blocking code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from sandboxio.core.errors import CapabilityNotSupported, ConfigurationError, PathNotFound
from sandboxio.core.models import Capability
from sandboxio.testing.suite._case import case
from sandboxio.testing.suite.fixtures import SuiteFixtures

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sandboxio.core.sync import SyncSandbox

AREA = "sync_parity"
FILES = Capability.FILESYSTEM


class SyncFileCases(SuiteFixtures):
    """Cases of the blocking twins of what files can do."""

    @case("SYNC-028", needs=FILES, area=AREA)
    def test_sync_files_get_about(self, blocking: SyncSandbox) -> None:
        """Moving, copying, modes, edits and patterns do what their async twins do."""
        files = blocking.files
        files.mkdir("d")
        files.write("d/f", "old")
        files.copy("d", "e")
        files.move("e/f", "e/g")
        files.chmod("e/g", 0o600)
        assert files.edit("e/g", "old", "new") == 1
        assert [(info.path, info.mode) for info in files.glob("**/?")] == [
            *(("d", 0o755), ("d/f", 0o644), ("e", 0o755), ("e/g", 0o600)),
        ]
        assert [info.path for info in files.ls(recursive=True)] == ["d", "d/f", "e", "e/g"]
        assert (files.read("d/f"), files.read("e/g")) == (b"old", b"new")

    @case("SYNC-029", needs=FILES, area=AREA)
    def test_sync_file_streams(self, blocking: SyncSandbox) -> None:
        """Chunks of a plain iterable are written, and a file is read in chunks by `with`."""
        blocking.files.write_from("f", (b"x" * 100_000 for _ in range(20)))
        with blocking.files.open_read("f", offset=1) as chunks:
            assert sum(map(len, chunks)) == 1_999_999
        with pytest.raises(ZeroDivisionError), blocking.files.open_read("f") as chunks:
            assert next(iter(chunks))
            raise ZeroDivisionError
        with pytest.raises(PathNotFound), blocking.files.open_read("none"):
            pass

    @case("SYNC-030", needs=FILES, area=AREA)
    def test_sync_sources_that_break(self, blocking: SyncSandbox) -> None:
        """What an iterable raises comes out as it is, and what is none is refused: no file."""
        error = ZeroDivisionError("the source's own")

        def breaking() -> Iterator[bytes]:
            yield b"x"
            raise error

        write: Any = blocking.files.write_from
        with pytest.raises(ZeroDivisionError) as caught:
            write("f", breaking())
        assert caught.value is error
        for chunks in (None, 7, "text", [b"x", "text"]):
            with pytest.raises(ConfigurationError, match="chunks"):
                write("f", chunks)
        assert blocking.files.ls() == []

    @case("SYNC-032", needs=Capability.UPLOAD_DOWNLOAD, area=AREA)
    def test_sync_trees(self, blocking: SyncSandbox, tmp_path: Path) -> None:
        """Directories go up and down in blocking code as in other."""
        (tmp_path / "local" / "d").mkdir(parents=True)
        (tmp_path / "local" / "d" / "f").write_text("x")
        up = blocking.files.upload_dir(tmp_path / "local", "t", exclude=("absent",))
        down = blocking.files.download_dir("t", tmp_path / "back", include=("d",))
        assert (up, (down.files, down.size)) == (down, (1, 1))
        assert (tmp_path / "back" / "d" / "f").read_text() == "x"

    @case("SYNC-031", area=AREA)
    def test_sync_metrics(self, blocking: SyncSandbox) -> None:
        """Metrics are those of the sandbox."""
        try:
            used = blocking.metrics()
        except CapabilityNotSupported:
            pytest.skip(reason="nobody can tell what this sandbox uses")
        assert used.memory_bytes > 0
