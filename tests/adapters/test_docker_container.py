"""Containers: what is asked for, who owns them, who runs commands, and what is read back."""

from __future__ import annotations

import io
import tarfile
import time
from dataclasses import replace
from typing import Any

import pytest

from sandboxio import (
    CapabilityNotSupported,
    ConfigurationError,
    CreationError,
    NetworkPolicy,
    Resources,
    UnenforcedLimitWarning,
)
from sandboxio.adapters import _docker_container as containers
from sandboxio.adapters._docker_answers import ContainerDescription, ImageDescription
from sandboxio.adapters._docker_container import PREFIX, FirstProcess, is_ours, labels_for
from sandboxio.adapters._docker_image import ImageFacts, User
from sandboxio.core.requests import CreateRequest

ID = "3f9c2a7b51d04e86"
MIB = 1024 * 1024
OURS = {f"{PREFIX}managed": "true", f"{PREFIX}name": ID}
PASSWD = """\
root:x:0:0:root:/root:/bin/bash
toor:x:0:0::/root:/bin/sh
app:x:1000:1001::/home/app:/bin/sh
"""
GROUP = "root:x:0:\napp:x:1001:\nstaff:x:50:app\n"
FACTS = ImageFacts(
    "i", "", "/bin", accounts=PASSWD, groups=GROUP, directories=frozenset({"/home", "/home/app"})
)
SANDBOX = User(10001, 10001, "sandbox", "/home/sandbox")
APP = User(1000, 1001, "app", "/home/app")


@pytest.mark.parametrize(
    ("name", "labels", "ours"),
    [
        (f"sandboxio-{ID}", OURS, True),
        (f"/sandboxio-{ID}", OURS, True),
        (f"sandboxio-{ID}", {}, False),
        ("postgres", OURS, False),
        (ID, OURS, False),
        (f"sandboxio-{ID}x", OURS, False),
        (f"xsandboxio-{ID}", OURS, False),
        (f"//sandboxio-{ID}", OURS, False),
        (f"/other/sandboxio-{ID}", OURS, False),
        (f"sandboxio-{ID}\n", OURS, False),
        (f"sandboxio-{ID}", {**OURS, f"{PREFIX}managed": "True"}, False),
        (f"sandboxio-{ID}", {**OURS, f"{PREFIX}managed": "truer"}, False),
        (f"sandboxio-{ID}", {**OURS, f"{PREFIX}name": ID[:-1]}, False),
        (f"sandboxio-{ID}", {f"{PREFIX}name": ID}, False),
        ("sandboxio-", {**OURS, f"{PREFIX}name": ""}, False),
        ("sandboxio-web", {**OURS, f"{PREFIX}name": "web"}, False),
        (f"sandboxio-{ID.upper()}", {**OURS, f"{PREFIX}name": ID.upper()}, False),
        (f"sandboxio-{ID}", {f"{PREFIX}managedx": "true", f"{PREFIX}name": ID}, False),
    ],
)
def test_a_container_is_ours_by_label_and_name(
    name: str, labels: dict[str, str], ours: bool
) -> None:
    """Both must match exactly: labels are inherited, names can be chosen, look-alikes abound."""
    assert is_ours(name, labels) is ours


def test_the_labels_of_a_container() -> None:
    """Metadata and owner are told; the timeout is exact; no secret and no environment is there."""
    request = CreateRequest(
        metadata={"tenant": "t1"},
        timeout=1234567.25,
        user="root",
        env={"A": "env-value"},
        secrets={"B": "secret-value"},
    )
    labels = labels_for(ID, request, {})
    assert is_ours(f"sandboxio-{ID}", labels)
    assert containers.metadata_of(labels) == {"tenant": "t1"}
    assert float(labels[f"{PREFIX}timeout"]) == 1234567.25
    assert labels[f"{PREFIX}user"] == "root"
    assert labels[f"{PREFIX}owner.pid"].isdecimal()
    assert not {"env-value", "secret-value"} & set(labels.values())


