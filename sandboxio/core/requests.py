"""Validated, frozen requests: everything a caller passes is checked here, once.

A request that exists is acceptable. Values that could be secret never appear in a message
or in a `repr`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast, get_args

from sandboxio.core.errors import ConfigurationError
from sandboxio.core.models import (
    DEFAULT_MAX_OUTPUT_BYTES,
    DEFAULT_TIMEOUT,
    Egress,
    NetworkPolicy,
    Resources,
)
from sandboxio.core.tiers import IsolationTier

MAX_ARGUMENT_BYTES = 128 * 1024 - 64
"""MAX_ARG_STRLEN of Linux, less what we may put before a value."""
MAX_ARGUMENTS_BYTES = 1024 * 1024
"""Half of what Linux allows for arguments and environment together."""
MAX_ID = 2**31 - 1
"""Largest uid or gid engines accept."""
MAX_PATH_BYTES = 4096
"""PATH_MAX of Linux, the terminating NUL included."""

_METADATA_KEY = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?\Z")
_METADATA_VALUE_MAX = 1024
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,63})?\Z")


@dataclass(frozen=True)
class CreateRequest:
    """What a caller wants provisioned."""

    template: str | None = None
    resources: Resources = field(default_factory=Resources)
    network: NetworkPolicy = field(default_factory=NetworkPolicy)
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    secrets: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    timeout: float = DEFAULT_TIMEOUT
    metadata: Mapping[str, str] = field(default_factory=dict[str, str])
    user: str | None = None

    @classmethod
    def build(
        cls,
        *,
        template: str | None,
        resources: Resources,
        network: NetworkPolicy,
        env: Mapping[str, str] | None,
        secrets: Mapping[str, str] | None,
        timeout: float,
        metadata: Mapping[str, str] | None,
        user: str | None,
    ) -> CreateRequest:
        return cls(
            template=None if template is None else text("template", template),
            resources=_resources(resources),
            network=_network(network),
            env=environment("env", env),
            secrets=environment("secrets", secrets),
            timeout=seconds("timeout", timeout),
            metadata=labels(metadata),
            user=_user(user),
        )


@dataclass(frozen=True)
class ExecRequest:
    """One command: a tuple reaches the program untouched, a string is read by a shell."""

    cmd: str | tuple[str, ...] = field(repr=False)
    timeout: float
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    cwd: str | None = None
    user: str | None = None
    stdin: bool = False
    max_output_bytes: int | None = None
    """What the caller keeps of each stream; `None` where all of it is read as it comes."""

    @classmethod
    def build(
        cls,
        cmd: str | Sequence[str],
        *,
        timeout: float,
        env: Mapping[str, str],
        cwd: str | None,
        user: str | None,
        stdin: bool,
        max_output_bytes: int | None = None,
    ) -> ExecRequest:
        return cls(
            cmd=_command(cmd),
            timeout=timeout,
            env=env,
            cwd=None if cwd is None else path("cwd", cwd),
            user=_user(user),
            stdin=stdin,
            max_output_bytes=max_output_bytes,
        )

    @property
    def argv(self) -> tuple[str, ...]:
        """The program and its arguments, the shell of a string command included."""
        return ("sh", "-c", self.cmd) if isinstance(self.cmd, str) else self.cmd


@dataclass(frozen=True)
class CodeRequest:
    """One piece of source code."""

    code: str = field(repr=False)
    language: str
    timeout: float
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    cwd: str | None = None
    context_id: str | None = None
    max_output_bytes: int = DEFAULT_MAX_OUTPUT_BYTES

    @classmethod
    def build(
        cls,
        code: str,
        *,
        language: str,
        context_id: str | None,
        timeout: float,
        env: Mapping[str, str],
        cwd: str | None,
        max_output_bytes: int = DEFAULT_MAX_OUTPUT_BYTES,
    ) -> CodeRequest:
        return cls(
            code=text("code", code, empty=True),
            language=text("language", language),
            timeout=timeout,
            env=env,
            cwd=None if cwd is None else path("cwd", cwd),
            context_id=None if context_id is None else text("context_id", context_id),
            max_output_bytes=max_output_bytes,
        )


def text(name: str, value: object, *, empty: bool = False) -> str:
    """Accept text that can be sent as UTF-8 and holds no NUL."""
    if not isinstance(value, str):
        raise ConfigurationError(f"{name} must be a string, not {type(value).__name__}.")
    if not value and not empty:
        raise ConfigurationError(f"{name} must not be empty.")
    if "\0" in value:
        raise ConfigurationError(f"{name} must not contain a NUL character.")
    if not _encodable(value):
        raise ConfigurationError(f"{name} must not contain a lone surrogate.")
    return value


def seconds(name: str, value: object) -> float:
    """Accept a finite number of seconds above 0."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigurationError(
            f"{name} must be a number of seconds, not {type(value).__name__}.",
            hint=f"Pass {name}=60; there is no unbounded wait.",
        )
    if not _finite(value) or value <= 0:
        raise ConfigurationError(
            f"{name} must be a finite number of seconds above 0, not {value!r}.",
            hint=f"Pass {name}=60; there is no unbounded wait.",
        )
    return float(value)


