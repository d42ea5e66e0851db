"""Images that are not the ones of the happy path."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import sandboxio
from sandboxio import (
    Capability,
    CapabilityNotSupported,
    ConfigurationError,
    CreationError,
    ExecutionTimeout,
    PathNotFound,
)
from sandboxio.adapters.docker import DockerConfig
from tests.docker.outside import IMAGE, METADATA, RUN, TARGET, Outside, unique_seconds

if TYPE_CHECKING:
    from pathlib import Path

    from sandboxio.protocols import AsyncSandbox
    from tests.docker.conftest import Derive, Make

pytestmark = [pytest.mark.docker, pytest.mark.anyio]

DIGEST = "sha256:" + "0" * 64
PWD = "import os; print(os.getcwd())"


def image(name: str) -> str:
    return f"sandboxio-test/{name}"


@pytest.mark.parametrize(
    "reference",
    [
        "localhost:5000/team/img:1.2",
        f"localhost:5000/img@{DIGEST}",
        f"localhost:5000/img:tag@{DIGEST}",
        "localhost:5000/img:MixedTag",
    ],
)
async def test_a_reference_reaches_the_engine_unchanged(reference: str) -> None:
    """IMG-1: what is well-formed is asked of the engine, letter by letter."""
    config = DockerConfig(template=reference, pull="never", timeout=60)
    with pytest.raises(CreationError) as caught:
        await sandboxio.create(config)
    assert f"'{reference}'" in caught.value.message


async def test_a_reference_with_tag_and_dsn_parameters(outside: Outside) -> None:
    """IMG-1: a tag and a parameter in the DSN both arrive."""
    target = f"docker://{IMAGE}:latest?timeout=61" if ":" not in IMAGE else f"{TARGET}?timeout=61"
    async with await sandboxio.create(target, metadata=METADATA) as sb:
        described = outside.inspect(sb)
    assert float(described["Config"]["Labels"]["io.sandboxio.timeout"]) == 61


@pytest.mark.parametrize(
    "dsn",
    [
        "docker://Upper",
        "docker://team/UPPER",
        "docker://UPPER/img",
        "docker://img:",
        "docker://img?timeout=60&x=1",
        "docker://img@sha256:abc",
        "docker://img name",
    ],
)
async def test_a_malformed_reference_is_refused(dsn: str) -> None:
    """IMG-1: it is a `ConfigurationError`, before anything is asked of the engine."""
    with pytest.raises(ConfigurationError):
        await sandboxio.create(dsn)


async def test_a_missing_image_that_may_not_be_pulled(outside: Outside) -> None:
    """IMG-2: with `pull="never"` an absent image is `CreationError`; nothing is made."""
    config = DockerConfig(template="sandboxio-test/absent", pull="never", timeout=60)
    with pytest.raises(CreationError) as caught:
        await sandboxio.create(config, metadata={"test_run": RUN, "absent": "1"})
    assert "docker pull sandboxio-test/absent" in caught.value.hint
    assert outside.containers(absent="1") == []


@pytest.mark.parametrize("name", ["python", "workdir", "user-1000", "user-named"])
async def test_one_working_directory_in_every_image(make: Make, name: str) -> None:
    """IMG-5: commands, code, streams and relative file names share one writable directory."""
    sb = await make(IMAGE if name == "python" else image(name))
    async with sb.stream(["pwd"]) as proc:
        streamed = b"".join([chunk.data async for chunk in proc]).decode()
    found = {(await sb.run(["pwd"])).stdout, (await sb.run_code(PWD)).stdout, streamed}
    assert found == {"/work\n"}
    await sb.files.write("rel", "x")
    assert (await sb.run("cat /work/rel && touch /work/new")).stdout == "x"


async def test_a_working_directory_that_was_deleted(make: Make) -> None:
    """IMG-5: after its deletion calls and files raise `PathNotFound`; other places still work."""
    sb = await make(user="root")
    await sb.run("rm -rf /work")
    with pytest.raises(PathNotFound):
        await sb.run(["pwd"])
    with pytest.raises(PathNotFound):
        await sb.run_code("1")
    with pytest.raises(PathNotFound):
        await sb.files.write("rel", "x")
    assert (await sb.run(["echo", "ok"], cwd="/")).stdout == "ok\n"


async def test_a_working_directory_of_a_call_that_was_deleted(fresh: AsyncSandbox) -> None:
    """IMG-5: a directory deleted by a running call is that call's own affair."""
    await fresh.files.mkdir("sub")
    await fresh.run("rmdir ../sub", cwd="sub")
    with pytest.raises(PathNotFound):
        await fresh.run(["pwd"], cwd="sub")
    assert (await fresh.run(["pwd"])).stdout == "/work\n"


