"""Where the engine is: explicit configuration, DOCKER_HOST, the current context, the default."""

from __future__ import annotations

import os
import ssl
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from sandboxio.adapters._loader import load
from sandboxio.core.errors import ConfigurationError

if TYPE_CHECKING:
    from sandboxio.adapters.docker import DockerConfig

DEFAULT_UNIX = "unix:///var/run/docker.sock"
DEFAULT_PIPE = "npipe:////./pipe/docker_engine"
_SCHEMES = ("unix", "tcp", "http", "https", "npipe")


@dataclass(frozen=True)
class Endpoint:
    """One engine, and who named it."""

    url: str = field(repr=False)
    source: str
    tls_directory: str | None = None
    """Holds ca.pem, cert.pem and key.pem; `None` without TLS."""

    @property
    def address(self) -> str:
        """The path of a socket or pipe, or host:port."""
        parts = urlsplit(self.url)
        return parts.path or parts.netloc if parts.scheme in ("unix", "npipe") else parts.netloc

    @property
    def scheme(self) -> str:
        return urlsplit(self.url).scheme

    @property
    def one_way_streams(self) -> bool:
        """Whether a stream cannot be half closed, so that stdin could never end."""
        return self.tls_directory is not None or self.scheme == "npipe"

    @property
    def hint(self) -> str:
        return (
            f"Tried {self.url} (from {self.source}). Start the engine, or set DOCKER_HOST to "
            "where it listens."
        )

    def ssl_context(self) -> ssl.SSLContext | None:
        """Return the context for a connection of our own, verifying the engine."""
        if self.tls_directory is None:
            return None
        folder = Path(self.tls_directory)
        context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
        context.load_cert_chain(str(folder / "cert.pem"), str(folder / "key.pem"))
        return context


def find(config: DockerConfig | None = None) -> Endpoint:
    """Return the engine to talk to, in the documented order; touches no network."""
    if config is not None and config.host is not None:
        return _checked(Endpoint(config.host, "DockerConfig.host", config.tls_directory))
    if host := os.environ.get("DOCKER_HOST"):
        return _checked(Endpoint(host, "DOCKER_HOST", _environment_tls()))
    return _checked(_from_context() or _default())


def _environment_tls() -> str | None:
    if not os.environ.get("DOCKER_TLS_VERIFY"):
        return None
    return os.environ.get("DOCKER_CERT_PATH") or str(Path.home() / ".docker")


def _from_context() -> Endpoint | None:
    contexts: Any = load("docker.context", backend="docker", extra="docker").ContextAPI
    try:
        current = contexts.get_current_context()
        if current is None:
            raise LookupError("the current context does not exist")  # noqa: TRY301
        if current.Name == "default" or not current.Host:
            return None
        name, host, tls = str(current.Name), str(current.Host), current.TLSConfig
    except Exception as exc:  # a context that cannot be read has many shapes
        raise ConfigurationError(
            f"The current Docker context cannot be read: {type(exc).__name__}.",
            hint="docker context use default",
        ) from exc
    if tls is not None and not tls.ca_cert:
        raise ConfigurationError(
            f"The Docker context {name!r} uses TLS without a certificate authority.",
            hint="Create it again with ca=, cert= and key=, or use DockerConfig(host=, "
            "tls_directory=).",
        )
    folder = None if tls is None else str(Path(tls.ca_cert).parent)
    return Endpoint(host, f"the context {name!r}", folder)


def _default() -> Endpoint:
    return Endpoint(DEFAULT_PIPE if sys.platform == "win32" else DEFAULT_UNIX, "the default")


def _checked(endpoint: Endpoint) -> Endpoint:
    if not _plain(endpoint.url):
        raise ConfigurationError(
            f"The engine address from {endpoint.source} is not one of "
            f"{', '.join(f'{scheme}://' for scheme in _SCHEMES)}, or has a user or a query.",
            hint="export DOCKER_HOST=unix:///var/run/docker.sock",
        )
    if endpoint.scheme == "https" and endpoint.tls_directory is None:
        raise ConfigurationError(
            f"The engine address from {endpoint.source} is https:// without certificates.",
            hint="Set DOCKER_TLS_VERIFY=1 and DOCKER_CERT_PATH, or DockerConfig(tls_directory=).",
        )
    return endpoint


def _plain(url: str) -> bool:
    """Say whether an address is one we can use: nothing in it could be a credential."""
    try:
        parts = urlsplit(url)
        local = parts.scheme in ("unix", "npipe")
        usable = bool(parts.path) if local else parts.port is None or bool(parts.hostname)
        usable = usable and bool(parts.path or parts.hostname)
    except ValueError:
        return False
    return parts.scheme in _SCHEMES and usable and not (parts.username or parts.query)
