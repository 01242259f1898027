"""The decision log in a database: what the server loses, and lost servers. (The contract, in every
kind of place: tests/contract/test_log.py.)
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator

import pytest

from exactum.errors import SettingRefused, Unavailable
from exactum.files.slot_log import SlotLog
from exactum.sql.files import SqlFiles, open_files
from exactum.testing.log_contract import QUERY_ID, record
from tests.kit.errors import raised
from tests.kit.sql.losses import Losses, LossyDialect
from tests.kit.sql.sql_database import SqlDatabase
from tests.kit.waiting import WAIT_MAX_S


class TestLogInADatabase:
    """Each method on empty tables."""

    @pytest.fixture(autouse=True)
    def place(self, database: SqlDatabase) -> Iterator[None]:
        self.database = database
        self.files: list[SqlFiles] = []
        yield
        for files in self.files:
            files.close()

    def open_log(self, query_id: str) -> SlotLog:
        self.files.append(self.database.files(query_id, timeout_s=5.0))
        return SlotLog(self.files[-1], query_id, prune_every=1)

    def test_queries_are_apart(self) -> None:
        """Two queries in one database share nothing, not even where one's id begins the other's."""
        one, other = self.open_log("query"), self.open_log("query-eu")
        mine = record(1, query_id="query")
        assert one.decide(mine) == mine
        one.prune(1)
        assert tuple(other.read(0)) == ()
        theirs = record(0, query_id="query-eu")
        assert other.decide(theirs) == theirs

    def test_what_was_removed_under_a_run_stops_it(self) -> None:
        """Its tables, or its query's row: nothing is decided as if nothing had been."""
        log = self.open_log(QUERY_ID)
        log.decide(record(0))
        self.database.run("DELETE FROM exactum_decision_logs")
        where = f"query {QUERY_ID} in exactum_decision_logs "
        with raised(SettingRefused, "SQL_REFUSED", where):
            log.decide(record(1))

    def test_a_pruned_decision_is_not_missed(self) -> None:
        """A newer run has pruned what this one knew of: that is not a loss, and the run is fenced as
        always.
        """
        log, newer = self.open_log(QUERY_ID), self.open_log(QUERY_ID)
        log.decide(record(0))
        for batch_id in range(1, 30):
            newer.decide(record(batch_id))
        newer.prune(25)
        log.close()
        assert log.decide(record(29, 0, "late")) == record(29)

    @pytest.mark.deep
    @pytest.mark.parametrize("lost", ["request", "reply"])
    def test_the_connection_is_lost_at_every_statement(self, lost: str) -> None:
        """Whichever statement of create, decide, read or prune is lost, or its reply: every
        answer is right.
        """
        for at in itertools.count(1):
            losses = Losses(at, lost)
            log = self.open_log(f"query-{at}")
            session = self.files[-1]._session
            session._dialect = LossyDialect(self.database.dialect, losses)  # type: ignore[assignment]
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
        self.files[-1]._timeout_s = WAIT_MAX_S
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
        self.files[-1]._timeout_s = 0.2
        self.database.server.kill()
        try:
            with pytest.raises(Unavailable) as caught:
                log.read(1)
            assert self.database.server.password not in str(caught.value)
        finally:
            self.database.server.start()


def test_the_log_of_a_url(database: SqlDatabase) -> None:
    """``open_files`` takes a URL; one of another kind, or unreadable, is refused without repeating
    it.
    """
    log = SlotLog(open_files(database.url, QUERY_ID), QUERY_ID)
    assert log.decide(record(0)) == record(0)
    log.close()
    for url in (
        "sqlite:///secret",
        "postgresql://a:secret@[::1:5432/x",
        "postgresql://h/d?nonsense=secret",
    ):
        with pytest.raises(SettingRefused) as caught:
            open_files(url, QUERY_ID)
        assert "secret" not in str(caught.value)
