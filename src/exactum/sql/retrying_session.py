"""The driver's session with a server, made again when it breaks, until a timeout."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from exactum.sql.dialect import Dialect, Role, Session, SqlFailure
from exactum.sql.failure import TRANSIENT
from exactum.sql.url import Address

T = TypeVar("T")

TIMEOUT_S = 60.0
"""How long a step is tried again while the server is away or locks are held: longer than a restart,
and than the server lets a stopped driver idle in its transaction."""
LOCK_TIMEOUT_S = 20.0
"""Longest that a statement of ours waits for somebody else's lock."""
PAUSE_S = 0.05
PAUSE_MAX_S = 2.0
TRIES_MIN = 2
"""However late it is: where the machine stood still for the whole time, the server has ended the
session, and nothing was tried."""


class RetryingSession:
    """One thread at a time. ``run`` does one idempotent step."""

    def __init__(
        self, dialect: Dialect, address: Address, label: str, role: Role = Role.DRIVER
    ) -> None:
        self._dialect = dialect
        self._address = address
        self._role = role
        self._label = label
        self._session: Session | None = None

    def run(self, step: Callable[[Session], T], timeout_s: float | None = None) -> T:
        """Run ``step`` in a session without a transaction; again after a transient failure, for
        ``timeout_s`` (default: ``TIMEOUT_S``), and once at least.

        Raises:
            SqlFailure: not transient, or the last one.
        """
        end_s = time.monotonic() + (TIMEOUT_S if timeout_s is None else timeout_s)
        pause_s = PAUSE_S
        tries = 0
        while True:
            tries += 1
            try:
                session = self._ready()
                return step(session)
            except SqlFailure as failure:
                self.reset()
                late = time.monotonic() + pause_s > end_s
                if failure.failure not in TRANSIENT or (late and tries >= TRIES_MIN):
                    raise
            except BaseException:
                self.reset()
                raise
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_MAX_S)

    def reset(self) -> None:
        """End the transaction, if there is one; the server undoes it. Idempotent, never raises."""
        if self._session is None:
            return
        try:
            self._session.rollback()
        except SqlFailure:
            self.close()
            return
        if not self._session.usable:
            self.close()

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None

    def _ready(self) -> Session:
        if self._session is None or not self._session.usable:
            self.close()
            self._session = self._dialect.connect(
                self._address, self._role, self._label, LOCK_TIMEOUT_S
            )
        return self._session
