"""What an image says, or does not say, about its users and their homes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import sandboxio
from sandboxio import CreationError
from tests.docker.outside import RUN, Outside, unique_seconds

if TYPE_CHECKING:
    from tests.docker.conftest import Derive, Make

pytestmark = [pytest.mark.docker, pytest.mark.anyio]

WHO = 'id -u; id -g; echo "$HOME"; pwd; touch "$HOME/x" x && echo writable'
OURS = "10001\n10001\n/home/sandbox\n/work\nwritable\n"
MANY = "$(head -c 5000 /dev/zero | tr '\\000' 9)"
GARBAGE = (
    r"printf 'garbage\n::::::\n:x:1:2:::\na:x:b:c:::\n\377\376\n\n+::::::\n' >> /etc/passwd; "
    rf"echo 'huge:x:'{MANY}':1::/h:/bin/sh' >> /etc/passwd; "
    rf"printf 'garbage\nx:y\nover:x:4294967296:sandbox\n' >> /etc/group; "
    rf"echo 'huge:x:'{MANY}':sandbox' >> /etc/group"
)


@pytest.mark.parametrize(
    "script",
    [
        "rm /etc/passwd /etc/group",
        "ln -sf none /etc/passwd; ln -sf /none/x /etc/group",
        GARBAGE,
        "useradd --uid 1000 sandbox",
        "rm -rf /tmp",
    ],
    ids=["absent", "dangling", "garbage", "name taken", "no /tmp"],
)
async def test_our_user_in_any_image(make: Make, derive: Derive, script: str) -> None:
    """IMG-4: whatever the accounts look like, calls run as 10001 with a home of their own."""
    sb = await make(derive(script))
    assert (await sb.run(WHO)).stdout == OURS
    assert (await sb.run("id -G")).stdout == "10001\n"
    await sb.files.write("f", "x")
    assert (await sb.run_code("import os; print(os.path.expanduser('~'))")).stdout == (
        "/home/sandbox\n"
    )


@pytest.mark.parametrize(
    ("script", "user", "ids"),
    [
        ("true", "4242", "4242\n4242\n"),
        ("rm /etc/passwd /etc/group", "4242:77", "4242\n77\n"),
        ("useradd --uid 1000 --no-create-home --home-dir /none app", "app", "1000\n1000\n"),
        ("useradd --uid 1000 --home-dir /etc/hostname app", "app", "1000\n1000\n"),
        (r"printf 'app:x:1000:1000::/h\377:/bin/sh\n' >> /etc/passwd", "app", "1000\n1000\n"),
        (
            r"mkdir /here; echo 'app:x:1000:1000::here:/bin/sh' >> /etc/passwd",
            "app",
            "1000\n1000\n",
        ),
    ],
    ids=["number", "numbers", "home missing", "home a file", "home not UTF-8", "home relative"],
)
async def test_a_user_of_the_image_without_a_home(
    make: Make, derive: Derive, script: str, user: str, ids: str
) -> None:
    """A USER without an entry, or whose home is none, gets the home that we make."""
    sb = await make(derive(script, f"USER {user}"))
    assert (await sb.run(WHO)).stdout == f"{ids}/home/sandbox\n/work\nwritable\n"


@pytest.mark.parametrize(
    ("script", "user", "shown"),
    [
        ("true", "ghost", "'ghost'"),
        ("useradd --uid 1000 app", "app:ghost", "'app:ghost'"),
        ("true", "99999999999", "'99999999999'"),
        ("seq 300000 >> /etc/passwd", "root", "/etc/passwd of the image is too large"),
    ],
)
async def test_a_user_that_cannot_be_found_out(
    outside: Outside, derive: Derive, script: str, user: str, shown: str
) -> None:
    """It is `CreationError` that names it, and nothing is left, on the engine or held up there."""
    label = unique_seconds()
    with pytest.raises(CreationError) as caught:
        await sandboxio.create(
            f"docker://{derive(script, f'USER {user}')}",
            timeout=60,
            metadata={"test_run": RUN, "user": label},
        )
    assert shown in caught.value.message
    assert outside.containers(user=label) == []
