"""curl: what it would say; nothing is ever sent."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from sandboxio.testing._machine.network import is_address
from sandboxio.testing._programs._common import Failure, here, put_text, say, tool
from sandboxio.testing._programs._options import parse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sandboxio.testing._machine.process import Process
    from sandboxio.testing._programs._options import Options

_PORTS = {"http": 80, "https": 443, "ftp": 21}
_LONG = {
    "silent": "s",
    "show-error": "S",
    "fail": "f",
    "location": "L",
    "output=": "o",
    "max-time=": "m",
    "connect-timeout=": "m",
    "head": "I",
    "request=": "X",
    "data=": "d",
    "data-raw=": "d",
    "data-binary=": "d",
    "header=": "H",
    "user=": "u",
    "user-agent=": "A",
    "insecure": "k",
    "include": "i",
    "verbose": "v",
    "write-out=": "w",
    "retry=": "m",
    "url=": "U",
}
_HELP = "curl: try 'curl --help' or 'curl --manual' for more information"
_BAD_URL, _NO_HOST, _NO_CONNECTION, _NO_WRITE = 3, 6, 7, 23
_HOST = re.compile(r"[A-Za-z0-9._\-]+|[0-9A-Fa-f:.]+")


class _Failed(Exception):
    """One transfer that failed, with curl's exit code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


@tool("curl", trouble=_NO_WRITE)
async def curl(process: Process, args: Sequence[str]) -> int:
    """Fetch URLs: an empty document where the policy lets it, curl's failure where not."""
    options = _options(args)
    urls = [*options.all("U"), *options.operands]
    if not urls:
        raise Failure(f"curl: no URL specified!\n{_HELP}", 2)
    code = 0
    for url in urls:
        status = "000"
        try:
            _connect(process, url)
            await _receive(process, options)
            code, status = 0, "200"
        except _Failed as exc:
            code = exc.code
            if "s" not in options or "S" in options:
                await say(process, f"curl: ({exc.code}) {exc}")
        if "w" in options:
            await put_text(process, _written(options.get("w"), status, url))
    return code


def _options(args: Sequence[str]) -> Options:
    try:
        return parse("curl", args, "sSfLo:m:IX:d:H:u:A:kivw:", _LONG, code=2)
    except Failure as exc:
        problem = exc.message.split("\n")[0].removeprefix("curl: ")
        name = re.search(r"--[a-z][^']*|'(.)'$", problem)
        shown = "" if name is None else name[0] if name[1] is None else f"-{name[1]}"
        verb = "requires parameter" if "requires" in problem else "is unknown"
        raise Failure(f"curl: option {shown}: {verb}\n{_HELP}", 2) from exc


def _connect(process: Process, url: str) -> None:
    """Do what curl does up to the connection.

    Raises:
        _Failed: it does not get that far.
    """
    scheme, host, port = _parsed(url)
    if scheme not in _PORTS:
        raise _Failed(1, f'Protocol "{scheme}" not supported or disabled in libcurl')
    if process.kernel.network.connect(host, port):
        return
    if is_address(host) or host.lower() == "localhost":
        shown = f"Failed to connect to {host} port {port} after 0 ms: Couldn't connect to server"
        raise _Failed(_NO_CONNECTION, shown)
    raise _Failed(_NO_HOST, f"Could not resolve host: {host}")


def _parsed(url: str) -> tuple[str, str, int]:
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        scheme, host = parts.scheme.lower(), parts.hostname or ""
        port = parts.port or _PORTS.get(scheme, 0)
    except ValueError:
        host = scheme = ""
        port = 0
    if not scheme or not _HOST.fullmatch(host):
        raise _Failed(_BAD_URL, "URL using bad/illegal format or missing URL")
    return scheme, host, port


async def _receive(process: Process, options: Options) -> None:
    """Give an empty answer to stdout or to a file."""
    heading = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
    text = heading if "I" in options or "i" in options else ""
    name = options.get("o", "-")
    if name == "-":
        await put_text(process, text)
        return
    try:
        with process.kernel.fs.open(
            name, **here(process), write=True, create=True, truncate=True, umask=process.umask
        ) as handle:
            handle.write(text.encode())
    except OSError as exc:
        raise _Failed(_NO_WRITE, "Failure writing output to destination") from exc


def _written(form: str, status: str, url: str) -> str:
    known = {"http_code": status, "response_code": status, "url_effective": url, "url": url}
    text = re.sub(r"%\{(\w+)\}", lambda match: known.get(match[1], ""), form)
    return text.replace("\\n", "\n").replace("\\t", "\t")
