"""What one program of the soak does: random operations on random sandboxes, checked each."""

from __future__ import annotations

import gc
import os
import random
import secrets
import threading
import time
import traceback
import warnings
from collections import Counter
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread

import sandboxio
from sandboxio import ExecutionTimeout, OrphanedSandboxWarning, SandboxError
from sandboxio.adapters.docker import DockerConfig

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sandboxio.protocols import AsyncSandbox

WORKERS = 4
OPERATION_SECONDS, CREATE_SECONDS = 10.0, 60.0
LATE = 25.0
"""Seconds beyond its own deadline after which an operation counts as hanging."""
MIB = 1024 * 1024


class Soak:
    """Some workers that go on until the time is over; `failures` is what was wrong."""

    def __init__(self, config: DockerConfig, *, seconds: float, seed: int) -> None:
        self.config = config
        self.until = time.monotonic() + seconds
        self.done: Counter[str] = Counter()
        self.failures: list[str] = []
        self._dice = random.Random(seed)

    async def run(self) -> None:
        async with anyio.create_task_group() as tasks:
            for _ in range(WORKERS):
                tasks.start_soon(self._work)

    async def _work(self) -> None:
        while time.monotonic() < self.until and not self.failures:
            await self._bounded("life", CREATE_SECONDS * 3, self._live)

    async def _live(self) -> None:
        """Create a sandbox, use it, and leave it in one of the ways there are."""
        if self._dice.random() < 0.1:
            with anyio.move_on_after(self._dice.random()):
                async with await sandboxio.create(self.config, timeout=CREATE_SECONDS):
                    pass
            return
        async with await sandboxio.create(self.config, timeout=CREATE_SECONDS) as sandbox:
            for _ in range(self._dice.randrange(1, 12)):
                operation = self._dice.choice(OPERATIONS)
                act = partial(operation, sandbox)
                await self._bounded(operation.__name__, OPERATION_SECONDS, act)
            if self._dice.random() < 0.15:
                act = partial(lose_the_agent, sandbox)
                await self._bounded("lose_the_agent", OPERATION_SECONDS, act)
            if self._dice.random() < 0.3:
                await sandbox.kill()
            if self._dice.random() < 0.1:
                raise KeyError("the caller's own")

    async def _bounded(self, name: str, seconds: float, act: Callable[[], Awaitable[None]]) -> None:
        """Count how something ends: well, by an error of ours, or wrongly."""
        outcome = "hangs"
        with anyio.move_on_after(seconds + LATE):
            try:
                await act()
                outcome = "well"
            except SandboxError as exc:
                outcome = type(exc).__name__
            except KeyError:
                outcome = "the caller's own"
            except Exception as exc:  # noqa: BLE001  # it is what the soak looks for
                self.failures.append(f"{name}: {''.join(traceback.format_exception(exc))}")
                outcome = "wrong"
        if outcome == "hangs":
            self.failures.append(f"{name} was not over {LATE:g} s after its deadline")
        self.done[f"{name}: {outcome}"] += 1


async def run(sandbox: AsyncSandbox) -> None:
    text = secrets.token_hex(8)
    done = await sandbox.run(f"echo {text}; echo {text} >&2; exit 3", timeout=OPERATION_SECONDS)
    assert (done.exit_code, done.stdout, done.stderr) == (3, f"{text}\n", f"{text}\n"), done


async def run_with_input(sandbox: AsyncSandbox) -> None:
    data = secrets.token_hex(50_000)
    done = await sandbox.run(["cat"], stdin=data, timeout=OPERATION_SECONDS)
    assert done.stdout == data, f"{len(done.stdout)} of {len(data)} came back"


async def run_code(sandbox: AsyncSandbox) -> None:
    number = secrets.randbelow(10**6)
    done = await sandbox.run_code(f"print({number} + 1)", timeout=OPERATION_SECONDS)
    assert done.stdout == f"{number + 1}\n", done


async def time_out(sandbox: AsyncSandbox) -> None:
    with suppress(ExecutionTimeout):
        done = await sandbox.run("echo up; (setsid sleep 300 &); sleep 300", timeout=1)
        raise AssertionError(f"a command without end had one: {done}")


