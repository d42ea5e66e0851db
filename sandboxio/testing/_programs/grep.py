"""grep: lines that match."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sandboxio.testing._disk.nodes import Directory, Link, Special, encoded
from sandboxio.testing._programs._common import Failure, here, put, quoted_if_needed, say, tool
from sandboxio.testing._programs._input import Source
from sandboxio.testing._programs._options import parse
from sandboxio.testing._programs._regex import BadPattern, compile_posix

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sandboxio.testing._machine.process import Process
    from sandboxio.testing._programs._options import Options

_LETTERS = "qivcnlLorRFEGPwxe:hHsam:"
_LONG = {
    "quiet": "q",
    "silent": "q",
    "ignore-case": "i",
    "invert-match": "v",
    "count": "c",
    "line-number": "n",
    "files-with-matches": "l",
    "files-without-match": "L",
    "only-matching": "o",
    "recursive": "r",
    "fixed-strings": "F",
    "extended-regexp": "E",
    "basic-regexp": "G",
    "perl-regexp": "P",
    "word-regexp": "w",
    "line-regexp": "x",
    "regexp=": "e",
    "no-filename": "h",
    "with-filename": "H",
    "no-messages": "s",
    "text": "a",
    "max-count=": "m",
    "color?": "",
    "colour?": "",
}
_LOOKS_AHEAD = re.compile(rb"\\[ZbB]|\(\?[=!]")
_USAGE = "Usage: grep [OPTION]... PATTERNS [FILE]..."
_NO_PERL = "grep: Perl matching not supported in a --disable-perl-regexp build"


@tool("grep", trouble=2)
async def grep(process: Process, args: Sequence[str]) -> int:
    """Search for patterns; exits 0 where there was a match, 1 where none, 2 after a failure."""
    try:
        options = parse("grep", args, _LETTERS, _LONG, code=2)
    except Failure as exc:
        message, hint = exc.message.split("\n")
        raise Failure(f"{message}\n{_USAGE}\n{hint}", 2) from exc
    operands = list(options.operands)
    if "e" not in options and not operands:
        raise Failure(f"{_USAGE}\nTry 'grep --help' for more information.", 2)
    patterns = options.all("e") if "e" in options else [operands.pop(0)]
    search = _Search(process, options, _compile(patterns, options), operands)
    return await search.run()


@tool("egrep", trouble=2)
async def egrep(process: Process, args: Sequence[str]) -> int:
    return await grep(process, ["-E", *args])


@tool("fgrep", trouble=2)
async def fgrep(process: Process, args: Sequence[str]) -> int:
    return await grep(process, ["-F", *args])


def _compile(patterns: Sequence[str], options: Options) -> list[re.Pattern[bytes]]:
    kind = options.last("FEGP") or "G"
    if kind == "P":
        raise Failure(_NO_PERL, 2)
    flags = re.IGNORECASE if "i" in options else 0
    try:
        return [
            _bounded(_compiled(line, kind, flags), options, flags)
            for pattern in patterns
            for line in encoded(pattern).split(b"\n")
        ]
    except BadPattern as exc:
        raise Failure(f"grep: {exc}", 2) from exc


def _compiled(pattern: bytes, kind: str, flags: int) -> re.Pattern[bytes]:
    if kind == "F":
        return re.compile(re.escape(pattern), flags)
    return compile_posix(pattern, extended=kind == "E", flags=flags)


def _bounded(pattern: re.Pattern[bytes], options: Options, flags: int) -> re.Pattern[bytes]:
    text = pattern.pattern
    if "x" in options:
        text = rb"\A(?:%b)\Z" % text
    elif "w" in options:
        text = rb"(?<!\w)(?:%b)(?!\w)" % text
    return re.compile(text, flags | re.DOTALL)


@dataclass
class _Found:
    """What one file has shown so far."""

    label: bytes
    matches: int = 0
    number: int = 0
    binary: bool = False


class _Search:
    def __init__(
        self,
        process: Process,
        options: Options,
        patterns: list[re.Pattern[bytes]],
        names: list[str],
    ) -> None:
        self._process = process
        self._patterns = patterns
        self._flags = {name for name, _ in options.given}
        self._recursive = bool(self._flags & {"r", "R"})
        self._names = names or (["."] if self._recursive else ["-"])
        self._bare = not names and self._recursive
        shown = options.last("hH")
        self._labelled = shown == "H" or (
            shown != "h" and (len(self._names) > 1 or self._recursive)
        )
        self._most = _most(options)
        self._failed = self._matched = False

    async def run(self) -> int:
        for name in self._names:
            await self._search(name, top=True)
            if self._matched and "q" in self._flags:
                return 0
        return 2 if self._failed else 0 if self._matched else 1

    async def _search(self, name: str, *, top: bool) -> None:
        try:
            below = self._below(name, top=top) if self._recursive and name != "-" else None
            source = Source(self._process, name) if below is None else None
        except OSError as exc:
            await self._fail(name, exc)
            return
        for path in below or ():
            await self._search(path, top=False)
        if source is not None:
            with source:
                await self._file(source)

    async def _fail(self, name: str, exc: OSError) -> None:
        self._failed = True
        if "s" not in self._flags:
            await say(self._process, f"grep: {quoted_if_needed(name)}: {exc.strerror}")

    def _below(self, name: str, *, top: bool) -> list[str] | None:
        """Return what to search in place of something; `None` for a file.

        Devices and, without `-R`, links are skipped unless the user has named them.
        """
        fs, place = self._process.kernel.fs, here(self._process)
        itself = fs.stat(name, **place, follow=False)
        if not top and (
            isinstance(itself, Special) or (isinstance(itself, Link) and "R" not in self._flags)
        ):
            return []
        if not isinstance(fs.stat(name, **place), Directory):
            return None
        prefix = "" if self._bare and name == "." else f"{name.rstrip('/')}/"
        return [prefix + entry for entry in fs.listdir(name, **place)]

    async def _file(self, source: Source) -> None:
        name = "(standard input)" if source.is_stdin else source.name
        found = _Found(encoded(name))
        while self._wants_more(found) and (lines := await source.lines()):
            found.binary |= b"\0" in b"".join(lines) and "a" not in self._flags
            await put(self._process, b"".join(self._lines(found, lines)))
        self._matched |= (found.matches == 0) if "L" in self._flags else found.matches > 0
        await self._summary(found)

    def _wants_more(self, found: _Found) -> bool:
        if found.matches and self._flags & {"q", "l", "L"}:
            return False
        return found.matches < self._most and not (found.binary and self._stops_at_binary(found))

    def _stops_at_binary(self, found: _Found) -> bool:
        return found.matches > 0 and "c" not in self._flags

    def _lines(self, found: _Found, lines: list[bytes]) -> list[bytes]:
        """Return what to print of some lines."""
        printed: list[bytes] = []
        for line in lines:
            if not self._wants_more(found):
                break
            found.number += 1
            text = line.removesuffix(b"\n")
            if any(pattern.search(text) for pattern in self._patterns) == ("v" in self._flags):
                continue
            found.matches += 1
            if not (found.binary or self._flags & {"q", "c", "l", "L"}):
                printed.append(self._shown(found, text))
        return printed

    def _shown(self, found: _Found, text: bytes) -> bytes:
        prefix = found.label + b":" if self._labelled else b""
        if "n" in self._flags:
            prefix += b"%d:" % found.number
        if "o" not in self._flags:
            return prefix + text + b"\n"
        parts = [] if "v" in self._flags else self._parts(text)
        return b"".join(prefix + part + b"\n" for part in parts)

    def _parts(self, text: bytes) -> list[bytes]:
        """Return the matches in a line: the leftmost first, and of those the longest."""
        parts: list[bytes] = []
        at = 0
        while at <= len(text):
            spans = [_longest(match) for p in self._patterns if (match := p.search(text, at))]
            if not spans:
                break
            begin, end = min(spans, key=lambda span: (span[0], -span[1]))
            if begin < end:
                parts.append(text[begin:end])
            at = max(end, begin + 1)
        return parts

    async def _summary(self, found: _Found) -> None:
        label = found.label
        if "q" in self._flags:
            return
        if "l" in self._flags or "L" in self._flags:
            if ("l" in self._flags) == (found.matches > 0):
                await put(self._process, label + b"\n")
        elif "c" in self._flags:
            prefix = label + b":" if self._labelled else b""
            await put(self._process, prefix + b"%d\n" % found.matches)
        elif found.binary and found.matches:
            shown = label.decode("utf-8", "surrogateescape")
            await say(self._process, f"grep: {shown}: binary file matches")


def _longest(match: re.Match[bytes]) -> tuple[int, int]:
    """Return where the longest match begins and ends: `re` stops at the first alternative."""
    pattern, text, begin = match.re, match.string, match.start()
    if b"|" not in pattern.pattern or _LOOKS_AHEAD.search(pattern.pattern):
        return match.span()
    ends = range(len(text), match.end(), -1)
    longer = (end for end in ends if pattern.fullmatch(text, begin, end))
    return begin, next(longer, match.end())


def _most(options: Options) -> float:
    text = options.get("m")
    if "m" not in options:
        return float("inf")
    if not text.isdecimal():
        raise Failure("grep: invalid max count", 2)
    return int(text)
