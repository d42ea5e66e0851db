"""File operations through the sandbox's own shell, as the user who owns the request.

Whatever the engine, files then look exactly as commands see them: same mounts, same links, same
rights. A path is never part of a script: it travels as an argument, every byte as an octal
escape, so that any name a file can have survives.
"""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from sandboxio.core.errors import (
    FileSystemError,
    IsADirectory,
    LinkLost,
    NotADirectory,
    PathExists,
    PathNotFound,
    PermissionDenied,
)
from sandboxio.core.lifecycle import undone
from sandboxio.core.models import FileInfo, FileKind
from sandboxio.core.requests import ExecRequest

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Awaitable, Callable

    from sandboxio.core.driver import ExecChannel, ExitStatus, KillReport

_STDERR_LIMIT = 2048
_LISTING_LIMIT = 64 * 1024 * 1024
_CODES: dict[int, type[FileSystemError]] = {
    71: PathNotFound,
    72: PermissionDenied,
    73: NotADirectory,
    74: IsADirectory,
    75: PathExists,
}

_PRELUDE = """\
LC_ALL=C; export LC_ALL
p=$(printf "$1"X); p=${p%X}
case $p in /*) ;; *) p=./$p ;; esac
fail() { echo "$2" >&2; exit "$1"; }
absent() {
  d=$p
  while :; do
    case $d in */*) d=${d%/*}; d=${d:-/} ;; *) break ;; esac
    if [ -e "$d" ]; then
      [ -d "$d" ] || fail 73 'not a directory'
      [ -x "$d" ] || fail 72 'permission denied'
      break
    fi
    [ "$d" = / ] && break
  done
  fail 71 'no such file or directory'
}
file() {
  [ -d "$p" ] && fail 74 'is a directory'
  [ -e "$p" ] || { [ -L "$p" ] && loop; absent; }
  [ -f "$p" ] || fail 70 'not a regular file'
  [ -r "$p" ] || fail 72 'permission denied'
}
loop() {
  case $(ls -L "$p" 2>&1) in *'ymbolic link'*) fail 70 'too many levels of links' ;; esac
}
"""

_READ = (
    _PRELUDE
    + """\
file
if [ "$3" = all ]; then
  if [ "$2" = 0 ]; then exec cat <"$p"; else exec tail -c "+$(($2 + 1))" <"$p"; fi
fi
if [ "$2" = 0 ]; then exec head -c "$3" <"$p"; fi
tail -c "+$(($2 + 1))" <"$p" | head -c "$3"
"""
)

_PARENT = """\
case $p in */*) d=${p%/*}; d=${d:-/} ;; *) d=. ;; esac
spare=${TMPDIR:-/tmp}
"""

_WRITE = (
    _PRELUDE
    + _PARENT
    + """\
[ -d "$p" ] && fail 74 'is a directory'
if [ -e "$p" ]; then
  [ -f "$p" ] || fail 70 'not a regular file'
  [ -w "$p" ] || fail 72 'permission denied'
elif [ ! -L "$p" ]; then
  [ -e "$d" ] || absent
  [ -d "$d" ] || fail 73 'not a directory'
  { [ -w "$d" ] && [ -x "$d" ]; } || fail 72 'permission denied'
fi
umask 022
part=$p
for c in "$d" "$spare"; do
  if true 2>/dev/null >"$c/$4"; then part=$c/$4; break; fi
done
[ "$part" = "$p" ] || trap 'rm -f "$part"' EXIT
echo go
head -c "$2" >"$part" || fail 70 'the data could not be stored'
[ "$(wc -c <"$part")" -eq "$2" ] || fail 70 'the data arrived incomplete'
if [ "$part" = "$p" ]; then :
elif [ -e "$p" ] || [ -L "$p" ]; then
  cat <"$part" >"$p" || fail 70 'the data could not be stored'
else
  chmod 644 "$part" && mv -f "$part" "$p" || fail 70 'the data could not be stored'
fi
[ -z "$3" ] || chmod "$3" "$p" || fail 72 'permission denied'
"""
)
"""A new file appears whole; an existing one keeps its identity, links to it, and its mode."""

_FORGET = _PRELUDE + _PARENT + 'rm -f "$d/$2" "$spare/$2"\n'

