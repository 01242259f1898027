"""``SparkTableSink``: rows are staged, decided, and then written by Spark, as often as it takes."""

from __future__ import annotations

import os
import shutil
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import exactum
from exactum import errors
from exactum.storage.folder import Folder
from tests.kit.errors import check_error, raised
from tests.kit.opened_sink import OpenedSink
from tests.kit.spark.torn_stream import configured
from tests.kit.transactions.given import given
from tests.kit.transactions.operator import accept

pytestmark = pytest.mark.spark


class Table:
    """A table of folders, one for each transaction: to write one again changes nothing."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder = spark, folder
        self.asked: list[exactum.TableTransaction] = []
        self.failures: list[Exception] = []
        self.dies_behind = False

    def write(self, frame: DataFrame, txn: exactum.TableTransaction) -> None:
        self.asked.append(txn)
        if self.failures:
            raise self.failures.pop()
        app = txn.app_id.replace(":", "-")
        frame.write.mode("overwrite").parquet(f"{self.folder}/{app}/version={txn.version}")
        if self.dies_behind:
            self.dies_behind = False
            raise ConnectionError("the answer was lost")

    def last_version(self, app_id: str) -> int | None:
        found = (self.folder / app_id.replace(":", "-")).glob("version=*")
        return max((int(each.name.partition("=")[2]) for each in found), default=None)

    def sink(self, **settings: Any) -> exactum.SparkTableSink:
        return exactum.SparkTableSink(self.write, name="table", **settings)

    def values(self) -> list[int]:
        if not self.folder.exists():
            return []
        return sorted(row.v for row in self.spark.read.parquet(f"{self.folder}/*/*").collect())


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> Table:
    return Table(spark, tmp_path / "table")


def test_each_micro_batch_is_one_transaction(query: Any, table: Table) -> None:
    """Beside another sink; its versions are the batches, of one app id."""
    query.give(1, 2)
    query.give(3)
    assert query.run(query.exactly_once(query.sink, table.sink())) is None
    assert table.values() == query.values() == [1, 2, 3]
    assert [txn.version for txn in table.asked] == [0, 1]
    assert len({txn.app_id for txn in table.asked}) == 1


def test_what_is_decided_is_written_by_the_next_start(query: Any, table: Table) -> None:
    """Whether it was not written, or was and nobody knows: by the same transaction, so that a table
    which had it takes it for the same.
    """
    table.failures = [ConnectionError("away")]
    query.give(1, 2)
    assert "Start the query again" in query.run(query.exactly_once(query.sink, table.sink()))
    table.dies_behind = True
    assert "Start the query again" in query.run(query.exactly_once(query.sink, table.sink()))
    query.give(3)
    assert query.run(query.exactly_once(query.sink, table.sink())) is None
    assert table.values() == query.values() == [1, 2, 3]
    assert table.asked[0] == table.asked[1] == table.asked[2] != table.asked[3]


def mistaken(frame: DataFrame, _: exactum.TableTransaction) -> None:
    raise ValueError("no such option")


def refusing(frame: DataFrame, _: exactum.TableTransaction) -> None:
    frame.selectExpr("CAST(concat('a', v) AS int) AS n").write.format("noop").mode("append").save()


def of_no_format(frame: DataFrame, _: exactum.TableTransaction) -> None:
    frame.write.format("nowhere").save()


def away(frame: DataFrame, _: exactum.TableTransaction) -> None:
    frame.write.parquet("hdfs://nowhere.invalid:1/table")


def answering(frame: DataFrame, _: exactum.TableTransaction) -> Any:
    """Without ``save()``."""
    return frame.write


def looking(frame: DataFrame, _: exactum.TableTransaction) -> None:
    raise errors.HeuristicOutcome("another hand has written here")


@pytest.mark.parametrize(
    ("write", "kind", "said"),
    [
        (mistaken, errors.HeuristicOutcome, ["TARGET_REFUSES", "no such option"]),
        (refusing, errors.HeuristicOutcome, ["TARGET_REFUSES", "'a1'"]),
        (of_no_format, errors.HeuristicOutcome, ["TARGET_REFUSES", "DATA_SOURCE_NOT_FOUND"]),
        (away, errors.OutcomeUnknown, ["UnknownHostException"]),
        (answering, errors.CodeFailed, ["SINK_ANSWER", "returned <pyspark.sql", "are kept"]),
        (looking, errors.HeuristicOutcome, ["USER_CODE", "another hand"]),
    ],
)
def test_a_writer_that_fails_keeps_the_rows(
    query: Any, table: Table, write: Any, kind: type[Exception], said: list[str]
) -> None:
    """What is wrong stops the query, with what it says: a mistake, rows that Spark or the table refuses,
    an answer, which is not taken for a success, an error of ours. What may pass is said to. Corrected,
    the next start writes them.
    """
    query.give(1)
    query.run(query.exactly_once(exactum.SparkTableSink(write, name="table")))
    check_error(query.error, kind, *said)
    assert query.run(query.exactly_once(table.sink())) is None
    assert table.values() == [1]


def test_without_a_decision_a_wrong_writer_stops_the_query_as_well(query: Any) -> None:
    for write, kind, said in (
        (mistaken, errors.CodeFailed, ["CODE_FAILED", "no such option"]),
        (answering, errors.CodeFailed, ["SINK_ANSWER"]),
        (away, errors.Unavailable, ["UnknownHostException"]),
    ):
        query.give(1)
        query.run(exactum.at_least_once(exactum.SparkTableSink(write, name="table")))
        check_error(query.error, kind, *said)


def test_odd_names_are_taken_as_they_are(query: Any, table: Table, tmp_path: Path) -> None:
    """Within a column, and of a staging: its signs are no pattern."""
    query.give(1)
    names = ("x-y", "a b", "ü", "a.b", "1")
    pairs = ", ".join(f"'{name}', v" for name in names)
    nested = table.sink(rows=exactum.Rows(columns=["v", f"named_struct({pairs}) AS s"]))
    staging = str(tmp_path / "{a,b}[1]*?")
    assert query.run(query.exactly_once(nested, staging=staging)) is None
    (row,) = table.spark.read.parquet(f"{table.folder}/*/*").collect()
    assert row.s.asDict() == dict.fromkeys(names, 1)


SESSION = {
    "fs.defaultFS": "hdfs://nowhere.invalid:1/",
    "spark.sql.files.ignoreCorruptFiles": "true",
    "spark.sql.files.ignoreMissingFiles": "true",
    "spark.sql.parquet.datetimeRebaseModeInRead": "LEGACY",
}


def test_no_setting_of_the_session_changes_what_is_staged(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Wherever it looks by default, and however it reads: all rows come as they are, or an error."""
    came: list[date] = []
    sink = exactum.SparkTableSink(
        lambda frame, _: came.extend(row.day for row in frame.collect()), name="table"
    )
    query = OpenedSink(sink, [("day", "date")], staging=Folder(tmp_path))
    rows = pa.record_batch({"day": pa.array([date(1500, 1, 1)])})
    with configured(spark, SESSION):
        query.write(rows)
        torn = query.decide(rows, batch_id=1)
        (file,) = tmp_path.rglob(f"{torn.record.prepared[0].identity}*.staged")
        os.truncate(file, file.stat().st_size - 1)
        with raised(errors.OutcomeUnknown, file.name):
            query.commit(torn)
    assert came == [date(1500, 1, 1)]


