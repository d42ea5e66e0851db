"""Typed configuration, and how it meets DSNs and keyword arguments."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

import sandboxio
from sandboxio import (
    BackendConfig,
    ConfigurationError,
    IsolationTier,
    NetworkPolicy,
    Resources,
)
from sandboxio.adapters.docker import DockerConfig
from sandboxio.core import dsn
from sandboxio.core.backend import DriverBackend
from sandboxio.core.config import CreateOptions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.doubles import DoubleDriver

SECRET = "s3cr3t-value"
TWO_VALUES: dict[str, tuple[Any, Any]] = {
    "template": ("a", "b"),
    "resources": (Resources(cpu=1), Resources(cpu=2)),
    "network": (NetworkPolicy(egress="allow"), NetworkPolicy(allow=("a",))),
    "env": ({"A": "1"}, {"A": "2"}),
    "secrets": ({"A": SECRET}, {"A": "other-value"}),
    "timeout": (60, 61),
    "metadata": ({"a": "1"}, {"a": "2"}),
    "require_isolation": (IsolationTier.CONTAINER, IsolationTier.VM),
    "user": ("root", "1000"),
}


@dataclass(frozen=True, kw_only=True)
class Config(BackendConfig):
    backend: ClassVar[str] = "configured"
    zone: str = "north"


class Backend(DriverBackend):
    """A backend with a configuration of its own."""

    config_type = Config

    def __init__(self, driver: DoubleDriver, seen: list[Config]) -> None:
        super().__init__(driver)
        self._double = driver
        self._seen = seen

    def configured(self, config: Config) -> Backend:
        self._seen.append(config)
        return Backend(self._double, self._seen)


@pytest.fixture
def seen(driver: DoubleDriver) -> Iterator[list[Config]]:
    """The configurations that reached a registered backend."""
    found: list[Config] = []
    sandboxio.register("configured", lambda: Backend(driver, found))
    yield found
    sandboxio.unregister("configured")


def test_the_table_covers_every_option() -> None:
    """An option added to `create()` must be added to these tests."""
    assert set(TWO_VALUES) == {option.name for option in fields(CreateOptions)}


@pytest.mark.parametrize("name", TWO_VALUES)
def test_a_disagreement_is_refused(name: str) -> None:
    """An option set in the configuration and differently in the call has no precedence."""
    first, second = TWO_VALUES[name]
    with pytest.raises(ConfigurationError, match=f"{name} is set in the configuration") as caught:
        BackendConfig(**{name: first}).merged(CreateOptions(**{name: second}))
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("name", TWO_VALUES)
def test_either_place_counts(name: str) -> None:
    """An option may stand in the configuration, in the call, or equal in both."""
    value, _ = TWO_VALUES[name]
    config, call = BackendConfig(**{name: value}), CreateOptions(**{name: value})
    merged = (
        config.merged(CreateOptions()),
        BackendConfig().merged(call),
        config.merged(call),
    )
    assert merged == (call, call, call)


@pytest.mark.parametrize("name", ["timeout", "resources", "network"])
def test_a_value_equal_to_the_default_is_a_value(name: str) -> None:
    """Writing out the default counts: a different configuration is a disagreement."""
    default: Any = {"timeout": float("300"), "resources": Resources(), "network": NetworkPolicy()}
    configured, _ = TWO_VALUES[name]
    with pytest.raises(ConfigurationError, match=name):
        BackendConfig(**{name: configured}).merged(CreateOptions(**{name: default[name]}))


def test_a_dsn_becomes_the_backend_s_own_configuration() -> None:
    """A DSN is a front end of the typed configuration, its numbers converted."""
    config = DockerConfig.from_dsn(dsn.parse("docker://img:1?timeout=60.5"))
    assert config == DockerConfig(template="img:1", timeout=60.5)


def test_an_unknown_parameter_names_the_known_ones() -> None:
    """A misspelt parameter is refused by name, never its value."""
    with pytest.raises(ConfigurationError, match="no DSN parameter 'timeuot'") as caught:
        DockerConfig.from_dsn(dsn.parse(f"docker://img?timeuot={SECRET}"))
    assert "timeout" in caught.value.hint
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("value", ["", "abc", "60s", "1,5"])
def test_a_parameter_that_is_no_number_is_refused(value: str) -> None:
    """Numbers are plain; the message names the parameter."""
    with pytest.raises(ConfigurationError, match="'timeout' is not a number"):
        DockerConfig.from_dsn(dsn.parse(f"docker://img?timeout={value}"))


def test_configurations_show_no_value() -> None:
    """The `repr` of any configuration leaves environment and secrets out."""
    values = {"env": {"A": SECRET}, "secrets": {"B": SECRET}}
    assert SECRET not in f"{DockerConfig(**values)!r}{CreateOptions(**values)!r}"  # type: ignore[arg-type]


@pytest.mark.anyio
async def test_the_template_and_timeout_of_a_dsn_reach_the_driver(
    target: str, driver: DoubleDriver
) -> None:
    """What a DSN says arrives unchanged in the request."""
    await sandboxio.create(f"{target}localhost:5000/team/img:1.2?timeout=60", user="root")
    request = driver.created[0]
    assert (request.template, request.timeout, request.user) == (
        "localhost:5000/team/img:1.2",
        60.0,
        "root",
    )


@pytest.mark.anyio
@pytest.mark.parametrize("query", ["timeout=nan", "timeout=inf", "timeout=0", "timeout=-1"])
async def test_odd_numbers_in_a_dsn_are_refused(
    target: str, driver: DoubleDriver, query: str
) -> None:
    """A DSN can say nothing that a keyword could not."""
    with pytest.raises(ConfigurationError, match="timeout"):
        await sandboxio.create(f"{target}?{query}")
    assert driver.log == []


@pytest.mark.anyio
async def test_fields_of_its_own_reach_the_backend(
    driver: DoubleDriver, seen: list[Config]
) -> None:
    """A configuration object selects its backend and brings its own fields and options."""
    await sandboxio.create(Config(zone="south", template="t"), timeout=5)
    assert [config.zone for config in seen] == ["south"]
    assert (driver.created[0].template, driver.created[0].timeout) == ("t", 5.0)


@pytest.mark.anyio
async def test_a_backend_without_fields_of_its_own_refuses_them(
    target: str, driver: DoubleDriver
) -> None:
    """A field that nothing would read is refused, not ignored."""

    @dataclass(frozen=True, kw_only=True)
    class Stray(BackendConfig):
        backend: ClassVar[str] = "double"
        zone: str = "north"

    with pytest.raises(ConfigurationError, match="does not take zone"):
        await sandboxio.create(Stray(zone="south"))
    assert driver.log == []
    await sandboxio.create(Stray())
    assert target == "double://"


@pytest.mark.anyio
@pytest.mark.parametrize("wrong", [3, b"docker://", object()])
async def test_a_target_is_a_dsn_or_a_configuration(wrong: Any) -> None:
    """Anything else is refused by its type."""
    with pytest.raises(ConfigurationError, match="target must be"):
        await sandboxio.create(wrong)
