"""Containers: what is asked of the engine, and whether it did that."""

from __future__ import annotations

import io
import re
import tarfile
import time
import warnings
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from sandboxio.adapters._docker_answers import labels_of
from sandboxio.adapters._docker_image import HOME, WORKDIR, ImageFacts, User, id_number
from sandboxio.core import owner
from sandboxio.core.errors import (
    CapabilityNotSupported,
    ConfigurationError,
    CreationError,
    UnenforcedLimitWarning,
)
from sandboxio.core.models import DEFAULT_TIMEOUT, ManagedSandbox
from sandboxio.core.requests import seconds
from sandboxio.guest import probe, program

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sandboxio.adapters._docker_answers import Answer, ContainerDescription, ImageDescription
    from sandboxio.core.requests import CreateRequest

NAME_PREFIX = "sandboxio-"
PREFIX = "io.sandboxio."
SANDBOX_UID = 10001
DEFAULT_CPU = 1.0
DEFAULT_MEMORY_MB = 512
PIDS_LIMIT = 512
AGENT_CAPS = ("SETUID", "SETGID", "KILL")
_OOM_SCORE = 500
_MIB = 1024 * 1024
_HOSTS = "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n"
_ID = re.compile(r"[0-9a-f]{16}\Z")


class Limits(NamedTuple):
    """The caps of a container, in the engine's units."""

    memory: int
    nano_cpus: int
    pids: int


def limits_for(request: CreateRequest) -> Limits:
    memory = request.resources.memory_mb or DEFAULT_MEMORY_MB
    cpu = request.resources.cpu or DEFAULT_CPU
    return Limits(memory * _MIB, max(1, round(cpu * 1_000_000_000)), PIDS_LIMIT)


def refuse(request: CreateRequest) -> None:
    """Refuse what this adapter cannot enforce, before anything is pulled or made."""
    network, resources = request.network, request.resources
    if network.allow:
        raise CapabilityNotSupported(
            "Docker cannot enforce an egress allowlist: EGRESS_ALLOWLIST is not declared.",
            hint="Bring the data in with sb.files.upload(), or bake it into the image.",
        )
    if network.egress == "learn":
        raise CapabilityNotSupported("Docker cannot record egress: egress='learn' is not offered.")
    if network.ingress_ports:
        raise CapabilityNotSupported(
            "Docker sandboxes publish no ports: TUNNELS is not declared.",
            hint="Talk to the program through sb.stream(stdin=True).",
        )
    if resources.disk_mb is not None:
        raise CapabilityNotSupported(
            "Docker cannot cap the disk of a container: Resources(disk_mb=) would not apply.",
        )
    if resources.gpu is not None:
        raise CapabilityNotSupported("GPU is not declared: Resources(gpu=) would not apply.")


def labels_for(sandbox_id: str, request: CreateRequest, image: Mapping[str, str]) -> dict[str, str]:
    """Return the labels of a container; labels of ours that the image carries are emptied."""
    labels = {name: "" for name in image if name.startswith(PREFIX)}
    labels |= {f"{PREFIX}meta.{key}": value for key, value in request.metadata.items()}
    labels |= {f"{PREFIX}owner.{key}": value for key, value in owner.owner().items()}
    labels |= {
        f"{PREFIX}managed": "true",
        f"{PREFIX}name": sandbox_id,
        f"{PREFIX}session": owner.session(),
        f"{PREFIX}timeout": repr(request.timeout),
        f"{PREFIX}user": request.user or "",
    }
    return labels


def is_ours(name: str, labels: Mapping[str, str]) -> bool:
    """Say whether a container is a sandbox of ours: labels are inherited, names are not."""
    sandbox_id = labels.get(f"{PREFIX}name", "")
    return (
        labels.get(f"{PREFIX}managed") == "true"
        and _ID.match(sandbox_id) is not None
        and name.removeprefix("/") == NAME_PREFIX + sandbox_id
    )


def owner_of(labels: Mapping[str, str]) -> dict[str, str]:
    """Return who made a container, as `core.owner` describes it."""
    start = f"{PREFIX}owner."
    return {
        key.removeprefix(start): value for key, value in labels.items() if key.startswith(start)
    }


def lifetime_of(labels: Mapping[str, str]) -> float:
    """Return the seconds a sandbox was made for; the default where the label is not ours."""
    try:
        return seconds("timeout", float(labels.get(f"{PREFIX}timeout", "")))
    except (ValueError, ConfigurationError):
        return DEFAULT_TIMEOUT


def is_id(sandbox_id: str) -> bool:
    """Say whether a text can be the id of a sandbox of ours."""
    return _ID.match(sandbox_id) is not None


def metadata_of(labels: Mapping[str, str]) -> dict[str, str]:
    """Return the caller's metadata as the labels hold it."""
    start = f"{PREFIX}meta."
    return {
        key.removeprefix(start): value
        for key, value in labels.items()
        if key.startswith(start) and value  # an empty one was the image's
    }


