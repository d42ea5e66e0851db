"""Dependencies from a wheelhouse, installed by the default user without a network."""

from __future__ import annotations

import zipfile
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from sandboxio.protocols import AsyncSandbox
    from tests.docker.conftest import Derive, Make

pytestmark = [pytest.mark.docker, pytest.mark.anyio]

WHEEL = "greeter-1.0-py3-none-any.whl"
FILES = {
    "greeter.py": "def greet():\n    print('hello from', __file__)\n",
    "greeter-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: greeter\nVersion: 1.0\n",
    "greeter-1.0.dist-info/WHEEL": (
        "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    ),
    "greeter-1.0.dist-info/entry_points.txt": "[console_scripts]\ngreet = greeter:greet\n",
    "greeter-1.0.dist-info/RECORD": "",
}
PIP = "python3 -m pip install --no-index --find-links wheels"
BY_CODE = "import greeter; greeter.greet()"
BY_COMMAND = "import subprocess; subprocess.run(['greet'], check=True)"


async def supplied(sb: AsyncSandbox, tmp_path: Path) -> AsyncSandbox:
    """Upload a wheelhouse of one wheel, as docs/how-to/docker.md does."""
    with zipfile.ZipFile(tmp_path / WHEEL, "w") as wheel:
        for name, content in FILES.items():
            wheel.writestr(name, content)
    await sb.files.mkdir("wheels")
    await sb.files.upload(tmp_path / WHEEL, f"wheels/{WHEEL}")
    return sb


async def test_installed_for_the_user(fresh: AsyncSandbox, tmp_path: Path) -> None:
    """Every later call sees the package and its command, without a variable or a path."""
    sb = await supplied(fresh, tmp_path)
    (await sb.run(f"{PIP} --user greeter", timeout=90)).raise_for_status()
    outputs = {
        (await sb.run_code(BY_CODE)).stdout,
        (await sb.run_code(BY_COMMAND)).stdout,
        (await sb.run(["python3", "-c", BY_CODE])).stdout,
        (await sb.run(["greet"])).stdout,
        (await sb.run("greet", cwd="/")).stdout,
    }
    (said,) = outputs
    assert said.startswith("hello from /home/sandbox/.local/lib/python3")
    assert (await sb.run("command -v greet")).stdout == "/home/sandbox/.local/bin/greet\n"


async def test_installed_into_a_directory(fresh: AsyncSandbox, tmp_path: Path) -> None:
    """With `--target` it is seen by the calls that name the directory, and by no other."""
    sb = await supplied(fresh, tmp_path)
    (await sb.run(f"{PIP} --target deps greeter", timeout=90)).raise_for_status()
    named = {"PYTHONPATH": "deps"}
    for result in (
        await sb.run_code(BY_CODE, env=named),
        await sb.run(["python3", "-c", BY_CODE], env=named),
    ):
        assert result.stdout == "hello from /work/deps/greeter.py\n"
    assert "ModuleNotFoundError" in (await sb.run_code(BY_CODE)).stderr


async def test_a_python_that_its_distribution_manages(
    make: Make, derive: Derive, tmp_path: Path
) -> None:
    """It refuses `--user` and takes `--target`, as the guide says."""
    marker = "$(python3 -c 'import sysconfig; print(sysconfig.get_path(\"stdlib\"))')"
    image = derive(f"echo '[externally-managed]' > {marker}/EXTERNALLY-MANAGED")
    sb = await supplied(await make(image), tmp_path)
    refused = await sb.run(f"{PIP} --user greeter", timeout=90)
    assert "externally-managed-environment" in refused.stderr
    assert (await sb.run(f"{PIP} --user --break-system-packages greeter", timeout=90)).ok
    assert (await sb.run(f"{PIP} --target deps greeter", timeout=90)).ok


async def test_a_wheel_unpacked_without_pip(make: Make, derive: Derive, tmp_path: Path) -> None:
    """Where there is no pip, zipfile unpacks a wheel of pure Python."""
    image = derive('for p in $(python3 -c "import pip; print(*pip.__path__)"); do rm -r $p; done')
    sb = await supplied(await make(image), tmp_path)
    assert "No module named pip" in (await sb.run(f"{PIP} greeter")).stderr
    assert (await sb.run(f"python3 -m zipfile -e wheels/{WHEEL} deps")).ok
    said = await sb.run_code(BY_CODE, env={"PYTHONPATH": "deps"})
    assert said.stdout == "hello from /work/deps/greeter.py\n"
