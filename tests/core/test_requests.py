"""What callers may pass, and that nothing unacceptable ever reaches a driver."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest

from sandboxio import ConfigurationError, IsolationTier, NetworkPolicy, Resources
from sandboxio.core import requests

if TYPE_CHECKING:
    from sandboxio.core.backend import DriverBackend
    from sandboxio.core.sandbox import Sandbox
    from tests.doubles import DoubleDriver

pytestmark = pytest.mark.anyio

LONE = "\ud800"
VALUE = "value-not-to-show"
ODD_TIMEOUTS = [0, -1, math.nan, math.inf, -math.inf, True, "5", b"5", [5]]
ODD_VARIABLES: list[dict[Any, Any]] = [
    {"A=B": VALUE},
    {"": VALUE},
    {"A\0B": VALUE},
    {LONE: VALUE},
    {None: VALUE},
    {1: VALUE},
    {"NAME": f"{VALUE}\0"},
    {"NAME": VALUE + LONE},
    {"NAME": None},
    {"NAME": 1},
    {"NAME": VALUE.encode()},
]
ODD_CREATE: list[dict[str, Any]] = [
    {"template": ""},
    {"template": "a\0b"},
    {"template": 3},
    {"env": [("A", "b")]},
    {"secrets": "A=b"},
    {"metadata": "a=b"},
    {"metadata": {"": "x"}},
    {"metadata": {"-a": "x"}},
    {"metadata": {"a.": "x"}},
    {"metadata": {"a b": "x"}},
    {"metadata": {"a\n": "x"}},
    {"metadata": {"a" * 64: "x"}},
    {"metadata": {1: "x"}},
    {"metadata": {"a": None}},
    {"metadata": {"a": 1}},
    {"metadata": {"a": "line\nfeed"}},
    {"metadata": {"a": "x" * 1025}},
    {"metadata": {"a": LONE}},
    {"user": ""},
    {"user": "-root"},
    {"user": "a b"},
    {"user": "1000:"},
    {"user": "a\n"},
    {"user": 1000},
    {"resources": {"cpu": 1}},
    {"resources": Resources(cpu=0)},
    {"resources": Resources(cpu=math.nan)},
    {"resources": Resources(cpu=math.inf)},
    {"resources": Resources(cpu=True)},
    {"resources": Resources(memory_mb=0)},
    {"resources": Resources(memory_mb=1.5)},  # type: ignore[arg-type]
    {"resources": Resources(disk_mb=-1)},
    {"resources": Resources(gpu="")},
    {"network": "deny"},
    {"network": NetworkPolicy(egress="none")},  # type: ignore[arg-type]
    {"network": NetworkPolicy(egress="allow", allow=("example.org",))},
    {"network": NetworkPolicy(allow="example.org")},  # type: ignore[arg-type]
    {"network": NetworkPolicy(allow=("",))},
    {"network": NetworkPolicy(allow=(1,))},  # type: ignore[arg-type]
    {"network": NetworkPolicy(ingress_ports=(0,))},
    {"network": NetworkPolicy(ingress_ports=(65536,))},
    {"network": NetworkPolicy(ingress_ports=[80])},  # type: ignore[arg-type]
    {"network": NetworkPolicy(ingress_ports=(True,))},
]
ODD_COMMANDS = ["", [], b"ls", [""], ["a\0b"], ["ls", 1], ["ls", None], [b"ls"], 3, None, {"ls"}]
ODD_PATHS = ["", "a\0b", LONE, "\udc00", 3, b"/x", None, "x" * 4096, "ü" * 2048]


def shown(case: object) -> str:
    return ascii(case)[:40]


@pytest.mark.parametrize("timeout", [*ODD_TIMEOUTS, None], ids=shown)
async def test_create_refuses_odd_timeouts(
    backend: DriverBackend, driver: DoubleDriver, timeout: Any
) -> None:
    """An unusable lifetime is refused by name before the driver is asked anything."""
    with pytest.raises(ConfigurationError, match=r"^\[SBX_E1000\] timeout must be"):
        await backend.create(timeout=timeout)
    assert driver.log == []


@pytest.mark.parametrize("timeout", ODD_TIMEOUTS, ids=shown)
async def test_calls_refuse_odd_timeouts(
    sandbox: Sandbox, driver: DoubleDriver, timeout: Any
) -> None:
    """An unusable timeout of a call is refused by name, and nothing is started."""
    with pytest.raises(ConfigurationError, match="timeout must be"):
        await sandbox.run(["true"], timeout=timeout)
    with pytest.raises(ConfigurationError, match="timeout must be"):
        await sandbox.run_code("pass", timeout=timeout)
    with pytest.raises(ConfigurationError, match="timeout must be"):
        sandbox.stream(["true"], timeout=timeout)
    assert driver.calls == []


@pytest.mark.parametrize("options", [{"timeout": 10**400}, {"resources": Resources(cpu=10**400)}])
async def test_numbers_no_float_can_hold_are_refused(
    backend: DriverBackend, options: dict[str, Any]
) -> None:
    """A whole number beyond the range of floats is refused like any other odd number."""
    with pytest.raises(ConfigurationError):
        await backend.create(**options)


async def test_a_call_without_timeout_inherits_the_sandbox_s(
    sandbox: Sandbox, driver: DoubleDriver
) -> None:
    """`timeout=None` is the sandbox's own lifetime; a number is taken exactly."""
    await sandbox.run(["true"])
    await sandbox.run_code("pass")
    await sandbox.run(["true"], timeout=90)
    assert [call.request.timeout for call in driver.calls] == [60.0, 60.0, 90.0]


