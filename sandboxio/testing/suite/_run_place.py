"""Where and as whom `run()` runs: environment, secrets, directory, user."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from sandboxio.core.errors import (
    CapabilityNotSupported,
    ConfigurationError,
    FileSystemError,
    NotADirectory,
    PathNotFound,
    SandboxError,
)
from sandboxio.core.models import Capability
from sandboxio.testing.suite._case import case
from sandboxio.testing.suite.fixtures import SuiteFixtures

if TYPE_CHECKING:
    from sandboxio.core.protocols import AsyncSandbox, Backend
    from sandboxio.testing.suite.fixtures import Create

AREA = "run"
COMMANDS = Capability.RUN_COMMAND
TOKEN = "hunter2-and-more"  # noqa: S105  # it is what must not show
VARIABLES = {
    "E": "",
    "NL": "a\nb",
    "EQ": "a=b",
    "Q": "'\"$(x)`\\",
    "U": "é🎉",
    "SP": " a ",
    "END": "a\n\n",
    "lower_1": "x",
    "LONG": "x" * 100_000,
}
"""Values that a shell, a file of `NAME=value` lines or a request would spoil if it could."""
BAD_VARIABLES: tuple[Any, ...] = (
    *({"A=B": TOKEN}, {"": TOKEN}, {"A\0": TOKEN}, {1: TOKEN}, {"A": TOKEN + "\0"}),
    *({"A": None}, {"A": 1}, {"A": TOKEN.encode()}, {"A": [TOKEN]}, {"A": TOKEN + "\ud800"}),
    *({"A": TOKEN * 10_000}, [("A", TOKEN)], f"A={TOKEN}", 7),
)
BAD_USERS: tuple[Any, ...] = ("", "a b", "a:b:c", "a\nb", "-u", "../x", ":", "1:", ":1", 0, b"root")


class RunPlace(SuiteFixtures):
    """Cases of `env`, `secrets`, `cwd` and `user`."""

    @case("RUN-046", needs=COMMANDS, area=AREA)
    async def test_variables_of_a_call(self, sandbox: AsyncSandbox) -> None:
        """Variables of a call reach the command exactly, whatever their values, and are those of
        that call only.
        """
        for name, value in VARIABLES.items():
            shown = await sandbox.run(["printenv", name], env=VARIABLES)
            assert (shown.exit_code, shown.stdout) == (0, f"{value}\n"), name
            assert (await sandbox.run(["printenv", name])).exit_code == 1, name

    @case("RUN-047", needs=COMMANDS, area=AREA)
    async def test_variables_of_a_sandbox(self, create: Create) -> None:
        """Variables given to `create()` reach every command exactly."""
        sandbox = await create(env=VARIABLES)
        for name, value in VARIABLES.items():
            assert (await sandbox.run(["printenv", name])).stdout == f"{value}\n", name
        assert await self.sh(sandbox, 'echo "<$Q$E$SP>"') == f"<{VARIABLES['Q']} a >\n"

    @case("RUN-048", needs=COMMANDS, area=AREA)
    async def test_variables_of_a_call_win(self, create: Create) -> None:
        """A variable of a call wins over the sandbox's, for that call only; others stay."""
        sandbox = await create(env={"A": "sandbox", "B": "stays"})
        show = 'echo "${A-unset} ${B-unset}"'
        assert await self.sh(sandbox, show, env={"A": "call"}) == "call stays\n"
        assert await self.sh(sandbox, show, env={"A": ""}) == " stays\n"
        assert await self.sh(sandbox, show) == "sandbox stays\n"

    @case("RUN-049", needs=COMMANDS, area=AREA)
    async def test_variables_are_copied(self, create: Create) -> None:
        """A mapping is read once: what its owner does with it later changes nothing, and nobody
        else changes it.
        """
        env, secrets = {"A": "before"}, {"B": "before"}
        sandbox = await create(env=env, secrets=secrets)
        assert (env, secrets) == ({"A": "before"}, {"B": "before"})
        env["A"] = secrets["B"] = "after"
        assert await self.sh(sandbox, "echo $A $B") == "before before\n"

    @case("RUN-050", needs=COMMANDS, area=AREA)
    async def test_the_systems_own_variables(self, sandbox: AsyncSandbox) -> None:
        """A command has PATH and HOME; a variable of a call replaces even those."""
        assert await self.sh(sandbox, 'test -n "$PATH" && test -d "$HOME" && echo ok') == "ok\n"
        assert await self.sh(sandbox, "echo $HOME", env={"HOME": "/elsewhere"}) == "/elsewhere\n"

    @case("RUN-051", needs=COMMANDS, area=AREA)
    async def test_nothing_of_the_host(
        self, create: Create, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """No variable of the host's own environment reaches a command."""
        monkeypatch.setenv("CONTRACT_PROBE", TOKEN)
        sandbox = await create()
        assert TOKEN not in await self.sh(sandbox, "env")

    @pytest.mark.parametrize("number", range(len(BAD_VARIABLES)))
    @case("RUN-052", needs=COMMANDS, area=AREA)
    async def test_bad_variables_of_a_call(self, sandbox: AsyncSandbox, number: int) -> None:
        """Names and values that a variable cannot have are refused before anything runs, and no
        value is shown.
        """
        with pytest.raises(ConfigurationError, match="env") as caught:
            await sandbox.run(["touch", "ran"], env=BAD_VARIABLES[number])
        assert TOKEN not in f"{caught.value} {caught.value!r}"
        await self.sh(sandbox, "test ! -e ran")

    @pytest.mark.parametrize("parameter", ["env", "secrets"])
    @case("RUN-053", area=AREA)
    async def test_bad_variables_of_a_sandbox(
        self, backend: Backend, options: dict[str, Any], parameter: str
    ) -> None:
        """The same for `create()`: refused by name of the parameter, and no value is shown."""
        for bad in BAD_VARIABLES:
            options[parameter] = bad
            with pytest.raises(ConfigurationError, match=parameter) as caught:
                await backend.create(**options)
            assert TOKEN not in f"{caught.value} {caught.value!r}"

    @case("RUN-054", needs=COMMANDS, area=AREA)
    async def test_secrets_reach_commands(self, create: Create) -> None:
        """Secrets are variables of every command, exact, however short or odd."""
        secrets = {"TOKEN": TOKEN, "E": "", "S": "a", "N": "1", "W": " ", "NL": "value\nmore\n"}
        sandbox = await create(secrets=secrets, env={"OPEN": "x"})
        for name, value in secrets.items():
            assert (await sandbox.run(["printenv", name])).stdout == f"{value}\n"
        assert await self.sh(sandbox, 'echo "$OPEN${#TOKEN}"') == f"x{len(TOKEN)}\n"

    @case("RUN-055", needs=COMMANDS, area=AREA)
    async def test_secrets_show_nowhere(
        self, create: Create, backend: Backend, run_id: str
    ) -> None:
        """A secret shows in no `repr`, no result of a command that does not print it, and no
        list of sandboxes.
        """
        sandbox = await create(secrets={"TOKEN": TOKEN}, env={"OPEN": "x"})
        done = await sandbox.run('test -n "$TOKEN" && echo "${#TOKEN}"')
        shown = [repr(sandbox), str(sandbox), repr(done), repr(backend), repr(vars(done))]
        if Capability.STREAMING in sandbox.capabilities:
            async with sandbox.stream(["true"]) as process:
                shown += [repr(process), repr(await process.wait())]
        listing: Any = getattr(backend, "list_managed", None)
        if listing is not None:
            shown.append(repr(await listing(labels={"contract_run": run_id})))
        assert TOKEN not in " ".join(shown)

    @case("RUN-056", needs=COMMANDS, area=AREA)
    async def test_secrets_are_in_no_arguments(self, create: Create) -> None:
        """No process inside has a secret, or a variable of a call, among its arguments."""
        sandbox = await create(secrets={"TOKEN": TOKEN})
        look = (
            "n=0; for f in /proc/[0-9]*/cmdline; do c=$(tr '\\000' ' ' 2>/dev/null <$f); "
            'n=$((n + 1)); case "$c" in *"$TOKEN"*|*"$MORE"*) echo "$f: $c";; esac; done; '
            "[ $n -gt 0 ] && echo looked"
        )
        assert await self.sh(sandbox, look, env={"MORE": f"open-{TOKEN}"}) == "looked\n"

    @case("RUN-057", needs=COMMANDS, area=AREA)
    async def test_secrets_and_variables_of_calls(self, create: Create) -> None:
        """A variable of a call wins over a secret of the same name, for that call only."""
        sandbox = await create(secrets={"TOKEN": TOKEN})
        assert await self.sh(sandbox, "echo $TOKEN", env={"TOKEN": "other"}) == "other\n"
        assert await self.sh(sandbox, "echo ${#TOKEN}") == f"{len(TOKEN)}\n"

    @case("RUN-058", needs=COMMANDS, area=AREA)
    async def test_the_directory(self, sandbox: AsyncSandbox) -> None:
        """Without `cwd` every command runs in one directory, which it can write to."""
        here = await self.sh(sandbox, "pwd; echo x >f")
        assert here.startswith("/")
        assert (await sandbox.run(["pwd"])).stdout == here
        assert await self.sh(sandbox, "pwd; cat f") == f"{here}x\n"

    @case("RUN-059", needs=COMMANDS, area=AREA)
    async def test_a_directory_of_a_call(self, sandbox: AsyncSandbox) -> None:
        """`cwd` is where the command runs, absolute or relative to where others do, through
        links and with odd characters; for that call only.
        """
        here = (await self.sh(sandbox, "mkdir -p 'd/a b$x'; ln -s d link; pwd")).strip()
        places = {
            "d": f"{here}/d",
            "d/a b$x": f"{here}/d/a b$x",
            "./d/../d": f"{here}/d",
            ".": here,
            f"{here}/d": f"{here}/d",
            "/": "/",
            "/tmp": "/tmp",  # noqa: S108  # it is a directory of the sandbox
        }
        for cwd, place in places.items():
            assert (await sandbox.run("pwd -P", cwd=cwd)).stdout == f"{place}\n", cwd
        assert (await sandbox.run("pwd -P", cwd="link")).stdout == f"{here}/d\n"
        assert (await sandbox.run(["pwd"])).stdout == f"{here}\n"

    @case("RUN-060", needs=COMMANDS, area=AREA)
    async def test_a_directory_that_is_none(self, sandbox: AsyncSandbox) -> None:
        """A `cwd` that is not there is `PathNotFound`, one that is no directory `NotADirectory`;
        nothing runs, and neither passes for an end of the command.
        """
        here = (await self.sh(sandbox, "echo x >file; ln -s none dangling; pwd")).strip()
        for cwd in ("none", "none/deeper", "/none", "dangling", f"{here}/none"):
            with pytest.raises(PathNotFound):
                await sandbox.run(f"echo x >{here}/ran", cwd=cwd)
        for cwd in ("file", f"{here}/file", "file/x"):
            with pytest.raises(NotADirectory):
                await sandbox.run(["touch", f"{here}/ran"], cwd=cwd)
        await self.sh(sandbox, "test ! -e ran")

    @case("RUN-061", needs=COMMANDS, area=AREA)
    async def test_a_directory_without_access(self, sandbox: AsyncSandbox) -> None:
        """In a `cwd` that its user may not enter a command runs there or is refused with
        `FileSystemError`; it never runs anywhere else.
        """
        here = (await self.sh(sandbox, "mkdir d; chmod 0 d; pwd")).strip()
        try:
            done = await sandbox.run("echo x >ran; pwd", cwd="d")
        except FileSystemError:
            await self.sh(sandbox, "test ! -e ran")
            return
        assert done.stdout == f"{here}/d\n"

    @case("RUN-062", needs=COMMANDS, area=AREA)
    async def test_what_is_no_directory(self, sandbox: AsyncSandbox) -> None:
        """What can be no path is refused as `cwd` by name; nothing runs."""
        bad_values: tuple[Any, ...] = ("", "a\0b", 7, b"d", ["d"], "x" * 5000)
        for bad in bad_values:
            with pytest.raises(ConfigurationError, match="cwd"):
                await sandbox.run(["touch", "ran"], cwd=bad)
        await self.sh(sandbox, "test ! -e ran")

    @case("RUN-063", needs=COMMANDS, area=AREA)
    async def test_a_directory_that_is_removed(self, sandbox: AsyncSandbox) -> None:
        """A command may remove its own directory; the next call works, or says what is wrong."""
        await self.sh(sandbox, 'd=$(pwd); cd /; rm -rf "$d" 2>/dev/null; exit 0')
        try:
            done = await sandbox.run(["echo", "ok"])
        except SandboxError:
            return
        assert (done.exit_code, done.stdout) == (0, "ok\n")

    @case("RUN-064", needs=COMMANDS, area=AREA)
    async def test_the_same_user(self, sandbox: AsyncSandbox) -> None:
        """The sandbox's own user, named by name or number, is who commands run as anyway."""
        show = "id -u; id -g"
        name, uid, gid = (await self.sh(sandbox, f"id -un; {show}")).split()
        for user in (name, uid, f"{uid}:{gid}"):
            assert (await self.sh(sandbox, show, user=user)).split() == [uid, gid], user

    @case("RUN-065", needs=COMMANDS, area=AREA)
    async def test_another_user(self, sandbox: AsyncSandbox) -> None:
        """`user="root"` is root, for that call only, or is refused; it is never ignored."""
        before = await self.sh(sandbox, "id -u")
        try:
            assert await self.sh(sandbox, "id -u", user="root") == "0\n"
            assert await self.sh(sandbox, "id -u; id -g", user="4711:4712") == "4711\n4712\n"
        except (CapabilityNotSupported, ConfigurationError) as exc:
            assert exc.outcome == "not_started"  # noqa: PT017  # refusing is as good
        assert await self.sh(sandbox, "id -u") == before

    @case("RUN-066", needs=COMMANDS, area=AREA)
    async def test_a_user_that_is_none(self, sandbox: AsyncSandbox) -> None:
        """What can be no user, or is none of the sandbox, is an error; nothing runs as another."""
        await self.sh(sandbox, "chmod 777 .")
        for bad in BAD_USERS:
            with pytest.raises(ConfigurationError, match="user"):
                await sandbox.run(["touch", "ran"], user=bad)
        with pytest.raises(SandboxError):
            await sandbox.run(["touch", "ran"], user="nobody-of-that-name")
        await self.sh(sandbox, "test ! -e ran")