def test_labels_of_ours_in_an_image_are_overridden() -> None:
    """An image cannot bring its own metadata, owner or name; foreign labels are left alone."""
    image = {
        f"{PREFIX}meta.tenant": "evil",
        f"{PREFIX}name": "evil",
        f"{PREFIX}owner.pid": "1",
        f"{PREFIX}anything": "evil",
        "org.example": "kept by the engine",
    }
    labels = labels_for(ID, CreateRequest(), image)
    assert "evil" not in labels.values()
    assert (labels[f"{PREFIX}anything"], labels[f"{PREFIX}name"]) == ("", ID)
    assert "org.example" not in labels


def test_metadata_of_an_image_is_not_the_caller_s() -> None:
    """Only what the caller gave is told as metadata."""
    labels = labels_for(ID, CreateRequest(), {f"{PREFIX}meta.tenant": "evil"})
    assert containers.metadata_of(labels) == {}


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (CreateRequest(network=NetworkPolicy(allow=("example.org",))), "EGRESS_ALLOWLIST"),
        (CreateRequest(network=NetworkPolicy(egress="learn")), "learn"),
        (CreateRequest(network=NetworkPolicy(ingress_ports=(8080,))), "TUNNELS"),
        (CreateRequest(resources=Resources(disk_mb=10)), "disk_mb"),
        (CreateRequest(resources=Resources(gpu="T4")), "gpu"),
    ],
)
def test_what_docker_cannot_enforce_is_refused(request_: CreateRequest, words: str) -> None:
    """Nothing is accepted and then ignored."""
    with pytest.raises(CapabilityNotSupported, match=words):
        containers.refuse(request_)


def test_what_docker_can_enforce_is_accepted() -> None:
    """Both plain network policies, and caps of CPU and memory."""
    for network in (NetworkPolicy(), NetworkPolicy(egress="allow")):
        containers.refuse(CreateRequest(network=network, resources=Resources(cpu=2, memory_mb=64)))


def test_limits_in_the_engine_s_units() -> None:
    """No cap asked for is a modest one, never none."""
    assert containers.limits_for(CreateRequest()) == (512 * MIB, 1_000_000_000, 512)
    asked = CreateRequest(resources=Resources(cpu=0.5, memory_mb=64))
    assert containers.limits_for(asked) == (64 * MIB, 500_000_000, 512)


def test_a_tiny_cap_is_not_no_cap() -> None:
    """Zero means unlimited to the engine; a request above zero never becomes it."""
    asked = CreateRequest(resources=Resources(cpu=1e-10))
    assert containers.limits_for(asked).nano_cpus > 0


HELD = {
    "Memory": 512 * MIB,
    "MemorySwap": 512 * MIB,
    "NanoCpus": 1_000_000_000,
    "PidsLimit": 512,
    "NetworkMode": "none",
}


def described(**changes: object) -> ContainerDescription:
    return ContainerDescription({"HostConfig": {**HELD, **changes}})


def test_caps_in_force_are_accepted() -> None:
    """What was asked for is what the engine holds."""
    containers.check_limits(described(), CreateRequest())
    containers.check_network(described(), CreateRequest())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"Memory": 0}, "memory cap"),
        ({"Memory": 512}, "memory cap"),
        ({"Memory": None}, "memory cap"),
        ({"NanoCpus": 0}, "CPU cap"),
        ({"PidsLimit": -1}, "process count cap"),
        ({"PidsLimit": None}, "process count cap"),
    ],
)
def test_a_cap_not_in_force_is_refused(changes: dict[str, object], words: str) -> None:
    """Any difference is a `CreationError` that names the cap."""
    with pytest.raises(CreationError, match=words):
        containers.check_limits(described(**changes), CreateRequest())


def test_swap_that_cannot_be_capped_is_warned_of() -> None:
    """Some kernels have no swap accounting: the cap of memory holds, so it is a warning."""
    with pytest.warns(UnenforcedLimitWarning, match="swap"):
        containers.check_limits(described(MemorySwap=-1), CreateRequest())


@pytest.mark.parametrize("mode", ["bridge", "host", "default", "", None])
def test_a_network_that_is_not_denied_is_refused(mode: object) -> None:
    """Deny is `none` and nothing else; an open policy takes what it gets."""
    with pytest.raises(CreationError, match="network deny"):
        containers.check_network(described(NetworkMode=mode), CreateRequest())
    opened = CreateRequest(network=NetworkPolicy(egress="allow"))
    containers.check_network(described(NetworkMode=mode), opened)


