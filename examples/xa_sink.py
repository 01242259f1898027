"""A table of MariaDB by XA: each task prepares a transaction there, and the driver commits it.

    python xa_sink.py mysql://user:password@host/shop --table numbers --checkpoint /data/numbers

Kill it whenever you like and start it again: ``SELECT number FROM numbers`` gives each number once.
``exactum.MySQLSink`` needs none of this, and loads faster. This one is for those who want prepared
transactions. It needs MariaDB 10.5 or later and two tables, which the program makes:

    CREATE TABLE numbers (number BIGINT, at VARCHAR(40));
    CREATE TABLE xa_committed (name VARCHAR(150) PRIMARY KEY, at TIMESTAMP DEFAULT NOW());

A prepared transaction holds its locks until its micro-batch is decided, also while the query is
down. Rows of ``xa_committed`` that are older than any crash may be deleted. MySQL 8.0 has the same
statements; this was not tried there. PostgreSQL has PREPARE TRANSACTION, COMMIT PREPARED, ROLLBACK
PREPARED and, to list them, pg_prepared_xacts.
``exactum.testing.TwoPhaseCommitContract`` crashes the class at every call
(tests/custom/test_xa_mariadb.py).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable
from typing import Any
from urllib.parse import unquote, urlsplit

import pymysql

from exactum import TransactionLost, TransactionName, TransactionScope, TwoPhaseCommitSink
from exactum.errors import Unavailable

TABLES = (
    "CREATE TABLE IF NOT EXISTS {} (number BIGINT, at VARCHAR(40))",
    "CREATE TABLE IF NOT EXISTS xa_committed "
    "(name VARCHAR(150) PRIMARY KEY, at TIMESTAMP DEFAULT NOW())",
)
XAER_NOTA = 1397
"""There is no such transaction, or a session that is still connected holds it."""
PART_MAX = 64
"""An XA identity has two parts of so many bytes. ``XA RECOVER`` shows them as one text again."""
PAUSE_S, TRIES_MAX = 0.1, 50


class XaSink(TwoPhaseCommitSink[str]):
    """Appends to ``table``, which has the columns of the batch. A transaction is its name."""

    def __init__(self, url: str, table: str) -> None:
        super().__init__(name=f"xa:{table}")
        self.url = url
        self.table = table
        self._session: Any = None

    # ---- in a task: all in one session, with which a transaction ends that is not prepared -------

    def begin_transaction(self, name: TransactionName) -> str:
        self._session = connected(self.url)
        with self._session.cursor() as cursor:
            cursor.execute(f"XA START {xid(str(name))}")
            # It is committed with the rows: only so can anyone tell later that they were.
            cursor.execute("INSERT INTO xa_committed (name) VALUES (%s)", (str(name),))
        return str(name)

    def invoke(self, transaction: str, batch: Any) -> None:
        columns = ", ".join(f"`{name}`" for name in batch.schema.names)
        places = ", ".join(["%s"] * batch.num_columns)
        rows = [tuple(row.values()) for row in batch.to_pylist()]
        with self._session.cursor() as cursor:
            cursor.executemany(f"INSERT INTO {self.table} ({columns}) VALUES ({places})", rows)

    def pre_commit(self, transaction: str) -> None:
        with self._session.cursor() as cursor:
            cursor.execute(f"XA END {xid(transaction)}")
            cursor.execute(f"XA PREPARE {xid(transaction)}")
        self.close()  # before that no other session can commit it

    def close(self) -> None:
        if self._session is not None and self._session.open:
            self._session.close()

    # ---- on the driver: each statement in a session of its own -----------------------------------

    def verify(self, transaction: str) -> None:
        if transaction not in self._prepared():  # an old server forgets it with its session
            raise TransactionLost(f"{transaction} is not prepared at the server")

    def commit(self, transaction: str) -> None:
        if self._ended("COMMIT", transaction):
            return
        # Committed before, by this driver or by another one? Then its name stands there.
        if not self._ask("SELECT 1 FROM xa_committed WHERE name = %s", transaction):
            raise TransactionLost(f"{transaction} is gone, and was never committed")

    def abort(self, transaction: str) -> None:
        self.close()  # what its own task has not prepared ends with the session
        self._ended("ROLLBACK", transaction)

    def list_transactions(self, scope: TransactionScope) -> Iterable[tuple[str, str]]:
        return [(name, name) for name in self._prepared() if name.startswith(scope.prefix)]

    def _prepared(self) -> list[str]:
        return [data.decode("ascii", "replace") for *_, data in self._ask("XA RECOVER")]

    def _ended(self, verb: str, transaction: str) -> bool:
        """Whether this call has ended it; False: the server knows no such transaction."""
        for _ in range(TRIES_MAX):
            try:
                self._ask(f"XA {verb} {xid(transaction)}")
                return True
            except pymysql.err.OperationalError as error:
                if error.args[0] != XAER_NOTA:
                    raise
            if transaction not in self._prepared():
                return False
            time.sleep(PAUSE_S)  # the server has not noticed yet that the task's session is closed
        raise Unavailable(f"a session that is still connected holds {transaction}")

    def _ask(self, statement: str, *values: str) -> list[Any]:
        with connected(self.url) as session, session.cursor() as cursor:
            cursor.execute(statement, values)
            return list(cursor.fetchall())


def connected(url: str) -> Any:
    place = urlsplit(url)
    return pymysql.connect(
        host=place.hostname,
        port=place.port or 3306,
        user=unquote(place.username or ""),
        password=unquote(place.password or ""),
        database=place.path.strip("/"),
        charset="utf8mb4",
        autocommit=True,
    )


def xid(transaction: str) -> str:
    """Of letters, digits and dots, so nothing in it has to be quoted."""
    return f"'{transaction[:PART_MAX]}', '{transaction[PART_MAX:]}'"


def main() -> None:
    import exactum

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("url")
    parser.add_argument("--table", required=True)
    parser.add_argument("--checkpoint", required=True)
    chosen = parser.parse_args()
    with connected(chosen.url) as session, session.cursor() as cursor:
        for statement in TABLES:
            cursor.execute(statement.format(chosen.table))
    spark = exactum.local_session("numbers")
    # The executors import the sink's class: it must live in a module.
    spark.sparkContext.addPyFile(__file__)
    from xa_sink import XaSink as Sink

    numbers = spark.readStream.format("rate").option("rowsPerSecond", 100).load()
    rows = numbers.selectExpr("value AS number", "CAST(timestamp AS STRING) AS at")
    writer = rows.writeStream.trigger(processingTime="1 second")
    once = exactum.exactly_once(Sink(chosen.url, chosen.table))
    query = once.start(writer, checkpoint=chosen.checkpoint)
    query.awaitTermination()


if __name__ == "__main__":
    main()
