"""HOST-1: whoever cannot be reached is named by the error, and by whom it was chosen."""

from __future__ import annotations

import base64
import socket
import ssl
from typing import TYPE_CHECKING

import anyio
import pytest

import sandboxio
from sandboxio import ConfigurationError, ConnectError
from sandboxio.adapters import _docker_engine
from sandboxio.adapters._docker_endpoint import Endpoint
from sandboxio.adapters._docker_stream import connect
from sandboxio.adapters.docker import DockerBackend, DockerConfig
from sandboxio.cli.main import main
from tests.stub.engine import StubEngine
from tests.stub.world import IMAGE

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings(  # docker-py drops a unix socket that cannot connect, unclosed
        "ignore::pytest.PytestUnraisableExceptionWarning"
    ),
]


def missing(folder: Path) -> str:
    return f"unix://{folder}/missing.sock"


def no_socket(folder: Path) -> str:
    (folder / "file").write_text("")
    return f"unix://{folder}/file"


def abandoned(folder: Path) -> str:
    """Return the address of a socket that its owner no longer listens at."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "old.sock"))
    return f"unix://{folder}/old.sock"


def refused(folder: Path) -> str:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"tcp://127.0.0.1:{listener.getsockname()[1]}"


@pytest.mark.parametrize("address", [missing, no_socket, abandoned, refused])
async def test_nobody_is_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, address: Callable[[Path], str]
) -> None:
    """A `ConnectError` at once, whose hint names what was tried and the variable to set."""
    url = address(tmp_path)
    monkeypatch.setenv("DOCKER_HOST", url)
    with anyio.fail_after(5), pytest.raises(ConnectError) as caught:
        await DockerBackend().create(template=IMAGE, timeout=60)
    assert f"{url} (from DOCKER_HOST)" in caught.value.hint
    assert "set DOCKER_HOST" in caught.value.hint
    assert caught.value.__cause__ is not None


@pytest.mark.parametrize("address", [missing, no_socket, abandoned, refused])
def test_the_diagnosis_of_nobody(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    address: Callable[[Path], str],
) -> None:
    """`sandboxio doctor` exits with 1 and shows the address and its source."""
    url = address(tmp_path)
    monkeypatch.setenv("DOCKER_HOST", url)
    assert main(["doctor"]) == 1
    assert f"{url} (from DOCKER_HOST)" in capsys.readouterr().out


async def test_an_engine_that_accepts_and_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Silence at the first word is given up early, however long `create()` may take."""
    assert getattr(_docker_engine, "_CONNECT_SECONDS") <= 5  # noqa: B009
    monkeypatch.setattr(_docker_engine, "_CONNECT_SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        with anyio.fail_after(5), pytest.raises(ConnectError) as caught:
            await sandboxio.create(DockerConfig(host=url, template=IMAGE), timeout=60)
    assert f"{url} (from DockerConfig.host)" in caught.value.hint


CERTIFICATE = """
MIIBfjCCASWgAwIBAgIUJLMoZDQqJaQVi2HKFS0hUvQbAdEwCgYIKoZIzj0EAwIwFDESMBAGA1UEAwwJbG9jYWxo
b3N0MCAXDTI2MTIwMTA0NTQ0MFoYDzIxMjYxMTA3MDQ1NDQwWjAUMRIwEAYDVQQDDAlsb2NhbGhvc3QwWTATBgcq
hkjOPQIBBggqhkjOPQMBBwNCAARrF9Hy4SxCR/i85uVjpEDydwN9gS3rM6D0oTlF2JjClk/jQuL+Gn+bjufrSnwP
nhYrzjNXazFezsu2QGg3v1H1o1MwUTAdBgNVHQ4EFgQUtGejmZ6176Zx3gAy8Iqcnl79oOEwHwYDVR0jBBgwFoAU
tGejmZ6176Zx3gAy8Iqcnl79oOEwDwYDVR0TAQH/BAUwAwEB/zAKBggqhkjOPQQDAgNHADBEAiBTChyU3fgY3qMm
QsHLWsSACp4cA9pHaMACQGCuEl7I/AIgd3b5PMWEq0ZHx20MVZ7HUmKTu/S/TvxH6+u/KLJDr4M=
"""
"""Of the private key 1, which is no secret."""
KEY = bytes.fromhex(f"30310201010420{1:064x}a00a06082a8648ce3d030107")


@pytest.fixture
def certificates(tmp_path: Path) -> Path:
    """A folder with the certificate in each of its roles."""
    certificate = ssl.DER_cert_to_PEM_cert(base64.b64decode(CERTIFICATE))
    key = base64.b64encode(KEY).decode()
    (tmp_path / "ca.pem").write_text(certificate)
    (tmp_path / "cert.pem").write_text(certificate)
    (tmp_path / "key.pem").write_text(
        f"-----BEGIN EC PRIVATE KEY-----\n{key}\n-----END EC PRIVATE KEY-----\n"
    )
    return tmp_path


@pytest.mark.parametrize("absent", ["ca.pem", "cert.pem", "key.pem"])
async def test_certificates_that_are_not_there(certificates: Path, absent: str) -> None:
    """A missing file is a mistake of the configuration, and named."""
    (certificates / absent).unlink()
    config = DockerConfig(host="tcp://127.0.0.1:1", tls_directory=str(certificates), template=IMAGE)
    with pytest.raises(ConfigurationError, match=absent) as caught:
        await sandboxio.create(config, timeout=60)
    assert str(certificates) in caught.value.hint


@pytest.mark.parametrize("damaged", [None, "ca.pem", "cert.pem", "key.pem"])
async def test_tls_that_cannot_be_spoken(certificates: Path, damaged: str | None) -> None:
    """TLS requested of a plain port, or files that hold no certificate: an error of ours."""
    if damaged is not None:
        (certificates / damaged).write_text("none\n")
    with StubEngine() as stub:
        url = stub.url
        config = DockerConfig(host=url, tls_directory=str(certificates), template=IMAGE)
        with anyio.fail_after(5), pytest.raises(ConnectError) as caught:
            await sandboxio.create(config, timeout=60)
    assert f"{url} (from DockerConfig.host)" in caught.value.hint
    assert stub.asked == []


async def test_streams_that_cannot_be_opened(certificates: Path) -> None:
    """The connections of our own say the same."""
    with StubEngine() as stub:
        endpoint = Endpoint(stub.url, "a test", str(certificates))
        with anyio.fail_after(5), pytest.raises(ConnectError) as caught:
            await connect(endpoint)
    assert "(from a test)" in caught.value.hint
