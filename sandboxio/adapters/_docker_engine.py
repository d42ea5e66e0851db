"""Control calls to one engine: docker-py in worker threads, every failure mapped."""

from __future__ import annotations

import os
import threading
import time
import weakref
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from sandboxio.adapters import _docker_endpoint
from sandboxio.adapters._docker_answers import ContainerDescription, section
from sandboxio.adapters._docker_failure import Phase, failure
from sandboxio.adapters._docker_stream import ByteStream, upgrade
from sandboxio.adapters._loader import load
from sandboxio.core import threads
from sandboxio.core.errors import ConfigurationError, ConnectError, SandboxError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from sandboxio.adapters._docker_endpoint import Endpoint
    from sandboxio.adapters.docker import DockerConfig
    from sandboxio.core.threads import Lane

T = TypeVar("T")

_SLACK = 2.0
"""Seconds a transport may outlast the deadline of its operation, which abandons it anyway."""
_CONNECT_SECONDS = 5.0
_REMOVAL_CHECKS = 50
_REMOVAL_PAUSE = 0.1
_LATE_CHECKS = 5
_LATE_PAUSE = 1.0


class Engine:
    """One engine, reached lazily; a forked child gets connections of its own."""

    def __init__(self, config: DockerConfig | None = None) -> None:
        self._config = config
        self._lock = threading.Lock()
        self._client: Any = None
        self._pid = 0
        self._endpoint: Endpoint | None = None
        self._runtimes: dict[str, str] | None = None

    @property
    def endpoint(self) -> Endpoint:
        """Where the engine is, decided at first use."""
        if self._endpoint is None:
            self._endpoint = _docker_endpoint.find(self._config)
        return self._endpoint

    async def call(
        self,
        phase: Phase,
        action: Callable[[Any], T],
        *,
        lane: Lane = "call",
        at_least: float = 0.0,
        late: Callable[[], None] | None = None,
    ) -> T:
        """Run `action(client)` in a worker thread; its failures arrive as ours."""

        def act() -> T:
            with self._mapped("connect"):
                client = self.client()
            with self._mapped(phase):
                return action(client)

        return await threads.run(act, lane=lane, at_least=at_least, late=late)

    async def stream(
        self, phase: Phase, path: str, body: dict[str, Any] | None = None
    ) -> tuple[ByteStream, bytes]:
        """Open a raw stream to the engine, at an API path without its version."""
        version = await self.api_version()
        return await upgrade(self.endpoint, phase, f"/v{version}{path}", body)

    async def api_version(self) -> str:
        client: Any = self._client if self._pid == os.getpid() else None
        if client is None:
            client = await self.call("connect", lambda connected: connected, lane="teardown")
        return str(client.api_version)

    async def runtimes(self) -> dict[str, str]:
        """Return the engine's runtimes and the path of each; asked once."""
        if self._runtimes is None:
            self._runtimes = await self.call("connect", _runtimes)
        return self._runtimes

    async def find(self, name: str) -> ContainerDescription | None:
        """Describe a container; `None` when there is none of that name."""
        return await self.call("connect", lambda client: _find(client, name))

    async def remove(self, name: str) -> bool:
        """Remove a container; False when there was none."""
        return await self.call("remove", lambda client: _remove(client, name), lane="teardown")

    def remove_late(self, name: str) -> None:
        """Remove, from a worker thread, a container that may come into being after its time.

        It was never started, so that no lifetime bounds it; there is nobody left to tell.
        """
        for _ in range(_LATE_CHECKS):
            with suppress(Exception):
                if _remove(self.client(), name):
                    return
            time.sleep(_LATE_PAUSE)

    def client(self) -> Any:
        """Return docker-py's low-level client of this process; may block and raise raw errors."""
        with self._lock:
            if self._client is None or self._pid != os.getpid():
                self._client, self._pid = self._connect(), os.getpid()
            return self._client

    def _connect(self) -> Any:
        endpoint = self.endpoint
        budget = threads.thread_budget() + threads.TEARDOWN_THREADS + threads.PULL_THREADS
        client = connected(endpoint, pool=budget, seconds=threads.UNBOUNDED_CALL)
        weakref.finalize(self, client.close)
        return client

    @contextmanager
    def _mapped(self, phase: Phase) -> Generator[None]:
        try:
            yield
        except SandboxError:
            raise
        except Exception as exc:
            raise self._translated(phase, exc) from exc

    def _translated(self, phase: Phase, exc: Any) -> SandboxError:
        docker: Any = load("docker", backend="docker", extra="docker")
        requests: Any = load("requests", backend="docker", extra="docker")
        if isinstance(exc, docker.errors.APIError):
            words = str(exc.explanation or exc)
            if "client version" in words:
                self._client = None  # the engine was exchanged: negotiated anew next time
            return failure(phase, exc.status_code, words)
        unreadable = (LookupError, TypeError, AttributeError, ValueError)
        if isinstance(exc, requests.exceptions.JSONDecodeError):
            return _unreadable()
        if isinstance(exc, requests.exceptions.RequestException | OSError):
            return self._unreachable(exc)
        if "Error while fetching server API version" in str(exc) and exc.__cause__ is not None:
            return self._translated(phase, exc.__cause__)
        if isinstance(exc, unreadable):
            return _unreadable()
        named = isinstance(exc, docker.errors.DockerException)
        return failure(phase, None, str(exc) if named else f"{type(exc).__name__}: {exc}")

    def _unreachable(self, exc: BaseException) -> ConnectError:
        denied = "permission denied" in str(exc).lower()
        return ConnectError(
            "The engine refuses this user." if denied else "The engine does not answer.",
            hint=(
                f"Let this user reach {self.endpoint.url}: sudo usermod -aG docker $USER"
                if denied
                else self.endpoint.hint
            ),
            outcome="unknown",
        )


