"""Runs the files beside it as a project does that has nothing of ours but the wheel.

The Python that runs it is of an environment with the wheel and its extra `testing`. The tests of
a tool must pass. The contract on an unfinished adapter must fail, and tell its author what to do.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
UNFINISHED = "exit_codes or connect_after_kill or caps_a_refusal or streams_are_apart"
SAID = (
    "TestForgotten has no backend. Write `backend = MyBackend()` in the class",
    "NotImplementedError: start",
    "NotImplementedError: connect",
    "TestMine has no probe count()",
    "needs RUN_CODE, which this sandbox does not declare",
)
"""What the author of an unfinished adapter has to be told."""
NEVER = ("INTERNALERROR", "error during collection", "fixture '")
"""What would be a fault of ours."""


def main() -> int:
    with tempfile.TemporaryDirectory() as scratch:
        for file in HERE.glob("*.py"):
            if file.name != Path(__file__).name:
                shutil.copy(file, scratch)
        passed, tool = _pytest(scratch, "test_tool.py")
        failed, mine = _pytest(scratch, "test_mine.py", "-k", UNFINISHED)
    complaints = [
        *([] if passed == 0 else [f"the tests of a tool ended with {passed}"]),
        *([] if failed == 1 else [f"the unfinished adapter ended with {failed}, not with 1"]),
        *(f"the unfinished adapter was not told: {text}" for text in SAID if text not in mine),
        *(f"this was said: {text}" for text in NEVER if text in tool + mine),
    ]
    if complaints:
        print(tool, mine, *complaints, sep="\n")
    return len(complaints) > 0


def _pytest(folder: str, *arguments: str) -> tuple[int, str]:
    command = [sys.executable, "-P", "-m", "pytest", "-p", "no:cacheprovider", "-ra", *arguments]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, timeout=300
    )
    return done.returncode, done.stdout + done.stderr


if __name__ == "__main__":
    sys.exit(main())
