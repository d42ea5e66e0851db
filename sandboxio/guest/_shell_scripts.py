"""What the file API has a sandbox's shell do.

Each script gets the path as its first argument, every byte as an octal escape. It ends with 0, or
with one of the `CODES` and its own words on stderr. The system's tools come before those of
`PATH`: what a program installs for its user decides nothing here.
"""

from __future__ import annotations

from sandboxio.core.errors import (
    FileSystemError,
    IsADirectory,
    NotADirectory,
    PathExists,
    PathNotFound,
    PermissionDenied,
)

CODES: dict[int, type[FileSystemError]] = {
    70: FileSystemError,
    71: PathNotFound,
    72: PermissionDenied,
    73: NotADirectory,
    74: IsADirectory,
    75: PathExists,
}

PRELUDE = """\
PATH=/usr/bin:/bin:/usr/sbin:/sbin${PATH:+:$PATH}; LC_ALL=C; export PATH LC_ALL
path() {
  p=$(printf "$1"X); p=${p%X}
  case $p in /*) ;; *) p=./$p ;; esac
}
path "$1"
fail() { echo "$2" >&2; exit "$1"; }
need() {
  for t; do command -v "$t" >/dev/null || fail 70 "$t: not found in the sandbox"; done
}
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

READ = (
    PRELUDE
    + """\
file
need cat head tail
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

WRITE = (
    PRELUDE
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
  if [ "$5" = 0 ]; then true 2>/dev/null >"$c/$4" || continue
  else [ -f "$c/$4" ] || continue; fi
  part=$c/$4
  break
done
[ "$part" = "$p" ] || trap 'rm -f "$part"' EXIT
[ "$5" != 0 ] || : >"$part" || fail 70 'the data could not be stored'
echo go
head -c "$2" >>"$part" || fail 70 'the data could not be stored'
[ "$(wc -c <"$part")" -eq "$(($5 + $2))" ] || fail 70 'the data arrived incomplete'
[ -z "$6" ] || { trap - EXIT; exit; }
if [ "$part" = "$p" ]; then :
elif [ -e "$p" ] || [ -L "$p" ]; then
  cat <"$part" >"$p" || fail 70 'the data could not be stored'
else
  chmod 644 "$part" && mv -f "$part" "$p" || fail 70 'the data could not be stored'
fi
[ -z "$3" ] || chmod "$3" "$p" || fail 72 'permission denied'
"""
)
"""A new file appears whole; an existing one keeps its identity, links to it, and its mode.

What is longer than one call takes in comes in several: `$5` bytes are there, `$6` says that more
will follow.
"""

FORGET = PRELUDE + _PARENT + 'rm -f "$d/$2" "$spare/$2"\n'

STAT = (
    PRELUDE
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

_ENTRIES = """\
entries() {
  find . "$@" ! -name . -exec stat -c "$m %f %s %Y %n" {} +
}
links() {
  find . "$@" ! -name . -type l -exec sh -c '
    for f; do printf "%s@%s\\n%s" "$0" "$f" "$0="; readlink "$f"; done' "$m" {} +
}
need find stat readlink
m=$2
"""

LIST = (
    PRELUDE
    + _ENTRIES
    + """\
[ -e "$p" ] || [ -L "$p" ] || absent
[ -d "$p" ] || fail 73 'not a directory'
cd "$p" 2>/dev/null || fail 72 'permission denied'
[ -r . ] || fail 72 'permission denied'
if [ "$3" != recursive ]; then
  entries ! -name . -prune
  links ! -name . -prune
  exit
fi
exec 3>&1
said=$(entries 2>&1 >&3)
case $said in *ermission*) fail 72 'permission denied below it' ;; esac
links
"""
)

GLOB = (
    PRELUDE
    + _ENTRIES
    + """\
[ -d "$p" ] && cd "$p" 2>/dev/null && [ -r . ] || exit 0
name=$4
set -- ${3:+-maxdepth "$3"} -name "$name"
entries "$@" 2>/dev/null
links "$@" 2>/dev/null
:
"""
)
"""What cannot be read is left out, and nothing found is no failure."""

MKDIR = (
    PRELUDE
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

REMOVE = (
    PRELUDE
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

EXISTS = PRELUDE + '[ -e "$p" ] && echo yes\n:\n'
