"""The agent as a program: its source as it is sent, and what starts it inside of a sandbox."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from sandboxio.guest._agent_start import BOOT

PARTS = ("_agent_wire.py", "_agent_start.py", "agent.py")
NO_PYTHON = 97
"""Exit code of the first process where there is no Python that the agent can run in."""

_HEAD = """\
from __future__ import annotations
import sys
if sys.version_info < (3, 8): __import__('os')._exit(97)
__modules__ = set(sys.modules)
"""

FIRST_PROCESS = """\
p=$(command -v python3) || p=$(command -v python) || exit 97
exec "$p" -I -S -c "$1" "$2" 'sandboxio agent'
"""
"""What a container begins with; its arguments are the bootstrap and the length of the source."""

RELAY = """\
import os,select,socket
s=socket.socket(socket.AF_UNIX)
for p in ('/dev/shm/sandboxio/link','/run/sandboxio/link'):
 try:s.connect(p);break
 except OSError:pass
else:os._exit(98)
f=s.fileno()
while 1:
 for r in select.select([0,f],[],[])[0]:
  d=os.read(r,262144)
  if not d:os._exit(0)
  v=memoryview(d)
  while v:v=v[os.write(f if r==0 else 1,v):]
"""
"""Joins its own standard streams to the agent's socket: how every later link gets there."""


@cache
def source() -> bytes:
    """Return the agent's source: its parts, one after the other, without what joins them here."""
    here = files("sandboxio.guest")
    later = _bare((here / "_agent_files.py").read_text("utf-8"))
    parts = "".join(_bare((here / part).read_text("utf-8")) for part in PARTS)
    return f"{_HEAD}__files__ = {later.encode()!r}\n{parts}".encode()


def arguments(lines: bytes) -> tuple[str, str]:
    """Return the bootstrap and its argument."""
    return BOOT, str(len(lines))


def _bare(text: str) -> str:
    kept: list[str] = []
    inside = False
    for line in text.splitlines(keepends=True):
        ours = line.startswith(("from sandboxio.", "from __future__"))
        if not (ours or inside):
            kept.append(line)
        inside = (ours and line.rstrip().endswith("(")) or (inside and not line.startswith(")"))
    return "".join(kept)
