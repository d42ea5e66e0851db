"""What an engine may make of a container: ended at once, other limits, odd images."""

from __future__ import annotations

import io
import tarfile
from typing import TYPE_CHECKING, Any

import pytest

from sandboxio import CreationError, UnenforcedLimitWarning
from tests.stub.faults import Fault, refusal
from tests.stub.world import IMAGE, REPORT, Program, image

if TYPE_CHECKING:
    from tests.stub.conftest import Create
    from tests.stub.engine import StubEngine

pytestmark = pytest.mark.anyio

START = "POST /containers/.*/start"
FORMAT = b"exec /bin/sh: exec format error\n"
NO_SHELL = (
    'failed to create task for container: OCI runtime create failed: exec: "/bin/sh": '
    "stat /bin/sh: no such file or directory: unknown"
)
PLATFORM = "exec /bin/sh: exec format error"


@pytest.mark.parametrize(
    ("first", "words", "hint"),
    [
        (Program(err=b"sh: boom\n", exit_code=3), "exit code 3: sh: boom", "with a shell"),
        (Program(err=FORMAT, exit_code=255), "exit code 255: exec /bin/sh", "another platform"),
        (Program(err=b"sleep: not found\n", exit_code=127), "exit code 127", "with a shell"),
        (Program(), "exit code 0: it said nothing", "with a shell"),
        (Program(out=b"CapEff: 0\n", exit_code=1), "exit code 1", "with a shell"),
    ],
)
async def test_a_first_process_that_ends(
    create: Create, stub: StubEngine, first: Program, words: str, hint: str
) -> None:
    """The error tells its exit code and its last words, and what to do; nothing is left."""
    stub.world.first = first
    with pytest.raises(CreationError, match=words) as caught:
        await create()
    assert hint in caught.value.hint
    assert caught.value.__cause__ is not None
    assert (caught.value.outcome, stub.world.boxes) == ("not_started", [])


async def test_last_words_are_the_last(create: Create, stub: StubEngine) -> None:
    """Of a long complaint the last 2 KB are shown."""
    stub.world.first = Program(err=b"first" + b"x" * 100_000 + b"last", exit_code=1)
    with pytest.raises(CreationError) as caught:
        await create()
    assert "first" not in caught.value.message.partition(": ")[2]
    assert caught.value.message.endswith("x" * 2044 + "last")


@pytest.mark.parametrize(
    ("message", "hint"), [(NO_SHELL, "with a shell"), (PLATFORM, "another platform")]
)
async def test_a_start_that_is_refused(
    create: Create, stub: StubEngine, message: str, hint: str
) -> None:
    """No shell, or one for another machine: the hint says which image would do."""
    stub.faults.set(Fault(START, instead=refusal(400, message)))
    with pytest.raises(CreationError, match="answered 400") as caught:
        await create()
    assert hint in caught.value.hint
    assert (caught.value.outcome, stub.world.boxes) == ("not_started", [])


@pytest.mark.parametrize(
    "held",
    [
        {"Memory": 0},
        {"Memory": None},
        {"NanoCpus": 1},
        {"PidsLimit": -1},
        {"PidsLimit": "512"},
        {"NetworkMode": "bridge"},
        {"NetworkMode": "default"},
    ],
)
async def test_what_was_asked_is_not_in_force(
    create: Create, stub: StubEngine, held: dict[str, Any]
) -> None:
    """A cap or a network mode that reads back differently costs the container."""
    stub.world.held |= held
    with pytest.raises(CreationError, match="did not apply") as caught:
        await create()
    assert caught.value.hint
    assert (caught.value.outcome, stub.world.boxes) == ("not_started", [])


async def test_swap_that_cannot_be_capped(create: Create, stub: StubEngine) -> None:
    """It is the one cap that some kernels lack: a warning."""
    stub.world.held |= {"MemorySwap": -1}
    with pytest.warns(UnenforcedLimitWarning):
        await (await create()).kill()