class Client:
    """Receives what is asked of an engine."""

    def __init__(self) -> None:
        self.host: dict[str, Any] = {}
        self.asked: dict[str, Any] = {}

    def create_host_config(self, **options: Any) -> dict[str, Any]:
        self.host = options
        return options

    def create_container(self, image: str, **options: Any) -> dict[str, str]:
        self.asked = {"image": image, **options}
        return {"Id": "e1"}


def made(first: FirstProcess, request: CreateRequest, groups: tuple[int, ...] = ()) -> Client:
    """Return what was asked of an engine for one container."""
    client = Client()
    image = ImageDescription({"Id": "sha256:1"})
    assert containers.make(client, ID, request, image, first, groups) == "e1"
    return client


LASTS = CreateRequest(timeout=1.5, env={"A": "env-value"}, secrets={"B": "secret-value"})
SLEEPER, AGENT = containers.sleeper(LASTS), containers.agent(b"source")


@pytest.mark.parametrize("first", [SLEEPER, AGENT], ids=["exec", "link"])
def test_a_container_is_hardened(first: FirstProcess) -> None:
    """No network, no new privileges, capped, no log, no secret, whatever it begins with."""
    client = made(first, LASTS, (29,))
    host, asked = client.host, client.asked
    assert (host["network_mode"], host["cap_drop"]) == ("none", ["ALL"])
    assert host["security_opt"] == ["no-new-privileges"]
    assert host["mem_limit"] == host["memswap_limit"] == 512 * MIB
    assert (host["log_config"]["Type"], host["group_add"]) == ("none", ["29"])
    assert not {"privileged", "binds", "devices", "pid_mode"} & set(host)
    assert (asked["image"], asked["user"], asked["name"]) == ("sha256:1", "0:0", f"sandboxio-{ID}")
    assert asked["network_disabled"] is True
    assert not any(value in repr(asked) for value in ("env-value", "secret-value"))


def test_a_container_of_execs_has_no_capability() -> None:
    """It begins with root's own timer below the engine's init, and nobody can write to it."""
    client = made(SLEEPER, LASTS)
    assert (client.host["init"], client.host["cap_add"]) == (True, None)
    assert (client.host["oom_score_adj"], client.asked["stdin_open"]) == (500, False)
    assert client.asked["command"][-1] == "2"
    assert client.asked["labels"][f"{PREFIX}mode"] == "exec"


def test_an_agent_has_three_capabilities() -> None:
    """It becomes others and ends them; no init is above it, and its source is no argument."""
    client = made(AGENT, LASTS)
    assert (client.host["init"], client.host["cap_add"]) == (False, ["SETUID", "SETGID", "KILL"])
    assert (client.host["oom_score_adj"], client.asked["stdin_open"]) == (0, True)
    assert client.asked["command"][-1] == str(len(b"source"))
    assert client.asked["labels"][f"{PREFIX}mode"] == "link"


def test_an_open_network_is_asked_for_by_name() -> None:
    """Only `egress="allow"` gets an interface."""
    client = made(SLEEPER, CreateRequest(network=NetworkPolicy(egress="allow")))
    assert (client.host["network_mode"], client.asked["network_disabled"]) == ("bridge", False)
    assert client.host["group_add"] is None


@pytest.mark.parametrize(
    ("image_user", "user"),
    [
        ("", SANDBOX),
        ("root", SANDBOX),
        ("0", SANDBOX),
        ("0:1000", SANDBOX),
        ("00", SANDBOX),
        ("toor", SANDBOX),
        ("app", APP),
        ("1000", APP),
        ("app:staff", replace(APP, gid=50)),
        ("app:0", replace(APP, gid=0)),
        ("1000:50", replace(APP, gid=50)),
        ("4242", User(4242, 4242, "4242", "/home/sandbox")),
        ("4242:7", User(4242, 7, "4242", "/home/sandbox")),
    ],
)
def test_who_runs_commands_by_default(image_user: str, user: User) -> None:
    """The image's own unprivileged user with uid and gid, or ours; never root by accident."""
    assert containers.sandbox_user(replace(FACTS, user=image_user)) == user


