"""The numbered records of the demo: what goes in, and what has to come out."""

from __future__ import annotations

from exactum.testing.crash_verdict import OutputRecord

CUSTOMERS = 100


def order_of(number: int) -> OutputRecord:
    """What the producer writes. Its key is its customer, so that every customer's orders stay in
    order.
    """
    customer = f"{number % CUSTOMERS:02d}"
    return OutputRecord(customer, f"order {number} of customer {customer}")


def shouted(number: int) -> OutputRecord:
    """What the query makes of it."""
    key, value = order_of(number)
    return OutputRecord(key, str(value).upper())
