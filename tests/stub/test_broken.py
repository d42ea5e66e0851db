"""Answers that are none: garbage, cut, reset, of a proxy, of another shape. Nothing raw, ever."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeVar

import anyio
import pytest

import sandboxio
from sandboxio import ConnectError, CreationError, LinkLost, SandboxError
from sandboxio.adapters.docker import DockerBackend, DockerConfig
from tests.stub.engine import StubEngine
from tests.stub.faults import Answer, Fault, data
from tests.stub.test_silence import CALL, CREATION
from tests.stub.world import IMAGE, Program

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sandboxio.protocols import AsyncSandbox
    from tests.stub.conftest import Create

T = TypeVar("T")
pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore::sandboxio.OrphanedSandboxWarning"),
    pytest.mark.filterwarnings("ignore::sandboxio.UnverifiedIsolationWarning"),
]


@pytest.fixture(autouse=True)
def grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SBX_TEARDOWN_GRACE", "0.25")


START = "POST /exec/.*/start"
ATTACH = "POST /containers/.*/attach"
PAGE = b"<html><body><h1>502 Bad Gateway</h1></body></html>"
ANSWERS: dict[str, Answer | bytes] = {
    "header garbage": b"\x00\xff\x16\x03garbage\r\n\r\n",
    "another protocol": b"SSH-2.0-OpenSSH_9.6\r\n",
    "half a head": b"HTTP/1.1 200 OK\r\nContent-Le",
    "no length": b"HTTP/1.0 502 Bad Gateway\r\n\r\n" + PAGE,
    "less than promised": b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n{",
    "bad chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}",
    "a page": Answer(502, PAGE, "text/html"),
    "a page that says 200": Answer(200, PAGE, "text/html"),
    "half a JSON": Answer(200, b'{"Id": "3f9c2a7b", "Sta'),
    "a redirect": Answer(307, headers=(("Location", "http://192.0.2.1/"),)),
    "a redirect to nowhere": Answer(301),
    "418": Answer(418, b"teapot", "text/plain"),
    "599": Answer(599, b""),
    "600": Answer(600, b"{}"),
    "no JSON in the error": Answer(500, b"[]"),
    "a message of another kind": data({"message": {"a": 1}}, 500),
    "null": data(None),
    "a list": data([]),
    "a list of numbers": data([1, 2]),
    "a text": data("moment"),
    "a number": data(7),
    "nothing": data({}),
    "a pid that is none": data({"Running": False, "ExitCode": 7, "Pid": "x"}),
    "parts of another kind": data(
        {"Id": 7, "State": 1, "Config": [], "HostConfig": "x", "Running": [], "Runtimes": 3}
    ),
}
RESETS: dict[str, Literal["reset", "close"]] = {"reset": "reset", "closed": "close"}

SOME = ("header garbage", "half a JSON", "600", "null")
CONTENT = ("PUT /containers/.*/archive", "POST /containers/.*/start", "GET /info")
"""Routes whose answer may say anything, or nothing, in a success."""


def met(few: tuple[str, ...], routes: list[str]) -> pytest.MarkDecorator:
    """Have some answers meet all routes and all answers a few, on the two loops in turn."""
    pairs = [(r, name) for r in routes for name in (ANSWERS if r in few else SOME)]
    cases = [
        pytest.param(("asyncio", "trio")[number % 2], route, ANSWERS[name], id=f"{route}-{name}")
        for number, (route, name) in enumerate(pairs)
    ]
    return pytest.mark.parametrize(("anyio_backend", "route", "answer"), cases)


@met(("POST /containers/create", ATTACH, "GET /info"), CREATION)
async def test_a_creation_that_meets_it(
    create: Create, stub: StubEngine, route: str, answer: Answer | bytes
) -> None:
    """`create()` raises an error of ours, or is content where a success says all there is."""
    stub.faults.set(Fault(route, instead=answer))
    with anyio.fail_after(5):
        made, error = await settled(lambda: create(timeout=0.4))
    if made is not None:
        await made.kill()
    assert route in CONTENT or error is not None
    assert error is None or (error.hint and error.outcome in ("not_started", "unknown"))
    assert stub.world.boxes == []


@met((START, "GET /exec/.*/json"), CALL)
async def test_a_call_that_meets_it(
    sb: AsyncSandbox, stub: StubEngine, route: str, answer: Answer | bytes
) -> None:
    """`run()` raises an error of ours, whose outcome is told, or its result is right."""
    stub.world.programs["once"] = Program(out=b"out\n", exit_code=7)
    stub.faults.set(Fault(route, instead=answer, times=1))
    with anyio.fail_after(10):
        result, error = await settled(lambda: sb.run(["once"], timeout=0.5))
    assert error is None or error.outcome in ("not_started", "unknown")
    assert result is None or (result.stdout, result.exit_code) == ("out\n", 7)


@met(("GET /containers/json",), ["GET /containers/json"])
async def test_an_overview_that_meets_it(
    config: DockerConfig, stub: StubEngine, route: str, answer: Answer | bytes
) -> None:
    """A list of sandboxes is an error of ours, unless it is the list of none."""
    stub.faults.set(Fault(route, instead=answer))
    found, error = await settled(DockerBackend(config=config).list_managed)
    assert found == [] or (error is not None and error.hint)


async def settled(action: Callable[[], Awaitable[T]]) -> tuple[T | None, SandboxError | None]:
    """Return what came of it: a result, or an error of ours; any other is raised."""
    try:
        return await action(), None
    except SandboxError as exc:
        return None, exc


@pytest.mark.parametrize("then", RESETS.values(), ids=RESETS)
@pytest.mark.parametrize("passes", [0, 40, 130, 100_000])
async def test_a_stream_cut_in_mid_output(
    sb: AsyncSandbox,
    stub: StubEngine,
    monkeypatch: pytest.MonkeyPatch,
    passes: int,
    then: Literal["reset", "close"],
) -> None:
    """Output that is cut is an error, never a result."""
    monkeypatch.setenv("SBX_TEARDOWN_GRACE", "5")
    stub.world.programs["long"] = Program(out=b"x" * 300_000)
    stub.faults.set(Fault(START, passes=passes, then=then, times=1))
    with anyio.fail_after(10), pytest.raises(ConnectError) as caught:
        await sb.run(["long"])
    assert isinstance(caught.value, LinkLost) or passes < 130
    assert caught.value.outcome == "unknown"
    assert (await sb.run(["true"])).exit_code == 0


@pytest.mark.parametrize("then", RESETS.values(), ids=RESETS)
async def test_a_reset_over_tcp(then: Literal["reset", "close"]) -> None:
    """A connection that is reset, as TCP does it, is an error as well."""
    with StubEngine() as stub:
        config = DockerConfig(host=stub.url, template=IMAGE)
        stub.world.programs["long"] = Program(out=b"x" * 300_000)
        async with await sandboxio.create(config, timeout=30) as sandbox:
            stub.faults.set(Fault(START, passes=100_000, then=then, times=1))
            with pytest.raises(LinkLost):
                await sandbox.run(["long"])


async def test_a_page_that_ends_with_its_connection(sb: AsyncSandbox, stub: StubEngine) -> None:
    """What a proxy says is told, although nothing says how long it is."""
    stub.faults.set(Fault(START, instead=ANSWERS["no length"], times=1))
    with pytest.raises(ConnectError, match=r"502: .*Bad Gateway"):
        await sb.run(["true"])


async def test_frames_that_the_protocol_does_not_have(sb: AsyncSandbox, stub: StubEngine) -> None:
    """Output under another number is not taken for text."""
    stub.world.programs["odd"] = Program(out=b"x", stream=9)
    with pytest.raises(LinkLost, match="malformed"):
        await sb.run(["odd"])


@pytest.mark.parametrize("passes", [40, 150])
async def test_first_words_that_are_cut(create: Create, stub: StubEngine, passes: int) -> None:
    """A lost connection is not told as a first process that ended."""
    stub.faults.set(Fault(ATTACH, passes=passes, then="reset"))
    with anyio.fail_after(5), pytest.raises(ConnectError) as caught:
        await create()
    assert caught.value.__cause__ is not None or passes < 130
    assert stub.world.boxes == []


async def test_a_description_of_another_container(create: Create, stub: StubEngine) -> None:
    """What the engine describes must be what it was asked to make."""
    async with await create():
        other = stub.world.description(stub.world.boxes[0])
        other |= {"Config": {"Labels": {}}}
        stub.faults.set(Fault("GET /containers/.*/json", instead=data(other)))
        with pytest.raises(CreationError):
            await create()
        stub.faults.set()
    assert stub.world.boxes == []
