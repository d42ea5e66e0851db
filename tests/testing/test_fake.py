"""The fake as a product: what it makes, records and asserts."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

import sandboxio
from sandboxio import Capability, ConfigurationError, ConnectError, NetworkPolicy, SandboxGone
from sandboxio.core import registry
from sandboxio.testing import FakeBackend, FakeClock

pytestmark = pytest.mark.anyio

SECRET = "hunter2-and-more"


@pytest.fixture
def fake() -> FakeBackend:
    return FakeBackend()


async def test_a_ready_sandbox(fake: FakeBackend) -> None:
    """`fake.sandbox` is one sandbox, the same at every look, under the default policy."""
    assert fake.sandbox is fake.sandbox
    assert (await fake.sandbox.run("echo hello")).stdout == "hello\n"
    assert fake.calls[0].op == "create"
    assert fake.calls[0].network == NetworkPolicy(egress="deny")


async def test_the_dsn(fake: FakeBackend) -> None:
    """`fake://` needs nothing installed and registered, and behaves like every other target."""
    async with await sandboxio.create("fake://", timeout=60) as sandbox:
        assert (await sandbox.run_code("print(6 * 7)")).stdout == "42\n"


async def test_standing_in(fake: FakeBackend) -> None:
    """Code that asks for Docker gets the fake, and Docker is what it was afterwards."""
    before = registry.names()
    with fake.serving("docker"):
        async with await sandboxio.create("docker://python:3.12-slim") as sandbox:
            assert sandbox.id.startswith("fake-")
    assert fake.calls[0].template == "python:3.12-slim"
    assert registry.names() == before


async def test_every_call_is_recorded(fake: FakeBackend) -> None:
    """Operation, arguments, policy and time of every call, in order."""
    sandbox = await fake.create(env={"MODE": "fast"}, metadata={"tenant_id": "t1"})
    await sandbox.run(["echo", "a b"], timeout=7, cwd="/tmp", env={"X": "1"}, user="root")
    await sandbox.files.write("f", b"data")
    await sandbox.kill()
    assert [call.op for call in fake.calls] == ["create", "run", "write", "kill"]
    ran = fake.calls[1]
    assert (ran.cmd, ran.timeout, ran.cwd, ran.user) == (("echo", "a b"), 7, "/tmp", "root")
    assert ran.env == {"MODE": "fast", "X": "1"}
    assert (fake.calls[2].path, fake.calls[2].data) == ("f", b"data")
    assert {call.network for call in fake.calls} == {NetworkPolicy()}


async def test_no_secret_is_recorded(fake: FakeBackend) -> None:
    """A test sees which secrets were given, and nobody sees a value, in whatever form."""
    sandbox = await fake.create(
        secrets={"TOKEN": SECRET}, env={"DATABASE_URL": f"postgres://u:{SECRET}@h/db"}
    )
    await sandbox.run(["login", SECRET])
    await sandbox.run_code(f"x = '{SECRET}'")
    assert [call.secrets for call in fake.calls] == [("TOKEN",)] * 3
    for call in fake.calls:
        shown = (repr(call), str(call), repr(vars(call)), repr(asdict(call)), call.text)
        assert SECRET not in "".join(shown)
        assert SECRET not in json.dumps(asdict(call), default=repr)


async def test_stdin_is_recorded_as_it_is_sent(fake: FakeBackend) -> None:
    """What a command was given to read is known afterwards."""
    await fake.sandbox.run(["cat"], stdin="hello")
    assert fake.assert_ran("cat").stdin == b"hello"
    await fake.sandbox.run(["cat"])
    assert fake.assert_ran("cat").stdin is None


async def test_egress_attempts_are_recorded(fake: FakeBackend) -> None:
    """What tried to leave is listed, with what the policy said."""
    sandbox = await fake.create(network=NetworkPolicy(allow=("*.example.org",)))
    await sandbox.run("curl -s https://api.example.org/; curl -s http://evil.example:8080/")
    seen = [(one.host, one.port, one.allowed) for one in fake.egress]
    assert seen == [("api.example.org", 443, True), ("evil.example", 8080, False)]
    with pytest.raises(AssertionError, match=r"evil\.example"):
        fake.assert_no_egress("evil.example")
    fake.assert_no_egress("other.example")


async def test_assertions_show_the_nearest_calls(fake: FakeBackend) -> None:
    """A failed assertion shows what came closest to what was wanted."""
    await fake.sandbox.run(["pytest", "-x"])
    await fake.sandbox.run_code("print(1)")
    assert fake.assert_ran("pytest").cmd == ("pytest", "-x")
    assert fake.assert_ran_code("print").language == "python"
    fake.assert_not_ran("rm -rf")
    with pytest.raises(AssertionError, match="pytest -x"):
        fake.assert_ran("pytest -q")
    with pytest.raises(AssertionError, match=r"print\(1\)"):
        fake.assert_ran_code("print(2)")
    with pytest.raises(AssertionError, match="was to run"):
        fake.assert_not_ran("pytest")


async def test_sandboxes_that_are_left(fake: FakeBackend) -> None:
    """Whoever creates a sandbox and does not remove it is found."""
    sandbox = await fake.create()
    with pytest.raises(AssertionError, match=sandbox.id):
        fake.assert_nothing_left()
    await sandbox.kill()
    fake.assert_nothing_left()


async def test_records_tell_how_operations_ended(fake: FakeBackend) -> None:
    """The record of every operation is kept, as a real backend would hand it out."""
    await fake.sandbox.run("exit 3")
    assert [(one.event, one.exit_code) for one in fake.records] == [("exec", 3)]


async def test_the_end_of_a_lifetime(fake: FakeBackend) -> None:
    """An expired sandbox is gone for its users, and still listed."""
    sandbox = await fake.create()
    fake.expire(sandbox.id)
    with pytest.raises(SandboxGone):
        await sandbox.run("true")
    assert [one.state for one in await fake.list_managed()] == ["stopped"]
    with pytest.raises(ConfigurationError, match="nope"):
        fake.expire("nope")


async def test_it_lives_by_its_timeout(fake: FakeBackend) -> None:
    """A sandbox ends after `timeout` virtual seconds, with what runs in it."""
    sandbox = await fake.create(timeout=100)
    await fake.clock.sleep(60)
    with pytest.raises(SandboxGone):
        await sandbox.run("sleep 3600", timeout=90)
    assert fake.clock.time() == 100


async def test_fewer_capabilities(fake: FakeBackend) -> None:
    """A fake declares what it is told to, for tests of the branches."""
    minimal = FakeBackend(capabilities=Capability.RUN_COMMAND | Capability.NETWORK_POLICY)
    sandbox = await minimal.create()
    assert Capability.FILESYSTEM not in sandbox.capabilities
    with pytest.raises(sandboxio.CapabilityNotSupported):
        await sandbox.run_code("1")


async def test_the_same_seed_gives_the_same_luck() -> None:
    """What fails by chance fails in the same calls in every run."""

    async def luck(seed: int) -> list[bool]:
        fake = FakeBackend(seed=seed)
        fake.simulate(flaky=0.5)
        ended: list[bool] = []
        for _ in range(20):
            try:
                ended.append((await fake.sandbox.run("true")).ok)
            except ConnectError as exc:
                ended.append(exc.outcome == "unknown")
        return ended

    assert await luck(1) == await luck(1) != await luck(2)
    assert {True, False} == set(await luck(1))


async def test_a_clock_by_hand() -> None:
    """With a clock that does not jump, a test decides when time passes."""
    fake = FakeBackend(clock=FakeClock(autojump=False))
    sandbox = fake.sandbox
    async with sandbox.stream("echo one; sleep 60; echo two") as process:
        assert (await anext(aiter(process))).data == b"one\n"
        assert process.returncode is None
        await fake.clock.advance(61)
        assert (await process.wait()).exit_code == 0
