"""The pytest plugin beside other plugins, and without them; each run is a process of its own."""

from __future__ import annotations

import shutil
from typing import Protocol

import pytest

from tests.testing.inner import helpers

pytest_plugins = ["pytester"]

NO_ASYNC = ("-p", "no:anyio", "-p", "no:asyncio")
ANYIO = ("-p", "no:asyncio")


class Run(Protocol):
    """Runs pytest on one test file, every warning an error."""

    def __call__(self, source: str, *args: str) -> pytest.RunResult: ...


@pytest.fixture
def run(pytester: pytest.Pytester) -> Run:
    shutil.copy(helpers.__file__, pytester.path)

    def run(source: str, *args: str) -> pytest.RunResult:
        pytester.makepyfile(source)
        return pytester.runpytest_subprocess("-W", "error", "--strict-markers", *args, timeout=60)

    return run


def test_loading_it_imports_nothing_else(run: Run) -> None:
    """A run that has no use for sandboxio loads one module, and neither anyio nor a loop."""
    done = run(
        """
        import sys
        def test_modules():
            ours = {name for name in sys.modules if name.startswith("sandboxio")}
            assert ours == {"sandboxio", "sandboxio.testing", "sandboxio.testing.plugin"}
            assert not {"anyio", "asyncio", "trio", "docker"} & set(sys.modules)
        """,
        *(*NO_ASYNC, "-p", "no:xdist"),
    )
    done.assert_outcomes(passed=1)
    assert "sandboxio contract" not in done.stdout.str()


def test_with_the_plugin_of_anyio(run: Run) -> None:
    """Async tests use the fake on both event loops, also if a fixture took its sandbox before."""
    done = run(
        """
        import helpers, pytest
        @pytest.fixture
        def early(sbx_fake):
            return sbx_fake.sandbox
        @pytest.mark.anyio
        @pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
        async def test_use(early, sbx_fake, anyio_backend):
            await helpers.use(sbx_fake)
        """,
        *ANYIO,
    )
    done.assert_outcomes(passed=2)


@pytest.mark.parametrize("mode", ["auto", "strict"])
def test_with_pytest_asyncio(run: Run, mode: str) -> None:
    """In both of its modes, with the plugin of anyio beside it, and with a loop per test."""
    done = run(
        f"""
        import helpers, pytest
        pytestmark = [pytest.mark.asyncio] * ({mode!r} == "strict")
        @pytest.mark.parametrize("turn", [1, 2])
        async def test_use(sbx_fake, sbx_fake_sync, turn):
            assert sbx_fake_sync.files.exists("/work")
            sbx_fake_sync.close()
            sbx_fake.calls.clear()
            await helpers.use(sbx_fake)
        """,
        *("-p", "asyncio", "-o", f"asyncio_mode={mode}"),
        *("-o", "asyncio_default_fixture_loop_scope=function"),
    )
    done.assert_outcomes(passed=2)


def test_without_any_async_plugin(run: Run) -> None:
    """Blocking tests need none; each has a fake of its own, and its thread ends with it."""
    done = run(
        """
        import pytest, threading
        from sandboxio import ExecResult, SyncSandbox
        from sandboxio.core import registry
        before = registry.resolve("fake")
        @pytest.mark.parametrize("turn", [1, 2])
        def test_use(sbx_fake, sbx_fake_sync, turn):
            assert isinstance(sbx_fake_sync, SyncSandbox)
            assert [call.op for call in sbx_fake.calls] == ["create"]
            sbx_fake.on_run("x", returns=ExecResult(7, "", ""))
            assert sbx_fake_sync.run("x").exit_code == 7
            sbx_fake.simulate(kill_hangs=True)  # a warning, were it still so at the end
        def test_after():
            assert threading.enumerate() == [threading.main_thread()]
            assert registry.resolve("fake") is before
        """,
        *(*NO_ASYNC, "-p", "no:xdist"),
    )
    done.assert_outcomes(passed=3)


def test_with_xdist(run: Run) -> None:
    """Each worker has its own fakes, and an offline run is offline in them."""
    done = run(
        """
        import pytest, sandboxio
        @pytest.mark.parametrize("turn", range(4))
        def test_use(sbx_fake, sbx_fake_sync, turn, worker_id):
            assert worker_id != "master"
            assert sbx_fake_sync.files.exists("/work")
            with pytest.raises(sandboxio.ConfigurationError, match="--sandboxio-offline"):
                sandboxio.create_sync("docker://")
        """,
        *(*ANYIO, "-n", "2", "--sandboxio-offline"),
    )
    done.assert_outcomes(passed=4)


