"""What confines a sandbox, read from inside and from outside."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest

from sandboxio import ConfigurationError, ExecutionTimeout, IsolationTier, Resources
from sandboxio.adapters.docker import DockerBackend
from tests.docker.outside import IMAGE, METADATA, Outside, host_arguments

if TYPE_CHECKING:
    from sandboxio.core.record import OperationRecord
    from sandboxio.protocols import AsyncSandbox
    from tests.docker.conftest import Make

pytestmark = [pytest.mark.docker, pytest.mark.anyio]

STATUS = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp", "Uid", "Gid")
NONE = "0" * 16
CONFINED = {
    **dict.fromkeys(("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"), NONE),
    "NoNewPrivs": "1",
    "Seccomp": "2",
}
SANDBOX = {"Uid": "10001 10001 10001 10001", "Gid": "10001 10001 10001 10001"}


def _status(text: str) -> dict[str, str]:
    pairs = (line.partition(":")[::2] for line in text.splitlines())
    return {key: " ".join(value.split()) for key, value in pairs if key in STATUS}


async def test_every_kind_of_call_is_confined(sb: AsyncSandbox) -> None:
    """No capability, no new privileges, seccomp, uid and gid 10001, for run, code and streams."""
    expected = {**CONFINED, **SANDBOX}
    assert _status((await sb.run(["cat", "/proc/self/status"])).stdout) == expected
    code = "print(open('/proc/self/status').read())"
    assert _status((await sb.run_code(code)).stdout) == expected
    async with sb.stream(["cat", "/proc/self/status"]) as proc:
        assert _status(b"".join([c.data async for c in proc]).decode()) == expected


async def test_confinement_seen_from_the_host(sb: AsyncSandbox, outside: Outside) -> None:
    """The host's own /proc says the same of a running call, and of all its processes."""
    async with sb.stream("echo up; sleep 60 & sleep 60") as proc:
        await anext(aiter(proc))
        calls = outside.calls(sb)
        found = [_status(Path(f"/proc/{seen.pid}/status").read_text()) for seen in calls]
    assert len(found) >= 3
    assert found == [{**CONFINED, **SANDBOX}] * len(found)


async def test_the_keepers_are_root_and_confined(sb: AsyncSandbox, outside: Outside) -> None:
    """PID 1 is the engine's init; it and the sleeper have uid 0 and no capability either."""
    keepers = outside.keepers(sb)
    for keeper in keepers:
        status = _status(Path(f"/proc/{keeper.pid}/status").read_text())
        assert status == {**CONFINED, "Uid": "0 0 0 0", "Gid": "0 0 0 0"}
    assert [keeper.args.split()[0] for keeper in keepers] == ["/sbin/docker-init", "sleep"]
    assert (await sb.run(["cat", "/proc/1/comm"])).stdout == "docker-init\n"


async def test_user_code_is_killed_before_the_keepers(sb: AsyncSandbox) -> None:
    """When memory runs out commands go first."""
    assert int((await sb.run(["cat", "/proc/self/oom_score_adj"])).stdout) == 500


async def test_what_the_engine_was_asked_for(sb: AsyncSandbox, outside: Outside) -> None:
    """The engine holds every control, also those that cannot be seen from inside."""
    described = outside.inspect(sb)
    host, config = described["HostConfig"], described["Config"]
    assert (host["CapDrop"], host["CapAdd"], host["Privileged"]) == (["ALL"], None, False)
    assert host["SecurityOpt"] == ["no-new-privileges"]
    assert (host["NetworkMode"], config["NetworkDisabled"]) == ("none", True)
    assert (host["Binds"], host["Devices"], host["PidMode"]) == (None, None, "")
    assert (described["Mounts"], host["UsernsMode"], host["Init"]) == ([], "", True)
    assert (host["LogConfig"]["Type"], described["LogPath"]) == ("none", "")
    assert host["RestartPolicy"]["Name"] in ("", "no")


async def test_the_names_and_places_of_the_user(sb: AsyncSandbox) -> None:
    """HOME, USER, LOGNAME and PATH are set, the user has a name, owns /work and its home."""
    said = await sb.run('id -un; id -gn; echo "$HOME $USER $LOGNAME"; echo "$PATH"')
    user, group, names, path = said.stdout.splitlines()
    assert (user, group, names) == ("sandbox", "sandbox", "/home/sandbox sandbox sandbox")
    assert path.endswith(":/home/sandbox/.local/bin")
    assert path.startswith("/usr/local/")
    owners = await sb.run(["stat", "-c", "%U:%G:%a", "/work", "/home/sandbox"])
    assert owners.stdout == "sandbox:sandbox:755\n" * 2


async def test_root_is_an_explicit_choice(sb: AsyncSandbox, make: Make) -> None:
    """`user="root"`, for a call or a sandbox, is uid 0 without any capability."""
    expected = {**CONFINED, "Uid": "0 0 0 0", "Gid": "0 0 0 0"}
    result = await sb.run(["cat", "/proc/self/status"], user="root")
    assert _status(result.stdout) == expected
    rooted = await make(user="root")
    assert _status((await rooted.run(["cat", "/proc/self/status"])).stdout) == expected
    assert (await rooted.run('echo "$HOME $USER"; touch /work/x')).stdout == "/root root\n"


async def test_a_call_of_another_user(sb: AsyncSandbox) -> None:
    """`uid:gid` are both as given; a bare uid never means gid 0."""
    assert (await sb.run("id -u; id -g", user="1234:5678")).stdout == "1234\n5678\n"
    assert (await sb.run("id -u; id -g", user="1234")).stdout == "1234\n1234\n"
    with pytest.raises(ConfigurationError):
        await sb.run(["true"], user="nobody-of-that-name")


