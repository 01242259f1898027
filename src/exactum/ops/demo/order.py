"""The numbered records of the demo: what goes in, and what has to come out."""

from __future__ import annotations

import re

CUSTOMERS = 100
_SHOUTED = re.compile(rb"ORDER (\d{1,18}) OF CUSTOMER \d\d")


def key_of(number: int) -> bytes:
    """The key of order ``number``: its customer, so that every customer's orders stay in order."""
    return b"%02d" % (number % CUSTOMERS)


def value_of(number: int) -> bytes:
    """What the producer writes."""
    return b"order %d of customer %02d" % (number, number % CUSTOMERS)


def number_of(key: bytes | None, value: bytes | None) -> int | None:
    """The order's number in a record of an output; None if no query made this from an order."""
    match = _SHOUTED.fullmatch(value or b"")
    if match is None:
        return None
    number = int(match[1])
    return number if key == key_of(number) and value == value_of(number).upper() else None
