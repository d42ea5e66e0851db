"""The blocking facade: hand-written delegation over a portal of its own per sandbox.

One sync sandbox is one thread. For many sandboxes at once use the async API.
"""

from __future__ import annotations

import atexit
import threading
from concurrent.futures import CancelledError, Future
from typing import TYPE_CHECKING, Generic, TypeVar

import anyio
from anyio.from_thread import BlockingPortal

from sandboxio.core.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from sandboxio.core.models import Capability, ExecResult, FileInfo, OutputChunk
    from sandboxio.core.protocols import AsyncFileSystem, AsyncSandbox, Process
    from sandboxio.core.tiers import IsolationTier

T = TypeVar("T")
EXIT_PATIENCE = 15.0
"""Seconds an interrupted caller waits for the end of a call: its kill and a removal, bounded."""


class Portal:
    """An event loop in a daemon thread, and the way into it."""

    def __init__(self) -> None:
        started: Future[BlockingPortal] = Future()
        self._thread = threading.Thread(
            target=_serve, args=(started,), daemon=True, name="sandboxio-portal"
        )
        self._thread.start()
        self._portal = started.result()

    def call(self, action: Callable[[], Awaitable[T]]) -> T:
        """Await an action in the portal's loop; an interrupt here cancels it there."""
        if threading.current_thread() is self._thread:
            raise ConfigurationError(
                "A sync sandbox cannot be used on the thread of its own event loop.",
                hint="Use the async API there: await sandboxio.create(...).",
            )
        if not self._thread.is_alive():
            raise ConfigurationError(
                "The sync sandbox is closed.", hint="Create a new one with create_sync()."
            )
        call = _Call(action)
        future = self._portal.start_task_soon(call.run)
        try:
            return future.result()
        except CancelledError as exc:
            raise ConfigurationError(
                "The sync sandbox was closed while the call was running.",
                hint="Let its calls end before it is closed.",
            ) from exc
        except BaseException:
            if not call.ended.is_set():
                future.cancel()
                call.ended.wait(EXIT_PATIENCE)
            raise

    @property
    def closed(self) -> bool:
        return not self._thread.is_alive()

    def close(self) -> None:
        """Stop the loop and wait for its thread; safe to call again."""
        if not self._thread.is_alive():
            return
        try:
            self._portal.call(self._portal.stop, True)
        except RuntimeError:  # stopped by another thread in the meantime
            return
        self._thread.join(EXIT_PATIENCE)


class _Call(Generic[T]):
    """One awaited action; says when it has really ended, cancellation included."""

    def __init__(self, action: Callable[[], Awaitable[T]]) -> None:
        self._action = action
        self.ended = threading.Event()

    async def run(self) -> T:
        try:
            return await self._action()
        finally:
            self.ended.set()


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


class SyncFileSystem:
    """`AsyncFileSystem` for blocking code."""

    def __init__(self, files: AsyncFileSystem, portal: Portal) -> None:
        self._files = files
        self._portal = portal

    def read(self, path: str, *, offset: int = 0, length: int | None = None) -> bytes:
        return self._portal.call(lambda: self._files.read(path, offset=offset, length=length))

    def write(self, path: str, data: bytes | str, *, mode: int | None = None) -> None:
        self._portal.call(lambda: self._files.write(path, data, mode=mode))

    def stat(self, path: str) -> FileInfo:
        return self._portal.call(lambda: self._files.stat(path))

    def exists(self, path: str) -> bool:
        return self._portal.call(lambda: self._files.exists(path))

    def ls(self, path: str = ".") -> list[FileInfo]:
        return self._portal.call(lambda: self._files.ls(path))

    def mkdir(self, path: str, *, parents: bool = False) -> None:
        self._portal.call(lambda: self._files.mkdir(path, parents=parents))

    def remove(self, path: str, *, recursive: bool = False) -> None:
        self._portal.call(lambda: self._files.remove(path, recursive=recursive))

    def upload(self, local: str | Path, remote: str) -> None:
        self._portal.call(lambda: self._files.upload(local, remote))

    def download(self, remote: str, local: str | Path) -> None:
        self._portal.call(lambda: self._files.download(remote, local))


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


def _serve(started: Future[BlockingPortal]) -> None:
    async def serve() -> None:
        async with BlockingPortal() as portal:
            started.set_result(portal)
            await portal.sleep_until_stopped()

    try:
        anyio.run(serve)
    except BaseException as exc:
        if started.done():
            raise
        started.set_exception(exc)


async def _next(chunks: AsyncIterator[OutputChunk]) -> OutputChunk | None:
    return await anext(chunks, None)
