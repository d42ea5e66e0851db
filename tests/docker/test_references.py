"""Images by every kind of reference, pulled and local, and those of another platform."""

from __future__ import annotations

import contextlib
import secrets
import socket
from typing import TYPE_CHECKING, Any

import pytest
from docker.errors import ImageNotFound

import sandboxio
from sandboxio import CreationError
from sandboxio.adapters.docker import DockerConfig
from tests.docker.handmade import Registry, busybox, handmade, serving
from tests.docker.outside import RUN, Outside, unique_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.docker.conftest import Make

pytestmark = [pytest.mark.docker, pytest.mark.anyio]

AARCH64, X86_64 = 183, 62
"""Machines, as the head of a program names them."""


@pytest.fixture(scope="module")
def program(outside: Outside) -> bytes:
    return busybox(outside.client)


@pytest.fixture
def registry(outside: Outside, program: bytes) -> Iterator[Registry]:
    """A registry on this host; ask for it before `make`, whose sandboxes hold its images."""
    if not str(outside.client.api.base_url).startswith("http+docker://"):
        pytest.skip(reason="an engine on another host does not reach the localhost of this one")
    architecture = str(outside.client.version()["Arch"])
    with serving(handmade(program, architecture)) as registry:
        yield registry
        for image in outside.client.images.list():
            attributes: dict[str, list[str] | None] = image.attrs
            names = [*(attributes["RepoTags"] or []), *(attributes["RepoDigests"] or [])]
            for name in (name for name in names if name.startswith(registry.host)):
                with contextlib.suppress(ImageNotFound):  # its last tag takes the digest with it
                    outside.client.images.remove(name, force=True)


async def test_a_pull_by_digest(registry: Registry, make: Make) -> None:
    """IMG-1: `name@sha256:…` with a port brings exactly that, and is then found without a pull."""
    reference = f"{registry.host}/team/img@{registry.digest}"
    sb = await make(reference)
    assert (await sb.run("echo ran; id -u")).stdout == "ran\n10001\n"
    assert f"/v2/team/img/manifests/{registry.digest}" in registry.asked
    registry.asked.clear()
    assert (await (await make(reference)).run("echo local")).stdout == "local\n"
    assert registry.asked == []


async def test_a_pull_by_tag(registry: Registry, make: Make) -> None:
    """IMG-1: exactly the tag that was named is pulled, letter by letter, and no other."""
    sb = await make(f"{registry.host}/team/img:Mixed_1.2")
    assert (await sb.run("echo ran")).stdout == "ran\n"
    assert {path for path in registry.asked if "/manifests/Mixed_1.2" in path}
    assert not [path for path in registry.asked if "latest" in path]


async def test_a_pull_by_tag_and_digest(registry: Registry, make: Make) -> None:
    """IMG-1: where both are named it is the digest that counts."""
    sb = await make(f"{registry.host}/img:other@{registry.digest}")
    assert (await sb.run("echo ran")).stdout == "ran\n"
    assert not [path for path in registry.asked if path.endswith("/other")]


async def test_a_digest_that_the_registry_lacks(registry: Registry) -> None:
    """IMG-2: another digest is never replaced by what there is: `CreationError`, and a hint."""
    absent = f"{registry.host}/team/img@sha256:{'0' * 64}"
    with pytest.raises(CreationError) as caught:
        await sandboxio.create(f"docker://{absent}", timeout=60)
    assert caught.value.outcome == "not_started"
    assert caught.value.__cause__ is not None


async def test_a_registry_that_does_not_answer() -> None:
    """IMG-2: nothing listens at the registry's port: `CreationError`, soon."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        name = f"localhost:{unused.getsockname()[1]}/team/img"
        with pytest.raises(CreationError):
            await sandboxio.create(f"docker://{name}", timeout=60)


@pytest.fixture
def load(outside: Outside, program: bytes) -> Iterator[Callable[[str, int], str]]:
    """Puts an image of an architecture on the engine; ask for it before `make` too."""
    made: list[str] = []

    def load(architecture: str, machine: int) -> str:
        elf = program[:18] + machine.to_bytes(2, "little") + program[20:]
        made.append(f"localhost:5000/team/img-{secrets.token_hex(4)}:1.2")
        outside.client.images.load(handmade(elf, architecture).saved(made[-1]))
        return made[-1]

    yield load
    for tag in made:
        outside.client.images.remove(tag, force=True)


async def test_a_local_image_with_a_port_in_its_name(
    outside: Outside, load: Callable[[str, int], str], make: Make, program: bytes
) -> None:
    """IMG-1: what looks like a registry's is not looked up where the engine has it."""
    name = load(str(outside.client.version()["Arch"]), int.from_bytes(program[18:20], "little"))
    assert (await (await make(name)).run("echo local")).stdout == "local\n"
    config: Any = DockerConfig(template=name, pull="never", timeout=60)
    async with await sandboxio.create(config, metadata={"test_run": RUN}) as sb:
        assert (await sb.run("echo local")).stdout == "local\n"


async def test_an_image_for_another_platform(
    outside: Outside, load: Callable[[str, int], str], program: bytes
) -> None:
    """IMG-4: `CreationError` names the image's platform and the engine's; nothing is left."""
    own = int.from_bytes(program[18:20], "little")
    name = load("arm64", AARCH64) if own == X86_64 else load("amd64", X86_64)
    label = unique_seconds()
    with pytest.raises(CreationError) as caught:
        await sandboxio.create(
            f"docker://{name}", timeout=60, metadata={"test_run": RUN, "foreign": label}
        )
    assert "linux/arm64" in caught.value.hint
    assert "linux/amd64" in caught.value.hint
    assert outside.containers(foreign=label) == []
