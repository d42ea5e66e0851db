"""The one way an adapter gets at its SDK."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from sandboxio.core.errors import BackendNotInstalled

if TYPE_CHECKING:
    from types import ModuleType


def load(module: str, *, backend: str, extra: str) -> ModuleType:
    """Import a module of an SDK, or say which extra brings it.

    Raises:
        BackendNotInstalled: the SDK is missing, or is there and does not import.
    """
    try:
        return import_module(module)
    except ImportError as exc:
        missing = isinstance(exc, ModuleNotFoundError)
        raise BackendNotInstalled(
            f"The {backend!r} backend needs {module!r}, which "
            + ("is not installed." if missing else f"cannot be imported: {exc}."),
            hint=f'pip install "sandboxio[{extra}]"',
        ) from exc
