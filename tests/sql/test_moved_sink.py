"""A sink that points to another database while something is decided for the former one."""

from __future__ import annotations

import json
from dataclasses import replace

from exactum.errors import InvariantBroken, SettingRefused
from tests.kit.errors import raised
from tests.kit.sql.sql_database import SqlDatabase
from tests.kit.sql.sql_epochs import expected
from tests.sql.test_epochs import decided, restored, rows_in


def alias_of(database: SqlDatabase) -> str:
    assert "@127.0.0.1:" in database.url
    return database.url.replace("@127.0.0.1:", "@localhost:")


def test_another_name_of_the_server_goes_on(database: SqlDatabase) -> None:
    """Its ledger knows the query."""
    table = database.table()
    query = database.query(table)
    query.die_before_commit(0, 1)
    query.sink = lambda: database.sink(table, alias_of(database))
    query.run(1, 2)
    assert rows_in(database, table) == expected([0, 1, 2])


def test_a_database_without_a_batch_of_the_query(database: SqlDatabase) -> None:
    """By another name it may be another one, and the former one may have had its COMMIT: the start
    sends back, without a password. Pointed back, the epoch is finished, and then the sink may move.
    """
    table = database.table()
    query, driver, _ = decided(database, table)
    driver.close()
    here = query.sink
    query.sink = lambda: database.sink(table, alias_of(database))
    places = [url.rpartition("@")[2] for url in (alias_of(database), database.url)]
    with raised(SettingRefused, "SINK_MOVED", *places) as caught:
        query.run(0)
    assert database.server.password not in str(caught.value)
    assert rows_in(database, table) == []
    query.sink = here
    query.run(0)
    query.sink = lambda: database.sink(table, alias_of(database))
    query.run(1)
    assert rows_in(database, table) == expected([0, 1])


def test_a_record_of_another_kind_of_sink(database: SqlDatabase) -> None:
    """A sink of files had the name when it was decided: says what to do, and writes nothing."""
    table = database.table()
    driver = database.query(table).start()
    driver.run(0)
    (one, *_) = driver.write(driver.order(1))
    value = json.loads(one.payload) | {"facts": {"extension": "parquet"}}
    other = replace(one, payload=json.dumps(value))
    with raised(InvariantBroken, f" {one.identity} ", repr(one.participant)):
        driver.participant.verify([other])
    driver.close()
    assert rows_in(database, table) == expected([0])


def test_another_table_of_the_same_schema(database: SqlDatabase) -> None:
    """The ledger is the schema's: it tells of the sink, whatever table it writes to. What was lost
    goes where it was.
    """
    table = database.table()
    query = database.query(table)
    query.participant = "kept"
    query.run(0, 1, 2)
    restored(database, table, 1)
    other = database.table()
    query.sink = lambda: database.sink(other)
    query.run(3)
    assert rows_in(database, table) == expected([0, 1, 2])
    assert rows_in(database, other) == expected([3])
