"""Masking of secrets in text, whole and in pieces."""

from __future__ import annotations

from random import Random

import pytest

from sandboxio.core.redaction import MASK, MIN_LENGTH, Redactor

CASES: list[tuple[list[str], str, str]] = [
    (["hunter2"], "password=hunter2", "password=***"),
    (["hunter2"], "hunter2", "***"),
    (["hunter2"], "hunter hunter1", "hunter hunter1"),
    (["hunter2"], "a hunter2 b hunter2 c", "a *** b *** c"),
    (["hunter2"], "hunter2hunter2", "***"),
    (["abcd", "cdef"], "xabcdefx", "x***x"),
    (["abcd", "efgh"], "abcdefgh!", "***!"),
    (["abcdef", "bcde"], "abcdef bcde", "*** ***"),
    (["aaaa"], "aaaaaaa b aaa", "*** b aaa"),
    (["abab"], "ababab", "***"),
    (["line\n"], "line\nline", "***"),
    (["token\r\n"], "x token y", "x *** y"),
    (["two\nlines"], "two\nlines, two lines", "***, two lines"),
    (["é€🎉!"], "é€🎉!é€🎉?", "***é€🎉?"),
    ([], "nothing to hide", "nothing to hide"),
]


@pytest.mark.parametrize(("values", "text", "shown"), CASES)
def test_every_occurrence_is_masked(values: list[str], text: str, shown: str) -> None:
    """Exact, repeated, overlapping and touching values become one mask each run."""
    assert Redactor(values).redact(text) == shown


@pytest.mark.parametrize(("values", "text", "shown"), CASES)
def test_cutting_the_text_anywhere_changes_nothing(
    values: list[str], text: str, shown: str
) -> None:
    """Fed in two pieces, cut at every offset, a stream shows what the whole text would."""
    for offset in range(len(text) + 1):
        stream = Redactor(values).stream()
        said = stream.feed(text[:offset]) + stream.feed(text[offset:]) + stream.flush()
        assert said == shown


@pytest.mark.parametrize(("values", "text", "shown"), CASES)
def test_single_characters_are_enough(values: list[str], text: str, shown: str) -> None:
    """Fed one character at a time, with empty pieces between, nothing slips through."""
    stream = Redactor(values).stream()
    said = "".join(stream.feed(character) + stream.feed("") for character in text)
    assert said + stream.flush() == shown


def test_random_cuts_of_random_text_agree_with_the_whole() -> None:
    """Over a small alphabet, where values overlap all the time, both ways always agree."""
    random = Random(1)
    for _ in range(600):
        values = ["".join(random.choices("ab", k=random.randint(4, 7))) for _ in range(3)]
        text = "".join(random.choices("ab ", k=40))
        redactor, position, said = Redactor(values), 0, ""
        stream = redactor.stream()
        while position < len(text):
            size = random.randint(1, 9)
            said += stream.feed(text[position : position + size])
            position += size
        assert said + stream.flush() == redactor.redact(text)


def test_nothing_of_a_value_shows_before_it_is_whole() -> None:
    """The beginning of a value is held back until it is known not to be one."""
    stream = Redactor(["hunter2"]).stream()
    assert "h" not in stream.feed("> hunter")
    assert stream.feed("2") + stream.flush() == MASK


@pytest.mark.parametrize("value", ["", "a", "1", " ", "\n", "abc", "ab\n"])
def test_very_short_values_are_left_alone(value: str) -> None:
    """Values below four characters would mask ordinary words, the empty one everything."""
    assert len(value.strip()) < MIN_LENGTH
    text = "abc 1 and\nab\n"
    assert Redactor([value]).redact(text) == text


def test_a_value_of_four_characters_is_masked() -> None:
    """The rule's border belongs to the masked side."""
    assert Redactor(["abcd"]).redact("abcde") == "***e"


@pytest.mark.parametrize(("values", "text", "shown"), CASES)
def test_masking_again_changes_nothing(values: list[str], text: str, shown: str) -> None:
    """Text may pass a redactor twice."""
    redactor = Redactor([*values, "****"])
    assert redactor.redact(redactor.redact(text)) == shown


def test_a_value_learnt_later_counts() -> None:
    """`add()` applies to everything redacted afterwards."""
    redactor = Redactor()
    redactor.add("hunter2")
    assert redactor.redact("hunter2") == MASK


def test_a_redactor_shows_no_value() -> None:
    """Its `repr` tells how many values it knows."""
    assert repr(Redactor(["hunter2", "abcd"])) == "<Redactor of 2 values>"
