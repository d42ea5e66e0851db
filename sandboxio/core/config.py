"""Typed configuration: one dataclass per backend, and the one way a DSN becomes one."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar

from sandboxio.core.errors import ConfigurationError
from sandboxio.core.models import DEFAULT_TIMEOUT, NetworkPolicy, Resources

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

    from sandboxio.core.dsn import Dsn
    from sandboxio.core.tiers import IsolationTier

DEFAULT_RESOURCES = Resources()
DEFAULT_NETWORK = NetworkPolicy()


@dataclass(frozen=True, kw_only=True)
class CreateOptions:
    """The keyword arguments of `create()`, as one value."""

    template: str | None = None
    resources: Resources = DEFAULT_RESOURCES
    network: NetworkPolicy = DEFAULT_NETWORK
    env: Mapping[str, str] | None = field(default=None, repr=False)
    secrets: Mapping[str, str] | None = field(default=None, repr=False)
    timeout: float = DEFAULT_TIMEOUT
    metadata: Mapping[str, str] | None = None
    require_isolation: IsolationTier | None = None
    user: str | None = None


@dataclass(frozen=True, kw_only=True)
class BackendConfig(CreateOptions):
    """Base of every backend's configuration; each field is the default of `create()`'s own.

    A value set here and a different one passed to `create()` is an error, not a precedence.
    """

    backend: ClassVar[str] = ""
    dsn_parameters: ClassVar[Mapping[str, type[float | str]]] = {"timeout": float}
    """Parameters a DSN of this backend may hold, and the type of each."""

    @classmethod
    def from_dsn(cls, dsn: Dsn) -> Self:
        """Build the configuration a DSN stands for; unknown parameters are refused."""
        values: dict[str, Any] = {}
        for name, raw in dsn.parameters.items():
            if name not in cls.dsn_parameters:
                raise ConfigurationError(
                    f"The {dsn.backend!r} backend has no DSN parameter {name!r}.",
                    hint=f"It accepts: {', '.join(sorted(cls.dsn_parameters))}.",
                )
            values[name] = _scalar(name, raw, cls.dsn_parameters[name])
        return cls(template=dsn.template, **values)

    def merged(self, given: CreateOptions) -> CreateOptions:
        """Combine with what `create()` was given; a disagreement is refused."""
        values: dict[str, Any] = {}
        for option in fields(CreateOptions):
            configured, passed = getattr(self, option.name), getattr(given, option.name)
            if passed is option.default:
                values[option.name] = configured
            elif configured is option.default or configured == passed:
                values[option.name] = passed
            else:
                raise ConfigurationError(
                    f"{option.name} is set in the configuration and, differently, in create().",
                    hint=f"Set {option.name} in one place.",
                )
        return CreateOptions(**values)


def _scalar(name: str, raw: str, kind: type[float | str]) -> float | str:
    try:
        return kind(raw)
    except ValueError:
        raise ConfigurationError(f"The DSN parameter {name!r} is not a number.") from None