async def test_a_numbered_user_of_the_image(make: Make) -> None:
    """An image's USER 1000 runs commands, with its own name, group and home, and owns /work."""
    sb = await make(image("user-1000"))
    said = await sb.run('id -u; id -g; id -un; echo "$HOME $USER $LOGNAME"; stat -c %u:%g /work')
    assert said.stdout == "1000\n1000\nsomeone\n/home/someone someone someone\n1000:1000\n"
    assert (await sb.run('touch "$HOME/x" /work/x')).ok


async def test_a_named_user_of_the_image(make: Make) -> None:
    """A named USER runs commands with its supplementary groups and its unusual home."""
    sb = await make(image("user-named"))
    said = await sb.run('id -u; id -nG; echo "$HOME $USER"; stat -c %U /work')
    uid, groups, home, owner = said.stdout.splitlines()
    assert (uid, set(groups.split())) == ("1500", {"app", "extra"})
    assert (home, owner) == ("/srv/app-home app", "app")
    assert (await sb.run('touch "$HOME/x"')).ok


async def test_code_and_streams_run_as_the_images_user(make: Make) -> None:
    """Every kind of call runs as the same user, groups included."""
    sb = await make(image("user-named"))
    code = "import os; print(os.getuid(), os.getgid(), sorted(os.getgroups()))"
    expected = (await sb.run(["python3", "-c", code])).stdout
    assert expected.startswith("1500 1500 [")
    assert (await sb.run_code(code)).stdout == expected
    async with sb.stream(["python3", "-c", code]) as proc:
        assert b"".join([chunk.data async for chunk in proc]).decode() == expected


async def test_work_of_the_image_keeps_its_content(make: Make, derive: Derive) -> None:
    """An existing /work is given to the user; what is in it stays as it is."""
    sb = await make(derive("mkdir -m 700 /work; echo inside > /work/f; chmod 444 /work/f"))
    said = await sb.run("cat /work/f; stat -c %u:%g /work; stat -c %u:%g:%a /work/f; touch new")
    assert said.stdout == "inside\n10001:10001\n0:0:444\n"
    assert said.ok


@pytest.mark.parametrize("script", ["ln -s /tmp /work", "touch /work", "ln -s /none /work"])
async def test_work_of_the_image_is_no_directory(
    outside: Outside, derive: Derive, script: str
) -> None:
    """A link or file in the place of /work is `CreationError`; nothing is left."""
    label = unique_seconds()
    with pytest.raises(CreationError) as caught:
        await sandboxio.create(
            f"docker://{derive(script)}", timeout=60, metadata={"test_run": RUN, "work": label}
        )
    assert "/work" in caught.value.message
    assert outside.containers(work=label) == []


async def test_home_of_the_image_is_a_link(outside: Outside, derive: Derive) -> None:
    """A link in the place of the home that we make is `CreationError` too."""
    label = unique_seconds()
    with pytest.raises(CreationError) as caught:
        await sandboxio.create(
            f"docker://{derive('ln -s /etc /home/sandbox')}",
            timeout=60,
            metadata={"test_run": RUN, "home": label},
        )
    assert "/home/sandbox" in caught.value.message
    assert outside.containers(home=label) == []