def _unreadable() -> ConnectError:
    return ConnectError(
        "The engine's answer cannot be read.",
        hint="Is it a Docker engine that listens there? Run: sandboxio doctor",
        outcome="unknown",
    )


def connected(endpoint: Endpoint, *, pool: int, seconds: float) -> Any:
    """Return docker-py's low-level client; may block and raise raw errors.

    `seconds` is what a request may take that belongs to no operation.
    """
    docker: Any = load("docker", backend="docker", extra="docker")
    client = _client_class(docker)(
        base_url=endpoint.url,
        version="auto",
        timeout=_CONNECT_SECONDS,
        tls=_tls(docker, endpoint),
        max_pool_size=pool,
        user_agent="sandboxio",
    )
    client.timeout = seconds
    client.trust_env = False
    client.connected = True
    return client


def _client_class(docker: Any) -> Any:
    """docker-py's client, with the time its operation has left as each request's timeout."""

    class Client(docker.APIClient):  # type: ignore[misc]
        connected = False

        def send(self, request: Any, **kwargs: Any) -> Any:
            operation = threads.remaining_time.get()
            if operation is not None:
                left = operation + _SLACK if self.connected else _CONNECT_SECONDS
                kwargs["timeout"] = (min(left, _CONNECT_SECONDS), left)
            kwargs["allow_redirects"] = False  # no engine sends one; something before it may
            parent: Any = super()
            return parent.send(request, **kwargs)

        def _raise_for_status(self, response: Any) -> None:
            parent: Any = super()
            parent._raise_for_status(response)
            if not (200 <= response.status_code < 300 or response.status_code == 304):
                response.close()
                raise docker.errors.APIError(
                    "no answer of an engine", response=response, explanation=response.reason
                )

        def _result(self, response: Any, json: bool = False, binary: bool = False) -> Any:
            parent: Any = super()
            answer = parent._result(response, json, binary)
            if json:
                listing = response.url.partition("?")[0].endswith("/containers/json")
                _require(list if listing else dict, answer)
            return answer

        def _disable_socket_timeout(self, socket: Any) -> None:
            """Keep it: the operation's own deadline is what there is."""

    return Client


def _require(kind: type, answer: object) -> None:
    if not isinstance(answer, kind):
        raise TypeError(f"a {kind.__name__} was asked for, not a {type(answer).__name__}")


def _tls(docker: Any, endpoint: Endpoint) -> Any:
    if endpoint.tls_directory is None:
        return False
    folder = Path(endpoint.tls_directory)
    for name in ("ca.pem", "cert.pem", "key.pem"):
        if not (folder / name).is_file():
            raise ConfigurationError(
                f"The TLS directory for the engine address from {endpoint.source} has no {name}.",
                hint=f"Put ca.pem, cert.pem and key.pem into {folder}, or name another directory.",
            )
    return docker.tls.TLSConfig(
        client_cert=(str(folder / "cert.pem"), str(folder / "key.pem")),
        ca_cert=str(folder / "ca.pem"),
        verify=True,
    )


def _runtimes(client: Any) -> dict[str, str]:
    known = section(client.info(), "Runtimes")
    return {str(name): str(entry.get("path", "")) for name, entry in known.items()}


def _find(client: Any, name: str) -> ContainerDescription | None:
    errors: Any = load("docker.errors", backend="docker", extra="docker")

    try:
        return ContainerDescription(client.inspect_container(name))
    except errors.NotFound as exc:
        if _is_absence(exc):
            return None
        raise


def _remove(client: Any, name: str) -> bool:
    """Remove a container and wait until it is gone, also when somebody else is at it."""
    errors: Any = load("docker.errors", backend="docker", extra="docker")

    for _ in range(_REMOVAL_CHECKS):
        try:
            client.remove_container(name, force=True, v=True)
        except errors.APIError as exc:
            if _is_absence(exc):
                return False
            if exc.status_code != 409:
                raise
            time.sleep(_REMOVAL_PAUSE)
            if _find(client, name) is None:
                return False
        else:
            return True
    raise ConnectError("The engine keeps removing the container and does not finish.")


def _is_absence(exc: Any) -> bool:
    """Say whether the engine itself says so; a page that is not found proves nothing."""
    return exc.status_code == 404 and "no such container" in str(exc.explanation).lower()
