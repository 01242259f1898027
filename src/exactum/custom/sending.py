"""One chunk of rows to a target without transactions: tried a bounded number of times, with pauses
between.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from exactum.custom.answer import refuse_answer
from exactum.errors import Disposition, ExactumError, Unavailable

Send = Callable[[Any, str], None]
"""Sends a record batch under a key, and returns when the target has acknowledged it."""


def send_once(send: Callable[[Any, str], object], batch: Any, key: str) -> None:
    """
    Raises:
        CodeFailed: ``send`` returned something, so nobody knows whether the rows are acknowledged.
        Exception: what ``send`` raises.
    """
    refuse_answer(
        send(batch, key),
        "send()",
        f"So {batch.num_rows} rows with key {key!r} are not taken for acknowledged. Correct send() "
        "and start the query again: then they are sent again.",
    )


@dataclass(frozen=True)
class RetryPolicy:
    """How a chunk is sent: up to ``tries_max`` times; pauses of ``backoff_ms``, doubled up to
    ``backoff_ms_max``.
    """

    tries_max: int
    backoff_ms: int
    backoff_ms_max: int

    def deliver(
        self, send: Send, batch: Any, key: str, before_each_try: Callable[[], None]
    ) -> None:
        """
        Raises:
            Unavailable: no try was acknowledged; the target may have taken the chunk all the same.
            CodeFailed: ``send`` returned something; it is not tried again.
            ExactumError: one that says "stop" (HALT, FENCED), as ``send`` or ``before_each_try``
                raised it.
        """
        pause_ms = self.backoff_ms
        for tried in range(1, self.tries_max + 1):
            before_each_try()
            try:
                send_once(send, batch, key)
                return
            except Exception as error:
                if isinstance(error, ExactumError) and error.disposition in (
                    Disposition.HALT,
                    Disposition.FENCED,
                ):
                    raise
                if tried == self.tries_max:
                    raise Unavailable(
                        f"None of {tried} tries to send {batch.num_rows} rows with key {key!r} was "
                        f"acknowledged; the last one: {type(error).__name__}: {error}. They are "
                        "decided and kept: bring the target back and start the query again."
                    ) from error
            time.sleep(pause_ms / 1000)
            pause_ms = min(2 * pause_ms, self.backoff_ms_max)
