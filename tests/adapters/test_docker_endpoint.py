"""Where the engine is: the documented order, and what a bad address becomes."""

from __future__ import annotations

import hashlib
import json
import sys
from typing import TYPE_CHECKING

import pytest

from sandboxio import ConfigurationError, SandboxError
from sandboxio.adapters._docker_endpoint import DEFAULT_UNIX, Endpoint, find
from sandboxio.adapters.docker import DockerConfig

if TYPE_CHECKING:
    from pathlib import Path

SECRET = "s3cr3t"


@pytest.fixture(autouse=True)
def no_docker_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No variable and no context of the host shows through."""
    for name in ("DOCKER_HOST", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH", "DOCKER_CONTEXT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "config.json").write_text("{}")


@pytest.fixture
def context(tmp_path: Path) -> str:
    """A current context named `far` that points to another host."""
    folder = tmp_path / "contexts/meta" / hashlib.sha256(b"far").hexdigest()
    folder.mkdir(parents=True)
    host = "tcp://far.example:2375"
    meta = {
        "Name": "far",
        "Metadata": {},
        "Endpoints": {"docker": {"Host": host, "SkipTLSVerify": False}},
    }
    (folder / "meta.json").write_text(json.dumps(meta))
    (tmp_path / "config.json").write_text('{"currentContext": "far"}')
    return host


@pytest.mark.skipif(sys.platform == "win32", reason="the default differs there")
def test_the_default() -> None:
    """Without any word of it the engine is at its usual socket."""
    assert find() == Endpoint(DEFAULT_UNIX, "the default")
    assert find(DockerConfig()) == find()


def test_the_current_context_comes_before_the_default(context: str) -> None:
    """`docker context use` counts, and is named as the source."""
    assert find() == Endpoint(context, "the context 'far'")


def test_docker_host_comes_before_the_context(
    context: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The variable wins over the context; an empty one is none."""
    monkeypatch.setenv("DOCKER_HOST", "unix:///run/mine.sock")
    assert find() == Endpoint("unix:///run/mine.sock", "DOCKER_HOST")
    monkeypatch.setenv("DOCKER_HOST", "")
    assert find().url == context


def test_the_configuration_comes_first(context: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An explicit host wins over everything, with its own TLS directory."""
    monkeypatch.setenv("DOCKER_HOST", "unix:///run/mine.sock")
    monkeypatch.setenv("DOCKER_TLS_VERIFY", "1")
    found = find(DockerConfig(host="tcp://x.example:2376", tls_directory="/certs"))
    assert found == Endpoint("tcp://x.example:2376", "DockerConfig.host", "/certs")
    assert find(DockerConfig(host="tcp://x.example:2375")).tls_directory is None


def test_tls_of_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """DOCKER_TLS_VERIFY turns it on, DOCKER_CERT_PATH says where, else the usual folder."""
    monkeypatch.setenv("DOCKER_HOST", "tcp://x.example:2376")
    assert find().tls_directory is None
    monkeypatch.setenv("DOCKER_TLS_VERIFY", "1")
    assert find().tls_directory == str(tmp_path / ".docker")
    monkeypatch.setenv("DOCKER_CERT_PATH", "/certs")
    assert find().tls_directory == "/certs"


@pytest.mark.parametrize("damage", ["no meta", "bad json"])
def test_a_context_that_cannot_be_read(tmp_path: Path, damage: str) -> None:
    """A broken context is a configuration error with the command that leaves it."""
    (tmp_path / "config.json").write_text('{"currentContext": "gone"}')
    if damage == "bad json":
        folder = tmp_path / "contexts/meta" / hashlib.sha256(b"gone").hexdigest()
        folder.mkdir(parents=True)
        (folder / "meta.json").write_text("{")
    with pytest.raises(ConfigurationError, match="context cannot be read") as caught:
        find()
    assert caught.value.hint == "docker context use default"


@pytest.mark.parametrize(
    "url",
    ["", "x", "ftp://x", "unix://", "tcp://", "ssh://me@host", "/var/run/docker.sock", "unix:"],
)
def test_an_address_that_is_none(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """A scheme we do not speak, or nothing behind it, is refused by its source."""
    with pytest.raises(ConfigurationError, match=r"DockerConfig\.host"):
        find(DockerConfig(host=url))
    if url:
        monkeypatch.setenv("DOCKER_HOST", url)
        with pytest.raises(ConfigurationError, match="from DOCKER_HOST"):
            find()


@pytest.mark.parametrize("url", ["tcp://[::1", "tcp://[x]:1", "tcp://h:port", "tcp://h:99999"])
def test_an_address_that_cannot_be_split(url: str) -> None:
    """A malformed address is a configuration error as well."""
    with pytest.raises(SandboxError):
        find(DockerConfig(host=url))


@pytest.mark.parametrize(
    ("url", "address", "one_way"),
    [
        ("unix:///run/docker.sock", "/run/docker.sock", False),
        ("tcp://h.example:2375", "h.example:2375", False),
        ("http://h.example:2375", "h.example:2375", False),
        ("npipe:////./pipe/docker_engine", "//./pipe/docker_engine", True),
    ],
)
def test_parts_of_an_address(url: str, address: str, one_way: bool) -> None:
    """Sockets and pipes are paths, the rest host and port; pipes cannot be half closed."""
    endpoint = Endpoint(url, "a test")
    assert (endpoint.address, endpoint.one_way_streams) == (address, one_way)


def test_tls_cannot_be_half_closed() -> None:
    """Nor can a TLS connection, so stdin is not offered there; without TLS no context is made."""
    assert Endpoint("tcp://h:2376", "a test", "/certs").one_way_streams
    assert Endpoint("tcp://h:2375", "a test").ssl_context() is None


def test_a_hint_names_the_endpoint_and_no_password() -> None:
    """What was tried and who named it; an address that holds a password is not even tried."""
    assert "tcp://h:2375 (from DOCKER_HOST)" in Endpoint("tcp://h:2375", "DOCKER_HOST").hint
    with pytest.raises(ConfigurationError) as caught:
        find(DockerConfig(host=f"tcp://user:{SECRET}@h.example:2375"))
    assert SECRET not in str(caught.value)


def test_a_configuration_shows_no_password() -> None:
    """Neither the configuration nor the endpoint prints a password of an address."""
    url = f"tcp://user:{SECRET}@h.example:2375"
    assert SECRET not in f"{DockerConfig(host=url)!r}{Endpoint(url, 'a test')!r}"
