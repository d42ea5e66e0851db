"""The contract on a real Docker engine, in plain exec mode."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import pytest

from sandboxio.testing.suite import (
    BackendContractSuite,
    FilesSuite,
    RunCodeSuite,
    RunSuite,
    StdinSuite,
    StreamingSuite,
    TransferSuite,
)
from tests.contract.dockers import DockerSettings

if TYPE_CHECKING:
    from collections.abc import Mapping


class UserSuite(RunSuite, RunCodeSuite, StreamingSuite, StdinSuite, FilesSuite, TransferSuite):
    """The areas in which it matters whose calls they are."""


@pytest.mark.docker
class TestDocker(DockerSettings, BackendContractSuite):
    """All of it, as the default user."""

    deviations: ClassVar[Mapping[str, str]] = {}


@pytest.mark.docker
class TestDockerAsRoot(DockerSettings, UserSuite):
    """As root, on one event loop: the other is the default user's concern."""

    user = "root"
    loops = ("asyncio",)


@pytest.mark.docker
class TestDockerAsTheImagesUser(DockerSettings, UserSuite):
    """As the user that an image names, with a home of its own."""

    template = "sandboxio-test/user-named"
    loops = ("trio",)