@pytest.mark.parametrize("argument", ["env", "secrets"])
@pytest.mark.parametrize("variables", ODD_VARIABLES, ids=shown)
async def test_create_refuses_variables_no_process_can_have(
    backend: DriverBackend, driver: DoubleDriver, argument: str, variables: dict[Any, Any]
) -> None:
    """A bad variable is refused before the driver is asked, and its value is never shown."""
    options: dict[str, Any] = {argument: variables}
    with pytest.raises(ConfigurationError, match=f"{argument}: ") as caught:
        await backend.create(**options)
    assert VALUE not in str(caught.value)
    assert driver.log == []


@pytest.mark.parametrize("variables", ODD_VARIABLES[-5:], ids=shown)
async def test_the_message_names_the_variable(
    sandbox: Sandbox, driver: DoubleDriver, variables: dict[Any, Any]
) -> None:
    """Which variable is wrong is said, since its value is not."""
    with pytest.raises(ConfigurationError, match="'NAME'") as caught:
        await sandbox.run(["true"], env=variables)
    assert VALUE not in str(caught.value)
    assert driver.calls == []


async def test_awkward_values_are_accepted_as_they_are(
    sandbox: Sandbox, driver: DoubleDriver
) -> None:
    """Empty values, line ends, quotes and any language survive; a call's value wins."""
    mine = {"E": "", "NL": "a\nb", "EQ": "a=b", "Q": "'\"$(x)`", "U": "é🎉", "MODE": "call"}
    await sandbox.run(["true"], env=mine)
    await sandbox.run(["true"])
    assert {**driver.calls[0].request.env} == {"TOKEN": "hunter2-and-more", **mine}
    assert driver.calls[1].request.env["MODE"] == "env-value-1"


@pytest.mark.parametrize("options", ODD_CREATE, ids=shown)
async def test_create_refuses_before_the_driver_is_touched(
    backend: DriverBackend, driver: DoubleDriver, options: dict[str, Any]
) -> None:
    """Whatever cannot be honoured is refused by the name of its argument, and nothing is made."""
    with pytest.raises(ConfigurationError, match=next(iter(options))) as caught:
        await backend.create(**options)
    assert driver.log == []
    assert caught.value.outcome == "not_started"


async def test_metadata_at_its_limits_is_accepted(
    backend: DriverBackend, driver: DoubleDriver
) -> None:
    """63 characters of key and 1024 of value are allowed, in any language."""
    metadata = {"a" * 63: "é" * 1024, "tenant_id": "0", "a.b-c_d": "x y"}
    await backend.create(metadata=metadata)
    assert driver.created[0].metadata == metadata