@pytest.mark.parametrize(
    ("line", "false"),
    [
        (b"CapEff: 0000000000000000", b"CapEff: 0000000000000400"),
        (b"NoNewPrivs: 1", b"NoNewPrivs: 0"),
        (b"Interface: lo", b"Interface: lo\nInterface: eth0"),
        (b"CapBnd: 0000000000000000\n", b""),
    ],
)
async def test_what_was_accepted_is_not_in_force(
    create: Create, stub: StubEngine, line: bytes, false: bytes
) -> None:
    """The kernel's word inside counts, whatever the engine says of the container."""
    stub.world.first = Program(out=REPORT.replace(line, false), lasts=True)
    with pytest.raises(CreationError, match="did not apply it"):
        await create()
    assert stub.world.boxes == []


@pytest.mark.parametrize(
    "settings",
    [
        None,
        {},
        {"Env": None, "Labels": None, "User": None},
        {"Env": ["PATH", "=x", ""], "Labels": {"io.sandboxio.managed": "true"}},
        {"User": "0:0"},
        {"User": "1234:5678"},
        {"User": "root"},
    ],
)
async def test_images_with_odd_configurations(
    create: Create, stub: StubEngine, settings: dict[str, Any] | None
) -> None:
    """Whatever an image does not say has a default; its labels are not taken for ours."""
    stub.world.images["odd:1"] = {**image(), "Config": settings}
    async with await create("odd:1") as sandbox:
        assert (await sandbox.run(["true"])).exit_code == 0
        assert stub.world.boxes[0].labels["io.sandboxio.name"] == sandbox.id
        assert stub.world.boxes[0].config["User"] == "0:0"


async def test_a_user_that_the_image_does_not_have(create: Create, stub: StubEngine) -> None:
    """USER with no entry in passwd is refused by name."""
    stub.world.images["odd:1"] = image(User="ghost")
    with pytest.raises(CreationError, match="USER 'ghost'") as caught:
        await create("odd:1")
    assert (caught.value.outcome, stub.world.boxes) == ("not_started", [])
    assert "USER 1000:1000" in caught.value.hint


async def test_an_image_without_accounts(create: Create, stub: StubEngine) -> None:
    """No passwd and no group: both are made, with root and the sandbox's user."""
    stub.world.files.clear()
    async with await create():
        put = io.BytesIO(stub.world.boxes[0].archives[0])
    with tarfile.open(fileobj=put) as archive:
        passwd = archive.extractfile("etc/passwd")
        assert passwd is not None
        assert passwd.read().decode().splitlines() == [
            "root:x:0:0:root:/root:/bin/sh",
            "sandbox:x:10001:10001:sandbox:/home/sandbox:/bin/sh",
        ]


@pytest.mark.parametrize("content", [b"\xff\xfe\n:::\nroot\n", b"\0" * 4096, b"a:b:c:d:e:f:g\n"])
async def test_accounts_that_cannot_be_read(
    create: Create, stub: StubEngine, content: bytes
) -> None:
    """A passwd of nonsense has no users; it keeps its lines."""
    stub.world.files["/etc/passwd"] = content
    async with await create() as sandbox:
        assert (await sandbox.run(["true"])).exit_code == 0


@pytest.mark.parametrize("path", ["/work", "/home", "/home/sandbox"])
async def test_a_file_where_a_directory_must_be(
    create: Create, stub: StubEngine, path: str
) -> None:
    """What would become the working directory or the home is never a file."""
    stub.world.files[path] = b"in the way"
    with pytest.raises(CreationError, match=f"{path} of the image is a file"):
        await create()
    assert stub.world.boxes == []


async def test_an_image_for_another_platform(create: Create, stub: StubEngine) -> None:
    """It is there and is used: only the engine knows what it can run; its refusal is told."""
    stub.world.images[IMAGE] |= {"Architecture": "riscv64", "Variant": "x"}
    stub.world.first = Program(err=FORMAT, exit_code=255)
    with pytest.raises(CreationError, match="exec format error") as caught:
        await create()
    assert "another platform" in caught.value.hint
