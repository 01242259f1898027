"""Connections that break at a chosen statement: the real server, a real session, and a loss in
between.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from exactum.sinks.staged import StagedParticipant
from exactum.sql.dialect import Dialect
from exactum.sql.session import ServerFailure, Session, SqlFailure
from exactum.sql.target import SqlTarget
from exactum.sql.url import Address
from tests.kit.sql.sql_epochs import Incarnation

T = TypeVar("T")


@dataclass
class Losses:
    """The ``at``-th statement, or the first of this ``label``, is lost: the ``request`` before the
    server has it, or the ``reply`` after it is done.
    """

    at: int
    what: str
    calls: int = 0
    struck: str = ""
    label: str = ""

    def around(self, session: Session, label: str, call: Callable[[], T]) -> T:
        self.calls += 1
        chosen = self.calls == self.at or (label == self.label and not self.struck)
        if not chosen:
            return call()
        self.struck = label
        if self.what == "reply":
            call()
        session.close()
        raise SqlFailure(ServerFailure.LOST, "", f"the {self.what} of {label} was lost")


class LossyDialect:
    """A dialect whose sessions suffer ``losses``; all else is that of ``inner``."""

    def __init__(self, inner: Dialect, losses: Losses) -> None:
        self._inner = inner
        self._losses = losses

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def connect(self, address: Address, label: str, lock_timeout_s: float) -> Session:
        session = self._inner.connect(address, label, lock_timeout_s)
        for name in ("execute", "query", "commit", "send"):
            if hasattr(session, name):
                setattr(session, name, self._lossy(session, name, getattr(session, name)))
        return session

    def _lossy(self, session: Session, name: str, call: Callable[..., T]) -> Callable[..., T]:
        def around(*arguments: Any) -> T:
            label = str(arguments[0]) if arguments else name
            return self._losses.around(session, label, lambda: call(*arguments))

        return around


def lossy(driver: Incarnation, losses: Losses) -> None:
    """Let the driver's own sessions, which are not made yet, suffer ``losses``."""
    participant = driver.participant
    assert isinstance(participant, StagedParticipant)
    target = participant.target
    assert isinstance(target, SqlTarget)
    for session in (target._session, target._loading):
        session._dialect = LossyDialect(session._dialect, losses)  # type: ignore[assignment]
