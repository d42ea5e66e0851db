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

_PRELUDE = """\
PATH=/usr/bin:/bin:/usr/sbin:/sbin${PATH:+:$PATH}; LC_ALL=C; export PATH LC_ALL
p=$(printf "$1"X); p=${p%X}
case $p in /*) ;; *) p=./$p ;; esac
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
    _PRELUDE
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

FORGET = _PRELUDE + _PARENT + 'rm -f "$d/$2" "$spare/$2"\n'

STAT = (
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

LIST = (
    _PRELUDE
    + """\
need find stat readlink
[ -e "$p" ] || [ -L "$p" ] || absent
[ -d "$p" ] || fail 73 'not a directory'
cd "$p" 2>/dev/null || fail 72 'permission denied'
[ -r . ] || fail 72 'permission denied'
find . ! -name . -prune -exec stat -c "$2 %f %s %Y %n" {} +
find . ! -name . -prune -type l -exec sh -c '
  for f; do printf "%s@%s\\n%s" "$0" "$f" "$0="; readlink "$f"; done' "$2" {} +
"""
)

MKDIR = (
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

REMOVE = (
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

EXISTS = _PRELUDE + '[ -e "$p" ] && echo yes\n:\n'