async def cancel(sandbox: AsyncSandbox) -> None:
    with anyio.move_on_after(random.random() / 2) as scope:
        await sandbox.run("sleep 300", timeout=OPERATION_SECONDS)
    assert scope.cancelled_caught, "a cancelled call ended by itself"


async def leave_a_stream(sandbox: AsyncSandbox) -> None:
    async with sandbox.stream("yes; exit 1", timeout=OPERATION_SECONDS) as process:
        async for chunk in process:
            assert chunk.data.startswith(b"y\n"), chunk.data[:20]
            break


async def read_a_stream(sandbox: AsyncSandbox) -> None:
    size = 0
    async with sandbox.stream("head -c 2000000 /dev/zero", timeout=OPERATION_SECONDS) as process:
        async for chunk in process:
            size += len(chunk.data)
        end = await process.wait()
    assert size == 2_000_000 or end.stdout_truncated, size


async def files(sandbox: AsyncSandbox) -> None:
    name, data = f"f-{secrets.token_hex(4)}", secrets.token_bytes(100_000)
    await sandbox.files.write(name, data)
    assert await sandbox.files.read(name) == data
    assert name in {entry.path for entry in await sandbox.files.ls()}
    await sandbox.files.remove(name)
    assert not await sandbox.files.exists(name)


async def side_by_side(sandbox: AsyncSandbox) -> None:
    async with anyio.create_task_group() as tasks:
        for act in (run, run_code, files):
            tasks.start_soon(_own_errors_only, act, sandbox)


async def lose_the_agent(sandbox: AsyncSandbox) -> None:
    """End the first process from outside, while a call is under way."""
    native: Any = sandbox.native

    def kill() -> None:
        time.sleep(0.3)
        with suppress(Exception):  # the engine may be away itself
            native.kill()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(partial(anyio.to_thread.run_sync, kill))
        await _own_errors_only(_sleep_on, sandbox)


async def _sleep_on(sandbox: AsyncSandbox) -> None:
    await sandbox.run("sleep 300", timeout=OPERATION_SECONDS)


async def _own_errors_only(
    act: Callable[[AsyncSandbox], Awaitable[None]], sandbox: AsyncSandbox
) -> None:
    with suppress(SandboxError):
        await act(sandbox)


OPERATIONS = (
    *(run, run, run_with_input, run_code, time_out, cancel),
    *(leave_a_stream, read_a_stream, files, side_by_side),
)


class Holdings:
    """What this process holds: descriptors, threads, memory."""

    def __init__(self) -> None:
        gc.collect()
        self.descriptors = len(os.listdir("/proc/self/fd"))
        self.threads = sorted(thread.name for thread in threading.enumerate())
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        self.memory = pages * os.sysconf("SC_PAGE_SIZE") // MIB

    def beyond(self, before: Holdings) -> list[str]:
        """Say what has grown, more than keeping a few connections open would make it."""
        found: list[str] = []
        if self.descriptors > before.descriptors + 5:
            found.append(f"descriptors grew from {before.descriptors} to {self.descriptors}")
        if len(self.threads) > len(before.threads) + 2:
            found.append(f"threads grew from {before.threads} to {self.threads}")
        if self.memory > before.memory + 32:
            found.append(f"memory grew from {before.memory} to {self.memory} MiB")
        return found


async def main(url: str, image: str, run_id: str, seconds: float, seed: int) -> dict[str, object]:
    """Warm up for a tenth of the time, then work; return what was done and what was wrong."""
    warnings.simplefilter("error")
    warnings.simplefilter("always", OrphanedSandboxWarning)
    config = DockerConfig(host=url, template=image, metadata={"soak": run_id})
    warm = Soak(config, seconds=seconds / 10, seed=seed)
    await warm.run()
    await _settled()
    before = Holdings()
    soak = Soak(config, seconds=seconds, seed=seed + 1)
    await soak.run()
    await _settled()
    failures = [*warm.failures, *soak.failures, *Holdings().beyond(before)]
    return {"done": dict(sorted(soak.done.items())), "failures": failures}


async def _settled() -> None:
    """Let idle threads and abandoned requests end, as long as the slowest may take."""
    until = time.monotonic() + LATE
    while threading.active_count() > 3 and time.monotonic() < until:
        await anyio.sleep(0.2)
