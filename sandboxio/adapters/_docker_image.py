"""Images: the grammar of a reference, bringing one in, and what it says about its users."""

from __future__ import annotations

import io
import re
import tarfile
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple

from sandboxio.adapters._docker_answers import ImageDescription
from sandboxio.adapters._docker_failure import failure
from sandboxio.adapters._loader import load
from sandboxio.core.errors import ConfigurationError, CreationError, SandboxError

if TYPE_CHECKING:
    from collections.abc import Callable

    from sandboxio.adapters._docker_answers import Answer
    from sandboxio.adapters._docker_engine import Engine

WORKDIR = "/work"
HOME = "/home/sandbox"
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_DOMAIN = rf"(?:localhost|{_LABEL}(?:\.{_LABEL})+|{_LABEL}(?:\.{_LABEL})*(?=:))(?::[0-9]+)?"
_COMPONENT = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REFERENCE = re.compile(
    rf"(?P<repository>(?:{_DOMAIN}/)?{_COMPONENT}(?:/{_COMPONENT})*)"
    r"(?P<tag>:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?"
    r"(?P<digest>@sha256:[0-9a-f]{64})?\Z"
)
_FORM = "Write it like python:3.12-slim, registry.example:5000/team/image:1.2 or name@sha256:…"
_TAR_LIMIT = 1024 * 1024
_PIECE = 64 * 1024
_LINK_HOPS = 5
_ID_DIGITS, _ID_MOST = 10, 2**31 - 1
_FIRST_ORDINARY = 1000
"""The uids below are the system's own."""
_DIRECTORY, _LINK = 1 << 31, 1 << 27  # bits of Go's file mode


class Reference(NamedTuple):
    """A parsed image reference; `tag` is a tag or a digest, whichever is more exact."""

    repository: str
    tag: str


def parse_reference(value: str) -> Reference:
    """Check an image reference; the message does not repeat it, for it may hold credentials.

    Raises:
        ConfigurationError: it is malformed.
    """
    match = _REFERENCE.match(value)
    if match is None:
        raise ConfigurationError(
            f"The image reference is malformed: {_complaint(value)}.", hint=_FORM
        )
    exact = match["digest"] or match["tag"] or ":latest"
    return Reference(match["repository"], exact[1:])


def _complaint(value: str) -> str:
    repository = value.partition("@")[0].rpartition("/")[2].partition(":")[0]
    if "@" in value and not re.search(r"@sha256:[0-9a-f]{64}\Z", value):
        return "after '@' there must be a sha256 digest of 64 hexadecimal digits"
    if value.partition("@")[0].endswith(":"):
        return "the tag after ':' is empty"
    if (
        repository != repository.lower()
        or value.partition(":")[0] != value.partition(":")[0].lower()
    ):
        return "the repository name must be lower case"
    return "it is not <repository>[:<tag>][@sha256:<digest>]"


@dataclass(frozen=True)
class User:
    """Who a command runs as: always a uid together with a gid."""

    uid: int
    gid: int
    name: str
    home: str

    @property
    def spec(self) -> str:
        return f"{self.uid}:{self.gid}"


@dataclass(frozen=True)
class ImageFacts:
    """What an image says about itself, read once per image."""

    id: str
    user: str
    path: str
    accounts: str = ""
    """Content of its passwd file, which lies at `accounts_path`."""
    accounts_path: str = "/etc/passwd"
    groups: str = ""
    groups_path: str = "/etc/group"
    directories: frozenset[str] = frozenset()
    """Which of the paths we prepare are directories already."""

    def entry(self, *, uid: int | None = None, name: str | None = None) -> User | None:
        """Return the image's own user of that uid or name; lines that are none are skipped."""
        for parts in _lines(self.accounts, fields=7):
            number, group = id_number(parts[2]), id_number(parts[3])
            if number is None or group is None:
                continue
            if parts[0] == name or number == uid:
                return User(number, group, parts[0], parts[5] or "/")
        return None

    def gid(self, name: str) -> int | None:
        """Return the number of a group of the image."""
        for parts in _lines(self.groups, fields=3):
            if parts[0] == name and (number := id_number(parts[2])) is not None:
                return number
        return None

    def groups_of(self, user: User) -> tuple[int, ...]:
        """Return the user's supplementary groups, as the image lists them."""
        found = {
            number
            for parts in _lines(self.groups, fields=4)
            if user.name in parts[3].split(",") and (number := id_number(parts[2])) is not None
        }
        return tuple(sorted(found - {user.gid}))


def _lines(text: str, *, fields: int) -> list[list[str]]:
    """Return the lines of a passwd or group file that have so many fields."""
    lines = (line.split(":") for line in text.split("\n"))
    return [parts for parts in lines if len(parts) >= fields]


def id_number(text: str) -> int | None:
    """Return a uid or gid as engines take it; nothing for what is none."""
    if not (text.isascii() and text.isdecimal() and len(text) <= _ID_DIGITS):
        return None
    return int(text) if int(text) <= _ID_MOST else None


async def bring(
    engine: Engine,
    reference: str,
    *,
    pull: bool,
    progress: Callable[[str], None] | None,
) -> ImageDescription:
    """Return the engine's description of an image, pulling exactly that one when it is absent."""
    parsed = parse_reference(reference)
    described = await engine.call("image", lambda client: _inspect(client, reference))
    if described is None and not pull:
        raise CreationError(
            f"The image {reference!r} is not on this engine.",
            hint=f"docker pull {reference}",
            outcome="not_started",
        )
    if described is None:
        await engine.call("image", lambda client: _pull(client, parsed, progress), lane="pull")
        described = await engine.call("image", lambda client: _inspect(client, reference))
    if described is None:
        raise CreationError(
            f"The image {reference!r} was pulled and is not there.",
            hint=f"docker pull {reference}",
            outcome="not_started",
        )
    return described


