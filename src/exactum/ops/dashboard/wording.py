"""How values are written on the page. Takes whatever a history holds: never raises."""

from __future__ import annotations

import json
import time
from datetime import datetime
from typing import Any, TypeGuard

NOTHING = "\N{EN DASH}"
LETTERS_MAX = 4_000
"""Longest text that is put on a page."""
STEPS = ((86_400, "d"), (3_600, "h"), (60, "min"))
SIZES = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def is_number(value: Any) -> TypeGuard[float]:
    """No truth value, and not NaN."""
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value


def number(value: Any) -> str:
    """``1,234`` and ``0.25``; a dash where it is not known."""
    if not is_number(value):
        return NOTHING
    if abs(value) == float("inf"):
        return "∞"
    if isinstance(value, int) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 1 or value == 0 else f"{value:.2g}"


def rate(value: Any) -> str:
    """Rows in a second: ``0``, ``0.3``, ``1,234``."""
    return "0" if is_number(value) and value == 0 else number(value)


def seconds(value: Any) -> str:
    """A duration given in seconds: ``0.4 s``, ``12 s``, ``3 min 20 s``, ``2 d 5 h``."""
    if not is_number(value) or abs(value) == float("inf"):
        return NOTHING
    if value < 0:
        return f"\N{MINUS SIGN}{seconds(-value)}"
    if value < 10:
        return f"{value:.0f} s" if value == int(value) else f"{value:.1f} s"
    whole = round(value)
    if whole < 60:
        return f"{whole} s"
    for index, (size, unit) in enumerate(STEPS):
        if whole >= size:
            smaller, word = STEPS[index + 1] if index + 1 < len(STEPS) else (1, "s")
            rest = whole % size // smaller
            return f"{whole // size:,} {unit}" + (f" {rest} {word}" if rest else "")
    return f"{whole} s"


def millis(value: Any) -> str:
    """A duration given in ms: ``0.4 ms``, ``125 ms``, ``3.2 s``."""
    if not is_number(value):
        return NOTHING
    if value >= 1_000:
        return seconds(value / 1_000)
    return f"{value:.0f} ms" if value >= 10 or value == 0 else f"{value:.1f} ms"


def size(value: Any) -> str:
    """Bytes: ``512 B``, ``1.5 MiB``."""
    if not is_number(value):
        return NOTHING
    for unit, word in SIZES:
        if value >= unit:
            return f"{value / unit:.1f} {word}"
    return f"{value:.0f} B"


def moment(at_ms: Any) -> datetime | None:
    """In the time zone of this machine."""
    try:
        return datetime.fromtimestamp(at_ms / 1_000).astimezone()
    except (TypeError, ValueError, OverflowError, OSError):
        return None


def clock(at_ms: Any) -> str:
    """``14:03:07``, with the date before it where that is another day than today."""
    at = moment(at_ms)
    if at is None:
        return NOTHING
    today = at.date() == datetime.now().astimezone().date()
    return f"{at:%H:%M:%S}" if today else f"{at:%Y-%m-%d %H:%M:%S}"


def iso(at_ms: Any) -> str:
    at = moment(at_ms)
    return "" if at is None else at.isoformat(timespec="milliseconds")


def ago(at_ms: Any, now: int) -> str:
    """``3.2 s ago``. A clock that is ahead of ours by a little is no news."""
    if not is_number(at_ms):
        return NOTHING
    passed_s = (now - at_ms) / 1_000
    if passed_s < 1:
        return "just now" if passed_s > -5 else f"in {seconds(round(-passed_s))}"
    # After ten minutes nobody asks for the seconds.
    words = seconds(round(passed_s)).split()
    return f"{' '.join(words[:2] if passed_s >= 600 else words)} ago"


def text(value: Any) -> str:
    """Any value as text, cut where it would fill the page."""
    if value is None or value == "":
        return NOTHING
    words = value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)
    # A lone half of a surrogate pair cannot be sent as UTF-8.
    words = words.encode("utf-8", "replace").decode()
    if len(words) > LETTERS_MAX:
        return f"{words[:LETTERS_MAX]} … {len(words) - LETTERS_MAX:,} more characters"
    return words


def first_line(value: Any, letters_max: int = 160) -> str:
    """The begin of a text that may be long."""
    words = text(value)
    line = words.splitlines()[0] if words.strip() else words
    return line if len(line) <= letters_max else f"{line[: letters_max - 1]}…"


def count(amount: Any, one: str, many: str = "") -> str:
    """``1 row``, ``1,234 rows``."""
    return f"{number(amount)} {one if amount == 1 else many or f'{one}s'}"