_STAT = (
    _PRELUDE
    + """\
[ -e "$p" ] || [ -L "$p" ] || absent
if [ "$3" = follow ]; then
  [ -e "$p" ] || { loop; absent; }
  exec stat -L -c "$2 %f %s %Y" "$p"
fi
stat -c "$2 %f %s %Y" "$p" || fail 70 'cannot be described'
if [ -L "$p" ]; then printf '%s' "$2"; readlink "$p"; fi
"""
)

_LIST = (
    _PRELUDE
    + """\
[ -e "$p" ] || [ -L "$p" ] || absent
[ -d "$p" ] || fail 73 'not a directory'
cd "$p" 2>/dev/null || fail 72 'permission denied'
[ -r . ] || fail 72 'permission denied'
find . ! -name . -prune -exec stat -c "$2 %f %s %Y %n" {} +
find . ! -name . -prune -type l -exec sh -c '
  for f; do printf "%s@%s\\n%s" "$0" "$f" "$0="; readlink "$f"; done' "$2" {} +
"""
)

_MKDIR = (
    _PRELUDE
    + """\
if [ -e "$p" ] || [ -L "$p" ]; then
  [ "$2" = parents ] && [ -d "$p" ] && exit
  fail 75 'exists already'
fi
umask 022
if [ "$2" = parents ]; then said=$(mkdir -p "$p" 2>&1) && exit
else said=$(mkdir "$p" 2>&1) && exit; fi
case $said in
  *ermission*|*ead-only*) fail 72 "$said" ;;
  *'ot a directory'*) fail 73 "$said" ;;
  *'ile exists'*) fail 75 "$said" ;;
  *'o such file'*) fail 71 "$said" ;;
esac
fail 70 "$said"
"""
)

_REMOVE = (
    _PRELUDE
    + """\
[ -e "$p" ] || [ -L "$p" ] || absent
bare=$p
while [ "$bare" != "${bare%/}" ]; do bare=${bare%/}; done
[ "$bare" = "$p" ] || [ ! -L "$bare" ] || fail 70 'a link, and then a slash'
if [ "$2" = recursive ]; then said=$(rm -rf "$p" 2>&1) && exit
elif [ -d "$p" ] && [ ! -L "$p" ]; then said=$(rmdir "$p" 2>&1) && exit
else said=$(rm -f "$p" 2>&1) && exit; fi
case $said in
  *'ot empty'*) fail 74 'the directory is not empty' ;;
  *ermi*|*ead-only*) fail 72 "$said" ;;
esac
fail 70 "$said"
"""
)

_EXISTS = _PRELUDE + '[ -e "$p" ] && echo yes\n:\n'


