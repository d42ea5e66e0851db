"""What `sandboxio.doctor()` finds out about Docker.

Findings are handed over one by one, so that those made before a failure are not lost. Nothing
is created there, and no value of a variable leaves this module but the engine's address.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from contextlib import closing
from typing import Any, Literal, Protocol

import anyio

from sandboxio.adapters._docker_answers import Answer, section
from sandboxio.adapters._docker_birth import tier_of
from sandboxio.adapters._docker_engine import Engine
from sandboxio.adapters._docker_watcher import VARIABLE, switched_off, trial
from sandboxio.adapters._loader import load
from sandboxio.adapters.docker import DEFAULT_IMAGE, DockerDriver
from sandboxio.core.errors import BackendNotInstalled, ConnectError, SandboxError
from sandboxio.core.tiers import IsolationTier

VARIABLES = ("DOCKER_HOST", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH")
PACKAGES = ("docker", "h11")
REACH_SECONDS = 4.0
"""Seconds the engine has for all answers together."""
_THREAD_SLACK = 0.5
_CAPS = (
    ("memory cap", "MemoryLimit"),
    ("process cap", "PidsLimit"),
    ("CPU cap", "CpuCfsQuota"),
)
_WATCHER_FIX = f"Run your program with python itself, or accept lifetimes: export {VARIABLE}=0"
_CGROUP_FIX = "Enable cgroup limits on the engine's host; docker info names those it lacks."


class Findings(Protocol):
    """Receives what is found; kept by the caller."""

    def missing(self, install: str) -> None:
        """The backend is not installed; `install` is the command that changes that."""
        ...

    def package(self, distribution: str) -> None: ...
    def variables(self, *names: str) -> None: ...
    def isolation(self, tier: IsolationTier) -> None: ...

    def add(
        self, name: str, status: Literal["ok", "note", "failed"], detail: str, fix: str = ""
    ) -> None: ...


def diagnose(found: Findings) -> None:
    """Look at the SDK, the configuration and the engine, in that order.

    Takes up to 5 s for what the engine says, and a watcher's handshake, a second or so.
    """
    found.variables(*VARIABLES)
    found.isolation(DockerDriver.isolation)
    try:
        for package in PACKAGES:
            load(package, backend="docker", extra="docker")
    except BackendNotInstalled as exc:
        if isinstance(exc.__cause__, ModuleNotFoundError):
            found.missing(exc.hint)
        else:
            found.add("SDK", "failed", exc.message, exc.hint)
        return
    for package in PACKAGES:
        found.package(package)
    _engine(found, Engine())


def _engine(found: Findings, engine: Engine) -> None:
    answers = _reach(found, engine)
    if answers is None:
        return
    _versions(found, answers)
    _runtimes(found, answers.info)
    _caps(found, answers.info)
    _image(found, present=answers.image)
    _watcher(found, engine)


def _reach(found: Findings, engine: Engine) -> _Answers | None:
    try:
        endpoint = engine.endpoint
    except SandboxError as exc:
        found.add("endpoint", "failed", exc.message, exc.hint)
        return None
    found.add("endpoint", "ok", f"{endpoint.url} (from {endpoint.source})")
    started = time.monotonic()
    try:
        answers = _ask(engine)
    except SandboxError as exc:
        circular = "sandboxio doctor" in exc.hint
        found.add("reachable", "failed", exc.message, endpoint.hint if circular else exc.hint)
        return None
    found.add("reachable", "ok", f"answered in {time.monotonic() - started:.2f} s")
    return answers


class _Answers:
    """What the engine says, asked in a worker thread."""

    def __init__(self, client: Any) -> None:
        docker: Any = load("docker", backend="docker", extra="docker")
        self.client_api = str(docker.constants.DEFAULT_DOCKER_API_VERSION)
        self.used_api = str(client.api_version)
        self.version: Answer = client.version()
        self.info: Answer = client.info()
        try:
            client.inspect_image(DEFAULT_IMAGE)
            self.image = True
        except docker.errors.ImageNotFound:
            self.image = False


def _asked(client: Any) -> _Answers:
    with closing(client):
        return _Answers(client)


def _ask(engine: Engine) -> _Answers:
    """Ask in a thread of its own: the calling thread may have a running event loop."""
    answers: Future[_Answers | None] = Future()

    async def ask() -> _Answers | None:
        with anyio.move_on_after(REACH_SECONDS):
            return await engine.call("connect", _asked)
        return None

    def work() -> None:
        try:
            answers.set_result(anyio.run(ask))
        except BaseException as exc:  # noqa: BLE001  # raised again where it is waited for
            answers.set_exception(exc)

    threading.Thread(target=work, daemon=True, name="sandboxio-doctor").start()
    try:
        found = answers.result(REACH_SECONDS + _THREAD_SLACK)
    except TimeoutError:
        found = None
    if found is None:
        raise _silence(engine)
    return found


def _silence(engine: Engine) -> ConnectError:
    return ConnectError(
        f"The engine did not answer within {REACH_SECONDS:g} s.", hint=engine.endpoint.hint
    )


def _versions(found: Findings, answers: _Answers) -> None:
    found.add("engine version", "ok", str(answers.version.get("Version", "unknown")))
    offered = str(answers.version.get("ApiVersion", "unknown"))
    found.add(
        "API version",
        "ok",
        f"{answers.used_api} in use; the engine offers {offered}, "
        f"the client {answers.client_api} at most",
    )


def _runtimes(found: Findings, info: Answer) -> None:
    known = section(info, "Runtimes")
    default = str(info.get("DefaultRuntime", ""))
    others = ", ".join(sorted(set(known) - {default})) or "none"
    detail = f"{default or 'unknown'} by default; others: {others}"
    if tier_of(str(section(known, default).get("path", ""))) is IsolationTier.CONTAINER:
        found.add("runtimes", "ok", detail)
        return
    found.isolation(IsolationTier.UNKNOWN)
    found.add(
        "runtimes",
        "note",
        f"{detail}. The isolation of the default one is not known here, "
        "so require_isolation= would refuse its sandboxes",
        "Make runc or crun the engine's default-runtime, or do not require isolation.",
    )


def _caps(found: Findings, info: Answer) -> None:
    found.add("cgroup version", "ok", str(info.get("CgroupVersion") or "unknown"))
    for name, key in _CAPS:
        if info.get(key):
            found.add(name, "ok", "the engine applies it")
        else:
            found.add(name, "failed", "the engine cannot apply it", _CGROUP_FIX)
    if info.get("SwapLimit"):
        found.add("swap cap", "ok", "the engine applies it")
    else:
        found.add("swap cap", "note", "memory beyond the memory cap may be swapped", _CGROUP_FIX)


def _image(found: Findings, *, present: bool) -> None:
    if present:
        found.add("default image", "ok", f"{DEFAULT_IMAGE} is on the engine")
    else:
        detail = f"{DEFAULT_IMAGE} is not on the engine; the first sandbox pulls it"
        found.add("default image", "note", detail, f"docker pull {DEFAULT_IMAGE}")


def _watcher(found: Findings, engine: Engine) -> None:
    """Start a watcher to see whether one can be had; it has nothing to remove, and ends."""
    if switched_off():
        found.add("crash clean-up", "note", f"off: {VARIABLE}=0", f"unset {VARIABLE}")
    elif (trouble := trial(engine.endpoint)) is not None:
        found.add("crash clean-up", "note", f"off: {trouble}", _WATCHER_FIX)
    else:
        found.add("crash clean-up", "ok", "on: a watcher started and answered")