def test_a_user_the_image_does_not_have() -> None:
    """A USER that is in no passwd is a `CreationError` that says what to do."""
    with pytest.raises(CreationError, match="'ghost'"):
        containers.sandbox_user(replace(FACTS, user="ghost"))


def test_a_home_that_is_missing_is_ours() -> None:
    """A user whose home the image lacks gets the one that is made."""
    facts = replace(FACTS, user="app", directories=frozenset())
    assert containers.sandbox_user(facts).home == "/home/sandbox"


@pytest.mark.parametrize(
    ("passwd", "name"),
    [
        ("taken:x:10001:5::/x:/bin/sh\n", "taken"),
        ("sandbox:x:77:77::/x:/bin/sh\n", "sandboxio"),
    ],
)
def test_our_user_beside_those_of_the_image(passwd: str, name: str) -> None:
    """A name or number that is taken is not given twice."""
    user = containers.sandbox_user(replace(FACTS, accounts=passwd))
    assert user == User(10001, 10001, name, "/home/sandbox")


@pytest.mark.parametrize(
    ("spec", "user"),
    [
        ("root", User(0, 0, "root", "/root")),
        ("0", User(0, 0, "root", "/root")),
        ("app", APP),
        ("1000:1001", APP),
        ("1000:staff", replace(APP, gid=50)),
        ("sandbox", SANDBOX),
        ("10001", SANDBOX),
        ("10001:10001", SANDBOX),
        ("5:6", User(5, 6, "5", "/home/sandbox")),
    ],
)
def test_who_a_caller_may_name(spec: str, user: User) -> None:
    """Names and numbers become a full user; a bare uid never means gid 0 by accident."""
    assert containers.caller_user(FACTS, spec) == user


@pytest.mark.parametrize("spec", ["ghost", "app:ghosts", "1000:ghosts", "ghost:0"])
def test_a_caller_s_user_that_is_unknown(spec: str) -> None:
    """The refusal names what was asked for and how to give a number."""
    with pytest.raises(ConfigurationError, match=f"'{spec}'"):
        containers.caller_user(FACTS, spec)


def test_root_needs_no_passwd() -> None:
    """An image without accounts still has root."""
    bare = ImageFacts("i", "", "/bin")
    assert containers.caller_user(bare, "root") == User(0, 0, "root", "/root")


def unpacked(facts: ImageFacts, user: User, *, hosts: bool = True) -> dict[str, Any]:
    """Return the members of a preparation archive, and the text of its files."""
    data = containers.preparation(facts, user, hosts=hosts)
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        members = archive.getmembers()
        files = {m.name: archive.extractfile(m) for m in members if m.isreg()}
        texts = {name: file.read().decode() for name, file in files.items() if file is not None}
    assert all(abs(member.mtime - time.time()) < 300 for member in members)
    return {**{member.name: member for member in members}, "texts": texts}


def owner(member: tarfile.TarInfo) -> tuple[int, int, int]:
    return member.uid, member.gid, member.mode


def test_the_preparation_of_a_plain_image() -> None:
    """Work and home belong to the user, accounts are added behind those there are."""
    made = unpacked(FACTS, SANDBOX)
    assert owner(made["work"]) == owner(made["home/sandbox"]) == (10001, 10001, 0o755)
    assert "home" not in made
    assert made["texts"]["etc/passwd"] == (
        PASSWD + "sandbox:x:10001:10001:sandbox:/home/sandbox:/bin/sh\n"
    )
    assert made["texts"]["etc/group"] == GROUP + "sandbox:x:10001:\n"
    assert made["texts"]["etc/hosts"].startswith("127.0.0.1 localhost\n")
    assert owner(made["etc/passwd"]) == (0, 0, 0o644)


def test_the_preparation_of_an_empty_image() -> None:
    """Without any account root is added too, and /home is root's."""
    made = unpacked(ImageFacts("i", "", "/bin"), SANDBOX, hosts=False)
    assert owner(made["home"]) == (0, 0, 0o755)
    assert made["texts"]["etc/passwd"].splitlines()[0].startswith("root:x:0:0:")
    assert made["texts"]["etc/group"].splitlines() == ["root:x:0:", "sandbox:x:10001:"]
    assert "etc/hosts" not in made


