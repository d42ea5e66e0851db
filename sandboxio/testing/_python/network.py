"""Attempts to reach the network from recognised Python: policy decides, nothing is ever sent."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from sandboxio.testing._machine.network import is_address
from sandboxio.testing._python.objects import (
    ATTRIBUTES,
    CONSTANTS,
    Closing,
    NotUnderstood,
    Value,
    constructor,
    function,
    method,
    named,
)

if TYPE_CHECKING:
    from sandboxio.testing._python.session import Session

_LOOPBACK = ("localhost", "127.0.0.1", "::1")
SOMEWHERE = "203.0.113.1"
"""The address of every name that may be looked up; it is kept for documentation."""
DNS, HTTP, HTTPS = 53, 80, 443
AF_INET, AF_INET6, STREAM, DATAGRAM = 2, 10, 1, 2


@named("socket.gaierror")
class LookupFailed(OSError):
    """A name has no address."""


@named("urllib.error.URLError")
class URLError(OSError):
    """What `urlopen()` raises in place of any other error."""

    def __init__(self, reason: Value) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"<urlopen error {self.reason}>"


@named("socket.socket")
class Socket(Closing):
    """A socket whose other end never says anything."""

    def __init__(self) -> None:
        self.connected = False


@named("http.client.HTTPResponse")
class Response(Closing):
    """An empty answer."""


def dial(session: Session, host: Value, port: Value) -> None:
    """Try to connect, with Linux's errors where the policy denies it."""
    if not isinstance(host, str):
        raise TypeError(f"str, bytes or bytearray expected, not {type(host).__name__}")
    if not isinstance(port, int):
        raise TypeError(f"{type(port).__name__!r} object cannot be interpreted as an integer")
    if session.process.kernel.network.connect(host, port):
        return
    if host.lower() in _LOOPBACK:
        raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
    if is_address(host):
        raise OSError(errno.ENETUNREACH, "Network is unreachable")
    raise LookupFailed(-3, "Temporary failure in name resolution")


def look_up(session: Session, host: Value, port: int = DNS) -> str:
    """Return the address of a host."""
    if isinstance(host, str) and is_address(host):
        return host
    if host == "localhost":
        return "127.0.0.1"
    dial(session, host, port)
    return SOMEWHERE


def _parts(address: Value) -> list[Value]:
    if address.__class__ is not tuple:
        raise TypeError(f"connect(): AF_INET address must be tuple, not {type(address).__name__}")
    return list(address)


def _connect(session: Session, address: Value) -> None:
    host, port, *_ = _parts(address)
    dial(session, host, port)


@function("socket.create_connection")
async def _create_connection(
    session: Session, address: Value, timeout: Value = None, source_address: Value = None
) -> Socket:
    _connect(session, address)
    made = Socket()
    made.connected = True
    return made


@constructor(Socket)
async def _socket(
    session: Session,
    family: Value = AF_INET,
    type: Value = STREAM,  # noqa: A002 -- the name that Python has
    proto: Value = 0,
) -> Socket:
    if family not in (AF_INET, AF_INET6) or type not in (STREAM, DATAGRAM):
        raise NotUnderstood
    return Socket()


@method(Socket, "connect")
async def _socket_connect(session: Session, socket: Socket, address: Value) -> None:
    _connect(session, address)
    socket.connected = True


@method(Socket, "connect_ex")
async def _connect_ex(session: Session, socket: Socket, address: Value) -> int:
    try:
        _connect(session, address)
    except LookupFailed:
        raise
    except OSError as exc:
        return exc.errno or 0
    socket.connected = True
    return 0


@method(Socket, "sendto")
async def _sendto(session: Session, socket: Socket, data: bytes, address: Value) -> int:
    _connect(session, address)
    return len(data)


@method(Socket, "send")
async def _send(session: Session, socket: Socket, data: bytes) -> int:
    if not socket.connected:
        raise OSError(errno.ENOTCONN, "Transport endpoint is not connected")
    return len(data)


@method(Socket, "sendall")
async def _sendall(session: Session, socket: Socket, data: bytes) -> None:
    await _send(session, socket, data)


@method(Socket, "recv")
async def _recv(session: Session, socket: Socket, size: int) -> bytes:
    if not socket.connected:
        raise OSError(errno.ENOTCONN, "Transport endpoint is not connected")
    return b""


@method(Socket, "settimeout", "shutdown")
async def _settimeout(session: Session, socket: Socket, value: Value) -> None:
    """Do nothing: nobody ever waits."""


@method(Closing, "close")
async def _close(session: Session, what: Closing) -> None:
    what.close()


@function("socket.setdefaulttimeout")
async def _setdefaulttimeout(session: Session, seconds: Value) -> None:
    """Do nothing: nobody ever waits."""


@function("socket.gethostname")
async def _gethostname(session: Session) -> str:
    return "sandbox"


@function("socket.gethostbyname")
async def _gethostbyname(session: Session, name: Value) -> str:
    return look_up(session, name)


@function("socket.getaddrinfo")
async def _getaddrinfo(
    session: Session,
    host: Value,
    port: Value,
    family: Value = 0,
    type: Value = 0,  # noqa: A002 -- the name that Python has
    proto: Value = 0,
    flags: Value = 0,
) -> list[Value]:
    number = port if isinstance(port, int) else {"http": HTTP, "https": HTTPS}.get(port, 0)
    address = look_up(session, host, number or DNS)
    kind = AF_INET6 if ":" in address else AF_INET
    return [(kind, STREAM, 6, "", (address, number))]


@function("urllib.request.urlopen")
async def _urlopen(
    session: Session, url: Value, data: Value = None, timeout: Value = None
) -> Response:
    if not isinstance(url, str):
        raise NotUnderstood
    parts = urlsplit(url)
    if not parts.scheme:
        raise ValueError(f"unknown url type: {url!r}")
    if parts.scheme in ("file", "ftp", "data"):
        raise NotUnderstood
    if parts.scheme not in ("http", "https"):
        raise URLError(f"unknown url type: {parts.scheme}")
    if not parts.hostname:
        raise URLError("no host given")
    try:
        dial(session, parts.hostname, parts.port or (HTTPS if parts.scheme == "https" else HTTP))
    except OSError as exc:
        raise URLError(exc) from None
    return Response()


@method(Response, "read")
async def _read(session: Session, response: Response, size: Value = -1) -> bytes:
    return b""


@method(Response, "getcode")
async def _getcode(session: Session, response: Response) -> int:
    return 200


ATTRIBUTES[URLError] = {"reason": lambda error: error.reason}
ATTRIBUTES[Response] = {"status": lambda response: 200, "code": lambda response: 200}
CONSTANTS.update(
    {
        "socket.AF_INET": AF_INET,
        "socket.AF_INET6": AF_INET6,
        "socket.SOCK_STREAM": STREAM,
        "socket.SOCK_DGRAM": DATAGRAM,
        "socket.SHUT_RDWR": 2,
        "socket.socket": Socket,
        "socket.gaierror": LookupFailed,
        "socket.error": OSError,
        "socket.timeout": TimeoutError,
        "urllib.error.URLError": URLError,
    }
)
