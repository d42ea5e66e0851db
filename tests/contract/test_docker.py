"""The contract on a real Docker engine, over the guest link and by execs."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import pytest

from sandboxio.testing.suite import (
    BackendContractSuite,
    CancellationSuite,
    FilesSuite,
    RunCodeSuite,
    RunSuite,
    StdinSuite,
    StreamingSuite,
    TimeoutsSuite,
    TransferSuite,
)
from tests.contract.dockers import DockerSettings

if TYPE_CHECKING:
    from collections.abc import Mapping


class UserSuite(RunSuite, RunCodeSuite, StreamingSuite, StdinSuite, FilesSuite, TransferSuite):
    """The areas in which it matters whose calls they are."""


class LoopSuite(CancellationSuite, TimeoutsSuite, StreamingSuite):
    """The areas in which it matters most whose event loop it is."""


class ExecSettings(DockerSettings):
    """Each call is an exec of the engine, as in an image without Python."""

    link = "never"


@pytest.mark.docker
class TestLink(DockerSettings, BackendContractSuite):
    """All of it over the guest link, as the default user."""

    loops = ("asyncio",)
    deviations: ClassVar[Mapping[str, str]] = {}


@pytest.mark.docker
class TestLinkOnTrio(DockerSettings, LoopSuite):
    """Over the guest link, on the other event loop."""

    loops = ("trio",)


@pytest.mark.docker
class TestLinkAsRoot(DockerSettings, UserSuite):
    """As root, on one event loop: the other is the default user's concern."""

    user = "root"
    loops = ("asyncio",)


@pytest.mark.docker
class TestLinkAsTheImagesUser(DockerSettings, UserSuite):
    """As the user that an image names, with a home of its own."""

    template = "sandboxio-test/user-named"
    loops = ("trio",)


@pytest.mark.docker
class TestLinkInASmallPython(DockerSettings, RunSuite, RunCodeSuite):
    """Where Python is as small as Debian makes it, without ctypes."""

    template = "sandboxio-test/python-minimal"
    loops = ("asyncio",)


@pytest.mark.docker
class TestExec(ExecSettings, BackendContractSuite):
    """All of it by execs, as the default user."""

    loops = ("asyncio",)
    deviations: ClassVar[Mapping[str, str]] = {}


@pytest.mark.docker
class TestExecAsRoot(ExecSettings, RunSuite, FilesSuite):
    """As root."""

    user = "root"
    loops = ("trio",)


@pytest.mark.docker
class TestExecAsTheImagesUser(ExecSettings, RunSuite, FilesSuite):
    """As the user that an image names."""

    template = "sandboxio-test/user-named"
    loops = ("asyncio",)
