"""What moves, changes and finds files by an image's own tools, where those are BusyBox's."""

from __future__ import annotations

import pytest

from sandboxio.testing.suite._files_edit import FileEdits
from sandboxio.testing.suite._files_glob import FileSearch
from sandboxio.testing.suite._files_moving import FileMoving
from sandboxio.testing.suite._files_streams import FileStreams
from sandboxio.testing.suite._metrics import MetricsCases
from tests.contract.dockers import DockerSettings


@pytest.mark.docker
class TestDockerBusyBox(
    DockerSettings, FileMoving, FileEdits, FileSearch, FileStreams, MetricsCases
):
    """An image of BusyBox alone, on one event loop."""

    template = "sandboxio-test/busybox"
    loops = ("asyncio",)
