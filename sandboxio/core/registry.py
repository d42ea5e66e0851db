"""Backends by name: registered ones, built-in ones, then installed entry points.

Nothing is imported before a name is used. A name of ours is never taken over by an installed
package; only an explicit `register()` replaces one. A load that failed is tried again.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

from sandboxio.core import dsn, offline
from sandboxio.core.errors import (
    BackendNotFound,
    BackendNotInstalled,
    ConfigurationError,
    SandboxError,
)
from sandboxio.core.requests import text

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping
    from importlib.metadata import EntryPoint

    from sandboxio.core.protocols import Backend

ENTRY_POINT_GROUP = "sandboxio.backends"
BUILT_IN = {
    "docker": "sandboxio.adapters.docker:DockerBackend",
    "fake": "sandboxio.testing.fake:FakeBackend",
}
PLANNED = ("bwrap", "e2b", "gvisor", "k8s", "local", "modal", "vm")


class BackendFactory(Protocol):
    """Anything that gives a backend when called without arguments: a class or a function."""

    def __call__(self) -> Backend: ...


_lock = threading.RLock()
_registered: dict[str, str | BackendFactory] = {}
_instances: dict[str, Backend] = {}


def register(name: str, factory: str | Callable[[], Backend]) -> None:
    """Make `name://` resolve to a backend; the last registration of a name wins.

    `factory` is a class or function without arguments, or `"package.module:Class"` that is
    imported on first use. Registering a built-in name replaces it, which is how tests swap a
    real backend for a double.

    Example:
        sandboxio.register("docker", lambda: DockerBackend(image="agent-runtime:1"))

    Raises:
        ConfigurationError: the name or the factory is not usable.
    """
    if not dsn.SCHEME.match(text("name", name)):
        raise ConfigurationError(
            "register(): a name has lower-case letters, digits, '+', '.' and '-' only.",
            hint="It is what stands before :// in a DSN.",
        )
    if not (callable(factory) or (isinstance(factory, str) and ":" in factory)):
        raise ConfigurationError(
            f"register({name!r}): the factory is neither callable nor of the form 'module:name'.",
            hint=f'sandboxio.register({name!r}, "package.module:Class")',
        )
    with _lock:
        _registered[name] = factory
        _instances.pop(name, None)


def unregister(name: str) -> None:
    """Undo `register(name, …)`; silent when there is nothing to undo.

    Example:
        sandboxio.unregister("docker")  # docker:// is the built-in one again
    """
    with _lock:
        _registered.pop(name, None)
        _instances.pop(name, None)


@contextmanager
def replaced(factories: Mapping[str, str | Callable[[], Backend]]) -> Generator[None]:
    """Let names resolve to other backends while the block lasts, then to what they did before."""
    with _lock:
        before = {name: (_registered.get(name), _instances.get(name)) for name in factories}
    try:
        for name, factory in factories.items():
            register(name, factory)
        yield
    finally:
        with _lock:
            for name, (old, instance) in before.items():
                unregister(name)
                if old is not None:
                    _registered[name] = old
                if instance is not None:
                    _instances[name] = instance


def resolve(name: str) -> Backend:
    """Return the backend of that name, made once per process.

    Raises:
        BackendNotFound: nothing goes by that name.
        BackendNotInstalled: it is known, but it or its SDK cannot be loaded.
        ConfigurationError: the run is offline, and the backend reaches out.
    """
    with _lock:
        if name not in _instances:
            _instances[name] = _load(name)
        found = _instances[name]
    offline.check(found, name)
    return found


def names() -> tuple[str, ...]:
    """Return every name that would resolve; reads package metadata, imports no backend."""
    with _lock:
        known = {*BUILT_IN, *_registered}
    return tuple(sorted(known | {point.name for point in _entry_points()}))


def _load(name: str) -> Backend:
    if name in _registered:
        factory = _registered[name]
        return _build(name, factory if callable(factory) else _import(factory), "register()")
    if name in BUILT_IN:
        return _build(name, _import(BUILT_IN[name]), "sandboxio")
    return _from_entry_point(name)


def _from_entry_point(name: str) -> Backend:
    found = [point for point in _entry_points() if point.name == name]
    owners = sorted({_owner(point) for point in found})
    if not found:
        planned = " It is planned, and not part of this version." if name in PLANNED else ""
        raise BackendNotFound(
            f"No backend named {name!r} is installed.{planned}",
            hint=f"Known here: {', '.join(names())}. Check the spelling, or register yours with "
            "sandboxio.register(name, factory).",
        )
    if len(owners) > 1:
        raise BackendNotFound(
            f"The backend name {name!r} is claimed by several distributions: {', '.join(owners)}.",
            hint=f"pip uninstall {owners[0]}  (or the other)",
        )
    try:
        factory = found[0].load()
    except (Exception, SystemExit) as exc:
        raise BackendNotInstalled(
            f"The backend {name!r} of {owners[0]} cannot be loaded: {type(exc).__name__}.",
            hint=f"pip install --upgrade {owners[0]}",
        ) from exc
    return _build(name, factory, owners[0])


def _build(name: str, factory: object, owner: str) -> Backend:
    if not callable(factory):
        raise ConfigurationError(f"The backend {name!r} of {owner} is not callable.")
    try:
        backend = factory()
    except SandboxError:
        raise
    except (Exception, SystemExit) as exc:
        raise BackendNotInstalled(
            f"The backend {name!r} of {owner} cannot be made: {type(exc).__name__}.",
            hint=f"pip install --upgrade {owner}",
        ) from exc
    for member in ("create", "connect", "capabilities", "isolation"):
        if not hasattr(backend, member):
            raise ConfigurationError(
                f"The backend {name!r} of {owner} is no Backend: it has no {member!r}.",
                hint="Implement sandboxio.protocols.Backend.",
            )
    return cast("Backend", backend)


def _import(target: str) -> object:
    module, _, attribute = target.partition(":")
    try:
        return getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as exc:
        raise BackendNotInstalled(
            f"{target} cannot be imported: {type(exc).__name__}.",
            hint="Install the package that holds it, or correct the name given to register().",
        ) from exc


def _entry_points() -> tuple[EntryPoint, ...]:
    from importlib.metadata import entry_points

    return tuple(entry_points(group=ENTRY_POINT_GROUP))


def _owner(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else point.value
