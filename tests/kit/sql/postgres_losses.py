"""Connections that break at a chosen statement: the real server, a real session, and a loss in
between.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from exactum.sql.dialect import Role, ServerFailure, Session, SqlFailure
from exactum.sql.participant import SqlParticipant
from exactum.sql.postgres.dialect import PostgresDialect
from exactum.sql.postgres.session import PostgresSession
from exactum.sql.url import Address
from tests.kit.sql.sql_epochs import Incarnation

T = TypeVar("T")


@dataclass
class Losses:
    """The ``at``-th statement is lost: the ``request`` before the server has it, or the
    ``reply`` after it is done.
    """

    at: int
    what: str
    calls: int = 0
    struck: str = ""

    def around(self, session: PostgresSession, label: str, call: Callable[[], T]) -> T:
        self.calls += 1
        if self.calls != self.at:
            return call()
        self.struck = label
        if self.what == "reply":
            call()
        session.close()
        raise SqlFailure(ServerFailure.LOST, "", f"the {self.what} of {label} was lost")


class LossySession(PostgresSession):
    def __init__(self, inner: PostgresSession, losses: Losses) -> None:
        super().__init__(inner.connection, inner.address)
        self._losses = losses

    def execute(self, sql: str, arguments: Sequence[object] = ()) -> int:
        return self._losses.around(
            self, sql, lambda: super(LossySession, self).execute(sql, arguments)
        )

    def execute_alone(self, sql: str) -> None:
        return self._losses.around(self, sql, lambda: super(LossySession, self).execute_alone(sql))

    def query(self, sql: str, arguments: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        return self._losses.around(
            self, sql, lambda: super(LossySession, self).query(sql, arguments)
        )

    def commit(self) -> None:
        return self._losses.around(self, "COMMIT", super().commit)


class LossyDialect(PostgresDialect):
    def __init__(self, losses: Losses) -> None:
        object.__setattr__(self, "losses", losses)

    def connect(self, address: Address, role: Role, label: str, lock_timeout_s: float) -> Session:
        session = super().connect(address, role, label, lock_timeout_s)
        assert isinstance(session, PostgresSession)
        return LossySession(session, self.losses)  # type: ignore[attr-defined]


def lossy(driver: Incarnation, losses: Losses) -> None:
    """Let the driver's own sessions, which are not made yet, suffer ``losses``."""
    participant = driver.participant
    assert isinstance(participant, SqlParticipant)
    for line in (participant._line, participant._moving):
        line._dialect = LossyDialect(losses)
