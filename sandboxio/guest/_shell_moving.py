"""What moving, copying and the rights of files have a sandbox's shell do.

What takes time happens beside the target, under a name of our own: only a rename puts it there,
so that the target is as it was, or as it is to be, and never between. BusyBox has no rename over
a link to a directory: there the link goes first.
"""

from __future__ import annotations

from sandboxio.guest._shell_scripts import PRELUDE

_BOTH = (
    PRELUDE
    + """\
[ -e "$p" ] || [ -L "$p" ] || absent
bare=$p
while [ "$bare" != "${bare%/}" ]; do bare=${bare%/}; done
[ "$bare" = "$p" ] || [ ! -L "$bare" ] || fail 70 'a link, and then a slash'
source=${bare:-/}
folder=
if [ -d "$p" ] && [ ! -L "$p" ]; then folder=yes; fi
path "$2"
if [ -d "$p" ] && [ ! -L "$p" ]; then
  [ -n "$folder" ] || fail 74 'the target is a directory'
  fail 75 'the target exists already'
fi
while [ "$p" != "${p%/}" ]; do
  [ -n "$folder" ] || fail 73 'the target is not a directory'
  p=${p%/}
done
case $p in */*) d=${p%/*}; d=${d:-/} ;; *) d=. ;; esac
[ -e "$d" ] || absent
[ -d "$d" ] || fail 73 'not a directory'
if [ -n "$folder" ] && { [ -e "$p" ] || [ -L "$p" ]; }; then
  fail 73 'the target is not a directory'
fi
{ [ -w "$d" ] && [ -x "$d" ]; } || fail 72 'permission denied'
above=$d
while [ -n "$folder" ] && [ -d "$above" ]; do
  [ "$above" -ef "$source" ] && fail 70 'a directory cannot go into itself'
  [ "$above" -ef / ] && break
  above=$above/..
done
part=$d/$3
because() {
  case $1 in
    *ermi*|*ead-only*) fail 72 "$1" ;;
    *'ile exists'*|*'ot empty'*) fail 75 "$1" ;;
    *'o such file'*) fail 71 "$1" ;;
  esac
  fail 70 "$1"
}
into() {
  said=$(mv -fT "$1" "$p" 2>&1) && return
  case $said in
    *'nvalid option'*|*'nrecognized option'*|*'llegal option'*) ;;
    *'s a directory'*) [ -L "$p" ] || because "$said" ;;
    *) because "$said" ;;
  esac
  [ ! -L "$p" ] || rm -f "$p"
  said=$(mv -f "$1" "$p" 2>&1) || because "$said"
}
clear() {
  find "$part" -type d ! -perm -700 -exec chmod u+rwx {} \\; 2>/dev/null
  rm -rf "$part"
}
copied() {
  trap clear EXIT
  said=$(cp -a "$source" "$part" 2>&1) || because "$said"
}
"""
)

COPY = (
    _BOTH
    + """\
copied
into "$part"
trap - EXIT
"""
)

MOVE = (
    _BOTH
    + """\
above=${source%/*}
above=${above:-/}
if [ "$above" -ef "$d" ] && [ "${source##*/}" = "${p##*/}" ]; then exit; fi
if [ "$source" -ef "$p" ] && [ ! -L "$source" ] && [ ! -L "$p" ]; then
  said=$(rm -f "$source" 2>&1) || because "$said"
  exit
fi
if [ "$(stat -c %d "$source")" = "$(stat -c %d "$d")" ]; then
  into "$source"
  exit
fi
{ [ -w "$above" ] && [ -x "$above" ]; } || fail 72 'permission denied'
copied
into "$part"
trap - EXIT
said=$(rm -rf "$source" 2>&1) || because "$said"
"""
)
"""Where a rename cannot reach, the copy is complete before the source goes."""

FORGET = (
    PRELUDE
    + """\
while [ "$p" != "${p%/}" ]; do p=${p%/}; done
case $p in */*) d=${p%/*}; d=${d:-/} ;; *) d=. ;; esac
find "$d/$2" -type d ! -perm -700 -exec chmod u+rwx {} \\; 2>/dev/null
rm -rf "$d/$2"
"""
)

CHMOD = (
    PRELUDE
    + """\
[ -e "$p" ] || { [ -L "$p" ] && loop; absent; }
said=$(chmod "$2" "$p" 2>&1) && exit
case $said in *ermi*|*ead-only*) fail 72 "$said" ;; esac
fail 70 "$said"
"""
)
