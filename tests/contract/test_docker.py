"""The contract on a real Docker engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import pytest

from tests.contract.dockers import DockerSuite

if TYPE_CHECKING:
    from collections.abc import Mapping


@pytest.mark.docker
class TestDocker(DockerSuite):
    """Docker, in plain exec mode."""

    deviations: ClassVar[Mapping[str, str]] = {}