async def test_a_timeout_ends_a_call_of_another_user(sb: AsyncSandbox, outside: Outside) -> None:
    """TIME-1: also what runs as root or as another user than the sandbox's is ended."""
    for user in ("root", "1234:1234"):
        with pytest.raises(ExecutionTimeout) as caught:
            await sb.run("(setsid sleep 60 &); sleep 60", user=user, timeout=1)
        assert not caught.value.collateral
        assert outside.calls(sb) == []


async def test_the_caps_are_in_the_cgroup(make: Make, outside: Outside) -> None:
    """Memory, CPU and process caps stand in the kernel's own files, as asked."""
    sb = await make(resources=Resources(cpu=0.5, memory_mb=128))
    pid = outside.inspect(sb)["State"]["Pid"]
    held = _cgroup(pid)
    assert held == {"memory": 128 * 1024 * 1024, "pids": 512, "cpu": 0.5}


async def test_the_default_caps(sb: AsyncSandbox, outside: Outside) -> None:
    """Without `resources=` a sandbox has one core, 512 MiB and 512 processes."""
    held = _cgroup(outside.inspect(sb)["State"]["Pid"])
    assert held == {"memory": 512 * 1024 * 1024, "pids": 512, "cpu": 1.0}


def _cgroup(pid: int) -> dict[str, float]:
    """Read the caps of a process, in either version of the cgroup file system."""
    lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    groups = {names: path for _, names, path in (line.split(":", 2) for line in lines)}
    root = Path("/sys/fs/cgroup")
    if (root / "cgroup.controllers").exists():
        folder = root / groups[""].lstrip("/")
        quota, period = (folder / "cpu.max").read_text().split()
        memory, pids = folder / "memory.max", folder / "pids.max"
    else:
        folders = {
            name: root / names / path.lstrip("/")
            for names, path in groups.items()
            for name in names.split(",")
        }
        quota = (folders["cpu"] / "cpu.cfs_quota_us").read_text()
        period = (folders["cpu"] / "cpu.cfs_period_us").read_text()
        memory = folders["memory"] / "memory.limit_in_bytes"
        pids = folders["pids"] / "pids.max"
    return {
        "memory": int(memory.read_text()),
        "pids": int(pids.read_text()),
        "cpu": int(quota) / int(period),
    }


async def test_the_tier_is_what_the_engine_runs(sb: AsyncSandbox, outside: Outside) -> None:
    """A plain runtime is `CONTAINER`, no more; its name is the engine's own answer."""
    assert outside.inspect(sb)["HostConfig"]["Runtime"] == "runc"
    assert sb.isolation is IsolationTier.CONTAINER


SECRET = "s3cr3t-7d1f9a5c2b"


async def test_a_secret_is_in_no_description(make: Make, outside: Outside) -> None:
    """SEC-1: the command sees it; container, execs, labels and argument lists do not show it."""
    sb = await make(secrets={"TOKEN": SECRET})
    assert (await sb.run(["printenv", "TOKEN"])).stdout == f"{SECRET}\n"
    assert (await sb.run_code("import os; print(os.environ['TOKEN'])")).stdout == f"{SECRET}\n"
    async with sb.stream("echo up; sleep 60") as proc:
        await anext(aiter(proc))
        described = outside.inspect(sb)
        execs = [outside.client.api.exec_inspect(one) for one in described["ExecIDs"]]
        arguments = host_arguments()
        shown = f"{proc!r} {sb!r} {sb.native!r}"
    assert len(execs) == 1
    assert SECRET not in json.dumps([described, execs, arguments])
    assert SECRET not in shown


async def test_a_secret_is_in_no_error_record_or_log(
    outside: Outside, caplog: pytest.LogCaptureFixture
) -> None:
    """SEC-1: errors, records and DEBUG logs of calls that use it do not show it."""
    records: list[OperationRecord] = []
    errors: list[str] = []
    caplog.set_level(logging.DEBUG)
    backend = DockerBackend(on_record=records.append)
    async with await backend.create(
        template=IMAGE, secrets={"TOKEN": SECRET}, timeout=60, metadata=METADATA
    ) as sb:
        with pytest.raises(ExecutionTimeout) as timeout:
            await sb.run(f"echo {SECRET}; sleep 60", timeout=1)
        for act in (sb.run(["true"], cwd=f"/{SECRET}"), sb.files.read(f"/{SECRET}")):
            with pytest.raises(Exception, match="SBX_E") as caught:
                await act
            errors.append(f"{caught.value} {caught.value!r} {caught.value.args}")
        errors.append(f"{timeout.value} {timeout.value!r} {timeout.value.partial}")
    assert len(records) == 5
    assert SECRET not in f"{errors} {records} {caplog.text}"
    assert SECRET not in str([record.getMessage() for record in caplog.records])


async def test_secrets_given_twice_are_one_per_sandbox(make: Make) -> None:
    """SEC-1: a secret reaches the sandbox it was given to and no other."""
    await make(secrets={"TOKEN": SECRET})
    other = await make()
    assert (await other.run(["printenv", "TOKEN"])).exit_code == 1


async def test_the_state_of_the_container_grows_no_log(sb: AsyncSandbox, outside: Outside) -> None:
    """Output of commands is kept by the engine nowhere: the log driver stores nothing."""
    await sb.run("yes | head -c 5000000")
    with anyio.fail_after(5):
        assert outside.inspect(sb)["LogPath"] == ""