def _inspect(client: Any, reference: str) -> ImageDescription | None:
    errors: Any = load("docker.errors", backend="docker", extra="docker")
    try:
        return ImageDescription(client.inspect_image(reference))
    except errors.ImageNotFound:
        return None


def _pull(client: Any, parsed: Reference, progress: Callable[[str], None] | None) -> None:
    errors: Any = load("docker.errors", backend="docker", extra="docker")
    for event in client.pull(parsed.repository, tag=parsed.tag, stream=True, decode=True):
        if words := _trouble(event):
            raise failure("image", None, words) from errors.DockerException(words)
        if progress is not None and event.get("status"):
            progress(
                " ".join(str(event.get(key, "")) for key in ("id", "status", "progress")).strip()
            )


def _trouble(event: Answer) -> str:
    """Return what a line of progress says went wrong; newer engines no longer send `error`."""
    detail: Any = event.get("errorDetail")
    message = detail.get("message") if isinstance(event.get("errorDetail"), dict) else None
    return str(event.get("error") or message or detail or "")


async def platforms(engine: Engine, image: str) -> str:
    """Say which platform an image is for, and which one the engine is."""

    def ask(client: Any) -> str:
        described, own = ImageDescription(client.inspect_image(image)), client.version()
        return f" ({described.platform}, while this engine is {own.get('Os')}/{own.get('Arch')})"

    try:
        both = await engine.call("image", ask)
    except SandboxError:  # what is being explained is the error
        both = ""
    return f"The image is for another platform{both}; use one for the engine's architecture."


def read_facts(client: Any, container: str, image: ImageDescription) -> ImageFacts:
    """Read, from a container not yet started, what its image says; blocking."""
    accounts_path, accounts = read_text(client, container, "/etc/passwd")
    groups_path, groups = read_text(client, container, "/etc/group")
    facts = ImageFacts(
        id=image.id,
        user=image.user,
        path=image.path or DEFAULT_PATH,
        accounts=accounts,
        accounts_path=accounts_path,
        groups=groups,
        groups_path=groups_path,
    )
    wanted = {WORKDIR, str(PurePosixPath(HOME).parent), HOME}
    found = {path for path in wanted if is_directory(client, container, path)}
    found |= {path for path in _homes(facts) if _is_directory(_stat(client, container, path))}
    return replace(facts, directories=frozenset(found))


def _homes(facts: ImageFacts) -> set[str]:
    """Return the homes of the image's ordinary users, which calls may ask for by name."""
    return {
        parts[5]
        for parts in _lines(facts.accounts, fields=7)
        if (id_number(parts[2]) or 0) >= _FIRST_ORDINARY
        and parts[5].startswith("/")
        and _is_utf8(parts[5])
    }


def _is_utf8(text: str) -> bool:
    """Whether a text can be part of what is said to an engine."""
    return not any("\udc80" <= sign <= "\udcff" for sign in text)


def is_directory(client: Any, container: str, path: str) -> bool:
    """Say whether a path is there; anything but a directory is refused."""
    stat = _stat(client, container, path)
    if stat is None:
        return False
    if not _is_directory(stat):
        kind = "a link" if stat["mode"] & _LINK else "a file"
        raise CreationError(
            f"{path} of the image is {kind}; it must be a directory or absent.",
            hint=f"Build the image without {path}, or make it a directory.",
            outcome="not_started",
        )
    return True


def _is_directory(stat: dict[str, Any] | None) -> bool:
    return stat is not None and bool(stat["mode"] & _DIRECTORY)


def read_text(client: Any, container: str, path: str) -> tuple[str, str]:
    """Return where a small text file really is, and its content; empty when it is absent."""
    for _ in range(_LINK_HOPS):
        stat = _stat(client, container, path)
        if stat is None:
            return path, ""
        if not stat["mode"] & _LINK:
            return path, _content(client, container, path)
        path = str(PurePosixPath(path).parent / str(stat["linkTarget"]))
    raise CreationError(f"{path} of the image is a chain of links.", outcome="not_started")


def _stat(client: Any, container: str, path: str) -> dict[str, Any] | None:
    import base64
    import json

    response = client.head(
        f"{client.base_url}/v{client.api_version}/containers/{container}/archive",
        params={"path": path},
    )
    if response.status_code == 404:
        return None
    if response.status_code != 200:
        raise failure("create", response.status_code, f"looking at {path}")
    stat: dict[str, Any] = json.loads(
        base64.b64decode(response.headers["X-Docker-Container-Path-Stat"])
    )
    return stat


def _content(client: Any, container: str, path: str) -> str:
    response = client.get(
        f"{client.base_url}/v{client.api_version}/containers/{container}/archive",
        params={"path": path},
        stream=True,
    )
    with response:  # the engine keeps the container locked until all is taken or it is closed
        if response.status_code != 200:
            raise failure("create", response.status_code, f"reading {path}")
        data = b""
        for piece in response.iter_content(_PIECE):
            data += piece
            if len(data) > _TAR_LIMIT:
                raise CreationError(f"{path} of the image is too large.", outcome="not_started")
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        member = archive.next()
        content = archive.extractfile(member) if member is not None and member.isreg() else None
        return "" if content is None else content.read().decode("utf-8", "surrogateescape")