class FirstProcess(NamedTuple):
    """What a container begins with, and what the engine has to give it for that."""

    command: tuple[str, ...]
    init: bool
    capabilities: tuple[str, ...]
    oom_score: int
    stdin: bool


def agent(source: bytes) -> FirstProcess:
    """Return the agent as first process: it may become others and end them, and nothing else."""
    script = (program.FIRST_PROCESS, "sandboxio", *program.arguments(source))
    return FirstProcess(script, init=False, capabilities=AGENT_CAPS, oom_score=0, stdin=True)


def sleeper(request: CreateRequest) -> FirstProcess:
    """Return the first process of a sandbox whose calls are engine execs."""
    script = (probe.FIRST_PROCESS, "sandboxio", str(max(1, -int(-request.timeout // 1))))
    return FirstProcess(script, init=True, capabilities=(), oom_score=_OOM_SCORE, stdin=False)


def make(
    client: Any,
    sandbox_id: str,
    request: CreateRequest,
    image: ImageDescription,
    first: FirstProcess,
    groups: tuple[int, ...] = (),
) -> str:
    """Create the container, not started; blocking. Returns the engine's id of it."""
    limits = limits_for(request)
    denied = request.network.egress == "deny"
    host = client.create_host_config(
        network_mode="none" if denied else "bridge",
        init=first.init,
        cap_drop=["ALL"],
        cap_add=list(first.capabilities) or None,
        security_opt=["no-new-privileges"],
        pids_limit=limits.pids,
        mem_limit=limits.memory,
        memswap_limit=limits.memory,
        nano_cpus=limits.nano_cpus,
        oom_score_adj=first.oom_score,
        log_config={"Type": "none", "Config": {}},
        group_add=[str(group) for group in groups] or None,
    )
    made = client.create_container(
        image.id,
        name=NAME_PREFIX + sandbox_id,
        entrypoint=["/bin/sh", "-c"],
        command=list(first.command),
        stdin_open=first.stdin,
        stop_signal="SIGKILL" if first.stdin else None,  # the agent hears no other
        user="0:0",
        working_dir="/",
        network_disabled=denied,
        labels={
            **labels_for(sandbox_id, request, image.labels),
            f"{PREFIX}mode": "link" if first.stdin else "exec",
        },
        host_config=host,
        use_config_proxy=False,
    )
    return str(made["Id"])


def sandbox_user(facts: ImageFacts) -> User:
    """Return who runs commands by default: the image's own unprivileged user, or ours."""
    name = facts.user.partition(":")[0]
    if name in ("", "0", "root"):
        return _our_user(facts)
    user = resolve_user(facts, facts.user)
    if user is None:
        raise CreationError(
            f"The image's USER {facts.user[:64]!r} is not in its /etc/passwd and /etc/group.",
            hint="Add the user to the image, or give a number: USER 1000:1000",
            outcome="not_started",
        )
    return _our_user(facts) if user.uid == 0 else user


def _our_user(facts: ImageFacts) -> User:
    known = facts.entry(uid=SANDBOX_UID)
    taken = facts.entry(name="sandbox")
    name = known.name if known else "sandboxio" if taken else "sandbox"
    return User(SANDBOX_UID, SANDBOX_UID, name, HOME)


def resolve_user(facts: ImageFacts, spec: str) -> User | None:
    """Turn a name, `uid` or `uid:gid` into a full user; nothing when a name is unknown."""
    name, _, group = spec.partition(":")
    found: User | None
    if (uid := id_number(name)) is not None:
        found = facts.entry(uid=uid) or User(uid, uid, name, HOME if uid else "/root")
    else:
        found = facts.entry(name=name) or (User(0, 0, "root", "/root") if name == "root" else None)
    if found is None or not group:
        return found if found is None else _housed(facts, found)
    gid = facts.gid(group) if (number := id_number(group)) is None else number
    return None if gid is None else _housed(facts, replace(found, gid=gid))


def _housed(facts: ImageFacts, user: User) -> User:
    if user.uid == 0 or user.home in facts.directories:
        return user
    return User(user.uid, user.gid, user.name, HOME)


def caller_user(facts: ImageFacts, spec: str) -> User:
    """Turn the `user=` of a caller into a full user.

    Raises:
        ConfigurationError: the image has no such user or group.
    """
    own = sandbox_user(facts)
    user = own if spec in (own.name, str(own.uid), own.spec) else resolve_user(facts, spec)
    if user is None:
        raise ConfigurationError(
            f"The sandbox has no user {spec!r}.", hint='Give a number, as in user="1000:1000".'
        )
    return user


def preparation(facts: ImageFacts, user: User, *, hosts: bool) -> bytes:
    """Return the one archive put into a container before it starts: home, work, accounts."""
    own = sandbox_user(facts)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        _add_directory(archive, WORKDIR, user)
        if "/home" not in facts.directories:
            _add_directory(archive, "/home", User(0, 0, "root", "/"))
        _add_directory(archive, HOME, user if user.home == HOME else own)
        if own.uid == SANDBOX_UID:
            for path, content in _accounts(facts, own):
                _add_file(archive, path, content)
        if hosts:
            _add_file(archive, "/etc/hosts", _HOSTS)
    return buffer.getvalue()


def orders(facts: ImageFacts, user: User, *, hosts: bool) -> list[bytes] | None:
    """Return what the agent is to make of the same; nothing where that takes an owner changed.

    It takes 1 ms, and the engine 40 ms for the archive.
    """
    own = sandbox_user(facts)
    if user.uid != own.uid or facts.directories & {WORKDIR, "/home", HOME} != frozenset({"/home"}):
        return None
    made: list[bytes] = []
    for path in (WORKDIR, HOME):
        made += [b"directory", path.encode(), b""]
    if own.uid == SANDBOX_UID:
        for path, text in _accounts(facts, own):
            made += [b"write", path.encode(), text.encode("utf-8", "surrogateescape")]
    if hosts:
        made += [b"write", b"/etc/hosts", _HOSTS.encode()]
    return made


def _accounts(facts: ImageFacts, user: User) -> list[tuple[str, str]]:
    """Return the account files with lines for a user that is not in them."""
    found: list[tuple[str, str]] = []
    if facts.entry(uid=user.uid) is None:
        base = facts.accounts or "root:x:0:0:root:/root:/bin/sh\n"
        line = f"{user.name}:x:{user.uid}:{user.gid}:sandbox:{user.home}:/bin/sh\n"
        found.append((facts.accounts_path, _with_line(base, line)))
    if facts.gid(user.name) is None:
        base = facts.groups or "root:x:0:\n"
        found.append((facts.groups_path, _with_line(base, f"{user.name}:x:{user.gid}:\n")))
    return found


def _with_line(text: str, line: str) -> str:
    return text + ("" if not text or text.endswith("\n") else "\n") + line


def _add_directory(archive: tarfile.TarFile, path: str, user: User) -> None:
    member = tarfile.TarInfo(path.lstrip("/"))
    member.type, member.mode, member.mtime = tarfile.DIRTYPE, 0o755, int(time.time())
    member.uid, member.gid = user.uid, user.gid
    archive.addfile(member)


def _add_file(archive: tarfile.TarFile, path: str, content: str) -> None:
    data = content.encode("utf-8", "surrogateescape")
    member = tarfile.TarInfo(path.lstrip("/"))
    member.size, member.mode, member.mtime = len(data), 0o644, int(time.time())
    archive.addfile(member, io.BytesIO(data))


def check_identity(described: ContainerDescription, name: str) -> None:
    """Raise unless the engine describes the container it was asked to make."""
    if described.name != name or not is_ours(described.name, described.labels):
        raise CreationError(
            "The engine describes another container than the one it was asked to make.",
            outcome="not_started",
        )


def check_limits(described: ContainerDescription, request: CreateRequest) -> None:
    """Compare the caps the engine holds with those asked for.

    Raises:
        CreationError: one of them is not in force.
    """
    asked, held = limits_for(request), described.host
    for name, wanted, found in (
        ("memory", asked.memory, held.get("Memory")),
        ("CPU", asked.nano_cpus, held.get("NanoCpus")),
        ("process count", asked.pids, held.get("PidsLimit")),
    ):
        if wanted != found:
            raise CreationError(
                f"The engine did not apply the {name} cap: {wanted} asked, {found} in force.",
                hint="Use an engine whose kernel and mode support cgroup limits; see docker info",
                outcome="not_started",
            )
    if held.get("MemorySwap") != asked.memory:
        warnings.warn(
            "The kernel cannot cap swap: memory beyond the memory cap may be swapped.",
            UnenforcedLimitWarning,
            stacklevel=2,
        )


def check_network(described: ContainerDescription, request: CreateRequest) -> None:
    """Raise unless the engine holds the network mode that was asked for."""
    mode = described.network_mode
    if request.network.egress == "deny" and mode != "none":
        raise CreationError(
            f"The engine did not apply network deny: its mode is {mode!r}.", outcome="not_started"
        )


def managed(entry: Answer) -> list[ManagedSandbox]:
    """Return the sandbox of ours that an entry of the engine's list is, if it is one."""
    labels = labels_of(entry)
    if not any(is_ours(str(name), labels) for name in entry.get("Names") or ()):
        return []
    state = str(entry.get("State", ""))
    known: Literal["running", "paused", "stopped"] = (
        "running" if state == "running" else "paused" if state == "paused" else "stopped"
    )
    return [
        ManagedSandbox(
            sandbox_id=labels[f"{PREFIX}name"],
            backend="docker",
            state=known,
            created_at=datetime.fromtimestamp(int(entry.get("Created", 0))).astimezone(),
            labels=metadata_of(labels),
        )
    ]
