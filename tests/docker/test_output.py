"""What commands write arrives as it was written, whole, or cut where the result says so."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest

from sandboxio import ExecutionTimeout
from tests.docker.outside import METADATA, TARGET, Outside, unique_seconds

if TYPE_CHECKING:
    from sandboxio.protocols import AsyncSandbox
    from tests.docker.conftest import Make

pytestmark = [pytest.mark.docker, pytest.mark.anyio]

MB = 1_000_000
FLOOD = "yes 0123456789abcde | head -c {}"


async def test_bytes_of_a_character_written_one_by_one(sb: AsyncSandbox) -> None:
    """OUT-1: a character cut across writes, with stderr in between, arrives whole."""
    program = (
        "import os, time\n"
        "for byte in '🚀é'.encode():\n"
        "    os.write(1, bytes([byte])); os.write(2, b'err'); time.sleep(0.02)\n"
    )
    result = await sb.run(["python3", "-X", "utf8", "-c", program])
    assert (result.stdout, result.stderr) == ("🚀é", "err" * 6)


async def test_a_long_line_that_is_not_ascii(sb: AsyncSandbox) -> None:
    """OUT-1: 300,000 three-byte characters without a line end arrive unchanged."""
    program = "import sys; sys.stdout.buffer.write('€'.encode() * 300_000)"
    result = await sb.run(["python3", "-X", "utf8", "-c", program])
    assert result.stdout == "€" * 300_000


def test_code_travels_as_utf8_whatever_the_locales_are(tmp_path: Path) -> None:
    """OUT-1: neither the host's locale nor the sandbox's changes code or output."""
    child = tmp_path / "child.py"
    child.write_text(
        "import locale, sandboxio\n"
        "assert locale.getpreferredencoding(False).upper() != 'UTF-8'\n"
        f"with sandboxio.create_sync({TARGET!r}, timeout=60, metadata={METADATA!r}) as sb:\n"
        "    code = \"print('\\u00e9\\U0001f389')\"\n"
        "    print(ascii(sb.run_code(code, env={'LC_ALL': 'C'}).stdout))\n",
        encoding="ascii",
    )
    locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONPATH": "."}
    child_run = subprocess.run(
        [sys.executable, str(child)], env=locale, capture_output=True, text=True, check=True
    )
    assert child_run.stdout == "'\\xe9\\U0001f389\\n'\n"


async def test_bytes_that_are_not_utf8_are_replaced_by_run(sb: AsyncSandbox) -> None:
    """OUT-2: invalid bytes and a cut-off tail become U+FFFD; nothing raises."""
    program = r"import os; os.write(1, b'a\xff\xfeb\n\xe2\x82')"
    result = await sb.run(["python3", "-c", program])
    assert (result.exit_code, result.stdout) == (0, "a\ufffd\ufffdb\n\ufffd")


async def test_bytes_that_are_not_utf8_are_exact_in_a_stream(sb: AsyncSandbox) -> None:
    """OUT-2: a stream hands over the very bytes."""
    program = r"import os; os.write(1, b'a\xff\xfeb\n\xe2\x82')"
    async with sb.stream(["python3", "-c", program]) as proc:
        data = b"".join([chunk.data async for chunk in proc])
    assert data == b"a\xff\xfeb\n\xe2\x82"


async def test_no_terminal_stands_in_between(sb: AsyncSandbox) -> None:
    """OUT-3: nothing is added or stripped, and the two streams stay apart."""
    program = (
        "import os, sys\n"
        "os.write(1, b'a\\r\\nb\\n'); os.write(2, b'e\\n')\n"
        "print(sys.stdout.isatty(), flush=True)\n"
    )
    result = await sb.run(["python3", "-c", program])
    assert (result.stdout, result.stderr) == ("a\r\nb\nFalse\n", "e\n")


async def test_large_output_is_returned_whole_in_proportional_time(sb: AsyncSandbox) -> None:
    """OUT-4: 25 and 50 MB come back complete; twice the size takes about twice the time."""
    seconds: list[float] = []
    for size in (25 * MB, 50 * MB):
        began = time.monotonic()
        result = await sb.run(FLOOD.format(size), max_output_bytes=64 * MB)
        seconds.append(time.monotonic() - began)
        assert (len(result.stdout), result.stdout_truncated) == (size, False)
    assert seconds[1] < 3 * seconds[0] + 1


async def test_output_beyond_the_default_cap_is_cut_and_says_so(sb: AsyncSandbox) -> None:
    """OUT-4: beyond 10 MiB the middle is dropped, the flag is set, the command ends itself."""
    result = await sb.run(FLOOD.format(25 * MB) + "; printf end; echo finished >&2; exit 3")
    assert (result.exit_code, result.stderr) == (3, "finished\n")
    assert (result.stdout_truncated, result.stderr_truncated) == (True, False)
    assert (len(result.stdout), result.stdout_bytes) == (10 * 1024 * 1024, 25 * MB + 3)
    assert result.stdout.startswith("0123456789abcde\n")
    assert result.stdout.endswith("end")


async def test_max_output_bytes_keeps_both_ends_of_each_stream(sb: AsyncSandbox) -> None:
    """OUT-4: the limit holds for each stream by itself."""
    result = await sb.run("printf abcdefghij; printf 0123456789 >&2; printf x", max_output_bytes=10)
    assert (result.stdout, result.stdout_truncated) == ("abcdeghijx", True)
    assert (result.stderr, result.stderr_truncated) == ("0123456789", False)


async def test_a_large_stream_does_not_fill_memory(sb: AsyncSandbox) -> None:
    """OUT-4: 200 MB pass through a stream while this process grows by less than 64 MB."""
    before, peak, size = _resident(), 0, 0
    async with sb.stream(FLOOD.format(200 * MB)) as proc:
        async for chunk in proc:
            size += len(chunk.data)
            peak = max(peak, _resident())
    assert size == 200 * MB
    assert peak - before < 64 * MB


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


async def test_a_reader_that_pauses_stops_the_writer(sb: AsyncSandbox, outside: Outside) -> None:
    """OUT-4: while nobody reads, the program waits; its output piles up nowhere."""
    async with sb.stream(["head", "-c", str(100 * MB), "/dev/zero"]) as proc:
        size = len((await anext(aiter(proc))).data)
        await anyio.sleep(1)
        writer = next(p.pid for p in outside.calls(sb) if p.args.startswith("head"))
        counters = Path(f"/proc/{writer}/io").read_text().split()
        assert int(counters[counters.index("wchar:") + 1]) < 32 * MB
        size += sum([len(chunk.data) async for chunk in proc])
    assert size == 100 * MB


async def test_a_chunk_arrives_before_the_stream_times_out(sb: AsyncSandbox) -> None:
    """OUT-5: output is handed over at once; the timeout comes out of the iteration later."""
    mark = unique_seconds()
    async with sb.stream(["sh", "-c", f"echo one; sleep {mark}"], timeout=3) as proc:
        with anyio.fail_after(1.5):
            first = await anext(aiter(proc))
        assert first.data == b"one\n"
        with pytest.raises(ExecutionTimeout):
            await anext(aiter(proc))


async def test_run_carries_output_of_before_the_timeout(sb: AsyncSandbox) -> None:
    """OUT-5: a timed-out `run()` raises; what was written by then is on the exception."""
    with pytest.raises(ExecutionTimeout) as caught:
        await sb.run("echo one; echo two >&2; sleep 60", timeout=1)
    assert (caught.value.partial.stdout, caught.value.partial.stderr) == ("one\n", "two\n")


async def test_partial_output_is_bounded(sb: AsyncSandbox) -> None:
    """OUT-5: partial output keeps to the call's limit and says that it was cut."""
    with pytest.raises(ExecutionTimeout) as caught:
        await sb.run("yes | head -c 100000; sleep 60", timeout=1, max_output_bytes=1000)
    assert (len(caught.value.partial.stdout), caught.value.partial.stdout_truncated) == (1000, True)


async def test_partial_output_is_redacted(make: Make) -> None:
    """OUT-5: a secret that the command printed is masked in partial output."""
    sb = await make(secrets={"TOKEN": "tok-9f1b77ac"})
    with pytest.raises(ExecutionTimeout) as caught:
        await sb.run('echo "it is $TOKEN"; sleep 60', timeout=1)
    assert caught.value.partial.stdout == "it is ***\n"
