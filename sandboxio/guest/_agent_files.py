"""Part of the agent: the process that works on files.

It carries out one operation at a time, with the ids of the user in force and as nobody whom that
user could signal or trace.
"""

from __future__ import annotations

import os

from sandboxio.guest._agent_talk import Ended
from sandboxio.guest._agent_trees import Trees
from sandboxio.guest._agent_wire import OPEN, RESULT, Invalid, account, failed, pack, unpack

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Callable


class Files(Trees):
    """The operations; each returns what follows `ok` in its `RESULT`."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock)
        self.operations: dict[bytes, Callable[..., list[bytes]]] = {
            b"stat": self.describe,
            b"exists": self.exists,
            b"list": self.entries_of,
            b"glob": self.glob,
            b"read": self.read,
            b"write": self.write,
            b"mkdir": self.mkdir,
            b"remove": self.remove,
            b"move": self.move,
            b"copy": self.copy,
            b"chmod": self.chmod,
            b"edit": self.edit,
        }

    def serve(self) -> None:
        while True:
            channel, kind, payload = self.frame()
            if kind == OPEN:
                self.channel = channel
                self.send(RESULT, pack(self.outcome(unpack(payload))))

    def outcome(self, fields: list[bytes]) -> list[bytes]:
        _, operation, user, self.base, _, *arguments = fields
        uid, gid, groups = account(user)
        if operation == b"glob":
            __import__("fnmatch")  # while all of Python can be read
        os.setgroups(groups)
        os.setegid(gid)
        os.seteuid(uid)
        try:
            return [b"ok"] + self.operations[operation](*arguments)
        except Ended:
            return [b"error", b"ended", b"ended"]
        except OSError as error:
            return failed(error)
        except (Invalid, KeyError, TypeError, ValueError):
            return [b"error", b"invalid", b"not an operation"]
        except MemoryError:
            return [b"error", b"busy", b"no memory"]
        except RecursionError:
            return [b"error", b"other", b"the tree is too deep"]
        finally:
            os.seteuid(0)
            os.setegid(0)


def serve_files(sock: socket.socket) -> None:
    """Work until the agent is gone."""
    os.umask(0o022)
    Files(sock).serve()
