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
            if time.monotonic() - since_s < IDLE_AGE_MAX_S and _answers(session):
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


def _answers(session: Session) -> bool:
    try:
        session.query("SELECT 1")
        session.rollback()
    except SqlFailure:
        return False
    return session.usable


_Key = tuple[Dialect, Address, float]
_pools: dict[_Key, SessionPool] = {}
_pools_lock = threading.Lock()
_pools_process = os.getpid()


def pool_of(dialect: Dialect, address: Address, lock_timeout_s: float) -> SessionPool:
    """This process's pool for a server. Spark keeps worker processes, so it outlives a task and an
    epoch.
    """
    global _pools_process
    key = (dialect, address, lock_timeout_s)
    with _pools_lock:
        if (
            _pools_process != os.getpid()
        ):  # forked: the parent's sockets are not ours, and must not be closed by us
            _FORKED.append(dict(_pools))
            _pools.clear()
            _pools_process = os.getpid()
        if key not in _pools:
            while len(_pools) >= POOLS_MAX:
                _pools.pop(next(iter(_pools))).close()
            _pools[key] = SessionPool(dialect, address, lock_timeout_s)
        return _pools[key]


_FORKED: list[dict[_Key, SessionPool]] = []
"""Keeps a forked parent's sessions from the garbage collector: closing them would end the
parent's.
"""


def _close_all() -> None:
    if _pools_process == os.getpid():
        for pool in _pools.values():
            pool.close()


atexit.register(_close_all)
