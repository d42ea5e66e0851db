"""What `files.edit()` does to the content of a file, on every backend."""

from __future__ import annotations

from sandboxio.core.errors import FileSystemError

MAX_EDIT_BYTES = 64 * 1024 * 1024
"""Most that a file to be edited may hold, before and after."""


def edited(
    path: str, content: bytes, old: bytes, new: bytes, count: int | None
) -> tuple[bytes, int]:
    """Return the content with `old` replaced, which must occur `count` times, and how often.

    Occurrences are counted from the start, and do not overlap. `None` is any number above 0.

    Raises:
        FileSystemError: it occurs another number of times, or the file would be too large.
    """
    found = content.count(old)
    if found == 0 or count not in (None, found):
        wanted = "at least 1" if count is None else str(count)
        raise FileSystemError(
            f"{path!r}: the text to replace occurs {found} times, not {wanted}.",
            hint="Pass more of the text around it, or count= with the number expected.",
            outcome="done",
        )
    require_editable(path, len(content) + found * (len(new) - len(old)))
    return content.replace(old, new), found


def require_editable(path: str, size: int) -> None:
    """Raise `FileSystemError` for more than `MAX_EDIT_BYTES`."""
    if size > MAX_EDIT_BYTES:
        raise FileSystemError(
            f"{path!r}: edit() takes at most 64 MiB.",
            hint="Edit it with a command, such as sb.run(['sed', '-i', ...]).",
            outcome="done",
        )
