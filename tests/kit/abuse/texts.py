"""The raw values that texts and JSON name, read by readers that know nothing of exactum."""

from __future__ import annotations

import base64
import re
from decimal import Decimal
from typing import Any

from tests.kit.abuse.frames import single
from tests.kit.abuse.kinds import MICROS_PER_DAY, WHOLE, Kind, Raw

_INSTANT = re.compile(
    r"([+-]?\d{4,}-\d\d-\d\d)[T ](\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?(Z|[+-]\d\d:\d\d)?"
)


class Digits(str):
    """A number of JSON as it stands there: for ``parse_int`` and ``parse_float``."""


def never(constant: str) -> Any:
    raise AssertionError(f"{constant} is no JSON")


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    assert len(dict(pairs)) == len(pairs), f"a name twice: {pairs}"
    return dict(pairs)


STRICT: dict[str, Any] = {
    "parse_int": Digits,
    "parse_float": Digits,
    "parse_constant": never,
    "object_pairs_hook": once,
}
"""For ``json.loads``, which then takes no constant that JSON does not have, and no name twice."""


def of_json(kind: Kind, found: Any) -> Raw:
    """Of what ``json.loads`` with ``STRICT`` has found; text that is none may be an object."""
    if found is None:
        return None
    if kind.name == "array":
        return [of_json(kind.of[0], v) for v in found]
    if kind.name == "map":
        return [(of_text(kind.of[0], k), of_json(kind.of[1], v)) for k, v in found.items()]
    if kind.name == "struct":
        return tuple(of_json(k, found.get(n)) for n, k in zip(kind.fields, kind.of, strict=True))
    if kind.is_text and isinstance(found, dict):
        return base64.b64decode(found["base64"])
    if kind.name == "boolean":
        assert type(found) is bool
        return found
    if kind.name in WHOLE or kind.name == "decimal":
        assert isinstance(found, Digits)
    elif kind.name in ("float", "double"):
        assert isinstance(found, Digits) or found in ("NaN", "Infinity", "-Infinity")
    elif kind.name != "interval day to second":
        assert type(found) is str
    return of_text(kind, found)


def of_text(kind: Kind, text: str) -> Raw:
    if kind.name in WHOLE or kind.name == "interval day to second":
        return int(text)
    if kind.name == "boolean":
        return {"true": True, "false": False}[text]
    if kind.name in ("float", "double"):
        return single(float(text)) if kind.name == "float" else float(text)
    if kind.name == "decimal":
        assert re.fullmatch(r"-?\d+(\.\d+)?", text)
        return Decimal(text)
    if kind.name == "binary":
        return base64.b64decode(text, validate=True)
    if kind.name == "date":
        return days_of(text)
    if kind.name == "time(6)":
        hour, minute, second = text.split(":")
        return (int(hour) * 3600 + int(minute) * 60) * 10**9 + int(Decimal(second) * 10**9)
    if kind.name.startswith("timestamp"):
        return instant_of(text, zoned=kind.name == "timestamp")
    return text.encode()


def days_of(text: str) -> int:
    """Days since 1970-01-01, by counting: leap years before the year, then the days of its
    months.
    """
    found = re.fullmatch(r"([+-]?\d{4,})-(\d\d)-(\d\d)", text)
    assert found, text
    year, month, day = map(int, found.groups())
    before = year - 1
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    lengths = [31, 29 if leap else 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
    assert 1 <= month <= 12 and 1 <= day <= lengths[month - 1], text
    leaps = before // 4 - before // 100 + before // 400
    return 365 * before + leaps + sum(lengths[: month - 1]) + day - 719_163


def instant_of(text: str, *, zoned: bool) -> int:
    """Microseconds of an ISO 8601 text; in UTC where it has a zone."""
    found = _INSTANT.fullmatch(text)
    assert found and bool(found[6]) is zoned, text
    hours, minutes, seconds = (int(n) for n in found.groups()[1:4])
    if zoned and found[6] != "Z":
        sign = -1 if found[6][0] == "-" else 1
        minutes -= sign * (int(found[6][1:3]) * 60 + int(found[6][4:]))
    micros = ((hours * 60 + minutes) * 60 + seconds) * 1_000_000
    return days_of(found[1]) * MICROS_PER_DAY + micros + int((found[5] or "").ljust(6, "0"))
