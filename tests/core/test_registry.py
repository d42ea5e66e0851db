"""Backends by name, and what broken installed packages cannot do."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

import sandboxio
from sandboxio import BackendNotFound, BackendNotInstalled, Capability, ConfigurationError
from sandboxio.core import registry
from sandboxio.core.tiers import IsolationTier

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

GOOD = """
from sandboxio import Capability, IsolationTier
class Good:
    name, capabilities, isolation = "good", Capability(0), IsolationTier.NONE
    async def create(self, **options): ...
    async def connect(self, sandbox_id): ...
"""
PLUGINS = {
    "plug-import": ("broken_import", "plug_import:Thing", "import no_such_module_at_all"),
    "plug-exit": ("exiting", "plug_exit:Thing", "raise SystemExit(3)"),
    "plug-syntax": ("raising", "plug_syntax:Thing", "raise ZeroDivisionError"),
    "plug-attribute": ("no_attribute", "plug_attribute:Thing", ""),
    "plug-type": ("wrong_type", "plug_type:Thing", "Thing = dict"),
    "plug-number": ("a_number", "plug_number:Thing", "Thing = 7"),
    "plug-twin-a": ("twin", "plug_twin_a:Good", GOOD),
    "plug-twin-b": ("twin", "plug_twin_b:Good", GOOD),
    "plug-thief": ("docker", "plug_thief:Good", GOOD),
    "plug-good": ("good", "plug_good:Good", GOOD),
    "plug-later": (
        "later",
        "plug_later:Good",
        f"import os\nif os.environ.get('PLUG_BROKEN'): raise ImportError\n{GOOD}",
    ),
}


class Plain:
    """The least that counts as a backend."""

    name = "plain"
    capabilities = Capability(0)
    isolation = IsolationTier.NONE

    async def create(self, **options: object) -> Any: ...
    async def connect(self, sandbox_id: str) -> Any: ...


@pytest.fixture(autouse=True)
def clean_registry() -> Iterator[None]:
    """Forget what a test registered or loaded."""
    yield
    for name in ("plain", "good", "later", "docker"):
        sandboxio.unregister(name)
    for module in [name for name in sys.modules if name.startswith("plug_")]:
        del sys.modules[module]


@pytest.fixture
def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eleven installed distributions, most of them broken in a way of their own."""
    for dist, (name, target, source) in PLUGINS.items():
        info = tmp_path / f"{dist.replace('-', '_')}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {dist}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[sandboxio.backends]\n{name} = {target}\n")
        (tmp_path / f"{target.partition(':')[0]}.py").write_text(source)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)


def test_a_registered_backend_is_made_once() -> None:
    """The factory is called at first use, and its backend kept."""
    sandboxio.register("plain", Plain)
    first = registry.resolve("plain")
    assert isinstance(first, Plain)
    assert registry.resolve("plain") is first


def test_the_last_registration_wins() -> None:
    """Registering a name again replaces it, also when it was in use already."""
    sandboxio.register("plain", Plain)
    first = registry.resolve("plain")
    sandboxio.register("plain", lambda: Plain())
    assert registry.resolve("plain") is not first


def test_a_double_can_take_the_place_of_a_built_in_backend() -> None:
    """`register("docker", …)` replaces Docker until `unregister` brings it back."""
    sandboxio.register("docker", Plain)
    assert isinstance(registry.resolve("docker"), Plain)
    sandboxio.unregister("docker")
    assert type(registry.resolve("docker")).__name__ == "DockerBackend"


def test_unregister_is_silent_about_unknown_names() -> None:
    """There may be nothing to undo."""
    sandboxio.unregister("never-registered")


def test_a_name_is_imported_at_first_use(plugins: None) -> None:
    """A string factory costs nothing until its backend is wanted."""
    sandboxio.register("plain", "plug_good:Good")
    assert "plug_good" not in sys.modules
    assert type(registry.resolve("plain")).__name__ == "Good"


