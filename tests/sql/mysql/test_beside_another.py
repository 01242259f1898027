"""A MariaDB sink beside one that fails: PyMySQL's connections are for one thread at a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from exactum import events
from exactum.errors import Unavailable
from exactum.protocol.coordinator import Coordinator
from exactum.protocol.model import PreparedTransaction, SourceOffsets, new_incarnation
from exactum.protocol.parallel import all_at_once
from exactum.protocol.sink import Guarantee, QueryRun, TaskName, WriteOrder
from exactum.sql.dialect import DIRECTORY
from exactum.sql.mysql.sink import MySQLSink
from exactum.testing import (
    MemoryDecisionLog,
    MemoryParticipant,
    MemoryStorage,
    MemoryTarget,
    MemoryWrite,
)
from tests.kit.sql.mysql_query import NUMBERS, numbers, opened
from tests.kit.sql.mysql_server import Database
from tests.kit.waiting import WAIT_MAX_S

WAIT_S = WAIT_MAX_S
LONGER_S = 0.7
"""How long MariaDB goes on after the other one has failed."""


class FailsAmidst(MemoryParticipant):
    """Fails to verify as soon as the MariaDB sink is in the middle of its own verification."""

    def __init__(
        self, target: MemoryTarget, run: QueryRun, database: Database, amidst: threading.Event
    ) -> None:
        super().__init__(target, run)
        self._database = database
        self._amidst = amidst

    def verify(self, prepared: Sequence[PreparedTransaction]) -> Sequence[PreparedTransaction]:
        waiting = (
            "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE DB = %s AND STATE LIKE "
            "'Waiting for table%%lock'"
        )
        end_s = time.monotonic() + WAIT_S
        while self._database.run(waiting, (self._database.name,)) != [(1,)]:
            assert time.monotonic() < end_s, "the MariaDB sink is not held up"
            time.sleep(0.02)
        self._amidst.set()
        raise Unavailable("the other sink's server is gone")


def test_a_sink_at_work_is_waited_for_when_another_fails(database: Database) -> None:
    """The epoch is aborted in both, on connections that nobody else uses, and nothing is left
    open.
    """
    database.run("CREATE TABLE t (v bigint NOT NULL)")
    run = QueryRun("q", new_incarnation(), Guarantee.EXACTLY_ONCE)
    sink = opened(MySQLSink(database.url, table="t", mechanism="staged"), NUMBERS, run, "mysql:t")
    amidst, target, seen = threading.Event(), MemoryTarget("other"), list[events.Event]()
    holder = database.client()

    def write(order: WriteOrder) -> Sequence[PreparedTransaction]:
        writer = sink.writers.open(order, TaskName(0, 0, 0))
        writer.write(numbers(1, 2))
        prepared = writer.prepare()
        assert prepared is not None
        holder.query(f"LOCK TABLES {DIRECTORY} WRITE")  # verification is the first that reads it
        return [prepared, *MemoryWrite([target])(order)]

    def let_go() -> None:
        assert amidst.wait(WAIT_S)
        time.sleep(LONGER_S)
        holder.close()

    releasing = threading.Thread(target=let_go)
    releasing.start()
    try:
        with ThreadPoolExecutor(2) as pool:
            participants = [FailsAmidst(target, run, database, amidst), sink.participant]
            log = MemoryDecisionLog(MemoryStorage(), "q")
            coordinator = Coordinator(
                run, participants, log, on_event=seen.append, parallel=all_at_once(pool)
            )
            with pytest.raises(Unavailable, match="the other sink's server"):
                coordinator.run(0, SourceOffsets(), write)
    finally:
        amidst.set()  # where the test has failed, the lock goes all the same
        releasing.join()
    (abandoned,) = [event for event in seen if isinstance(event, events.EpochAbandoned)]
    assert abandoned.reason == "the other sink's server is gone"
    assert sink.participant.list_open() == []
    assert target.unsettled() == []
    assert database.staged() == 0
    assert database.values("t") == []
    sink.participant.close()