@pytest.mark.parametrize("cmd", ODD_COMMANDS, ids=shown)
async def test_odd_commands_are_refused(sandbox: Sandbox, driver: DoubleDriver, cmd: Any) -> None:
    """A command is a string or a sequence of strings that names a program."""
    with pytest.raises(ConfigurationError, match="cmd"):
        await sandbox.run(cmd)
    with pytest.raises(ConfigurationError, match="cmd"):
        sandbox.stream(cmd)
    assert driver.calls == []


async def test_a_list_is_untouched_and_a_string_goes_to_one_shell(
    sandbox: Sandbox, driver: DoubleDriver
) -> None:
    """Words of a list are never split, joined or expanded; a string is one argument of sh."""
    await sandbox.run(["printf", "$HOME", "a b", "", "&&"])
    await sandbox.run("echo a && echo 'b'")
    argvs = [getattr(call.request, "argv", None) for call in driver.calls]
    assert argvs == [
        ("printf", "$HOME", "a b", "", "&&"),
        ("sh", "-c", "echo a && echo 'b'"),
    ]


@pytest.mark.parametrize(
    "options",
    [
        {"user": "no such"},
        {"user": "root:"},
        {"stdin": 3},
        {"stdin": LONE},
        {"max_output_bytes": 0},
        {"max_output_bytes": -1},
        {"max_output_bytes": 1.5},
        {"max_output_bytes": True},
    ],
    ids=shown,
)
async def test_odd_options_of_run_are_refused(
    sandbox: Sandbox, driver: DoubleDriver, options: dict[str, Any]
) -> None:
    """Each option of a call is checked by name before anything starts."""
    with pytest.raises(ConfigurationError, match=next(iter(options))):
        await sandbox.run(["true"], **options)
    assert driver.calls == []


@pytest.mark.parametrize("options", [{"code": 3}, {"code": "a\0"}, {"code": LONE}], ids=shown)
async def test_odd_code_is_refused(
    sandbox: Sandbox, driver: DoubleDriver, options: dict[str, Any]
) -> None:
    """Code is text that UTF-8 can carry."""
    with pytest.raises(ConfigurationError, match="code"):
        await sandbox.run_code(**options)
    with pytest.raises(ConfigurationError, match="language"):
        await sandbox.run_code("pass", language="")
    assert driver.calls == []


@pytest.mark.parametrize("path", ODD_PATHS, ids=shown)
def test_odd_paths_are_refused(path: object) -> None:
    """A path is non-empty text without NUL, below PATH_MAX, whose surrogates stand for bytes."""
    with pytest.raises(ConfigurationError, match="where"):
        requests.path("where", path)


@pytest.mark.parametrize("path", ["a", "/", "\udcff.txt", "x" * 4095, "a\nb", "-n", "$HOME", "~"])
def test_every_path_a_file_can_have_is_accepted(path: str) -> None:
    """Surrogate escapes stand for bytes that are not UTF-8; nothing is changed."""
    assert requests.path("where", path) == path


async def test_a_working_directory_is_checked_like_a_path(
    sandbox: Sandbox, driver: DoubleDriver
) -> None:
    """`cwd` follows the rules of paths."""
    with pytest.raises(ConfigurationError, match="cwd"):
        await sandbox.run(["true"], cwd="")
    await sandbox.run(["true"], cwd="\udcff")
    assert [call.request.cwd for call in driver.calls] == ["\udcff"]


@pytest.mark.parametrize("tier", ["container", 10, IsolationTier.UNKNOWN], ids=shown)
def test_a_requirement_must_mean_something(tier: object) -> None:
    """`require_isolation` is a tier; UNKNOWN would require nothing."""
    with pytest.raises(ConfigurationError, match="require_isolation"):
        requests.requirement(tier)


def test_requests_show_no_value() -> None:
    """Neither environment nor secrets nor commands nor code are part of a `repr`."""
    create = requests.CreateRequest(env={"A": VALUE}, secrets={"B": VALUE})
    call = requests.ExecRequest(("echo", VALUE), 1.0, {"A": VALUE})
    code = requests.CodeRequest(VALUE, "python", 1.0, {"A": VALUE})
    assert VALUE not in f"{create!r}{call!r}{code!r}"
