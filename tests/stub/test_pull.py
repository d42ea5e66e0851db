"""IMG-2 and IMG-3: pulls that fail, and the credentials nobody needs."""

from __future__ import annotations

import json
import warnings
from typing import TYPE_CHECKING, Any, Literal

import anyio
import pytest

import sandboxio
from sandboxio import AuthError, CreateTimeout, CreationError, RateLimitError, SandboxError
from sandboxio.adapters.docker import DockerConfig
from tests.stub.faults import Answer, Fault, lines, refusal

if TYPE_CHECKING:
    from pathlib import Path

    from tests.stub.conftest import Create
    from tests.stub.engine import StubEngine

pytestmark = pytest.mark.anyio

PULL = "POST /images/create"
ABSENT = "registry.example/team/absent:1"
STEP: dict[str, Any] = {"status": "Pulling fs layer", "id": "3f9c2a7b51d0", "progressDetail": {}}
MANIFEST = "manifest for registry.example/team/absent:1 not found: manifest unknown"
LIMIT = "toomanyrequests: You have reached your unauthenticated pull rate limit."
NOT_FOUND = "repository registry.example/team/absent not found: does not exist or no pull access"
BOTH = {"errorDetail": {"message": MANIFEST}, "error": MANIFEST}
DETAIL_ALONE = {"errorDetail": {"code": 404, "message": MANIFEST}}
PAGE = Answer(502, b"<html><h1>Bad Gateway</h1></html>", "text/html")

FAILURES: dict[str, tuple[Fault | None, type[SandboxError], str]] = {
    "denied or absent": (None, CreationError, "pull access denied"),
    "not found": (Fault(PULL, instead=refusal(404, NOT_FOUND)), CreationError, "does not exist"),
    "401": (Fault(PULL, instead=refusal(401, "authentication required")), AuthError, "401"),
    "429": (Fault(PULL, instead=refusal(429, "slow down")), RateLimitError, "slow down"),
    "throttled": (Fault(PULL, instead=refusal(500, LIMIT)), RateLimitError, "pull rate limit"),
    "throttled late": (
        Fault(PULL, instead=lines(STEP, {"errorDetail": {"message": LIMIT}})),
        RateLimitError,
        "pull rate limit",
    ),
    "an error line": (Fault(PULL, instead=lines(STEP, BOTH)), CreationError, "manifest unknown"),
    "its detail alone": (
        Fault(PULL, instead=lines(STEP, DETAIL_ALONE)),
        CreationError,
        "manifest unknown",
    ),
    "an error of no form": (
        Fault(PULL, instead=lines(STEP, {"errorDetail": "odd"})),
        CreationError,
        "odd",
    ),
    "a page": (Fault(PULL, instead=PAGE), CreationError, "Bad Gateway"),
    "closed in mid-pull": (Fault(PULL, instead=lines(STEP, STEP), passes=200), CreationError, ""),
    "reset in mid-pull": (
        Fault(PULL, instead=lines(STEP, STEP), passes=200, then="reset"),
        CreationError,
        "",
    ),
    "closed at once": (Fault(PULL, passes=0), SandboxError, "does not answer"),
    "no JSON": (
        Fault(PULL, instead=Answer(body=b"moment\nplease\n", chunked=True)),
        SandboxError,
        "",
    ),
    "no objects": (Fault(PULL, instead=lines(1, [])), SandboxError, ""),
}


@pytest.mark.parametrize(("fault", "error", "words"), FAILURES.values(), ids=FAILURES)
async def test_a_pull_that_fails(
    create: Create, stub: StubEngine, fault: Fault | None, error: type[SandboxError], words: str
) -> None:
    """Each failure is the error a caller can act on, with cause and hint, and no container."""
    stub.faults.set(*[fault] if fault else [])
    with anyio.fail_after(5), pytest.raises(error, match=words or None) as caught:
        await create(ABSENT)
    assert caught.value.__cause__ is not None
    assert caught.value.hint
    assert caught.value.outcome in ("not_started", "unknown")
    assert "POST /containers/create" not in stub.asked


async def test_a_pull_slower_than_the_creation_may_be(create: Create, stub: StubEngine) -> None:
    """`create()` keeps its own deadline while layers are still coming."""
    stub.faults.set(Fault(PULL, instead=lines(STEP, STEP), passes=200, then="silence"))
    with anyio.fail_after(5), pytest.raises(CreateTimeout) as caught:
        await create(ABSENT, timeout=0.5)
    assert caught.value.hint
    assert "POST /containers/create" not in stub.asked


async def test_a_pull_that_succeeds(stub: StubEngine) -> None:
    """Progress is handed over, and the image is used."""
    stub.world.pulls[ABSENT] = [STEP, {"status": "Download complete"}]
    heard: list[str] = []
    config = DockerConfig(host=stub.url, template=ABSENT, on_pull=heard.append)
    async with await sandboxio.create(config, timeout=30):
        assert stub.asked.count(PULL) == 1
    assert heard == ["3f9c2a7b51d0 Pulling fs layer", "Download complete"]


async def test_an_image_that_is_pulled_and_not_there(create: Create, stub: StubEngine) -> None:
    """An engine that says it has pulled an image must have it."""
    stub.faults.set(Fault(PULL, instead=lines(STEP)))
    with pytest.raises(CreationError, match="is not there") as caught:
        await create(ABSENT)
    assert caught.value.outcome == "not_started"


@pytest.fixture
def broken_helper(tmp_path: Path) -> None:
    """A client configuration whose credential helper does not exist."""
    (tmp_path / "config.json").write_text(json.dumps({"credsStore": "nope"}))


@pytest.mark.usefixtures("broken_helper")
async def test_a_local_image_needs_no_credentials(create: Create, stub: StubEngine) -> None:
    """With a broken credential helper an image that is there works as ever."""
    async with await create():
        assert PULL not in stub.asked


@pytest.mark.parametrize("shown", ["error", "ignore"])
@pytest.mark.usefixtures("broken_helper")
async def test_a_pull_that_needs_a_broken_helper(
    create: Create, stub: StubEngine, shown: Literal["error", "ignore"]
) -> None:
    """An absent image is refused, by an error that names the helper; the SDK's warning or not."""
    warnings.simplefilter(shown, UserWarning)
    with anyio.fail_after(5), pytest.raises(AuthError, match="docker-credential-nope") as caught:
        await create(ABSENT)
    assert caught.value.__cause__ is not None
    assert "config.json" in caught.value.hint
    assert stub.world.boxes == []
