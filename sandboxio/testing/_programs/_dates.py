"""Dates as `date` and `touch -d` read and write them; the fake's time zone is UTC."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DEFAULT = "%a %b %e %H:%M:%S UTC %Y"
_FIELDS: dict[str, Callable[[datetime], str]] = {
    "a": lambda when: _DAYS[when.weekday()][:3],
    "A": lambda when: _DAYS[when.weekday()],
    "b": lambda when: _MONTHS[when.month - 1][:3],
    "B": lambda when: _MONTHS[when.month - 1],
    "d": lambda when: f"{when.day:02}",
    "e": lambda when: f"{when.day:2}",
    "H": lambda when: f"{when.hour:02}",
    "I": lambda when: f"{(when.hour - 1) % 12 + 1:02}",
    "j": lambda when: f"{when.timetuple().tm_yday:03}",
    "k": lambda when: f"{when.hour:2}",
    "m": lambda when: f"{when.month:02}",
    "M": lambda when: f"{when.minute:02}",
    "N": lambda when: f"{when.microsecond * 1000:09}",
    "p": lambda when: "AM" if when.hour < 12 else "PM",
    "s": lambda when: str(int(when.timestamp() // 1)),
    "S": lambda when: f"{when.second:02}",
    "u": lambda when: str(when.isoweekday()),
    "w": lambda when: str(when.isoweekday() % 7),
    "y": lambda when: f"{when.year % 100:02}",
    "Y": lambda when: f"{when.year}",
    "z": lambda when: "+0000",
    "Z": lambda when: "UTC",
    "n": lambda when: "\n",
    "t": lambda when: "\t",
    "%": lambda when: "%",
}
_SHORT = {
    "c": "%a %b %e %H:%M:%S %Y",
    "D": "%m/%d/%y",
    "F": "%Y-%m-%d",
    "h": "%b",
    "R": "%H:%M",
    "T": "%H:%M:%S",
    "x": "%m/%d/%y",
    "X": "%H:%M:%S",
}
_FIELD = re.compile(r"%(?P<pad>[-_0]?)(?:3(?=N))?(?P<name>.)", re.DOTALL)
_UNITS = {
    "second": 1,
    "sec": 1,
    "minute": 60,
    "min": 60,
    "hour": 3600,
    "day": 86400,
    "week": 604800,
}
_RELATIVE = re.compile(r"([+-]?\s*\d+)\s*([a-z]+?)s?(\s+ago)?")


def at(seconds: float) -> datetime:
    """Return the date of some seconds of the epoch."""
    return _EPOCH + timedelta(seconds=seconds)


def show(when: datetime, form: str) -> str:
    """Return a date in the format of `strftime`, in English and UTC; unknown fields stay."""
    return _FIELD.sub(lambda match: _field(when, match), form)


def _field(when: datetime, match: re.Match[str]) -> str:
    if match["name"] in _SHORT:
        return show(when, _SHORT[match["name"]])
    fill = _FIELDS.get(match["name"])
    if fill is None:
        return match[0]
    text = fill(when)
    if match[0].startswith("%3"):
        return text[:3]
    stripped = text.lstrip("0 ") or text[-1:]
    if match["pad"] == "-":
        return stripped
    return stripped.rjust(len(text)) if match["pad"] == "_" else text


def read(text: str, now: datetime) -> datetime | None:
    """Return the date that a text stands for, or `None`.

    Known are `@seconds`, ISO 8601 dates and times, `now`, `today`, `yesterday`, `tomorrow`, and
    steps such as `2 days ago` or `+1 hour`.
    """
    text = text.strip().lower()
    days = {"": 0, "now": 0, "today": 0, "yesterday": -1, "tomorrow": 1}
    try:
        if text in days:
            return now + timedelta(days=days[text])
        if text.startswith("@"):
            return at(float(text[1:]))
        step = _RELATIVE.fullmatch(text)
        if step is not None:
            return _moved(now, step)
        when = datetime.fromisoformat(text.removesuffix(" utc").upper())
    except (ValueError, OverflowError):
        return None
    return when.replace(tzinfo=UTC) if when.tzinfo is None else when.astimezone(UTC)


def _moved(now: datetime, step: re.Match[str]) -> datetime | None:
    seconds = _UNITS.get(step[2])
    if seconds is None:
        return None
    count = int(step[1].replace(" ", "")) * (-1 if step[3] else 1)
    return now + timedelta(seconds=count * seconds)
