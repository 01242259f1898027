"""The clock of Spark's session time zone, for any instant that Spark has, in whole numbers.

Python's own dates end with the years 1 and 9999, and so do the conversions of Arrow to Python.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone, tzinfo
from functools import cache
from zoneinfo import ZoneInfo

from exactum.errors import SettingRefused

_FIXED = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{2}))?(?::?(\d{2}))?")
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_CYCLE_US = 146_097 * 86_400_000_000
"""400 years, after which the calendar and the rules of summer time repeat themselves."""
_FIRST_US, _LAST_US = -12 * _CYCLE_US // 10, 18 * _CYCLE_US
"""Years 1490 and 9170: before the first no zone had a rule, after the last each only repeats its
own.
"""


@cache
def zone_of(name: str) -> tzinfo:
    """The zone that Spark's session calls so.

    Raises:
        SettingRefused: this machine does not know it.
    """
    if name in ("Z", "UTC", "GMT", "UT"):
        return timezone.utc
    fixed = _FIXED.fullmatch(name)
    if fixed:
        hours, minutes, seconds = (int(n or 0) for n in fixed.groups()[1:])
        offset = timedelta(hours=hours, minutes=minutes, seconds=seconds)
        return timezone(-offset if fixed[1] == "-" else offset)
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise SettingRefused(
            "TIME_ZONE_MISSING",
            f"The session's time zone {name!r} (spark.sql.session.timeZone) is not known on this "
            f"machine ({error}), and a partition column is a timestamp. Install the time zones "
            "(the system's, or pip install tzdata) on every executor, or set the zone by a name "
            "such as 'Europe/Paris' or '+02:00'.",
        ) from error


def local(micros: int, zone: tzinfo) -> tuple[int, bool]:
    """What the zone's clock shows at an instant, in microseconds since 1970-01-01 00:00 on it; and
    whether a reader of that clock finds the instant again: an hour that comes twice is taken for
    the first."""
    seen = micros
    if micros < _FIRST_US:
        seen = _FIRST_US
    elif micros > _LAST_US:
        seen = micros - -(-(micros - _LAST_US) // _CYCLE_US) * _CYCLE_US
    there = (_EPOCH + timedelta(microseconds=seen)).astimezone(zone)
    offset = there.utcoffset() or timedelta()
    first = there.replace(fold=0).utcoffset() or timedelta()
    return micros + offset // timedelta(microseconds=1), offset == first
