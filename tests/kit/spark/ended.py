"""The end of a query in this process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.kit.waiting import WAIT_MAX_S


def ended(start: Callable[[], Any]) -> BaseException | None:
    """Start it and wait for its end: the error of either, or None.

    Raises:
        AssertionError: it did not end.
    """
    try:
        query = start()
    except Exception as error:
        return error
    try:
        in_time = query.awaitTermination(WAIT_MAX_S)
    except Exception as error:
        return error
    finally:
        query.stop()
    assert in_time, "the query did not end"
    return None
