"""The decision log in a database: the contract of all logs, pruning against a zombie, and lost
servers.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from exactum.errors import Fenced, InvariantBroken, SettingRefused, Unavailable
from exactum.protocol.decision_log import DecisionLog
from exactum.protocol.model import Decision
from exactum.sql.decision_log import SqlDecisionLog, open_decision_log
from exactum.testing import LogContract
from exactum.testing.log_contract import QUERY_ID, record
from tests.kit.sql.losses import Losses, LossyDialect
from tests.kit.sql.sql_database import SqlDatabase


class TestSqlDecisionLog(LogContract):
    """The contract, each method on empty tables."""

    @pytest.fixture(autouse=True)
    def place(self, database: SqlDatabase) -> Iterator[None]:
        self.database = database
        self.logs: list[SqlDecisionLog] = []
        yield
        for log in self.logs:
            log.close()

    def open_log(self, query_id: str) -> DecisionLog:
        self.logs.append(self.database.log(query_id, prune_every=1, timeout_s=5.0))
        return self.logs[-1]

    def test_queries_are_apart(self) -> None:
        """Two queries in one database share nothing, not even where one's id begins the other's."""
        one, other = self.open_log("query"), self.open_log("query-eu")
        mine = record(1, query_id="query")
        assert one.decide(mine) == mine
        one.prune(1)
        assert tuple(other.read(0)) == ()
        theirs = record(0, query_id="query-eu")
        assert other.decide(theirs) == theirs

    def test_a_zombie_never_gets_a_pruned_slot(self) -> None:
        """Many zombies decide while the log is pruned under them: each stands before the floor
        or is fenced.
        """
        log = self.open_log(QUERY_ID)
        log.read(0)
        zombies = [self.open_log(QUERY_ID) for _ in range(4)]
        start = threading.Barrier(5)

        def decide(number: int) -> list[int]:
            start.wait()
            stood = []
            for batch_id in range(30):
                try:
                    zombies[number].decide(record(batch_id, number, f"z{number}", Decision.ABORT))
                    stood.append(batch_id)
                except Fenced:
                    pass
            return stood

        with ThreadPoolExecutor(4) as pool:
            deciding = [pool.submit(decide, n) for n in range(4)]
            start.wait()
            for below in range(1, 31):
                log.prune(below)
            for future in deciding:
                future.result()
        assert self.database.value("SELECT count(*) FROM exactum_decisions") == 0

    def test_a_missing_record_is_noticed(self) -> None:
        """A record that somebody deleted between others, or before a later batch, is not taken
        for undecided.
        """
        log = self.open_log(QUERY_ID)
        for attempt in range(3):
            log.decide(record(1, attempt, decision=Decision.ABORT))
        log.decide(record(2))
        self.database.run("DELETE FROM exactum_decisions WHERE batch_id = 1 AND attempt = 1")
        with pytest.raises(InvariantBroken, match="missing"):
            log.read(1)
        self.database.run("DELETE FROM exactum_decisions WHERE batch_id = 1")
        with pytest.raises(InvariantBroken, match="missing"):
            log.read(1)

    @pytest.mark.deep
    @pytest.mark.parametrize("lost", ["request", "reply"])
    def test_the_connection_is_lost_at_every_statement(self, lost: str) -> None:
        """Whichever statement of create, decide, read or prune is lost, or its reply: every
        answer is right.
        """
        for at in itertools.count(1):
            losses = Losses(at, lost)
            log = self.open_log(f"query-{at}")
            log._session._dialect = LossyDialect(  # type: ignore[attr-defined]
                self.database.dialect, losses
            )
            mine = [record(batch_id, query_id=f"query-{at}") for batch_id in range(3)]
            assert [log.decide(m) for m in mine] == mine, losses
            assert log.decide(record(2, 0, "other", query_id=f"query-{at}")) == mine[2], losses
            log.prune(2)
            assert tuple(log.read(2)) == (mine[2],), losses
            if losses.calls < at:
                break
            self.database.drop_all()
        assert at > 15

    @pytest.mark.kills_server
    def test_a_restarted_server_is_waited_for(self) -> None:
        """The server is killed and started again: the log connects anew, and its records are
        there.
        """
        log = self.open_log(QUERY_ID)
        log.decide(record(1))
        log._timeout_s = 60.0  # type: ignore[attr-defined]
        self.database.server.kill()
        starter = threading.Timer(0.5, self.database.server.start)
        starter.start()
        assert log.decide(record(2)) == record(2)
        assert tuple(log.read(1)) == (record(1),)
        starter.join()

    @pytest.mark.kills_server
    def test_a_server_that_is_away_is_unavailable(self) -> None:
        """No server within timeout_s: nothing is known to have changed, and the password is not
        told.
        """
        log = self.open_log(QUERY_ID)
        log._timeout_s = 0.2  # type: ignore[attr-defined]
        self.database.server.kill()
        try:
            with pytest.raises(Unavailable) as caught:
                log.read(1)
            assert self.database.server.password not in str(caught.value)
        finally:
            self.database.server.start()


def test_the_log_of_a_url(database: SqlDatabase) -> None:
    """``open_decision_log`` takes a URL; one of another kind, or unreadable, is refused without
    repeating it.
    """
    log = open_decision_log(database.url, QUERY_ID)
    assert log.decide(record(0)) == record(0)
    log.close()
    for url in (
        "sqlite:///secret",
        "postgresql://a:secret@[::1:5432/x",
        "postgresql://h/d?nonsense=secret",
    ):
        with pytest.raises(SettingRefused) as caught:
            open_decision_log(url, QUERY_ID)
        assert "secret" not in str(caught.value)
