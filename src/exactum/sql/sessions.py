"""The sessions that one process keeps to a server, so that a task does not pay for a new
connection.
"""

from __future__ import annotations

import atexit
import os
import threading
import time

from exactum.sql.dialect import Dialect, Role, Session, SqlFailure
from exactum.sql.url import Address

IDLE_MAX = 4
"""Most idle sessions that a process keeps for one server; one more is closed when it is given
back.
"""
IDLE_AGE_MAX_S = 300.0
"""Longest that one may idle before it is replaced: firewalls forget quiet connections."""
POOLS_MAX = 8
"""Most servers that one process remembers."""


class SessionPool:
    """The idle sessions of this process to one server. Safe to use from threads."""

    def __init__(self, dialect: Dialect, address: Address, lock_timeout_s: float) -> None:
        self._dialect = dialect
        self._address = address
        self._lock_timeout_s = lock_timeout_s
        self._lock = threading.Lock()
        self._idle: list[tuple[Session, float]] = []
        self._closed = False

    def take(self) -> Session:
        """A session with no transaction begun, known to answer.

        Raises:
            SettingRefused: the client library is missing.
            SqlFailure: no connection could be made.
        """
        while (idle := self._next_idle()) is not None:
            session, since_s = idle
            if time.monotonic() - since_s < IDLE_AGE_MAX_S and _answers(
                session, self._dialect.sql("answer")
            ):
                return session
            session.close()
        return self._dialect.connect(self._address, Role.TASK, "exactum task", self._lock_timeout_s)

    def give_back(self, session: Session) -> None:
        """The caller is done with it and has ended its transaction. A broken one is closed."""
        with self._lock:
            if session.usable and len(self._idle) < IDLE_MAX and not self._closed:
                self._idle.append((session, time.monotonic()))
                return
        session.close()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for session, _ in idle:
            session.close()

    def _next_idle(self) -> tuple[Session, float] | None:
        with self._lock:
            return self._idle.pop() if self._idle else None


def _answers(session: Session, sql: str) -> bool:
    try:
        session.query(sql)
        session.rollback()
    except SqlFailure:
        return False
    return session.usable


class SessionPools:
    """The pools of this process: the only thing of the SQL layer that a worker process keeps
    between tasks.

    | | |
    |---|---|
    | who owns it | the process: Spark keeps worker processes, so it outlives a task and an epoch |
    | its bound | ``POOLS_MAX`` servers with ``IDLE_MAX`` idle sessions each; the oldest pool goes |
    | who closes it | the process at its exit; a forked child begins with none |
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pools: dict[tuple[Dialect, Address, float], SessionPool] = {}
        self._of_parents: list[object] = []

    def pool_of(self, dialect: Dialect, address: Address, lock_timeout_s: float) -> SessionPool:
        """This process's pool for a server."""
        key = (dialect, address, lock_timeout_s)
        with self._lock:
            if key not in self._pools:
                while len(self._pools) >= POOLS_MAX:
                    self._pools.pop(next(iter(self._pools))).close()
                self._pools[key] = SessionPool(dialect, address, lock_timeout_s)
            return self._pools[key]

    def close(self) -> None:
        for pool in self._pools.values():
            pool.close()

    def leave_to_parent(self) -> None:
        """In a forked child: its parent's sockets are not its own. It keeps the sessions from the
        garbage collector, for closing them would end the parent's.
        """
        self._lock = threading.Lock()
        self._of_parents.append(self._pools)
        self._pools = {}


pools = SessionPools()
atexit.register(pools.close)
os.register_at_fork(after_in_child=pools.leave_to_parent)