def test_switched_off(run: Run) -> None:
    """`-p no:sandboxio` leaves pytest's own message about the fixture there is not."""
    done = run("def test_use(sbx_fake): ...", *ANYIO, "-p", "no:sandboxio")
    done.assert_outcomes(errors=1)
    done.stdout.fnmatch_lines(["*fixture 'sbx_fake' not found"])


def test_an_offline_run(run: Run) -> None:
    """Real backends are refused before their SDK is imported; doubles work under any name."""
    done = run(
        """
        import pytest, sys, sandboxio
        from sandboxio.testing import FakeBackend
        def test_a_real_one():
            with pytest.raises(sandboxio.ConfigurationError, match="docker .*-offline") as caught:
                sandboxio.create_sync("docker://")
            assert "sbx_fake" in caught.value.hint
            assert "docker" not in sys.modules
        def test_a_double():
            sandboxio.register("double", FakeBackend)
            with sandboxio.create_sync("double://") as sandbox:
                assert sandbox.files.exists("/work")
        def test_a_stand_in(sbx_fake):
            with sbx_fake.serving("docker"), sandboxio.create_sync("docker://") as sandbox:
                assert sandbox.files.exists("/work")
        """,
        *(*NO_ASYNC, "--sandboxio-offline"),
    )
    done.assert_outcomes(passed=3)


def test_the_offline_marker(run: Run) -> None:
    """It refuses in its own test alone, from the first fixture to the end of the last."""
    done = run(
        """
        import pytest
        from helpers import refusal
        @pytest.fixture
        def around(request):
            marked = request.node.get_closest_marker("sbx_offline") is not None
            assert ("the marker sbx_offline" in refusal()) == marked
            yield
            assert ("the marker sbx_offline" in refusal()) == marked
        @pytest.mark.sbx_offline
        def test_marked(around):
            assert "the marker sbx_offline" in refusal()
        @pytest.mark.sbx_contract
        def test_other(around):
            assert refusal() == ""
        """,
        *NO_ASYNC,
    )
    done.assert_outcomes(passed=2)


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        (("--sandboxio-offline",), "--sandboxio-offline"),
        (("-o", "sandboxio_offline=true"), "the setting sandboxio_offline"),
    ],
)
def test_how_long_a_run_is_offline(
    pytester: pytest.Pytester, args: tuple[str, ...], reason: str
) -> None:
    """From its configuration, by the command line or a file, until that is given up."""
    shutil.copy(helpers.__file__, pytester.path)
    pytester.makeconftest(
        f"import helpers\ndef pytest_configure(): assert {reason!r} in helpers.refusal()"
    )
    pytester.makepyfile(
        f"import helpers\ndef test_inside(): assert {reason!r} in helpers.refusal()"
    )
    before = helpers.refusal()
    alone = "-pno:hypothesispytest"  # it imports what looks for garbage of the run around it
    pytester.runpytest_inprocess(*ANYIO, alone, *args).assert_outcomes(passed=1)
    assert helpers.refusal() == before


@pytest.mark.parametrize(
    ("args", "target"),
    [((), "fake://"), (("--sandboxio-backend", "docker://python:3.12"), "docker://python:3.12")],
)
def test_the_backend_to_test(run: Run, args: tuple[str, ...], target: str) -> None:
    """It is the fake unless the run names another; a marker selects what can be pointed at it."""
    source = f"""
        import pytest
        @pytest.mark.sbx_contract
        def test_target(sandboxio_backend):
            assert sandboxio_backend == {target!r}
        def test_other(): ...
        """
    options = (*NO_ASYNC, "-m", "sbx_contract", "-o", "sandboxio_backend=fake://")
    run(source, *options, *args).assert_outcomes(passed=1, deselected=1)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--sandboxio-backend", "hunter2"), "is not a DSN"),
        (("--sandboxio-backend", ""), "--sandboxio-backend"),
        (("--sandboxio-backend", "e2b://x?api_key=hunter2"), "looks like a credential"),
        (("-o", "sandboxio_backend=hunter2"), "is not a DSN"),
        (("--sandboxio-backend", "docker://", "--sandboxio-offline"), "'docker', and this run is"),
    ],
)
def test_backends_that_cannot_be(
    pytester: pytest.Pytester, args: tuple[str, ...], message: str
) -> None:
    """What is no DSN, or no double in an offline run, is a usage error that repeats no value."""
    with pytest.raises(pytest.UsageError, match=message) as caught:
        pytester.parseconfigure(*ANYIO, *args)
    assert "hunter2" not in str(caught.value)


def test_the_entry_point_is_installed(pytestconfig: pytest.Config) -> None:
    """The plugin is found by its name, without any conftest."""
    assert pytestconfig.pluginmanager.has_plugin("sandboxio"), "run: pip install -e . --no-deps"