async def test_the_images_entrypoint_is_not_run(make: Make) -> None:
    """An ENTRYPOINT that exits does not end the sandbox."""
    sb = await make(image("entrypoint"))
    assert (await sb.run_code("print('up')")).stdout == "up\n"


async def test_a_small_image_runs_commands(make: Make) -> None:
    """IMG-4: a busybox image runs lists and strings, with stdin or without."""
    sb = await make(image("busybox"))
    assert (await sb.run(["echo", "a b"])).stdout == "a b\n"
    assert (await sb.run("echo one | sed s/one/two/; pwd; id -u")).stdout == "two\n/work\n10001\n"
    assert (await sb.run(["wc", "-c"], stdin=b"x" * 100_000)).stdout == "100000\n"


async def test_a_small_image_ends_one_call_exactly(make: Make) -> None:
    """IMG-4: in a busybox image a timeout ends its own call's tree and no other call."""
    sb = await make(image("busybox"))
    mark = unique_seconds().partition(".")[0]
    async with sb.stream("echo up; sleep 3999") as proc:
        await anext(aiter(proc))
        with pytest.raises(ExecutionTimeout) as caught:
            await sb.run(f"(setsid sleep {mark} &); sleep {mark}", timeout=1)
        assert (caught.value.collateral, proc.returncode) == (False, None)
    assert mark not in (await sb.run(["ps"])).stdout


async def test_a_small_image_has_every_file_operation(make: Make) -> None:
    """IMG-4: no file operation needs more than busybox has."""
    files = (await make(image("busybox"))).files
    await files.mkdir("d/e", parents=True)
    await files.write("d/f", b"content")
    assert await files.read("d/f", offset=1, length=3) == b"ont"
    assert {info.path: info.kind for info in await files.ls("d")} == {
        "d/e": "directory",
        "d/f": "file",
    }
    info = await files.stat("d/f")
    assert (info.size, info.mode, info.kind) == (7, 0o644, "file")
    assert await files.exists("d/f")
    await files.remove("d", recursive=True)
    assert not await files.exists("d")


async def test_a_small_image_transfers_files(make: Make, tmp_path: Path) -> None:
    """IMG-4: upload and download work in a busybox image, links and errors included."""
    sb = await make(image("busybox"))
    (tmp_path / "local").write_bytes(bytes(range(256)) * 1000)
    await sb.files.upload(tmp_path / "local", "remote")
    await sb.run("ln -s remote link; ln -s self self")
    await sb.files.download("link", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == (tmp_path / "local").read_bytes()
    assert (await sb.files.stat("link")).target == "remote"
    with pytest.raises(PathNotFound):
        await sb.files.read("none")


async def test_a_small_image_has_no_code(make: Make) -> None:
    """IMG-4: without an interpreter `run_code` is refused, not a 127 of the caller's code."""
    sb = await make(image("busybox"))
    assert Capability.RUN_CODE not in sb.capabilities
    with pytest.raises(CapabilityNotSupported):
        await sb.run_code("print(1)")


async def test_a_minimal_python_runs_code(make: Make) -> None:
    """IMG-4: Debian's python3-minimal is enough for code, tracebacks included."""
    sb = await make(image("python-minimal"))
    assert (await sb.run_code("print(6 * 7)")).stdout == "42\n"
    failed = await sb.run_code("x = 1\nraise ValueError('é')")
    assert (failed.exit_code, "line 2" in failed.stderr) == (1, True)
    assert "ValueError: é" in failed.stderr


async def test_a_bare_image_says_what_is_missing(outside: Outside) -> None:
    """IMG-4: one static program and nothing else: `CreationError` names what is missing."""
    label = unique_seconds()
    with pytest.raises(CreationError) as caught:
        await sandboxio.create(
            f"docker://{image('static')}", timeout=60, metadata={"test_run": RUN, "bare": label}
        )
    assert "/bin/sh" in caught.value.message
    assert caught.value.__cause__ is not None
    assert outside.containers(bare=label) == []
