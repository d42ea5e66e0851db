"""The import surface: what loads when, what is public, and who may import whom."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import sandboxio

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "sandboxio"
SOURCES = sorted(PACKAGE.rglob("*.py"))
DOORS = {"cli", "integrations", "mcp"}
SERVICES = {"policy", "artifacts", "hosttools", "recorder", "pool", "egress"}
FACADE = {"", "_api", "errors", "protocols", "doctor", "audit", "otel"}
STANDARD = sys.stdlib_module_names | {"__future__"}
SDKS = {"docker", "requests", "h11", "urllib3", "e2b", "kubernetes", "modal"}
OURS_ALONE = {"anyio", "typing_extensions"}
OPTIONAL = {
    "cli": {"rich"},
    "mcp": {"mcp"},
    "testing": {"pytest", "tree_sitter", "tree_sitter_bash"},
    "integrations": set[str](),
}

ALLOWED = {
    "core": {"core"},
    "guest": {"core", "guest"},
    "adapters": {"core", "guest", "adapters"},
    "testing": {"core", "guest", "testing", *FACADE},
}

LOADED = """
import json, sys
opened = []
sys.addaudithook(lambda event, args: event.startswith("socket.") and opened.append(event))
import sandboxio
print(json.dumps([sorted(sys.modules), opened]))
"""


class Import:
    """One import statement: what it names, and whether it runs when its module is loaded."""

    def __init__(self, path: Path, module: str, *, deferred: bool) -> None:
        self.path = path
        self.module = module
        self.deferred = deferred

    @property
    def top(self) -> str:
        return self.module.partition(".")[0]

    @property
    def layer(self) -> str:
        """The part of our package that is imported."""
        return (*self.module.split("."), "")[1]

    @property
    def home(self) -> str:
        """The part of our package that imports."""
        parts = self.path.relative_to(PACKAGE).parts
        return parts[0].removesuffix(".py") if parts[0] != "__init__.py" else ""

    def __repr__(self) -> str:
        return f"{self.path.relative_to(ROOT)}: {self.module}"


def imports_of(path: Path) -> list[Import]:
    found: list[Import] = []

    def visit(node: ast.AST, deferred: bool) -> None:
        for child in ast.iter_child_nodes(node):
            inner = deferred or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
            inner = inner or (isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test))
            if isinstance(child, ast.Import):
                found.extend(Import(path, name.name, deferred=inner) for name in child.names)
            elif isinstance(child, ast.ImportFrom) and child.module is not None:
                # `from package import name` may mean a module of that package
                names = [f"{child.module}.{name.name}" for name in child.names]
                ours = child.module.split(".")[0] == "sandboxio"
                found.extend(
                    Import(path, name, deferred=inner) for name in (names if ours else names[:1])
                )
            visit(child, inner)

    visit(ast.parse(path.read_text(encoding="utf-8")), deferred=False)
    return found


IMPORTS = [found for path in SOURCES for found in imports_of(path)]
OURS = [found for found in IMPORTS if found.top == "sandboxio"]


@pytest.fixture(scope="module")
def loaded() -> tuple[set[str], list[str]]:
    """Modules there are, and socket events there were, after nothing but `import sandboxio`."""
    said = subprocess.run(
        [sys.executable, "-c", LOADED], cwd=ROOT, capture_output=True, text=True, check=True
    )
    modules, opened = json.loads(said.stdout)
    return set(modules), opened


def test_importing_loads_next_to_nothing(loaded: tuple[set[str], list[str]]) -> None:
    """At most ten modules of ours; no event loop, backend, SDK or package metadata."""
    modules, _ = loaded
    assert len([name for name in modules if name.partition(".")[0] == "sandboxio"]) <= 10
    heavy = {"asyncio", "trio", "anyio", "importlib.metadata", "socket", "ssl", *SDKS}
    assert not modules & heavy


def test_importing_opens_no_socket(loaded: tuple[set[str], list[str]]) -> None:
    """Nothing is connected before somebody asks."""
    _, opened = loaded
    assert opened == []


def test_using_errors_and_models_starts_no_loop() -> None:
    """Catching our errors needs no SDK, event loop or entry point."""
    code = (
        "import sandboxio, sys; sandboxio.SandboxError; sandboxio.Resources(); print(*sys.modules)"
    )
    said = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert not set(said.stdout.split()) & {"asyncio", "trio", "importlib.metadata", *SDKS}


def type_checking_names(path: Path) -> list[str]:
    """Return the names a module gives to type checkers alone."""
    (block,) = (
        node
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
    )
    return [
        alias.asname or alias.name
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    ]


def test_the_two_lists_of_public_names_agree() -> None:
    """What exists at run time is what type checkers see, each name once and under itself."""
    assert sorted(type_checking_names(PACKAGE / "__init__.py")) == list(sandboxio.__all__)
    assert len(set(sandboxio.__all__)) == len(sandboxio.__all__)


@pytest.mark.parametrize("name", sandboxio.__all__)
def test_every_public_name_resolves(name: str) -> None:
    """Each name leads to its own object, the same one every time, and is listed by dir()."""
    value = getattr(sandboxio, name)
    assert getattr(sandboxio, name) is value
    assert getattr(value, "__name__", name).rpartition(".")[2] == name
    assert name in dir(sandboxio)


def test_an_unknown_name_is_an_attribute_error() -> None:
    """Lazy names leave ordinary behaviour as it is."""
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        getattr(sandboxio, "nonsense")  # noqa: B009
    assert not hasattr(sandboxio, "core_")


def test_every_module_imports_without_its_sdk() -> None:
    """With no SDK installed, each module of core, guest and adapters still loads."""
    names = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for path in SOURCES
        if path.relative_to(PACKAGE).parts[0] in ("core", "guest", "adapters")
    ]
    code = (
        f"import sys, importlib\nfor sdk in {sorted(SDKS)!r}: sys.modules[sdk] = None\n"
        f"for name in {names!r}: importlib.import_module(name)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")


def test_each_layer_imports_only_what_it_may() -> None:
    """core imports core; guest imports core; adapters import core and guest."""
    wrong = [
        found for found in OURS if found.home in ALLOWED and found.layer not in ALLOWED[found.home]
    ]
    assert wrong == []


def test_no_adapter_imports_another() -> None:
    """An adapter is one family of files; only the loader is shared."""

    def family(module: str) -> str:
        return module.strip("_").partition("_")[0]

    wrong = [
        found
        for found in OURS
        if found.home == found.layer == "adapters"
        and found.path.name != "__init__.py"
        and found.module.split(".")[2] != "_loader"
        and family(found.module.split(".")[2]) != family(found.path.stem)
    ]
    assert wrong == []


def test_services_never_import_an_adapter() -> None:
    """Services speak ports and models."""
    wrong = [found for found in OURS if found.home in SERVICES and found.layer == "adapters"]
    assert wrong == []


def test_nothing_imports_a_door() -> None:
    """A door is only entered from outside, by `python -m` and its own files."""
    wrong = [
        found
        for found in OURS
        if found.layer in DOORS and found.home not in (found.layer, "__main__")
    ]
    assert wrong == []


def test_sdks_stay_inside_their_adapters() -> None:
    """A provider's SDK is imported by adapters alone, and there never at import time."""
    wrong = [
        found
        for found in IMPORTS
        if found.top in SDKS and (found.home != "adapters" or not found.deferred)
    ]
    assert wrong == []


def test_nothing_else_is_needed() -> None:
    """Beyond the standard library, two packages are used everywhere and doors have their own."""
    wrong = [
        found
        for found in IMPORTS
        if found.top not in STANDARD | OURS_ALONE | SDKS | {"sandboxio"}
        and found.top not in OPTIONAL.get(found.home, set[str]())
    ]
    assert wrong == []


def test_the_rules_see_imports_of_every_kind(tmp_path: Path) -> None:
    """The walk above finds plain, aliased, nested and typing-only imports."""
    source = tmp_path / "m.py"
    source.write_text(
        "import a.b as c\nfrom sandboxio import core\nfrom sandboxio.core import x\n"
        "if TYPE_CHECKING:\n    import d\ndef f():\n    from e import g\n"
    )
    found = [(one.module, one.deferred) for one in imports_of(source)]
    assert found == [
        ("a.b", False),
        ("sandboxio.core", False),
        ("sandboxio.core.x", False),
        ("d", True),
        ("e.g", True),
    ]
