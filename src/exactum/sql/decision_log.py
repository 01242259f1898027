"""A decision log in a SQL database: for clusters without a shared file system.

    exactum_decisions(query_id, batch_id, attempt, record)   the record as JSON text
    exactum_decision_floors(query_id, floor, log_id)         every batch below is pruned, for ever;
                                                             which log this is

``decide`` and ``prune`` first lock the query's floor row, so they follow one another: a ``decide``
either commits before a pruning, which then removes its record with the others, or sees the new
floor and is refused. A slot that was pruned is never free again, however late a zombie wakes up.
The lock also settles a lost reply: who asks again waits until the server has done with the first
try.

Who finds a record locks the floor row, too, and commits, before anybody acts on it: its maker may
have died while it waited for a synchronous standby, and PostgreSQL's commit waits until the standby
has all that was written before.

A server that has acknowledged a decision may be replaced by one that never got it: by a failover to
an asynchronous standby, or from a backup. So each new connection is first asked for the newest
decision that is known to stand.
"""

from __future__ import annotations

import json
import logging
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

from exactum.errors import (
    CheckpointRefused,
    Fenced,
    InvariantBroken,
    OutcomeUnknown,
    SettingRefused,
)
from exactum.problem import Problem
from exactum.protocol.model import DecisionRecord, Epoch
from exactum.sql.dialect import DECISIONS, FLOORS, Dialect, ServerFailure, Session, SqlFailure
from exactum.sql.failure import port_error
from exactum.sql.retrying_session import TIMEOUT_S, RetryingSession
from exactum.sql.table import TableName
from exactum.sql.url import Address

T = TypeVar("T")

log = logging.getLogger("exactum.sql")

PRUNE_EVERY = 20
"""How many batches may pile up before ``prune`` does real work."""
SLOW_AFTER_S = 10.0
"""After how long somebody is told that the server keeps a decision waiting."""


