"""The agent as a program: its source as it is sent, and what starts it inside of a sandbox."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from sandboxio.guest._agent_warm import BOOT

PARTS = (
    "wire",
    "loop",
    "trust",
    "start",
    "warm",
    "sweep",
    "call",
    "work",
    "link",
    "meters",
    "prepare",
)
FILES = ("paths", "talk", "looking", "content", "trees", "files")
"""Parts that only the processes compile which work on files."""

NO_PYTHON = 97
"""Exit code of the first process where there is no Python that the agent can run in."""

_HEAD = """\
from __future__ import annotations
import sys
if sys.version_info < (3, 8): __import__('os')._exit(97)
__modules__ = set(sys.modules)
"""

FIRST_PROCESS = """\
for p in /usr/local/bin/python3 /usr/bin/python3 "$(command -v python3)" "$(command -v python)"; do
  [ -x "$p" ] && break
done
[ -x "$p" ] || exit 97
exec "$p" -I -S -c "$1" "$2" 'sandboxio agent'
"""
"""What a container begins with; its arguments are the bootstrap and the length of the source."""

RELAY = """\
import os,select,socket
s=socket.socket(socket.AF_UNIX)
s.connect('/dev/shm/sandboxio/link')
f=s.fileno()
while 1:
 for r in select.select([0,f],[],[])[0]:
  d=os.read(r,262144)
  if not d:os._exit(0)
  v=memoryview(d)
  while v:v=v[os.write(f if r==0 else 1,v):]
"""
"""Joins its own standard streams to the agent's socket: how every later link gets there."""

RELAY_PYTHON = "/dev/shm/sandboxio/python"  # noqa: S108  # the agent makes it, for root alone
"""Where the agent notes which Python it runs in."""


@cache
def source() -> bytes:
    """Return the agent's source: its parts, one after the other, without what joins them here."""
    later = "".join(_bare(f"_agent_{part}.py") for part in FILES).encode()
    parts = "".join(_bare(f"_agent_{part}.py") for part in PARTS)
    return f"{_HEAD}__files__ = {later!r}\n{parts}{_bare('agent.py')}".encode()


def arguments(lines: bytes) -> tuple[str, str]:
    """Return the bootstrap and its argument."""
    return BOOT, str(len(lines))


def _bare(name: str) -> str:
    text = (files("sandboxio.guest") / name).read_text("utf-8")
    kept: list[str] = []
    inside = False
    for line in text.splitlines(keepends=True):
        ours = line.startswith(("from sandboxio.", "from __future__"))
        if not (ours or inside):
            kept.append(line)
        inside = (ours and line.rstrip().endswith("(")) or (inside and not line.startswith(")"))
    return "".join(kept)