@pytest.mark.parametrize("factory", ["no_such_module_at_all:X", "sandboxio:NoSuchName"])
def test_a_name_that_leads_nowhere_is_said(factory: str) -> None:
    """What was given to `register()` is repeated, with the cause."""
    sandboxio.register("plain", factory)
    with pytest.raises(BackendNotInstalled, match=factory) as caught:
        registry.resolve("plain")
    assert isinstance(caught.value.__cause__, ImportError | AttributeError)


@pytest.mark.parametrize("factory", ["module_only", "", 7, None])
def test_an_unusable_factory_is_refused_at_once(factory: Any) -> None:
    """A factory is callable or of the form module:name."""
    with pytest.raises(ConfigurationError, match="register"):
        sandboxio.register("plain", factory)


@pytest.mark.parametrize("name", ["", 7, "a\0"])
def test_an_unusable_name_is_refused(name: Any) -> None:
    """A name is text."""
    with pytest.raises(ConfigurationError, match="name"):
        sandboxio.register(name, Plain)


def test_an_unknown_name_lists_the_known_ones() -> None:
    """A misspelt backend is answered with those there are."""
    with pytest.raises(BackendNotFound, match="'dokcer'") as caught:
        registry.resolve("dokcer")
    assert "docker" in caught.value.hint


def test_listing_imports_nothing(plugins: None) -> None:
    """Names come from metadata; no installed backend is imported for them."""
    names = registry.names()
    assert {"docker", "good", "broken_import", "exiting", "twin"} <= set(names)
    assert not [name for name in sys.modules if name.startswith("plug_")]


def test_an_installed_backend_works_among_broken_ones(plugins: None) -> None:
    """The others do not matter to one that works."""
    assert type(registry.resolve("good")).__name__ == "Good"


@pytest.mark.parametrize(
    ("name", "dist", "cause"),
    [
        ("broken_import", "plug-import", ImportError),
        ("exiting", "plug-exit", SystemExit),
        ("raising", "plug-syntax", ZeroDivisionError),
        ("no_attribute", "plug-attribute", AttributeError),
    ],
)
def test_a_backend_that_cannot_be_loaded_is_named(
    plugins: None, name: str, dist: str, cause: type[BaseException]
) -> None:
    """The error names the distribution and the cause, and how to repair it."""
    with pytest.raises(BackendNotInstalled, match=dist) as caught:
        registry.resolve(name)
    assert isinstance(caught.value.__cause__, cause)
    assert caught.value.hint == f"pip install --upgrade {dist}"


@pytest.mark.parametrize(
    ("name", "dist"), [("wrong_type", "plug-type"), ("a_number", "plug-number")]
)
def test_what_is_no_backend_is_refused(plugins: None, name: str, dist: str) -> None:
    """An object without the members of a backend is named with its distribution."""
    with pytest.raises(ConfigurationError, match=dist):
        registry.resolve(name)


def test_two_claims_to_one_name_are_refused(plugins: None) -> None:
    """Which of two distributions is meant is never guessed."""
    with pytest.raises(BackendNotFound, match="plug-twin-a, plug-twin-b"):
        registry.resolve("twin")


def test_a_built_in_name_is_not_taken_over(plugins: None) -> None:
    """An installed package that calls itself `docker` is never loaded."""
    assert type(registry.resolve("docker")).__name__ == "DockerBackend"
    assert "plug_thief" not in sys.modules


def test_a_failed_load_is_tried_again(plugins: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once the cause is gone, the name works."""
    monkeypatch.setenv("PLUG_BROKEN", "1")
    with pytest.raises(BackendNotInstalled):
        registry.resolve("later")
    monkeypatch.delenv("PLUG_BROKEN")
    assert type(registry.resolve("later")).__name__ == "Good"


def test_a_factory_that_fails_is_mapped() -> None:
    """Whatever a factory raises arrives as ours, with the cause."""

    def factory() -> Any:
        raise ZeroDivisionError

    sandboxio.register("plain", factory)
    with pytest.raises(sandboxio.SandboxError) as caught:
        registry.resolve("plain")
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
