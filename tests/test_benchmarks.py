"""The arithmetic of the benchmarks, and what they write."""

from __future__ import annotations

import argparse
import io
import re
import socket
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import __main__ as program
from benchmarks import document, figures, growth, raw, table, wire
from benchmarks.figures import Bar, Line

HALF = Bar("at most", 0.5)
FACTS = {"processor": "Z80", "cores": "2", "engine": "Docker 99"}


LINE = Line("true", "run true", "ms", HALF, raw=100.0, ours=25.0, counted=14)


def line(**other: Any) -> Line:
    return replace(LINE, **other)


def test_the_first_round_does_not_count() -> None:
    """A cold first round changes no figure."""
    assert figures.columns("ms", 0, [(9.0, 9.0), (0.1, 0.01), (0.3, 0.03)]) == (200.0, 20.0)


def test_a_single_round_counts() -> None:
    """With one round there is a figure still."""
    assert figures.columns("ms", 0, [(0.1, 0.01)]) == (100.0, 10.0)


def test_an_outlier_moves_no_median() -> None:
    """One slow call among many is not what a row shows."""
    samples = [(1.0, 1.0), (0.1, 0.01), (0.1, 0.01), (0.1, 50.0)]
    assert figures.columns("ms", 0, samples) == (100.0, 10.0)


def test_a_throughput_is_megabytes_by_seconds() -> None:
    """Half the time is twice the throughput."""
    assert figures.columns("MB/s", 100, [(1.0, 0.5)]) == (100.0, 200.0)


def test_of_memory_the_most_is_shown() -> None:
    """A limit that holds in the median only is none."""
    samples = [(1e6, 1e6), (1e6, 2e6), (1e6, 30e6), (1e6, 2e6)]
    assert figures.columns("MB", 0, samples) == (1.0, 30.0)


def test_no_sample_is_no_figure() -> None:
    """A work that never succeeded has none, and reaches no bar."""
    assert figures.columns("ms", 0, []) is None
    assert not line(raw=None, ours=None).met


@pytest.mark.parametrize(
    ("bar", "raw", "ours", "met"),
    [
        (Bar("at most", 0.5), 100.0, 50.0, True),
        (Bar("at most", 0.5), 100.0, 51.0, False),
        (Bar("at least", 1.5), 100.0, 150.0, True),
        (Bar("at least", 1.5), 100.0, 149.0, False),
    ],
)
def test_bars_have_a_direction(bar: Bar, raw: float, ours: float, met: bool) -> None:
    """Less is better for a time and more for a throughput; the bar itself is reached."""
    assert line(bar=bar, raw=raw, ours=ours).met is met


@pytest.mark.parametrize(("ours", "met"), [(9.9, True), (10.0, False)])
def test_memory_has_an_amount_for_a_bar(ours: float, met: bool) -> None:
    """However little the raw side takes, ours is held to megabytes."""
    found = line(unit="MB", bar=Bar("below", 10), raw=0.0, ours=ours)
    assert (found.met, found.ratio) == (met, None)


def test_a_failure_reaches_no_bar() -> None:
    """Fast rounds do not make up for one that failed, and the table says so."""
    failed = line(ours=1.0, failures=1)
    assert not failed.met
    assert table.cells(failed)[-1] == "failed 1x"


def test_a_line_shows_work_figures_ratio_and_bar() -> None:
    """What a reader needs to judge a row is in it."""
    shown = ("run true", "100 ms", "25.0 ms", "0.250", "≤ 0.5", "yes")
    assert table.cells(line()) == shown


def test_the_table_is_aligned() -> None:
    """Columns begin and end in the same place on every line."""
    shown = table.text([line(), line(work="a longer work", raw=12345.0)]).splitlines()
    assert len({one.index("≤") for one in shown[1:]}) == 1
    assert shown[0].split() == list(table.HEADINGS)
    assert "12,345 ms" in shown[2]


def test_json_has_ratio_and_verdict() -> None:
    """A program that reads the lines need not compute them again."""
    (found,) = table.as_json([line()])
    assert (found["ratio"], found["met"], found["counted"]) == (0.25, True, 14)


def test_the_page_has_machine_table_and_verdicts() -> None:
    """The page says where its figures come from and how many bars are reached."""
    page = document.page([line(), line(ours=90.0, counted=4)], FACTS)
    assert "| Engine | Docker 99 |" in page
    assert "1 of 2 bars" in page
    assert "4 to 14 rounds" in page
    assert "| `true`: run true | 100 ms | 25.0 ms | 0.250 | ≤ 0.5 | yes |" in page


def test_every_row_is_explained() -> None:
    """The guide names each row of the table, and no row twice."""
    guide = Path(program.__file__).with_name("README.md").read_text(encoding="utf-8")
    names = [row.name for row in program.ROWS]
    assert re.findall(r"^\| `([a-z-]+)` \|", guide, re.MULTILINE) == names
    assert len(set(names)) == len(names)


def test_rows_are_chosen_by_name() -> None:
    """A name that is none is refused, with those there are."""
    assert [row.name for row in program.chosen("read,true")] == ["true", "read"]
    with pytest.raises(argparse.ArgumentTypeError, match="twenty"):
        program.chosen("true,nothing")


def test_the_page_is_the_whole_table(capsys: pytest.CaptureFixture[str]) -> None:
    """A page of a few rows would pass for all of them."""
    with pytest.raises(SystemExit):
        program.arguments(["--write-docs", "--rows", "true"])
    assert "leave --rows out" in capsys.readouterr().err


def test_growth_is_seen_after_it_was_freed() -> None:
    """What a work held at its peak counts, whether it still holds it or not."""
    assert growth.growth(lambda: len(bytes(b"x" * 50_000_000))) > 40_000_000
    assert growth.growth(lambda: None) < 5_000_000


def _answer(received: bytes) -> wire.Answer:
    return wire.Answer(io.BytesIO(received))


@pytest.mark.parametrize(
    "received",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello more",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\nhello",
    ],
)
def test_the_raw_client_reads_every_kind_of_body(received: bytes) -> None:
    """A body ends with its length, its last chunk, or its connection."""
    assert _answer(received).read() == b"hello"


def test_the_raw_client_notices_a_closed_connection() -> None:
    """A connection the engine closed while it idled is not used again."""
    here, there = socket.socketpair()
    here.settimeout(wire.PATIENCE)
    with here, there:
        assert wire.is_idle(here)
        there.close()
        assert not wire.is_idle(here)


def test_the_raw_client_takes_a_file_out_of_an_archive() -> None:
    """Wherever the pieces of an archive are cut, the content is whole."""
    content = bytes(range(256)) * 5
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        member = tarfile.TarInfo("f")
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    packed = buffer.getvalue()
    for size in (100, 512, 700, 100_000):
        pieces = (packed[at : at + size] for at in range(0, len(packed), size))
        assert b"".join(raw.content_of(pieces)) == content
