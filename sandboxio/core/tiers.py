"""Isolation tiers and their order."""

from __future__ import annotations

from enum import Enum


class IsolationTier(Enum):
    """How strongly a sandbox resists kernel escape by an adversarial tenant.

    The order says that and nothing else: it is no general scale of security.
    `UNKNOWN` satisfies no requirement, `NONE` satisfies only itself.

    Example:
        >>> IsolationTier.MICROVM.satisfies(IsolationTier.CONTAINER)
        True
        >>> IsolationTier.UNKNOWN.satisfies(IsolationTier.CONTAINER)
        False
    """

    UNKNOWN = "unknown"
    """Undeclared or unverified."""
    NONE = "none"
    """Runs on the host with the caller's own rights."""
    RUNTIME = "runtime"
    """A language runtime's own limits, in the host's process."""
    PROCESS = "process"
    """A restricted host process."""
    CONTAINER = "container"
    """Shared host kernel: for trusted, development and CI code."""
    GVISOR = "gvisor"
    """User-space kernel: defence in depth, not equivalent to a virtual machine."""
    MICROVM = "microvm"
    """Guest kernel of its own: the floor for untrusted multi-tenant code."""
    VM = "vm"
    """A full virtual machine."""

    @property
    def rank(self) -> int:
        """Position in the order; the gaps leave room for tiers to come."""
        return _RANKS[self]

    def satisfies(self, minimum: IsolationTier) -> bool:
        """Say whether a sandbox of this tier meets a requirement of `minimum`."""
        if IsolationTier.UNKNOWN in (self, minimum):
            return False
        if IsolationTier.NONE in (self, minimum):
            return self is minimum
        return self.rank >= minimum.rank

    def __lt__(self, other: object) -> bool:
        return self.rank < other.rank if isinstance(other, IsolationTier) else NotImplemented

    def __le__(self, other: object) -> bool:
        return self.rank <= other.rank if isinstance(other, IsolationTier) else NotImplemented

    def __gt__(self, other: object) -> bool:
        return self.rank > other.rank if isinstance(other, IsolationTier) else NotImplemented

    def __ge__(self, other: object) -> bool:
        return self.rank >= other.rank if isinstance(other, IsolationTier) else NotImplemented


_RANKS = {
    IsolationTier.UNKNOWN: 0,
    IsolationTier.NONE: 1,
    IsolationTier.RUNTIME: 4,
    IsolationTier.PROCESS: 7,
    IsolationTier.CONTAINER: 10,
    IsolationTier.GVISOR: 20,
    IsolationTier.MICROVM: 30,
    IsolationTier.VM: 40,
}
