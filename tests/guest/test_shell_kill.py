"""Ending a call from inside: how the scripts' answers are read."""

from __future__ import annotations

import subprocess

import pytest

from sandboxio.guest import shell_kill
from sandboxio.guest.shell_kill import Ending


@pytest.mark.parametrize(
    ("output", "ending"),
    [
        (b"ended\n", Ending.ENDED),
        (b"absent\n", Ending.ABSENT),
        (b"busy\n", Ending.BUSY),
        (b"  ended", Ending.ENDED),
        (b"", Ending.BUSY),
        (b"ended ended", Ending.BUSY),
        (b"ENDED", Ending.BUSY),
        (b"sh: kill: not found\nended\n", Ending.BUSY),
        (b"\xff\xfe", Ending.BUSY),
        (b"ended" + b" " * 100 + b"x", Ending.ENDED),
        (b"x" * 1000, Ending.BUSY),
    ],
)
def test_anything_but_the_word_is_not_done(output: bytes, ending: Ending) -> None:
    """Only the exact word counts as ended; noise means that the kill is not complete."""
    assert shell_kill.parse(output) is ending


@pytest.mark.parametrize("script", [shell_kill.END_CALL, shell_kill.END_ORPHANS])
def test_the_scripts_are_plain_sh(script: str) -> None:
    """A shell accepts them; nothing is run here."""
    checked = subprocess.run(["/bin/sh", "-n", "-c", script], capture_output=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, b"")
