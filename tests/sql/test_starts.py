"""What a start says of a server that it cannot use: what is wrong, and never a password. And starts that
meet.
"""

from __future__ import annotations

import logging
import pickle
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from exactum.errors import (
    CheckpointRefused,
    ExactumError,
    FrameRefused,
    SettingRefused,
    Unavailable,
)
from exactum.protocol.model import PreparedTransaction
from exactum.protocol.sink import TaskName
from exactum.storage.folder import Folder
from tests.kit.errors import check_error, raised
from tests.kit.opened_sink import OpenedSink
from tests.kit.sql.clerk import IN_URL, LOGIN, Clerk
from tests.kit.sql.sql_database import SqlDatabase
from tests.kit.sql.sql_epochs import ID_AND_NAME, Query, expected, narrow, tasks_of
from tests.sql.test_epochs import rows_in

CHANGED: dict[str, tuple[str, str, type[ExactumError]]] = {
    "another password": (IN_URL, "wr%40ng%20key", SettingRefused),
    "a port without a server": (":{port}/", ":1/", Unavailable),
    "a host without a server": ("127.0.0.1", "no.such.host.invalid", ExactumError),
    "another database": ("/{name}", "/nowhere", SettingRefused),
    "an option that is none": ("/{name}", "/{name}?nonsense=1", SettingRefused),
    "no URL": ("127.0.0.1:{port}/{name}", "[::1/x", SettingRefused),
    "no table": ("", "", SettingRefused),
}
"""What is changed in a URL that is right, and what a start says then."""


def check(texts: list[str]) -> None:
    for text in texts:
        for secret in ("secret&key", "secret%26key", "wr@ng", "wr%40ng"):
            assert secret not in text


@pytest.mark.parametrize("what", CHANGED)
def test_a_start_that_is_refused_shows_no_password(
    database: SqlDatabase, clerk: Clerk, what: str
) -> None:
    """Nor what caused it does, nor any text of the sink. What another start may mend is
    Unavailable, all else a setting.
    """
    clerk.grant_all()
    address = clerk.url.rpartition("@")[2]
    parts = {"port": address.partition(":")[2].partition("/")[0], "name": address.partition("/")[2]}
    old, new, kind = CHANGED[what]
    given = clerk.url.replace(old.format(**parts), new.format(**parts))
    texts: list[str] = []

    def start() -> None:
        sink = database.sink("nowhere", given)
        texts.extend((repr(sink), str(sink), sink.name, repr(vars(sink))))
        Query(lambda: sink).check()

    with pytest.raises(kind) as caught:
        start()
    error: Any = caught.value
    if kind is Unavailable:
        check_error(error, Unavailable, ":1/")
    if what == "another password":
        check_error(error, SettingRefused, "SQL_ACCESS", LOGIN)
    pickled = str(pickle.loads(pickle.dumps(error)))
    check([*texts, str(error), repr(error), repr(error.__cause__), pickled])


def test_nothing_that_travels_or_is_recorded_shows_the_password(
    database: SqlDatabase, clerk: Clerk, caplog: pytest.LogCaptureFixture
) -> None:
    """What goes to the executors pickles, and opens a writer there that works."""
    caplog.set_level(logging.DEBUG)
    table = database.table()
    clerk.grant_all()
    query = database.query(table, url=clerk.url)
    driver = query.start()
    driver.run(0)
    writers = pickle.loads(pickle.dumps(driver.opened.writers))
    assert writers == driver.opened.writers
    writer = writers.open(driver.order(1), TaskName(0, 0, 0))
    writer.write(tasks_of(1)[0][0])
    prepared = [writer.prepare()]
    texts = map(repr, (driver.opened, vars(driver.participant), driver.events, writer, prepared))
    check([*texts, caplog.text, repr(query.storage.records), repr(driver.participant.list_open())])
    driver.participant.abort(driver.participant.list_open())
    driver.close()
    assert rows_in(database, table) == expected([0])
    assert query.staged() == []


TYPES = (
    "string", "boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "decimal(38,18)", "binary",
    "date", "timestamp", "timestamp_ntz", "varchar(3)", "string collate UNICODE_CI",
)  # fmt: skip
NESTED = ("array<int>", "array<string collate UTF8_LCASE>", "struct<a:int>")
"""In PostgreSQL alone."""


def test_a_table_is_made_of_every_type(database: SqlDatabase) -> None:
    """Only on request. The next start takes it as it is, and the key as its own. (What it holds then:
    tests/abuse, frames of any shape.)
    """
    types = (*TYPES, *(NESTED if database.dialect.scheme == "postgres" else ()))
    columns = tuple((f"c{number}", kind) for number, kind in enumerate(types))
    with raised(SettingRefused, "SQL_TABLE_MISSING", "'made'", "create_table=True"):
        database.query("made", columns).check()
    for _ in range(2):
        database.query("made", columns, mode="upsert", key="c0", create_table=True).check()
    if database.dialect.scheme == "mysql":  # which has 30 digits after the point
        with raised(FrameRefused, "SQL_CREATE", "'n'", "decimal(38,38)"):
            database.query("other", [("n", "decimal(38,38)")], create_table=True).check()


def test_starts_that_race_to_create_the_tables(database: SqlDatabase) -> None:
    """Queries that start at once on a schema without any table make each once, and all of them run."""

    def run(batch_id: int) -> None:
        database.query("made", create_table=True).run(batch_id)

    for _ in range(3):
        database.drop_all()
        with ThreadPoolExecutor(5) as pool:
            list(pool.map(run, range(5)))
        assert rows_in(database, "made") == expected(range(5))


def test_a_table_that_is_gone_is_not_made_anew(database: SqlDatabase, tmp_path: Path) -> None:
    """Readers would see an empty one. Nor is one of another name in the way of a sink that was moved."""

    def start(table: str, committed: Sequence[PreparedTransaction] = ()) -> OpenedSink:
        sink = database.sink(table, create_table=True)
        staging = Folder(tmp_path)
        return OpenedSink(sink, ID_AND_NAME, name="out", staging=staging, committed=committed)

    with start("made") as first:
        had = first.write(narrow([(1, "a")])).record.prepared
    with start("made", had):  # it is there
        pass
    database.run("DROP TABLE made")
    with raised(CheckpointRefused, "ENDS_DIFFER", "batch 0", "create it yourself"):
        start("made", had)
    with pytest.raises(SettingRefused):
        database.sink("made").open(first.run, "out", ID_AND_NAME)
    with start("moved", had):
        assert rows_in(database, "moved") == []