def call_timeout(value: object, inherited: float) -> float:
    """Accept a call's timeout; `None` inherits the sandbox's."""
    return inherited if value is None else seconds("timeout", value)


def output_limit(value: object) -> int:
    """Accept a number of bytes above 0; `None` is the default."""
    if value is None:
        return DEFAULT_MAX_OUTPUT_BYTES
    return _positive("max_output_bytes", value)


def input_bytes(value: object) -> bytes | None:
    """Accept what `run(stdin=...)` may send."""
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        if not _encodable(value):
            raise ConfigurationError("stdin must not contain a lone surrogate.")
        return value.encode()
    raise ConfigurationError(f"stdin must be bytes or text, not {type(value).__name__}.")


def path(name: str, value: object) -> str:
    """Accept a POSIX path; surrogate escapes stand for bytes that are not UTF-8."""
    if not isinstance(value, str):
        raise ConfigurationError(f"{name} must be a string, not {type(value).__name__}.")
    if not value:
        raise ConfigurationError(f"{name} must not be empty.")
    if "\0" in value:
        raise ConfigurationError(f"{name} must not contain a NUL character.")
    try:
        encoded = value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise ConfigurationError(f"{name} must not contain a lone surrogate.") from None
    if len(encoded) >= MAX_PATH_BYTES:
        raise ConfigurationError(f"{name} is longer than {MAX_PATH_BYTES - 1} bytes.")
    return value


