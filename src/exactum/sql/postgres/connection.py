"""psycopg's connection, with an end to each wait. Imported only where psycopg is known to be
installed.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any, TypeVar

import psycopg

T = TypeVar("T")
REPLY_TIMEOUT_S = 1800.0
"""Longest wait for an answer of the server."""


class PostgresConnection(psycopg.Connection[Any]):
    """A server that is stopped keeps its connections and answers nothing. Neither
    ``statement_timeout`` nor libpq's ``tcp_user_timeout`` ends such a wait: the one is the server's
    own clock, and the other is content with the acknowledgements of its operating system. psycopg
    wakes up ten times a second while it waits, and tells its generators.
    """

    def wait(self, gen: Generator[Any, Any, T], *arguments: Any, **settings: Any) -> T:
        return super().wait(self._ending(gen), *arguments, **settings)

    def _ending(self, gen: Generator[Any, Any, T]) -> Generator[Any, Any, T]:
        end_s = time.monotonic() + REPLY_TIMEOUT_S
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if not ready and time.monotonic() >= end_s:
                    self.close()
                    raise psycopg.OperationalError(
                        f"the server did not answer within {REPLY_TIMEOUT_S:.0f} s"
                    )
                wanted = gen.send(ready)
        except StopIteration as done:
            value: T = done.value
            return value
