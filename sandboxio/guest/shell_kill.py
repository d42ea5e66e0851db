"""Ending one call exactly, from inside, with a shell and `grep`.

Every call runs under a wrapper that is a subreaper: whatever the call starts stays below it,
also what changes its session, forks twice or clears its environment. The wrapper itself is known
by a random value in its own environment. It is stopped first, so that it cannot end and let its
descendants go; so is everything below it, for what is stopped cannot fork faster than it is
found. Then all of it is killed until two scans in a row find nothing.
"""

from __future__ import annotations

from enum import Enum

_SCAN = """\
scan() {
  table= key= pid= parent= state=
  for w in $(grep -hE '^(State|Pid|PPid|Uid):' /proc/[0-9]*/status 2>/dev/null); do
    case $key in
      State:) state=$w ;;
      Pid:) pid=$w ;;
      PPid:) parent=$w ;;
      Uid:) table="$table $pid:$parent:$state:$w" ;;
    esac
    key=$w
  done
}
each() {
  for t in $table; do
    pid=${t%%:*}; t=${t#*:}; parent=${t%%:*}; t=${t#*:}; state=${t%%:*}; user=${t#*:}
    "$1"
  done
}
"""

_MARKED = """\
marked() { tr '\\0' '\\n' 2>/dev/null <"/proc/$pid/environ" | grep -qF "$marker"; }
below() {
  case $known in *" $pid "*) return ;; esac
  case $known in *" $parent "*) known="$known$pid "; grown=1 ;; esac
}
"""

END_CALL = (
    _SCAN
    + _MARKED
    + """\
marker=$1
wrapper=
find() {
  if [ -z "$wrapper" ] && [ "$parent" = 0 ] && [ "$pid" != 1 ] && [ "$pid" != $$ ] && marked
  then wrapper=$pid; fi
}
survivor() {
  case $state in Z|X) return ;; esac
  [ "$pid" != $$ ] && marked && live="$live $pid"
}
living() {
  [ "$pid" = "$wrapper" ] && return
  case $known in *" $pid "*) ;; *) return ;; esac
  case $state in
    Z|X) ;;
    T|t) live="$live $pid" ;;
    *) live="$live $pid" free="$free $pid" ;;
  esac
}
scan; each find
if [ -z "$wrapper" ]; then
  live=; each survivor
  [ -z "$live" ] || kill -KILL $live 2>/dev/null
  echo absent
  exit
fi
kill -STOP "$wrapper" 2>/dev/null
quiet=0 round=0
while [ $quiet -lt 2 ] && [ $round -lt 100 ]; do
  scan
  known=" $wrapper " grown=1
  while [ $grown = 1 ]; do grown=0; each below; done
  live= free=; each living
  if [ -z "$live" ]; then quiet=$((quiet + 1))
  elif [ -n "$free" ] && [ $round -lt 30 ]; then quiet=0; kill -STOP $free 2>/dev/null
  else quiet=0; kill -KILL $live 2>/dev/null; fi
  round=$((round + 1))
done
kill -KILL "$wrapper" 2>/dev/null
if [ $quiet -lt 2 ]; then echo busy; else echo ended; fi
"""
)
"""Arguments: the marker. Prints `ended`, `absent` (no such wrapper) or `busy` (gave up).

Without its wrapper a call is known by the marker that its processes inherited.
"""

END_ORPHANS = (
    _SCAN
    + _MARKED
    + """\
marker=$1 me= keeper= killed=
orient() {
  [ "$pid" = $$ ] && me=$user
  if [ "$parent" = 1 ] && { [ -z "$keeper" ] || [ "$pid" -lt "$keeper" ]; }; then keeper=$pid; fi
}
others() {
  if [ "$parent" = 0 ] && [ "$pid" != 1 ] && ! marked; then known="$known$pid "; fi
}
living() {
  case $pid in 1|$$|$keeper) return ;; esac
  [ "$user" = "$me" ] || return
  case $known in *" $pid "*) return ;; esac
  case $state in Z|X) ;; *) live="$live $pid" ;; esac
}
scan; each orient
round=0
while [ $round -lt 100 ]; do
  scan
  known=" " grown=1
  each others
  while [ $grown = 1 ]; do grown=0; each below; done
  live=; each living
  if [ -z "$live" ]; then
    if [ -n "$killed" ]; then echo ended; else echo absent; fi
    exit
  fi
  killed=yes
  kill -KILL $live 2>/dev/null
  round=$((round + 1))
done
echo busy
"""
)
"""Arguments: the marker. Ends every process of the same user that no other call holds.

What other calls hold lies below a wrapper of theirs. Spared is also the oldest child of the first
process, which ends the lifetime and which only root could end. Prints `ended`, `absent` (there
was nothing) or `busy`.
"""


class Ending(Enum):
    """What a script reported."""

    ENDED = "ended"
    ABSENT = "absent"
    BUSY = "busy"


def parse(output: bytes) -> Ending:
    """Read a script's word; anything else counts as not done."""
    word = output[:64].decode("ascii", "replace").strip()
    return Ending(word) if word in {e.value for e in Ending} else Ending.BUSY
