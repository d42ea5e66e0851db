"""The contract on a real Docker engine."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, ClassVar

import pytest

from sandboxio.adapters.docker import DockerBackend
from sandboxio.testing.suite import BackendContractSuite

if TYPE_CHECKING:
    from collections.abc import Mapping


@pytest.mark.docker
class TestDocker(BackendContractSuite):
    """Docker, in plain exec mode."""

    backend = DockerBackend()
    template = os.environ.get("SANDBOXIO_TEST_IMAGE", "sandboxio-test/python")
    deviations: ClassVar[Mapping[str, str]] = {}
