"""The operation record: one per operation, opened and closed in core, redacted once."""

from __future__ import annotations

import hashlib
import traceback
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from sandboxio.core.clock import LOOP
from sandboxio.core.errors import SandboxError, SandboxTimeout

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from sandboxio.core.clock import Clock
    from sandboxio.core.redaction import Redactor
    from sandboxio.core.tiers import IsolationTier


@dataclass
class OperationRecord:
    """What one operation did. Text in it is redacted when the record closes."""

    event: str
    """`create`, `exec`, `run_code`, `stream`, `file_read`, …"""
    backend: str
    sandbox_id: str
    isolation: IsolationTier
    metadata: Mapping[str, str]
    started_at: datetime
    argv: tuple[str, ...] | None = None
    code_sha256: str | None = None
    path: str | None = None
    exit_code: int | None = None
    bytes_in: int = 0
    bytes_out: int = 0
    duration_ms: int = 0
    outcome: str = "done"
    """`done`, `killed` (ended by its own caller), `error`, `timeout` or `cancelled`."""
    error_code: str | None = None

    def fail(self, exc: BaseException) -> None:
        """Note how the operation failed."""
        if not isinstance(exc, Exception):
            self.outcome = "cancelled"
            return
        self.outcome = "timeout" if isinstance(exc, SandboxTimeout) else "error"
        self.error_code = exc.code if isinstance(exc, SandboxError) else None


class Recorder:
    """Opens and closes the records of one sandbox, and hands each closed one to `on_record`."""

    def __init__(
        self,
        *,
        backend: str,
        sandbox_id: str,
        isolation: IsolationTier,
        metadata: Mapping[str, str],
        redactor: Redactor,
        on_record: Callable[[OperationRecord], None] | None = None,
        clock: Clock = LOOP,
    ) -> None:
        self._backend = backend
        self._sandbox_id = sandbox_id
        self._isolation = isolation
        self._metadata = metadata
        self._redactor = redactor
        self._on_record = on_record
        self._clock = clock

    @contextmanager
    def operation(
        self,
        event: str,
        *,
        argv: tuple[str, ...] | None = None,
        code: str | None = None,
        path: str | None = None,
    ) -> Generator[OperationRecord]:
        """Record what happens inside the block, however it ends; errors leave it redacted."""
        record = OperationRecord(
            event=event,
            backend=self._backend,
            sandbox_id=self._sandbox_id,
            isolation=self._isolation,
            metadata=self._metadata,
            started_at=datetime.now(UTC),
            argv=argv,
            code_sha256=None if code is None else hashlib.sha256(code.encode()).hexdigest(),
            path=path,
        )
        started = self._clock.time()
        try:
            yield record
        except BaseException as exc:
            self._note(record, exc)
            raise
        finally:
            record.duration_ms = round((self._clock.time() - started) * 1000)
            self._close(record)

    def _note(self, record: OperationRecord, exc: BaseException) -> None:
        record.fail(exc)
        if isinstance(exc, SandboxError):
            redact_error(exc, self._redactor)

    def _close(self, record: OperationRecord) -> None:
        if record.argv is not None:
            record.argv = tuple(self._redactor.redact(part) for part in record.argv)
        if record.path is not None:
            record.path = self._redactor.redact(record.path)
        if self._on_record is not None:
            self._on_record(record)


def redact_error(error: SandboxError, redactor: Redactor) -> None:
    """Mask secrets in everything an error shows."""
    error.message = redactor.redact(error.message)
    error.hint = redactor.redact(error.hint)
    error.args = (error.message,)
    cause = error.__cause__
    if (
        cause is not None
        and redactor.longest
        and redactor.spans("".join(traceback.format_exception(cause)))
    ):
        error.__cause__ = MaskedCause(f"{type(cause).__name__}: {redactor.redact(str(cause))}")
        error.__context__ = None


class MaskedCause(Exception):
    """Stands in for a provider's exception whose text, or traceback, holds a secret."""
