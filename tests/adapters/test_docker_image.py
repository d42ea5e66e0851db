"""Images: the grammar of a reference, pulling, and what an image says about its users."""

from __future__ import annotations

import io
import tarfile
from typing import TYPE_CHECKING, Any

import anyio.lowlevel
import pytest
from docker.errors import ImageNotFound  # type: ignore[import-untyped, unused-ignore]

from sandboxio import AuthError, ConfigurationError, CreationError
from sandboxio.adapters._docker_answers import ContainerDescription, ImageDescription
from sandboxio.adapters._docker_image import (
    ImageFacts,
    User,
    bring,
    is_directory,
    parse_reference,
    read_text,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HEX = "0123456789abcdef" * 4
DIGEST = f"sha256:{HEX}"
SECRET = "s3cr3t"
DIRECTORY, LINK = 1 << 31, 1 << 27


@pytest.mark.parametrize(
    ("written", "repository", "tag"),
    [
        ("python", "python", "latest"),
        ("python:3.12-slim", "python", "3.12-slim"),
        ("img:MixedTag", "img", "MixedTag"),
        ("team/img", "team/img", "latest"),
        ("a.b-c_d__e---f/g", "a.b-c_d__e---f/g", "latest"),
        ("localhost:5000/team/img:1.2", "localhost:5000/team/img", "1.2"),
        ("localhost/img", "localhost/img", "latest"),
        ("registry.example:5000/a/b/c:t", "registry.example:5000/a/b/c", "t"),
        ("Registry.Example/img", "Registry.Example/img", "latest"),
        (f"img@{DIGEST}", "img", DIGEST),
        (f"img:tag@{DIGEST}", "img", DIGEST),
        (f"host:1/img:tag@{DIGEST}", "host:1/img", DIGEST),
        ("img:" + "t" * 128, "img", "t" * 128),
    ],
)
def test_references(written: str, repository: str, tag: str) -> None:
    """A reference is split into repository and the more exact of tag and digest."""
    assert parse_reference(written) == (repository, tag)


@pytest.mark.parametrize(
    ("written", "complaint"),
    [
        ("", "it is not"),
        ("img:", "tag after ':' is empty"),
        (f"img:@{DIGEST}", "tag after ':' is empty"),
        ("Img", "lower case"),
        ("team/Img", "lower case"),
        ("IMG:tag", "lower case"),
        ("host:5000/IMG", "lower case"),
        ("img@", "sha256 digest"),
        ("img@sha256:abc", "sha256 digest"),
        (f"img@md5:{HEX}", "sha256 digest"),
        (f"img@sha256:{HEX.upper()}", "sha256 digest"),
        ("img:" + "t" * 129, "it is not"),
        ("img:-t", "it is not"),
        ("/img", "it is not"),
        ("img/", "it is not"),
        ("a//b", "it is not"),
        ("-img", "it is not"),
        ("img.", "it is not"),
        ("a___b", "it is not"),
        ("img:a:b", "it is not"),
        ("img\n", "it is not"),
        ("img:t\n", "it is not"),
        ("im g", "it is not"),
        ("$(id)", "it is not"),
        ("ünï", "it is not"),
    ],
)
def test_malformed_references(written: str, complaint: str) -> None:
    """What is wrong is said, and how to write it."""
    with pytest.raises(ConfigurationError, match=complaint) as caught:
        parse_reference(written)
    assert "python:3.12-slim" in caught.value.hint


def test_an_upper_case_first_part_is_no_registry() -> None:
    """A registry has a dot, a port, or is localhost; anything else is part of the repository."""
    with pytest.raises(ConfigurationError, match="lower case"):
        parse_reference("UPPER/img")


@pytest.mark.parametrize(
    "written",
    [
        f"user:{SECRET}@registry.example/img",
        f"https://user:{SECRET}@registry.example/img:1",
        f"img:1?password={SECRET}",
        f"img@{SECRET}",
        f"img {SECRET}",
        f"IMG:{SECRET}",
    ],
)
def test_a_malformed_reference_is_not_repeated(written: str) -> None:
    """It may hold credentials, so neither message nor hint shows it."""
    with pytest.raises(ConfigurationError) as caught:
        parse_reference(written)
    assert SECRET not in f"{caught.value}{caught.value!r}"


class Client:
    """An engine that has some images, and pulls with the events it is given."""

    def __init__(self, *events: dict[str, Any], has: bool = False, gives: bool = True) -> None:
        self.has, self._gives, self._events = has, gives, events
        self.pulled: list[tuple[str, str]] = []

    async def call(self, phase: str, action: Callable[[Any], Any], *, lane: str = "call") -> Any:
        await anyio.lowlevel.checkpoint()
        return action(self)

    def inspect_image(self, reference: str) -> dict[str, Any]:
        if not self.has:
            raise ImageNotFound("no such image")
        return {"Id": "sha256:1"}

    def pull(self, repository: str, *, tag: str, stream: bool, decode: bool) -> Iterator[Any]:
        self.pulled.append((repository, tag))
        yield from self._events
        self.has = self._gives


async def brought(
    client: Any,
    reference: str = "host:1/img:2",
    *,
    pull: bool = True,
    progress: Callable[[str], None] | None = None,
) -> ImageDescription:
    return await bring(client, reference, pull=pull, progress=progress)


@pytest.mark.anyio
async def test_an_image_that_is_there_is_not_pulled() -> None:
    """No registry is asked for what the engine has."""
    client = Client(has=True)
    assert (await brought(client)).id == "sha256:1"
    assert client.pulled == []


@pytest.mark.anyio
async def test_exactly_the_missing_image_is_pulled() -> None:
    """One tag or digest is pulled, never all tags, and progress is told."""
    lines: list[str] = []
    client = Client({"id": "a1", "status": "Pulling", "progress": "[=>]"}, {"stream": "x"})
    await brought(client, progress=lines.append)
    assert client.pulled == [("host:1/img", "2")]
    assert lines == ["a1 Pulling [=>]"]


@pytest.mark.anyio
async def test_pulling_can_be_forbidden() -> None:
    """An absent image is then an error with the command that brings it."""
    client = Client()
    with pytest.raises(CreationError, match="not on this engine") as caught:
        await brought(client, pull=False)
    assert (client.pulled, caught.value.hint) == ([], "docker pull host:1/img:2")


@pytest.mark.anyio
async def test_an_error_in_the_midst_of_a_pull() -> None:
    """An error line after a good start is mapped like any answer."""
    with pytest.raises(CreationError, match="no space left"):
        await brought(Client({"status": "Pulling"}, {"error": "write: no space left on device"}))
    with pytest.raises(AuthError):
        await brought(Client({"error": "unauthorized: authentication required"}))


@pytest.mark.anyio
async def test_a_pull_that_brought_nothing() -> None:
    """An engine that says it pulled and has no image is not believed."""
    with pytest.raises(CreationError, match="is not there"):
        await brought(Client(gives=False))


@pytest.mark.anyio
async def test_a_malformed_reference_asks_no_engine() -> None:
    """The grammar is checked first."""
    client = Client()
    with pytest.raises(ConfigurationError):
        await brought(client, reference="IMG")
    assert client.pulled == []


PASSWD = """\
root:x:0:0:root:/root:/bin/bash
# a comment
broken:x:notanumber:1:::
short:x:5
app:x:1000:1001::/home/app:/bin/sh
nohome:x:1002:1002:::/bin/sh
app:x:2000:2000::/second:/bin/sh
+@netgroup
"""
GROUP = "root:x:0:\napp:x:1001:\naudio:x:29:app,nohome\nvideo:x:44:app\nbad:x:y:app\nshort:x\n"
FACTS = ImageFacts("i", "", "/bin", accounts=PASSWD, groups=GROUP)


def test_users_of_an_image() -> None:
    """The first line of a name or number counts; lines that cannot be read are passed over."""
    assert FACTS.entry(name="app") == User(1000, 1001, "app", "/home/app")
    assert FACTS.entry(uid=1000) == User(1000, 1001, "app", "/home/app")
    assert FACTS.entry(uid=2000) == User(2000, 2000, "app", "/second")
    assert FACTS.entry(name="nohome") == User(1002, 1002, "nohome", "/")
    for name in ("broken", "short", "missing", ""):
        assert FACTS.entry(name=name) is None


def test_groups_of_an_image() -> None:
    """Groups are found by name; a user's supplementary ones leave out the primary."""
    assert (FACTS.gid("audio"), FACTS.gid("bad"), FACTS.gid("missing")) == (29, None, None)
    assert FACTS.groups_of(User(1000, 1001, "app", "/")) == (29, 44)
    assert FACTS.groups_of(User(1000, 29, "app", "/")) == (44,)
    assert FACTS.groups_of(User(5, 5, "ap", "/")) == ()


@pytest.mark.parametrize("number", ["9" * 5000, "4294967296", "2147483648", "-1", "+1", "٣", "1_0"])
def test_numbers_that_no_engine_takes(number: str) -> None:
    """A line with such a uid or gid is passed over: nothing overflows into another's number."""
    facts = ImageFacts(
        "i", "", "/bin", f"x:x:{number}:5::/:\ny:x:5:{number}::/:\n", groups=f"g:x:{number}:y\n"
    )
    assert (facts.entry(name="x"), facts.entry(name="y"), facts.gid("g")) == (None, None, None)
    assert facts.groups_of(User(5, 5, "y", "/")) == ()


class Archived:
    """An answer that the engine goes on sending until it is closed."""

    status_code = 200

    def __init__(self, content: bytes) -> None:
        self._content = content
        self.closed = False

    def iter_content(self, size: int) -> Iterator[bytes]:
        for start in range(0, len(self._content), size):
            yield self._content[start : start + size]

    def __enter__(self) -> Archived:
        return self

    def __exit__(self, *_: object) -> None:
        self.closed = True


class Archive:
    """A container not yet started, of which paths can be looked at."""

    base_url, api_version = "http://engine", "1.44"

    def __init__(self, **paths: tuple[int, str]) -> None:
        self._paths = {f"/{name.replace('_', '/')}": value for name, value in paths.items()}

    def head(self, url: str, params: dict[str, str]) -> Any:
        import base64
        import json
        from types import SimpleNamespace

        if params["path"] not in self._paths:
            return SimpleNamespace(status_code=404)
        mode, target = self._paths[params["path"]]
        stat = json.dumps({"mode": mode, "linkTarget": target}).encode()
        headers = {"X-Docker-Container-Path-Stat": base64.b64encode(stat).decode()}
        return SimpleNamespace(status_code=200, headers=headers)

    def get(self, url: str, params: dict[str, str], *, stream: bool) -> Archived:
        content = self._paths[params["path"]][1].encode()
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            member = tarfile.TarInfo("../../evil")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        self.answer = Archived(buffer.getvalue())
        return self.answer


def test_a_text_file_is_found_behind_links() -> None:
    """Where it really is and what it holds; absent files are empty."""
    client = Archive(etc_passwd=(LINK, "../real/passwd"), etc_x=(LINK, "/real"), real=(0, "text"))
    client_with_relative = Archive(etc_passwd=(LINK, "shadow"), etc_shadow=(0, "there"))
    assert read_text(client, "c", "/etc/x") == ("/real", "text")
    assert read_text(client_with_relative, "c", "/etc/passwd") == ("/etc/shadow", "there")
    assert read_text(client, "c", "/etc/group") == ("/etc/group", "")


def test_links_in_a_circle_and_huge_files_are_refused() -> None:
    """A hostile image cannot keep us reading."""
    with pytest.raises(CreationError, match="chain of links"):
        read_text(Archive(a=(LINK, "/a")), "c", "/a")
    huge = Archive(a=(0, "x" * 2_000_000))
    with pytest.raises(CreationError, match="too large"):
        read_text(huge, "c", "/a")
    assert huge.answer.closed


def test_what_must_be_a_directory() -> None:
    """A directory or nothing is accepted; a link or a file is refused by name."""
    client = Archive(work=(DIRECTORY, ""), link=(LINK, "/x"), file=(0, ""))
    assert is_directory(client, "c", "/work")
    assert not is_directory(client, "c", "/missing")
    with pytest.raises(CreationError, match="/link of the image is a link"):
        is_directory(client, "c", "/link")
    with pytest.raises(CreationError, match="/file of the image is a file"):
        is_directory(client, "c", "/file")


@pytest.mark.parametrize("answer", [{}, {"Config": None, "State": None, "HostConfig": None}])
def test_descriptions_bear_what_is_missing(answer: dict[str, Any]) -> None:
    """Absent and null parts of an answer are plain values, never an error of Python's."""
    image, container = ImageDescription(answer), ContainerDescription(answer)
    assert (image.user, image.path, image.labels) == ("", "", {})
    assert (container.running, container.labels, container.network_mode) == (False, {}, "")


def test_descriptions_read_what_is_there() -> None:
    """Names lose their slash; PATH is found among the variables."""
    config = {"User": "app", "Env": ["A=1", "PATH=/x:/y=z"], "Labels": {"k": "v"}}
    image = ImageDescription({"Id": "sha256:1", "Config": config})
    assert (image.id, image.user, image.path, image.labels) == (
        "sha256:1",
        "app",
        "/x:/y=z",
        {"k": "v"},
    )
    assert ContainerDescription({"Name": "/sandboxio-1"}).name == "sandboxio-1"
