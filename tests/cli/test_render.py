"""The two renderings."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest

from sandboxio.cli._render import Console, clean

if TYPE_CHECKING:
    from collections.abc import Sequence

ROWS = [("ok", "endpoint", "unix:///a.sock"), ("failed", "x", "[bold]no markup[/]")]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(monkeypatch: pytest.MonkeyPatch, out: io.StringIO) -> str:
    monkeypatch.setattr("sys.stdout", out)
    Console().rows(ROWS)
    return out.getvalue()


@pytest.mark.parametrize(
    "text", ["\x1b[2J", "\x9b2J", "a\rb", "a\nb", "\u202e", "\u2028", "\x00", "\ud800", "\x7f"]
)
def test_clean_leaves_nothing_that_does_not_print(text: str) -> None:
    """Controls, direction marks, line ends and lone surrogates are spelled out."""
    assert clean(text).isprintable()


def test_clean_keeps_what_prints() -> None:
    """Text of any language stays as it is."""
    assert clean("Grüße, 世界 …") == "Grüße, 世界 …"


def test_plain_columns_are_aligned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Off a terminal: plain text, one row a line, no trailing blanks, whatever is installed."""
    assert shown(monkeypatch, io.StringIO()) == (
        "ok      endpoint  unix:///a.sock\nfailed  x         [bold]no markup[/]\n"
    )


def test_terminal_without_rich_is_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bare distribution works on a terminal too."""
    monkeypatch.setattr("sandboxio.cli._render._rich", _absent)
    assert "\x1b" not in shown(monkeypatch, Terminal())


def test_rich_colours_a_terminal_unless_told_not_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """With rich, states have colours on a terminal; `NO_COLOR` wins; markup is not obeyed."""
    pytest.importorskip("rich", reason="the extra 'cli' is not installed")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    coloured = shown(monkeypatch, Terminal())
    monkeypatch.setenv("NO_COLOR", "1")
    plain = shown(monkeypatch, Terminal())
    assert "\x1b[32mok" in coloured
    assert "\x1b" not in plain
    assert "[bold]no markup[/]" in plain


def test_narrow_encodings_get_escapes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream that cannot encode a character shows its code, and does not fail."""
    raw = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(raw, encoding="ascii"))
    Console().line("über")
    assert raw.getvalue().strip() == rb"\xfcber"


def test_json_console_shows_only_the_result(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What is for humans stays out of the machine's channel."""
    console = Console(as_json=True)
    console.line("hello")
    console.rows(ROWS)
    console.result({"a": "\x1b"})
    assert capsys.readouterr().out == '{\n  "a": "\\u001b"\n}\n'


def _absent(_: str) -> Sequence[str]:
    raise ModuleNotFoundError
