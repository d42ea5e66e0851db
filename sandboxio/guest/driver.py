"""A sandbox over a link: what every adapter shares whose engine can carry a byte stream."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel

from sandboxio.core.errors import CapabilityNotSupported, LinkLost, SandboxError
from sandboxio.guest import _link_verdicts as verdicts
from sandboxio.guest import code
from sandboxio.guest._link_exec import LinkExec, Opened, ask
from sandboxio.guest._link_pool import LinkPool
from sandboxio.guest.frames import RuleBroken
from sandboxio.guest.link_files import LinkFiles

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from sandboxio.core.models import Metrics
    from sandboxio.core.requests import CodeRequest, ExecRequest
    from sandboxio.guest.link import ByteStream, Link

_OWN_INTERPRETER = re.compile(
    r"(PYTHON|LD_|LC_|MALLOC_).*|LANG|LANGUAGE|GLIBC_TUNABLES|PATH", re.DOTALL
)
"""Variables that an interpreter reads before it runs any code."""
_MARGIN = 10.0
"""Seconds after the host's deadline at which the agent ends a call by itself."""
_LONGEST = 10**15
_GONE_PAUSES = (0.0, 0.05, 0.15, 0.3)
"""Until an engine has noticed that a sandbox, whose link has ended, has ended too."""


class LinkCalls:
    """Calls, files and metrics of one sandbox, over one link for each event loop."""

    def __init__(
        self,
        reconnect: Callable[[], Awaitable[ByteStream]],
        *,
        first: Link | None = None,
        caller: Callable[[str | None], str],
        environment: Callable[[str | None, Mapping[str, str]], Mapping[str, str]],
        cwd: Callable[[str | None], str],
        gone: Callable[[], Awaitable[SandboxError | None]],
        memory_mb: int,
        timeout: float,
    ) -> None:
        """What the engine and the image have to say.

        `reconnect` opens a stream to the agent, or raises `SandboxGone` or `ConnectError`.
        `caller` turns `user=` into `uid:gid:group,group`; `environment` gives all variables of a
        call; `gone` asks the engine whether the sandbox has ended; `timeout` is its lifetime.
        """
        self._pool = LinkPool(reconnect, first)
        self._caller = caller
        self._environment = environment
        self._cwd = cwd
        self._gone = gone
        self.memory_mb = memory_mb
        self.files = LinkFiles(self, timeout=timeout)

    async def link(self) -> Link:
        """Return the link of this process and event loop, opened if need be."""
        try:
            return await self._pool.get()
        except LinkLost as exc:
            await self.explain(exc)
            raise

    async def aclose(self) -> None:
        """Close the link of this event loop; the agent ends what still runs over it."""
        await self._pool.aclose()

    async def start(self, request: ExecRequest) -> LinkExec:
        opened = await self._command(request.argv, request)
        return LinkExec(self, opened, timeout=request.timeout)

    async def start_code(self, request: CodeRequest) -> LinkExec:
        link = await self.link()
        environment = self._environment(None, request.env)
        warm = request.language == "python" and link.facts.get("warm") == "1"
        if not warm or (request.env and self._needs_own_interpreter(environment)):
            return LinkExec(self, await self._fresh(request), timeout=request.timeout)
        opened = await self.open(
            b"code",
            self.account(None),
            self.directory(request.cwd),
            _deadline(request.timeout),
            *_variables(environment),
            data=request.code.encode(),
        )
        return LinkExec(self, opened, timeout=request.timeout, instead=lambda: self._fresh(request))

    async def metrics(self) -> Metrics:
        link = await self.link()
        try:
            fields = await ask(link, b"metrics")
        except LinkLost as exc:
            await self.explain(exc)
            raise
        if fields[0] == b"error":
            raise CapabilityNotSupported(
                f"This sandbox cannot say what it uses: {verdicts.words_of(fields[2])}."
            )
        try:
            return verdicts.metrics(fields)
        except RuleBroken as exc:
            await link.close(f"the agent broke its protocol: {exc}")
            raise LinkLost("What the sandbox uses cannot be read.", outcome="done") from exc

    # For calls and files.

    async def open(self, *fields: bytes, data: bytes | None = None) -> Opened:
        """Open a channel; once more over another link, where nothing can have been heard."""
        await anyio.lowlevel.checkpoint_if_cancelled()  # a request that fits awaits nothing
        link = await self.link()
        if fields[0] == b"exec" and fields[1].startswith(b"0:") and link.facts.get("root") != "1":
            raise verdicts.root_refused()
        try:
            return Opened(link, await link.open(*fields, data=data))
        except LinkLost as exc:
            if exc.outcome != "not_started":
                raise
        link = await self.link()
        return Opened(link, await link.open(*fields, data=data))

    def account(self, user: str | None) -> bytes:
        return self._caller(user).encode()

    def directory(self, cwd: str | None) -> bytes:
        return self._cwd(cwd).encode("utf-8", "surrogateescape")

    async def explain(self, lost: LinkLost) -> None:
        """Raise `SandboxGone` where a link is lost because its sandbox is."""
        for pause in _GONE_PAUSES:
            await anyio.sleep(pause)
            found = await self.gone()
            if found is not None:
                raise found from lost

    async def gone(self) -> SandboxError | None:
        with suppress(SandboxError):  # an engine that cannot say has not said that it is gone
            return await self._gone()
        return None

    async def _fresh(self, request: CodeRequest) -> Opened:
        """Run code in an interpreter of its own."""
        link = await self.link()
        command = code.command(request.language, request.code, link.programs)
        return await self._command(command.argv, request, data=command.stdin)

    async def _command(
        self, argv: Sequence[str], request: ExecRequest | CodeRequest, data: bytes | None = None
    ) -> Opened:
        user = getattr(request, "user", None)
        takes_input = data is not None or getattr(request, "stdin", False)
        return await self.open(
            b"exec",
            self.account(user),
            self.directory(request.cwd),
            _deadline(request.timeout),
            b"i" if takes_input else b"",
            b"%d" % len(argv),
            *(part.encode() for part in argv),
            *_variables(self._environment(user, request.env)),
            data=data,
        )

    def _needs_own_interpreter(self, environment: Mapping[str, str]) -> bool:
        usual = self._environment(None, {})
        changed = dict(environment.items() ^ usual.items())
        return any(_OWN_INTERPRETER.fullmatch(name) for name in changed)


def _variables(environment: Mapping[str, str]) -> list[bytes]:
    return [f"{name}={value}".encode() for name, value in environment.items()]


def _deadline(timeout: float) -> bytes:
    return b"%d" % min(int((timeout + _MARGIN) * 1000), _LONGEST)
