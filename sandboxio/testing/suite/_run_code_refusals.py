"""What `run_code()` refuses, and what it never pretends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from sandboxio.core.errors import CapabilityNotSupported, ConfigurationError
from sandboxio.core.models import Capability
from sandboxio.testing.suite._case import case
from sandboxio.testing.suite.fixtures import SuiteFixtures

if TYPE_CHECKING:
    from sandboxio.core.protocols import AsyncSandbox

AREA = "run_code"
CODE = Capability.RUN_CODE
BOTH = Capability.RUN_CODE | Capability.RUN_COMMAND
TOKEN = "hunter2-and-more"  # noqa: S105  # it is what must not show
RAN = 'open("ran", "w").write("x")'
NO_CODE: tuple[Any, ...] = (None, 7, b"print(1)", ["print(1)"], "print(1)\0", "x = '\ud800'")


class CodeRefusals(SuiteFixtures):
    """Cases of what `run_code()` refuses."""

    @case("CODE-025", needs=BOTH, area=AREA)
    async def test_odd_caps_on_code(self, sandbox: AsyncSandbox) -> None:
        """A cap that is no whole number above 0 is refused by name; nothing runs."""
        odd_values: tuple[Any, ...] = (0, -1, True, "5", 1.5)
        for odd in odd_values:
            with pytest.raises(ConfigurationError, match="max_output_bytes"):
                await sandbox.run_code(RAN, max_output_bytes=odd)
        await self.sh(sandbox, "test ! -e ran")

    @case("CODE-026", needs=BOTH, area=AREA)
    async def test_unknown_languages(self, sandbox: AsyncSandbox) -> None:
        """A language that the sandbox does not run is refused by name, before anything runs."""
        for language in ("cobol", "Python", "python3.99", "sh -c", "../python", "é"):
            with pytest.raises(CapabilityNotSupported) as caught:
                await sandbox.run_code(RAN, language=language)
            assert language in caught.value.message
            assert caught.value.outcome == "not_started"
        await self.sh(sandbox, "test ! -e ran")

    @case("CODE-027", needs=BOTH, area=AREA)
    async def test_what_is_no_language(self, sandbox: AsyncSandbox) -> None:
        """`language` is a word; nothing else is taken for one."""
        bad_values: tuple[Any, ...] = ("", None, 7, b"python", "py\0thon")
        for bad in bad_values:
            with pytest.raises(ConfigurationError, match="language"):
                await sandbox.run_code(RAN, language=bad)
        await self.sh(sandbox, "test ! -e ran")

    @case("CODE-028", needs=CODE, lacks=Capability.STATEFUL_CODE, area=AREA)
    async def test_contexts_are_refused(self, sandbox: AsyncSandbox) -> None:
        """`context_id` needs `STATEFUL_CODE`: without it the call is refused, nothing runs, and no
        state is pretended.
        """
        for context_id in ("one", "default", ""):
            with pytest.raises(CapabilityNotSupported) as caught:
                await sandbox.run_code(RAN, context_id=context_id)
            assert caught.value.outcome == "not_started"
            assert "STATEFUL_CODE" in str(caught.value)
        assert (await sandbox.run_code('open("ran").read()')).exit_code == 1

    @case("CODE-029", needs=CODE, lacks=Capability.RICH_OUTPUT, area=AREA)
    async def test_no_rich_outputs(self, sandbox: AsyncSandbox) -> None:
        """Without `RICH_OUTPUT` `results` is `None`; nothing that was printed passes for one."""
        for code in ("1 + 1", 'print("<b>1</b>")', 'print(\'{"text/html": "1"}\')', "1 / 0"):
            assert (await sandbox.run_code(code)).results is None

    @case("CODE-030", needs=BOTH, area=AREA)
    async def test_what_is_no_code(self, sandbox: AsyncSandbox) -> None:
        """Code is text; bytes, text with a NUL or half a character, and all else are refused, and
        nothing runs.
        """
        for bad in NO_CODE:
            with pytest.raises(ConfigurationError, match="code") as caught:
                await sandbox.run_code(bad)
            assert caught.value.outcome == "not_started"
        with pytest.raises(ConfigurationError):
            await sandbox.run_code(f"{RAN}\n\0")
        await self.sh(sandbox, "test ! -e ran")

    @case("CODE-031", needs=CODE, area=AREA)
    async def test_code_that_does_nothing(self, sandbox: AsyncSandbox) -> None:
        """Empty code, and code of blank lines and comments, runs and prints nothing."""
        for code in ("", "\n\n", "# nothing\n", "pass"):
            done = await sandbox.run_code(code)
            assert (done.exit_code, done.stdout, done.stderr) == (0, "", "")

    @case("CODE-032", needs=BOTH, area=AREA)
    async def test_keywords_of_code(self, sandbox: AsyncSandbox) -> None:
        """Every option has a name of its own: an unknown keyword is a `TypeError`; nothing runs."""
        run_code: Any = sandbox.run_code
        for unknown in ({"stdin": "x"}, {"user": "root"}, {"kernel": "python"}):
            with pytest.raises(TypeError):
                await run_code(RAN, **unknown)
        with pytest.raises(TypeError):
            await run_code(RAN, "python")
        await self.sh(sandbox, "test ! -e ran")

    @case("CODE-033", needs=BOTH, area=AREA)
    async def test_bad_variables_of_code(self, sandbox: AsyncSandbox) -> None:
        """Variables that cannot be are refused before anything runs, and no value is shown."""
        bad_values: tuple[Any, ...] = ({"A=B": TOKEN}, {"": TOKEN}, {"A": 1}, {"A": TOKEN + "\0"})
        for bad in bad_values:
            with pytest.raises(ConfigurationError, match="env") as caught:
                await sandbox.run_code(RAN, env=bad)
            assert TOKEN not in f"{caught.value} {caught.value!r}"
        await self.sh(sandbox, "test ! -e ran")

    @case("CODE-034", lacks=CODE, area=AREA)
    async def test_without_code(self, sandbox: AsyncSandbox) -> None:
        """A sandbox that runs no code says so, whatever the language or context, and runs nothing
        in its place.
        """
        options: tuple[dict[str, Any], ...] = ({}, {"language": "bash"}, {"context_id": "one"})
        for more in options:
            with pytest.raises(CapabilityNotSupported) as caught:
                await sandbox.run_code(RAN, **more)
            assert caught.value.outcome == "not_started"
            assert "RUN_CODE" in str(caught.value)
        if Capability.RUN_COMMAND in sandbox.capabilities:
            await self.sh(sandbox, "test ! -e ran")
