"""Values as they are typed: durations as Flink's configuration writes them (``10 s``, ``1 min``,
``500 ms``, ``2h``), and where to listen. Named as the help is to show them.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import click

NONE = "none"
_UNITS_S = {
    "ms": 0.001, "milli": 0.001, "millis": 0.001, "millisecond": 0.001, "milliseconds": 0.001,
    "s": 1.0, "sec": 1.0, "secs": 1.0, "second": 1.0, "seconds": 1.0,
    "m": 60.0, "min": 60.0, "minute": 60.0, "minutes": 60.0,
    "h": 3600.0, "hour": 3600.0, "hours": 3600.0,
    "d": 86400.0, "day": 86400.0, "days": 86400.0,
}  # fmt: skip
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]+)")


def duration(text: str) -> float:
    """In seconds. One without an end is none, and one without a unit: Flink takes a bare number for
    milliseconds, most people for seconds.
    """
    found = _DURATION.fullmatch(text.strip())
    unit = _UNITS_S.get(found[2].lower()) if found else None
    length_s = float(found[1]) * unit if found is not None and unit is not None else math.inf
    if not math.isfinite(length_s):
        raise click.BadParameter(
            f"{text!r} is not a duration. Write a number and its unit: 500 ms, 10 s, 1 min, 2 h or "
            "1 d."
        )
    return length_s


@dataclass(frozen=True)
class ListenAddress:
    """Where to listen; port 0 takes a free one."""

    host: str
    port: int


def listen_address(text: str) -> ListenAddress | None:
    """``[HOST:]PORT``, or None for ``none``. Named as the help is to show it."""
    if text == NONE:
        return None
    host, _, port = text.rpartition(":")
    if not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise click.BadParameter(f"{text!r} is not [HOST:]PORT, nor {NONE!r}.")
    return ListenAddress(host.strip("[]") or "127.0.0.1", int(port))