def environment(name: str, value: object) -> dict[str, str]:
    """Accept variables a process can have; messages name the variable, never its value."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ConfigurationError(f"{name} must be a mapping, not {type(value).__name__}.")
    variables = cast("Mapping[object, object]", value)
    return {
        _variable_name(name, key): _variable_value(name, key, val) for key, val in variables.items()
    }


def _variable_name(name: str, key: object) -> str:
    if not isinstance(key, str):
        raise ConfigurationError(f"{name}: a name must be a string, not {type(key).__name__}.")
    if not key or "=" in key or "\0" in key or not _encodable(key):
        raise ConfigurationError(
            f"{name}: {key.partition('=')[0][:64]!r} is not a name a variable can have."
        )
    return key


def _variable_value(name: str, key: object, value: object) -> str:
    if not isinstance(value, str):
        raise ConfigurationError(
            f"{name}: the value of {key!r} must be a string, not {type(value).__name__}."
        )
    if len(value.encode("utf-8", "replace")) + len(str(key)) > MAX_ARGUMENT_BYTES:
        raise ConfigurationError(
            f"{name}: {key!r} is longer than the {MAX_ARGUMENT_BYTES} bytes a variable can have.",
            hint="Write it to a file with sb.files.write().",
        )
    if "\0" in value or not _encodable(value):
        raise ConfigurationError(
            f"{name}: the value of {key!r} contains a NUL character or a lone surrogate."
        )
    return value


def labels(value: object) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ConfigurationError(f"metadata must be a mapping, not {type(value).__name__}.")
    entries = cast("Mapping[object, object]", value)
    for key, val in entries.items():
        if not isinstance(key, str) or not _METADATA_KEY.match(key):
            raise ConfigurationError(
                "metadata: a key must be 1 to 63 letters, digits, dots, dashes or underscores, "
                "beginning and ending with a letter or digit.",
                hint='Use keys such as "tenant_id" or "session_id".',
            )
        if not isinstance(val, str) or not _label_value(val):
            raise ConfigurationError(
                f"metadata: the value of {key!r} must be printable text of 1 to "
                f"{_METADATA_VALUE_MAX} characters."
            )
    return dict(cast("Mapping[str, str]", entries))


def _label_value(value: str) -> bool:
    return 1 <= len(value) <= _METADATA_VALUE_MAX and value.isprintable() and _encodable(value)


def _command(value: object) -> str | tuple[str, ...]:
    if isinstance(value, str):
        return _argument("cmd", value)
    if isinstance(value, bytes) or not isinstance(value, Sequence):
        raise ConfigurationError(
            f"cmd must be a string or a list of strings, not {type(value).__name__}."
        )
    parts = tuple(
        _argument(f"cmd[{index}]", part, empty=index > 0)
        for index, part in enumerate(cast("Sequence[object]", value))
    )
    if not parts:
        raise ConfigurationError("cmd must name a program.")
    if sum(len(part.encode()) + 1 for part in parts) > MAX_ARGUMENTS_BYTES:
        raise ConfigurationError(
            f"cmd is longer than {MAX_ARGUMENTS_BYTES} bytes.",
            hint="Pass data with stdin=, or in a file with sb.files.write().",
        )
    return parts


def _argument(name: str, value: object, *, empty: bool = False) -> str:
    argument = text(name, value, empty=empty)
    if len(argument.encode()) > MAX_ARGUMENT_BYTES:
        raise ConfigurationError(
            f"{name} is longer than the {MAX_ARGUMENT_BYTES} bytes an argument can have.",
            hint="Pass data with stdin=, or in a file with sb.files.write().",
        )
    return argument


def _user(value: object) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or not _USER.match(value) or _too_large(value):
        raise ConfigurationError(
            "user must be a name, 'uid' or 'uid:gid' of the sandbox.",
            hint='Use user="root", user="1000" or user="1000:1000".',
        )
    return value


def _too_large(user: str) -> bool:
    return any(part.isdecimal() and int(part) > MAX_ID for part in user.split(":"))


def requirement(value: object) -> IsolationTier | None:
    if value is None:
        return None
    if not isinstance(value, IsolationTier):
        raise ConfigurationError(
            f"require_isolation must be an IsolationTier, not {type(value).__name__}."
        )
    if value is IsolationTier.UNKNOWN:
        raise ConfigurationError(
            "require_isolation=IsolationTier.UNKNOWN requires nothing.",
            hint="Require a tier that means something, such as IsolationTier.CONTAINER.",
        )
    return value


def _resources(value: object) -> Resources:
    if not isinstance(value, Resources):
        raise ConfigurationError(f"resources must be Resources, not {type(value).__name__}.")
    cpu: object = value.cpu
    if cpu is not None and (
        isinstance(cpu, bool) or not isinstance(cpu, int | float) or not _finite(cpu) or cpu <= 0
    ):
        raise ConfigurationError("resources.cpu must be a finite number of cores above 0.")
    for name, number in (("memory_mb", value.memory_mb), ("disk_mb", value.disk_mb)):
        if number is not None:
            _positive(f"resources.{name}", number)
    if value.gpu is not None:
        text("resources.gpu", value.gpu)
    return value


def _network(value: object) -> NetworkPolicy:
    if not isinstance(value, NetworkPolicy):
        raise ConfigurationError(f"network must be a NetworkPolicy, not {type(value).__name__}.")
    if value.egress not in get_args(Egress):
        raise ConfigurationError(
            f"network.egress must be one of {', '.join(get_args(Egress))}.",
        )
    allow: object = value.allow
    if not isinstance(allow, tuple):
        raise ConfigurationError("network.allow must be a tuple of host names or CIDR ranges.")
    for entry in value.allow:
        text("network.allow", entry)
    if value.allow and value.egress == "allow":
        raise ConfigurationError(
            'network: egress="allow" opens everything, so an allowlist beside it would not apply.',
            hint='Use NetworkPolicy(egress="deny", allow=(...)) for an allowlist.',
        )
    ports: object = value.ingress_ports
    if not isinstance(ports, tuple):
        raise ConfigurationError("network.ingress_ports must be a tuple of port numbers.")
    for port in value.ingress_ports:
        if _positive("network.ingress_ports", port) > 65535:
            raise ConfigurationError("network.ingress_ports must lie between 1 and 65535.")
    return value


def _positive(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
        raise ConfigurationError(f"{name} must be a whole number above 0, not {value!r}.")
    return value


def _finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number larger than any float
        return False


def _encodable(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
