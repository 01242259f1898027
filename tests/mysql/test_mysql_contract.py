"""MySQLSink keeps the contract of every sink, by each mechanism and in each mode."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from exactum.protocol.model import PreparedTransaction
from exactum.protocol.participant import Participant
from exactum.protocol.sink import Sink, Writer
from exactum.sql.mysql import session as mysql_session
from exactum.sql.mysql.sink import MySQLSink
from exactum.testing import SinkContract
from tests.kit.mysql.mysql_database import Database

COLUMNS = [("v", "bigint"), ("s", "string")]
_numbers = itertools.count()


class MySQLContract(SinkContract):
    """The short half of the suite: the sweeps over every call are in test_mysql_exactly_once, in
    ways of their own.
    """

    test_every_fault_at_every_call_of_the_driver = None  # type: ignore[assignment]
    test_every_fault_at_every_call_of_a_recovery = None  # type: ignore[assignment]
    test_every_fault_at_every_call_of_a_task = None  # type: ignore[assignment]
    test_a_task_may_die_at_every_call_and_is_tried_again = None  # type: ignore[assignment]
    test_two_drivers_at_once = None  # type: ignore[assignment]

    options: dict[str, Any]
    columns = COLUMNS
    table = "v bigint NOT NULL, s varchar(40)"

    @pytest.fixture(autouse=True)
    def target(self, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
        # A stalled driver's locks end when the server ends its transaction; here soon.
        monkeypatch.setattr(mysql_session, "IDLE_TRANSACTION_TIMEOUT_S", 1)
        self.database = database
        database.run(f"CREATE TABLE t ({self.table})")

    def make_sink(self) -> Sink:
        return MySQLSink(self.database.url, table="t", **self.options)

    def visible_rows(self) -> list[object]:
        return self.database.run("SELECT v, s FROM t")

    def batches(self) -> Sequence[Any]:
        def batch() -> Any:
            values = [next(_numbers) for _ in range(3)]
            return pa.record_batch(
                [pa.array(values), pa.array([f"it's {v}\n" for v in values])], ["v", "s"]
            )

        return [batch() for _ in range(8)]

    def reset(self) -> None:
        self.database.run("DELETE FROM t")

    def leftovers(self) -> Sequence[object]:
        staged = self.database.staged()
        return [*self.database.xids(), *([f"{staged} rows staged"] if staged else [])]

    def lose(self, participant: Participant, prepared: Sequence[PreparedTransaction]) -> None:
        """An operator rolls back, or empties the staging table, by a plain client."""
        for transaction in prepared:
            payload = json.loads(transaction.payload)
            if "part" in payload:
                self.database.run(
                    f"DELETE FROM `{payload['staging']}` WHERE exactum_part = {payload['part']}"
                )
        self.database.roll_back_all()

    def kill_task(self, writer: Writer) -> None:
        """The system closes a dead process's connections; that is all that ``abort`` does here."""
        writer.abort()


class TestStaged(MySQLContract):
    options = {"mechanism": "staged"}  # noqa: RUF012


class TestPrepared(MySQLContract):
    options = {"mechanism": "prepared"}  # noqa: RUF012


class TestUpsert(MySQLContract):
    options = {"mode": "upsert", "key": "v"}  # noqa: RUF012
    table = "v bigint PRIMARY KEY, s varchar(40)"
