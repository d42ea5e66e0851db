"""The blocking facade: hand-written delegation over a portal of its own per sandbox.

One sync sandbox is one thread. For many sandboxes at once use the async API.
"""

from __future__ import annotations

import atexit
from typing import TYPE_CHECKING

from sandboxio.core.portal import Portal
from sandboxio.core.sync_files import SyncFileSystem

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
    from types import TracebackType
    from typing import Self

    from sandboxio.core.models import Capability, ExecResult, Metrics, OutputChunk
    from sandboxio.core.protocols import AsyncSandbox, Process
    from sandboxio.core.tiers import IsolationTier


class SyncSandbox:
    """`AsyncSandbox` for blocking code; every method does what its async twin does.

    Example:
        with sandboxio.create_sync() as sb:
            print(sb.run_code("print('hello')").stdout)
    """

    def __init__(self, sandbox: AsyncSandbox, portal: Portal) -> None:
        self._sandbox = sandbox
        self._portal = portal
        atexit.register(self.close)

    def __repr__(self) -> str:
        return f"<Sync{repr(self._sandbox).removeprefix('<')}"

    @property
    def id(self) -> str:
        return self._sandbox.id

    @property
    def capabilities(self) -> Capability:
        return self._sandbox.capabilities

    @property
    def isolation(self) -> IsolationTier:
        return self._sandbox.isolation

    @property
    def files(self) -> SyncFileSystem:
        return SyncFileSystem(self._sandbox.files, self._portal)

    @property
    def native(self) -> object:
        return self._sandbox.native

    def run(
        self,
        cmd: str | Sequence[str],
        *,
        timeout: float | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        user: str | None = None,
        stdin: bytes | str | None = None,
        max_output_bytes: int | None = None,
    ) -> ExecResult:
        return self._portal.call(
            lambda: self._sandbox.run(
                cmd,
                timeout=timeout,
                env=env,
                cwd=cwd,
                user=user,
                stdin=stdin,
                max_output_bytes=max_output_bytes,
            )
        )

    def run_code(
        self,
        code: str,
        *,
        language: str = "python",
        context_id: str | None = None,
        timeout: float | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        max_output_bytes: int | None = None,
    ) -> ExecResult:
        return self._portal.call(
            lambda: self._sandbox.run_code(
                code,
                language=language,
                context_id=context_id,
                timeout=timeout,
                env=env,
                cwd=cwd,
                max_output_bytes=max_output_bytes,
            )
        )

    def stream(
        self,
        cmd: str | Sequence[str],
        *,
        timeout: float | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        user: str | None = None,
        stdin: bool = False,
    ) -> SyncProcess:
        """Return a command for `with`; each chunk costs one round trip between threads."""
        return SyncProcess(
            self._sandbox.stream(cmd, timeout=timeout, env=env, cwd=cwd, user=user, stdin=stdin),
            self._portal,
        )

    def metrics(self) -> Metrics:
        return self._portal.call(self._sandbox.metrics)

    def kill(self) -> None:
        self._portal.call(self._sandbox.kill)

    def close(self) -> None:
        """Remove the sandbox and end its thread; safe to call again."""
        self.__exit__(None, None, None)

    def __enter__(self) -> Self:
        self._portal.call(self._sandbox.__aenter__)
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        if self._portal.closed:
            return
        try:
            self._portal.call(lambda: self._sandbox.__aexit__(exc_type, exc, tb))
        except KeyboardInterrupt:
            raise  # the interpreter's exit calls close() again
        except BaseException:
            self._finish()
            raise
        self._finish()

    def _finish(self) -> None:
        self._portal.close()
        atexit.unregister(self.close)


class SyncProcess:
    """`Process` for blocking code."""

    def __init__(self, process: Process, portal: Portal) -> None:
        self._process = process
        self._portal = portal

    def __repr__(self) -> str:
        return f"<Sync{repr(self._process).removeprefix('<')}"

    def __enter__(self) -> Self:
        self._portal.call(self._process.__aenter__)
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self._portal.call(lambda: self._process.__aexit__(exc_type, exc, tb))

    def __iter__(self) -> Iterator[OutputChunk]:
        chunks = aiter(self._process)
        while (chunk := self._portal.call(lambda: _next(chunks))) is not None:
            yield chunk

    def write(self, data: bytes | str) -> None:
        self._portal.call(lambda: self._process.write(data))

    def close_stdin(self) -> None:
        self._portal.call(self._process.close_stdin)

    def wait(self) -> ExecResult:
        return self._portal.call(self._process.wait)

    def kill(self) -> None:
        self._portal.call(self._process.kill)

    @property
    def returncode(self) -> int | None:
        return self._process.returncode


def create_in_portal(create: Callable[[], Awaitable[AsyncSandbox]]) -> SyncSandbox:
    """Create a sandbox inside a portal of its own."""
    portal = Portal()
    made: list[AsyncSandbox] = []

    async def keep() -> None:
        made.append(await create())

    try:
        portal.call(keep)
        return SyncSandbox(made[0], portal)
    except BaseException:
        for sandbox in made:  # an interrupt came between its creation and its owner
            portal.call(sandbox.kill)
        portal.close()
        raise


async def _next(chunks: AsyncIterator[OutputChunk]) -> OutputChunk | None:
    return await anext(chunks, None)