def test_the_preparation_for_an_image_s_own_user() -> None:
    """An image's own user keeps its home; its accounts are left as they are."""
    facts = replace(FACTS, user="app")
    made = unpacked(facts, APP)
    assert owner(made["work"]) == (1000, 1001, 0o755)
    assert not {"etc/passwd", "etc/group"} & set(made)


def test_accounts_without_a_last_line_end() -> None:
    """The new line does not run into the last one."""
    made = unpacked(replace(FACTS, accounts="root:x:0:0::/root:/bin/sh"), SANDBOX)
    assert len(made["texts"]["etc/passwd"].splitlines()) == 2


def test_accounts_lie_where_the_image_keeps_them() -> None:
    """Where /etc/passwd is a link, its target is written, inside the container's root."""
    facts = replace(FACTS, accounts_path="/usr/share/passwd", groups_path="/usr/share/group")
    made = unpacked(facts, SANDBOX)
    assert {"usr/share/passwd", "usr/share/group"} <= set(made["texts"])
    assert not [name for name in made if name.startswith("/") or ".." in name]


PLAIN = replace(FACTS, directories=frozenset({"/home"}))


def ordered(
    facts: ImageFacts, user: User, *, hosts: bool = True
) -> tuple[set[str], dict[str, str]]:
    """Return the directories that the agent is to make, and the files it is to write."""
    orders = containers.orders(facts, user, hosts=hosts)
    assert orders is not None
    told = [tuple(part.decode() for part in orders[at : at + 3]) for at in range(0, len(orders), 3)]
    assert {kind for kind, _, _ in told} <= {"directory", "write"}
    return (
        {path for kind, path, _ in told if kind == "directory"},
        {path: text for kind, path, text in told if kind == "write"},
    )


@pytest.mark.parametrize("hosts", [True, False])
@pytest.mark.parametrize(
    ("facts", "user"),
    [
        (PLAIN, SANDBOX),
        (replace(PLAIN, accounts="root:x:0:0::/root:/bin/sh", groups=""), SANDBOX),
        (replace(PLAIN, accounts_path="/usr/share/passwd"), SANDBOX),
        (replace(PLAIN, user="app"), replace(APP, home="/home/sandbox")),
        (replace(PLAIN, accounts="taken:x:10001:5::/x:/bin/sh\n"), replace(SANDBOX, name="taken")),
    ],
)
def test_orders_say_what_the_archive_holds(facts: ImageFacts, user: User, hosts: bool) -> None:
    """The agent makes the same directories and the same files, word for word."""
    directories, files = ordered(facts, user, hosts=hosts)
    made = unpacked(facts, user, hosts=hosts)
    assert {path.lstrip("/"): text for path, text in files.items()} == made["texts"]
    assert {path.lstrip("/") for path in directories} == set(made) - set(made["texts"]) - {"texts"}
    assert all(made[path.lstrip("/")].uid == user.uid for path in directories)


@pytest.mark.parametrize(
    ("facts", "user"),
    [
        (PLAIN, User(0, 0, "root", "/root")),
        (PLAIN, APP),
        (replace(PLAIN, directories=frozenset()), SANDBOX),
        (replace(PLAIN, directories=frozenset({"/home", "/work"})), SANDBOX),
        (replace(PLAIN, directories=frozenset({"/home", "/home/sandbox"})), SANDBOX),
    ],
)
def test_what_takes_an_owner_changed_is_no_order(facts: ImageFacts, user: User) -> None:
    """A directory that is there, or one of root's or another's, is left to the archive."""
    assert containers.orders(facts, user, hosts=True) is None


def test_text_that_is_no_unicode_survives() -> None:
    """Accounts of an image are written as they were, whatever their bytes."""
    odd = b"root:x:0:0:\xff:/root:/bin/sh\n".decode("utf-8", "surrogateescape")
    orders = containers.orders(replace(PLAIN, accounts=odd), SANDBOX, hosts=False)
    assert orders is not None
    assert any(b"\xff" in text for text in orders)
