"""`run()`: commands to their end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandboxio.core.models import Capability
from sandboxio.testing.suite._case import case
from sandboxio.testing.suite.fixtures import SuiteFixtures

if TYPE_CHECKING:
    from sandboxio.core.protocols import AsyncSandbox

COMMANDS = Capability.RUN_COMMAND


class RunSuite(SuiteFixtures):
    """Cases of `run()`."""

    @case("RUN-001", needs=COMMANDS)
    async def test_exit_codes(self, sandbox: AsyncSandbox) -> None:
        """The exit code is the command's own, for every value a process can end with."""
        for code in (0, 1, 2, 7, 42, 126, 255):
            assert (await sandbox.run(["sh", "-c", f"exit {code}"])).exit_code == code

    @case("RUN-002", needs=COMMANDS)
    async def test_streams_are_apart(self, sandbox: AsyncSandbox) -> None:
        """stdout and stderr arrive apart, with nothing added and nothing stripped."""
        done = await sandbox.run(r"printf '\101\r\n\102\n'; printf '\103\n' >&2")
        assert (done.stdout, done.stderr) == ("A\r\nB\n", "C\n")