class ShellFiles:
    """`DriverFiles` over any driver that can start a command."""

    def __init__(
        self,
        start: Callable[[ExecRequest], Awaitable[ExecChannel]],
        *,
        timeout: float,
        give_up: Callable[[], Awaitable[None]],
    ) -> None:
        """`give_up` removes a sandbox in which an operation cannot be ended."""
        self._start = start
        self._timeout = timeout
        self._give_up = give_up

    async def read(
        self,
        path: str,
        *,
        offset: int,
        length: int | None,
        sink: Callable[[bytes], Awaitable[None]],
    ) -> None:
        wanted = "all" if length is None else str(length)
        await self._run(_READ, path, str(offset), wanted, sink=sink)

    async def write(
        self, path: str, source: AsyncIterable[bytes], *, size: int, mode: int | None
    ) -> None:
        bits = "" if mode is None else f"{mode:o}"
        part = f".sandboxio-{secrets.token_hex(8)}"
        try:
            await self._run(_WRITE, path, str(size), bits, part, source=source)
        except FileSystemError:
            raise  # the script itself ended, and took its part with it
        except BaseException:
            await undone(lambda: self._run(_FORGET, path, part))
            raise

    async def stat(self, path: str, *, follow: bool) -> FileInfo:
        mark = _mark()
        said = await self._text(_STAT, path, mark, "follow" if follow else "")
        head, *rest = said.split(mark)[1:] or [b""]
        target = rest[0].removesuffix(b"\n") if rest else None
        return _info(path, head.split(), target)

    async def exists(self, path: str) -> bool:
        return bool(await self._text(_EXISTS, path))

    async def ls(self, path: str) -> list[FileInfo]:
        mark = _mark()
        said = await self._text(_LIST, path, mark)
        base = path if path.endswith("/") else f"{path}/"
        base = "" if path == "." else base
        entries: dict[bytes, list[bytes]] = {}
        targets: dict[bytes, bytes] = {}
        link = b""
        for record in said.split(mark)[1:]:
            body = record.removesuffix(b"\n")
            if body.startswith(b"@"):
                link = body[1:]
            elif body.startswith(b"="):
                targets[link] = body[1:]
            else:
                *numbers, name = body.lstrip(b" ").split(b" ", 3)
                entries[name] = numbers
        found = [
            _info(base + _decode(name.removeprefix(b"./")), numbers, targets.get(name))
            for name, numbers in entries.items()
        ]
        return sorted(found, key=lambda info: info.path)

    async def mkdir(self, path: str, *, parents: bool) -> None:
        await self._run(_MKDIR, path, "parents" if parents else "")

    async def remove(self, path: str, *, recursive: bool) -> None:
        await self._run(_REMOVE, path, "recursive" if recursive else "")

    async def _text(self, script: str, path: str, *arguments: bytes | str) -> bytes:
        answer = bytearray()

        async def keep(piece: bytes) -> None:
            answer.extend(piece)
            if len(answer) > _LISTING_LIMIT:
                raise FileSystemError("The sandbox's answer is too large.", outcome="done")

        words = [a.decode() if isinstance(a, bytes) else a for a in arguments]
        await self._run(script, path, *words, sink=keep)
        return bytes(answer)

    async def _run(
        self,
        script: str,
        path: str,
        *arguments: str,
        sink: Callable[[bytes], Awaitable[None]] | None = None,
        source: AsyncIterable[bytes] | None = None,
    ) -> None:
        argv = ("sh", "-c", script, "sh", _octal(path), *arguments)
        request = ExecRequest(argv, timeout=self._timeout, stdin=source is not None)
        channel = await self._start(request)
        complete = False
        try:
            complaint, status = await self._converse(channel, source, sink or _ignore)
            complete = True
        finally:
            await self._leave(channel, complete=complete)
        if status.exit_code != 0:
            raise _failure(path, status.exit_code, complaint)

    async def _converse(
        self,
        channel: ExecChannel,
        source: AsyncIterable[bytes] | None,
        sink: Callable[[bytes], Awaitable[None]],
    ) -> tuple[bytes, ExitStatus]:
        """Read to the end; send the source once the script has checked its place and says so."""
        complaint = b""
        while (chunk := await channel.receive()) is not None:
            if chunk.stream == "stderr":
                complaint = (complaint + chunk.data)[:_STDERR_LIMIT]
            elif source is None:
                await sink(chunk.data)
            else:
                async for piece in source:
                    await channel.send(piece)
                source = None
        return complaint, await channel.wait()

    async def _leave(self, channel: ExecChannel, *, complete: bool) -> None:
        if not complete:
            reports: list[KillReport] = []

            async def kill() -> None:
                reports.append(await channel.kill())

            await undone(kill)
            if not (reports and reports[0].complete):
                await undone(self._give_up)
        await undone(channel.aclose)


async def _ignore(_: bytes) -> None:
    return


def _mark() -> bytes:
    return f"/{secrets.token_hex(8)}/".encode()


def _octal(path: str) -> str:
    return "".join(f"\\{byte:03o}" for byte in path.encode("utf-8", "surrogateescape"))


def _decode(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")


def _info(path: str, numbers: list[bytes], target: bytes | None) -> FileInfo:
    try:
        mode, size, mtime = int(numbers[0], 16), int(numbers[1]), int(numbers[2])
        changed = datetime.fromtimestamp(mtime, UTC)
    except (ValueError, IndexError, OverflowError, OSError) as exc:
        raise LinkLost("The sandbox described a file in a way that cannot be read.") from exc
    kind: FileKind = _KINDS.get(mode & 0o170000, "other")
    return FileInfo(
        path=path,
        size=size,
        is_dir=kind == "directory",
        kind=kind,
        mode=mode & 0o7777,
        mtime=changed,
        target=None if target is None else _decode(target),
    )


_KINDS: dict[int, FileKind] = {0o100000: "file", 0o040000: "directory", 0o120000: "link"}


def _failure(path: str, code: int, complaint: bytes) -> FileSystemError:
    said = " ".join(complaint.decode("utf-8", "replace").split()) or f"exit code {code}"
    return _CODES.get(code, FileSystemError)(f"{path!r}: {said}", outcome="done")