class SqlDecisionLog:
    """The decisions of one query. See ``protocol.decision_log`` for the promises.

    Args:
        schema: where the two tables are (in MySQL: the database); default: the connection's own.
            They are created when they are first needed.
        prune_every: in batches.
        timeout_s: how long a step is tried again while the server is away.
    """

    def __init__(
        self,
        dialect: Dialect,
        address: Address,
        query_id: str,
        *,
        schema: str | None = None,
        prune_every: int = PRUNE_EVERY,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self._dialect = dialect
        self._address = address
        self._query_id = query_id
        self._schema = schema
        self._prune_every = prune_every
        self._timeout_s = timeout_s
        self._where = f"The decision log of query {query_id} at {address.where}"
        self._session = RetryingSession(dialect, address, "exactum decisions")
        self._ready = False
        self._pruned_below: int | None = None
        self._newest: tuple[int, int] | None = None
        """(batch id, attempt) of the newest record known to stand."""
        self._asked_for_newest: Session | None = None

    # ---- the port ----------------------------------------------------------------------------

    def read(self, batch_id: int) -> Sequence[DecisionRecord]:
        """See the port."""

        def step(session: Session) -> tuple[list[tuple[int, str]], int, bool]:
            # In this order: what is pruned between the two looks is then refused, not taken for
            # undecided.
            self._refuse_lost(session)
            batch = (self._query_id, batch_id)
            found = session.query(self._sql("read_records"), batch)
            later = not found and session.query(self._sql("find_later_record"), batch)
            floor = self._floor(session, locked=bool(found))
            session.commit()
            return [(int(attempt), str(text)) for attempt, text in found], floor, bool(later)

        found, floor, later = self._asked(step)
        if batch_id < floor:
            raise CheckpointRefused(
                "LOG_PRUNED",
                f"Batch {batch_id} of query {self._query_id} is older than its decision log, which "
                f"was pruned below batch {floor}. Restore checkpoint and log from the same moment, "
                "or start with a new checkpoint location. If this is an old driver that woke up, "
                "leave it stopped. Nothing was written.",
            )
        # Nobody passes a batch without a COMMIT in it: a later batch shows that there was one.
        if [attempt for attempt, _ in found] != list(range(len(found))) or later:
            raise InvariantBroken(
                f"{self._where}: records of batch {batch_id} are missing ({[a for a, _ in found]} "
                f"are there). Restore the table {DECISIONS} from a backup; without them nobody can "
                "tell whether the batch was committed."
            )
        if found:
            self._newest = max(self._newest or (0, 0), (batch_id, found[-1][0]))
        return tuple(self._record(batch_id, attempt, text) for attempt, text in found)

    def last_batch(self) -> int | None:
        """The highest batch that has a record; None: there is none.

        Raises:
            Unavailable: the server failed.
        """

        def step(session: Session) -> int | None:
            found = session.query(self._sql("find_last_batch"), (self._query_id,))
            session.commit()
            return None if found[0][0] is None else int(found[0][0])

        return self._asked(step)

    def log_id(self) -> str:
        """See ``Identified``. The first call makes it, as any other would."""

        def step(session: Session) -> str:
            found = session.query(self._sql("read_log_id"), (self._query_id,))
            session.commit()
            if not found:
                raise self._without_row()
            return str(found[0][0])

        return self._asked(step)

    def decide(self, record: DecisionRecord) -> DecisionRecord:
        """See the port. One local transaction; asked again after a lost reply.

        Raises:
            SettingRefused: the server refuses this user, and nothing was recorded.
            InvariantBroken: the server has lost an earlier decision; this one is not recorded.
        """
        epoch = record.epoch
        sent = False

        def step(session: Session) -> tuple[int, str | None]:
            nonlocal sent
            self._refuse_lost(session)
            floor = self._floor(session, locked=True)
            if epoch.batch_id < floor:
                session.rollback()
                return floor, None
            slot = (self._query_id, epoch.batch_id, record.attempt)
            text = json.dumps(record.to_json(), ensure_ascii=True)
            session.execute(self._sql("enter_record"), (*slot, text))
            stands = session.query(self._sql("read_record"), slot)
            sent = True
            session.commit()
            return floor, str(stands[0][0])

        try:
            self._make_ready()
            with self._saying_what_waits(f"the decision of {epoch}"):
                floor, stands = self._session.run(step, self._timeout_s)
        except SqlFailure as failure:
            if not sent:
                raise port_error(failure, self._where) from failure
            raise OutcomeUnknown(
                f"{self._where}: the record of {epoch}, attempt {record.attempt}, may or may not "
                f"stand: {failure}. Start the query again: it finds out."
            ) from failure
        if stands is None:
            raise Fenced(
                f"{epoch} is long over: its decision log was pruned below batch {floor} by a newer "
                f"run. This run (incarnation {record.incarnation}) is an old driver that woke up; "
                "it stops, and what it prepared is aborted."
            )
        self._newest = max(self._newest or (0, 0), (epoch.batch_id, record.attempt))
        return self._record(epoch.batch_id, record.attempt, stands)

    def prune(self, below_batch_id: int) -> int:
        """See the port. Does real work once in ``prune_every`` batches.

        Raises:
            Unavailable: the server failed; the next call goes on.
        """
        if (
            self._pruned_below is not None
            and below_batch_id - self._pruned_below < self._prune_every
        ):
            return 0

        def step(session: Session) -> int:
            self._refuse_lost(session)
            floor = self._floor(session, locked=True)
            if floor < below_batch_id:
                session.execute(self._sql("raise_floor"), (below_batch_id, self._query_id))
            removed = session.execute(self._sql("forget_records"), (self._query_id, below_batch_id))
            session.commit()
            return removed

        removed = self._asked(step)
        self._pruned_below = below_batch_id
        return removed

    def close(self) -> None:
        self._session.close()

    def prove(self, where: str) -> Iterator[Problem]:
        """What would keep a query from deciding here, found by doing it and rolled back.

        Raises:
            ExactumError: the server did not answer, or is one that a start refuses.
        """
        from exactum.sql.proof import prove_log

        return prove_log(self._dialect, self._address, self._query_id, self._schema, where)

    # ---- what a failover loses ---------------------------------------------------------------

    def _refuse_lost(self, session: Session) -> None:
        """Once for each connection: is the newest decision that is known to stand still there?

        Raises:
            InvariantBroken: it is gone.
        """
        if session is self._asked_for_newest:
            return
        if self._newest is not None:
            batch_id, attempt = self._newest
            stands = session.query(self._sql("find_record"), (self._query_id, *self._newest))
            if not stands and batch_id >= self._floor(session, locked=False):
                raise InvariantBroken(
                    f"{self._where} has lost the decision of batch {batch_id}, attempt {attempt}, "
                    "which it had acknowledged. The server was replaced by one that did not have "
                    "it: by a failover to an asynchronous standby, or from a backup. Whatever "
                    "else it had acknowledged last may be gone as well, rows of sinks in it among "
                    "them; in other targets the batch stands. Compare the targets in this "
                    "database with the others, then start the query again: it goes on, or says "
                    "what it misses. A synchronous standby prevents this (docs/guarantees.md). "
                    "This run has stopped; nothing that it had not decided becomes visible."
                )
        self._asked_for_newest = session

    @contextmanager
    def _saying_what_waits(self, what: str) -> Iterator[None]:
        """Log when the server takes its time, as where no synchronous standby answers: nothing goes
        on.
        """
        warning = (
            "%s: %s has been waiting for %d s. The server is away, holds a lock, or waits for a "
            "synchronous standby that does not answer"
        )
        timer = threading.Timer(
            SLOW_AFTER_S, log.warning, (warning, self._where, what, SLOW_AFTER_S)
        )
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    # ---- small steps -------------------------------------------------------------------------

    def _sql(self, name: str) -> str:
        decisions, floors = TableName(self._schema, DECISIONS), TableName(self._schema, FLOORS)
        return self._dialect.sql(name, decisions=decisions, floors=floors)

    def _floor(self, session: Session, *, locked: bool) -> int:
        name = "lock_floor" if locked else "read_floor"
        rows = session.query(self._sql(name), (self._query_id,))
        if not rows:
            raise self._without_row()
        return int(rows[0][0])

    def _without_row(self) -> SqlFailure:
        why = f"the row of query {self._query_id} in {FLOORS} was removed"
        return SqlFailure(ServerFailure.MISSING, "", why)

    def _make_ready(self) -> None:
        """The tables, and the query's floor row, which is there from then on."""
        if not self._ready:
            self._session.run(self._create, self._timeout_s)
            self._ready = True

    def _create(self, session: Session) -> None:
        self._dialect.create_decision_tables(session, self._schema)
        session.execute(self._sql("enter_floor"), (self._query_id, 0, secrets.token_hex(8)))
        session.commit()
        behind = self._dialect.lagging_standbys(session)
        if behind:
            log.warning(
                "%s: %d of the server's standbys get their data asynchronously, and none "
                "synchronously. A failover to one of them loses the newest decisions, so that "
                "rows may be lost or doubled. %s, or never fail over to them (docs/guarantees.md)",
                self._where,
                behind,
                self._dialect.way_to_wait_for_standbys,
            )

    def _asked(self, step: Callable[[Session], T]) -> T:
        try:
            self._make_ready()
            with self._saying_what_waits("the next step"):
                return self._session.run(step, self._timeout_s)
        except SqlFailure as failure:
            raise port_error(failure, self._where) from failure

    def _record(self, batch_id: int, attempt: int, text: str) -> DecisionRecord:
        where = f"of batch {batch_id}, attempt {attempt}, in {DECISIONS}"
        try:
            record = DecisionRecord.from_json(json.loads(text), where)
            if (record.epoch, record.attempt) != (Epoch(self._query_id, batch_id), attempt):
                raise ValueError(f"it holds {record.epoch}")
        except ValueError as error:
            raise InvariantBroken(
                f"{self._where}: the record {where} is damaged: {error}. Restore it."
            ) from error
        return record


def open_decision_log(
    url: str, query_id: str, *, connect: Mapping[str, object] | None = None
) -> SqlDecisionLog:
    """The decision log of a query at ``postgresql://...`` or ``mysql://...``.

    Args:
        connect: further options of the client library (TLS, timeouts).

    Raises:
        SettingRefused: the URL is of neither kind or cannot be read; or the client library is
            missing.
    """
    where = "decision_log"
    scheme = url.split(":", 1)[0] if isinstance(url, str) else ""
    if scheme in ("postgresql", "postgres"):
        from exactum.sql.postgres import session as postgres
        from exactum.sql.postgres.dialect import PostgresDialect

        address = postgres.address_of(url, connect, where)
        return SqlDecisionLog(PostgresDialect(), address, query_id)
    if scheme in ("mysql", "mariadb"):
        from exactum.sql.mysql import sink as mysql
        from exactum.sql.mysql.dialect import MySQLDialect

        address = mysql.address_of(url, connect, where)
        return SqlDecisionLog(MySQLDialect(), address, query_id)
    raise SettingRefused(
        "DECISION_LOG_ARGUMENT", f"{where}: the URL must begin with postgresql:// or mysql://."
    )