def test_an_instant_is_one_whatever_the_word_means(spark: SparkSession, tmp_path: Path) -> None:
    """A session may take every timestamp for one without a zone."""
    kinds: list[list[tuple[str, str]]] = []
    sink = exactum.SparkTableSink(lambda frame, _: kinds.append(frame.dtypes), name="table")
    rows = pa.record_batch({"at": pa.array([0], pa.timestamp("us", "UTC"))})
    with configured(spark, {"spark.sql.timestampType": "TIMESTAMP_NTZ"}):
        OpenedSink(sink, [("at", "timestamp")], staging=Folder(tmp_path)).write(rows)
    assert kinds == [[("at", "timestamp")]]


def test_what_cannot_be_a_sink_is_refused_at_once() -> None:
    for wrong in ({"write": "x"}, {"name": ""}, {"name": 5}, {"last_version": 5}):
        given: dict[str, Any] = {"write": print, "name": "table", **wrong}
        with raised(errors.SettingRefused, "LAKE_ARGUMENT", *wrong):
            exactum.SparkTableSink(**given)


@pytest.mark.parametrize("tells", ["the table", "the staging"])
def test_an_older_checkpoint_is_refused_where_something_tells(
    tells: str, query: Any, table: Table, tmp_path: Path
) -> None:
    """Else the table would take its rows for those that it has. Who accepts that they come again gets
    them again.
    """
    sink = table.sink(last_version=table.last_version if tells == "the table" else None)
    elsewhere = {} if tells == "the table" else {"staging": tmp_path / "staging"}

    def run() -> str | None:
        return query.run(query.exactly_once(sink, **elsewhere))

    query.give(1)
    assert run() is None
    shutil.copytree(query.checkpoint, tmp_path / "copy")
    query.give(2)
    assert run() is None
    shutil.rmtree(query.checkpoint)
    (tmp_path / "copy").rename(query.checkpoint)
    query.give(3)
    assert run() is not None
    assert isinstance(query.error, errors.CheckpointRefused)
    assert query.error.code == "ENDS_DIFFER"
    assert table.values() == [1, 2]
    assert "twice" in accept(query.checkpoint, 1, *given(sink))
    assert run() is None
    assert table.values() == [1, 2, 2, 3]
    query.give(4)
    assert run() is None
    assert table.values() == [1, 2, 2, 3, 4]
    assert len({txn.app_id for txn in table.asked}) == 2


def test_the_weaker_guarantees(query: Any, table: Table) -> None:
    """Each row once where nothing dies."""
    for value, guarantee in ((1, exactum.at_least_once), (2, exactum.at_most_once)):
        query.give(value)
        assert query.run(guarantee(table.sink())) is None
    assert table.values() == [1, 2]


@pytest.mark.parametrize(
    ("trigger", "said"),
    [
        ({"processingTime": "500 milliseconds"}, "172,800 versions a day"),
        ({"processingTime": "0 seconds"}, "as soon as there are rows"),
        ({"processingTime": "2 seconds"}, ""),
        ({"availableNow": True}, ""),
    ],
    ids=str,
)
def test_many_versions_are_said(
    query: Any, table: Table, caplog: pytest.LogCaptureFixture, trigger: dict[str, Any], said: str
) -> None:
    """At the start, and of which sink; others make none."""
    query.start(query.exactly_once(query.sink, table.sink()), **trigger).stop()
    found = [record.message for record in caplog.records if "versions a day" in record.message]
    assert len(found) == bool(said)
    for each in found:
        assert said in each and "'table'" in each and "'folder'" not in each
