"""The decision log in MySQL keeps the contract of every decision log."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from exactum.protocol.decision_log import DecisionLog
from exactum.sql.decision_log import SqlDecisionLog
from exactum.sql.mysql.dialect import MySQLDialect
from exactum.sql.mysql.sink import address_of
from exactum.testing import LogContract
from tests.kit.mysql.mysql_database import Database


class TestMySQLDecisionLog(LogContract):
    @pytest.fixture(autouse=True)
    def place(self, database: Database) -> Iterator[None]:
        self.url = database.url
        self.opened: list[DecisionLog] = []
        yield
        for log in self.opened:
            log.close()

    def open_log(self, query_id: str) -> DecisionLog:
        log = SqlDecisionLog(
            MySQLDialect(), address_of(self.url, None, "decision_log"), query_id, prune_every=1
        )
        self.opened.append(log)
        return log
