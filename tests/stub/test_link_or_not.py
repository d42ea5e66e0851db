"""Whether a sandbox is made with the agent or of execs, and what is remembered of that."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import sandboxio
from sandboxio import CreationError
from sandboxio.adapters.docker import DockerBackend, DockerConfig
from sandboxio.guest import frames
from tests.stub.world import IMAGE, Program

if TYPE_CHECKING:
    from sandboxio.protocols import AsyncSandbox
    from tests.stub.engine import StubEngine

pytestmark = pytest.mark.anyio
SHIELDED = {
    "link": "7.1",
    "dumpable": "0",
    "root": "1",
    "prepared": "1",
    "status.CapEff": "0000000000000000",
    "status.CapBnd": "00000000000000e0",
    "status.NoNewPrivs": "1",
    "interface": "lo",
}


def agent(**changes: str) -> Program:
    """Return an agent that greets, and does nothing else."""
    facts = [f"{name}={value}".encode() for name, value in {**SHIELDED, **changes}.items()]
    hello = frames.pack([frames.NAME, frames.VERSION, *facts])
    return Program(out=frames.frame(0, frames.HELLO, hello), lasts=True)


@pytest.fixture(autouse=True)
def wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Links are on; the image has no Python unless a test gives it an agent."""
    monkeypatch.delenv("SBX_DOCKER_LINK")


@pytest.fixture
def backend(stub: StubEngine) -> DockerBackend:
    return DockerBackend(image=IMAGE, config=DockerConfig(host=stub.url))


def created(stub: StubEngine) -> int:
    return stub.asked.count("POST /containers/create")


def mode(stub: StubEngine, sandbox: AsyncSandbox) -> str:
    """Return how the only container there is says that it is reached."""
    (box,) = stub.world.boxes
    assert box.name == f"sandboxio-{sandbox.id}"
    return box.labels["io.sandboxio.mode"]


async def test_an_image_with_an_agent(backend: DockerBackend, stub: StubEngine) -> None:
    """One container is made, its label says so, and no exec is started in it."""
    stub.world.agent = agent()
    async with await backend.create(timeout=30) as sandbox:
        assert (mode(stub, sandbox), created(stub)) == ("link", 1)
        assert stub.world.boxes[0].calls == []
    assert stub.world.boxes == []


async def test_an_image_without_python(backend: DockerBackend, stub: StubEngine) -> None:
    """The first process says 97: another container is made of execs, and the first one is gone."""
    async with await backend.create(timeout=30) as sandbox:
        assert (mode(stub, sandbox), created(stub)) == ("exec", 2)
        assert (await sandbox.run(["true"])).exit_code == 0


@pytest.mark.parametrize("user", [None, "root"])
async def test_an_image_without_python_is_remembered(
    backend: DockerBackend, stub: StubEngine, user: str | None
) -> None:
    """The next sandbox of the image begins with execs, with the same backend."""
    async with await backend.create(timeout=30):
        pass
    before = created(stub)
    async with await backend.create(timeout=30, user=user) as sandbox:
        assert (mode(stub, sandbox), created(stub)) == ("exec", before + 1)


async def test_an_agent_that_is_not_shielded(backend: DockerBackend, stub: StubEngine) -> None:
    """One that its users could trace is not used at all."""
    stub.world.agent = agent(dumpable="1")
    async with await backend.create(timeout=30) as sandbox:
        assert (mode(stub, sandbox), created(stub)) == ("exec", 2)


async def test_root_that_would_keep_capabilities(backend: DockerBackend, stub: StubEngine) -> None:
    """Root gets execs where its calls cannot be rid of capabilities; other users keep the link."""
    stub.world.agent = agent(root="0")
    async with await backend.create(timeout=30, user="root") as sandbox:
        assert mode(stub, sandbox) == "exec"
    async with await backend.create(timeout=30) as sandbox:
        assert mode(stub, sandbox) == "link"
    before = created(stub)
    async with await backend.create(timeout=30, user="root") as sandbox:
        assert (mode(stub, sandbox), created(stub)) == ("exec", before + 1)


@pytest.mark.parametrize(
    "fact",
    [
        {"status.CapEff": "0000000000000020"},
        {"status.CapBnd": "00000000000000e1"},
        {"status.NoNewPrivs": "0"},
        {"interface": "eth0"},
    ],
    ids=str,
)
async def test_a_control_that_is_not_in_force(
    backend: DockerBackend, stub: StubEngine, fact: dict[str, str]
) -> None:
    """What the agent reports is compared with what was asked; nothing is left or tried anew."""
    stub.world.agent = agent(**fact)
    with pytest.raises(CreationError, match="did not apply"):
        await backend.create(timeout=30)
    assert (created(stub), stub.world.boxes) == (1, [])


@pytest.mark.parametrize("code", [1, 126, 127])
async def test_a_first_process_that_ends_otherwise(
    backend: DockerBackend, stub: StubEngine, code: int
) -> None:
    """Only 97 is an image without Python; any other end is told with its words."""
    stub.world.agent = Program(err=b"sh: broken\n", exit_code=code)
    with pytest.raises(CreationError, match=f"exit code {code}: sh: broken"):
        await backend.create(timeout=30)
    assert (created(stub), stub.world.boxes) == (1, [])


@pytest.mark.parametrize("directory", ["/home/sandbox", "/work"])
async def test_what_has_to_change_owners_is_an_archive(
    backend: DockerBackend, stub: StubEngine, directory: str
) -> None:
    """Where a directory is there already it cannot be the agent's to give away."""
    stub.world.agent = agent()
    stub.world.files |= {"/home": None}
    async with await backend.create(timeout=30):
        assert stub.world.boxes[0].archives == []
    stub.world.files |= {directory: None}
    stub.world.images[IMAGE]["Id"] = "sha256:" + "1" * 64
    async with await backend.create(timeout=30):
        assert len(stub.world.boxes[0].archives) == 1


async def test_orders_that_failed_are_an_archive(backend: DockerBackend, stub: StubEngine) -> None:
    """What the agent could not make the engine puts there."""
    stub.world.agent = agent(prepared="0")
    stub.world.files |= {"/home": None}
    async with await backend.create(timeout=30) as sandbox:
        assert mode(stub, sandbox) == "link"
        assert len(stub.world.boxes[0].archives) == 1


@pytest.mark.parametrize("how", ["configuration", "environment"])
async def test_a_link_that_is_not_wanted(
    stub: StubEngine, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Nothing is tried: the first container is the last."""
    if how == "environment":
        monkeypatch.setenv("SBX_DOCKER_LINK", "0")
    never = how == "configuration"
    config = DockerConfig(host=stub.url, template=IMAGE, link="never" if never else "auto")
    async with await sandboxio.create(config, timeout=30) as sandbox:
        assert (mode(stub, sandbox), created(stub)) == ("exec", 1)
