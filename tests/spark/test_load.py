"""Batch loads: one frame into all sinks, once, by the load's id."""

from __future__ import annotations

import json
import shutil
import signal
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import exactum
from exactum import errors, events
from tests.kit.errors import check_query_error, raised
from tests.kit.kafka.broker import Broker
from tests.kit.python import python
from tests.kit.spark.folder_sink import FolderSink, arm, disarm, rows
from tests.kit.transactions.operator import invoke
from tests.kit.waiting import WAIT_MAX_S

pytestmark = pytest.mark.spark

ROWS = 100
ID = "numbers-1"
Folders = Callable[..., exactum.Delivery]


@pytest.fixture
def numbers(spark: SparkSession) -> DataFrame:
    return spark.range(ROWS).selectExpr("id AS v")


@pytest.fixture
def into(tmp_path: Path) -> Folders:
    """Loads into folders of these names."""

    def made(*names: str, **settings: Any) -> exactum.Delivery:
        sinks = [FolderSink(str(tmp_path / name), name=name) for name in names]
        return exactum.exactly_once(*sinks, decision_log=tmp_path / "log", **settings)

    return made


def values(folder: Path) -> Counter[int]:
    return Counter(row["v"] for row in rows(folder))


ONCE = Counter(range(ROWS))


def test_it_is_written_once_by_its_id(tmp_path: Path, into: Folders, numbers: DataFrame) -> None:
    """In every sink; a second call writes nothing, another id does."""
    first = into("a", "b").write(numbers, id=ID)
    assert (first.id, first.written) == (ID, True)
    again = into("a", "b").write(numbers, id=ID)
    assert (again.query_id, again.written) == (first.query_id, False)
    assert values(tmp_path / "a") == values(tmp_path / "b") == ONCE
    assert into("a", "b").write(numbers, id="numbers-2").written
    assert values(tmp_path / "a") == ONCE + ONCE


def test_a_table_that_is_gone_is_not_made_anew(tmp_path: Path, numbers: DataFrame) -> None:
    """The load stands, so nothing would be written into the new one."""
    table = tmp_path / "table"
    load = exactum.exactly_once(exactum.DeltaSink(table), decision_log=tmp_path / "log")
    assert load.write(numbers, id=ID).written
    table.rename(tmp_path / "aside")
    with raised(errors.CheckpointRefused, "ENDS_DIFFER", "there is no table"):
        load.write(numbers, id=ID)
    assert not table.exists()


def test_what_failed_before_its_decision_leaves_nothing(
    tmp_path: Path, into: Folders, numbers: DataFrame
) -> None:
    """The next call writes it, once."""
    (tmp_path / "a").mkdir()
    arm(tmp_path / "a", "prepare", times=20)  # more than Spark tries
    with raised(errors.CodeFailed, "CODE_FAILED"):
        into("a", "b").write(numbers, id=ID)
    disarm(tmp_path / "a")
    assert not values(tmp_path / "a") and not values(tmp_path / "b")
    assert into("a", "b").write(numbers, id=ID).written
    assert values(tmp_path / "a") == values(tmp_path / "b") == ONCE
    assert not rows(tmp_path / "a", "staged")


def odd(value: int) -> int:
    if value == 7:
        raise ValueError("no such number")
    return value


def test_what_the_frame_itself_fails_with_is_an_error_of_ours(
    tmp_path: Path, into: Folders, numbers: DataFrame
) -> None:
    """Of a function, of a view and of Spark, while it is written and while it is compared: the
    class says whether the rows or the code may be to blame, and the next call goes on.
    """
    broken = numbers.select(f.udf(odd, "long", useArrow=False)("v").alias("v"))
    with raised(errors.UnknownFailure, "ValueError: no such number"):
        into("a", "b").write(broken, id=ID)
    (tmp_path / "gone").mkdir()
    numbers.write.parquet(f"{tmp_path}/gone/rows")
    gone = numbers.sparkSession.read.parquet(f"{tmp_path}/gone/rows")
    shutil.rmtree(tmp_path / "gone")
    with raised(errors.UnknownFailure, "FileNotFoundException", "/gone/rows"):
        into("a", "b").write(gone, id=ID)
    with raised(errors.UnknownFailure, "ZeroDivisionError", "test_load.py:"):
        sink = FolderSink(str(tmp_path / "a"), name="a", rows=lambda _: 1 // 0)
        exactum.exactly_once(sink, decision_log=tmp_path / "log").write(numbers, id=ID)
    assert not values(tmp_path / "a") and not values(tmp_path / "b")
    assert into("a", "b").write(numbers, id=ID).written
    with raised(errors.UnknownFailure, "ValueError: no such number"):
        into("a", "b").write(broken, id=ID)
    assert values(tmp_path / "a") == values(tmp_path / "b") == ONCE


def test_a_sink_that_does_not_take_it_is_given_up(
    tmp_path: Path, into: Folders, numbers: DataFrame
) -> None:
    """By a person: the others have it, and no later call asks that sink for it."""
    (tmp_path / "b").mkdir()
    arm(tmp_path / "b", "commit", "unavailable")
    with raised(errors.Unavailable, "did not answer"):
        into("a", "b").write(numbers, id=ID)
    of_load = ("accept", "--load", ID, "--decision-log", tmp_path / "log", "--yes")
    other = invoke(*of_load, "--without", "c")
    assert (other.exit_code, "it names a, b" in other.output) == (2, True)
    said = invoke(*of_load, "--without", "b")
    assert (said.exit_code, f"load {ID!r} is decided without sink 'b'" in said.output) == (0, True)
    assert not into("a", "b").write(numbers, id=ID).written
    assert values(tmp_path / "a") == ONCE
    assert not values(tmp_path / "b")


def test_a_used_id_is_refused_for_other_rows(
    tmp_path: Path, into: Folders, numbers: DataFrame, spark: SparkSession
) -> None:
    """By number and by hash, in any order and any partitions; unless nothing is compared."""
    into("a").write(numbers, id=ID)
    assert not into("a").write(numbers.repartition(7).orderBy("v", ascending=False), id=ID).written
    with raised(
        errors.CheckpointRefused, "LOAD_OTHER_ROWS", "100 rows were written, and these are 99"
    ):
        into("a").write(numbers.limit(99), id=ID)
    others = spark.range(1, ROWS + 1).selectExpr("id AS v")
    with raised(errors.CheckpointRefused, "LOAD_OTHER_ROWS", "not the same ones"):
        into("a").write(others, id=ID)
    assert not into("a").write(others, id=ID, compare=False).written
    assert values(tmp_path / "a") == ONCE


def test_a_used_id_is_refused_for_other_sinks(
    tmp_path: Path, into: Folders, numbers: DataFrame
) -> None:
    """A further one would be left without the rows, and nobody would know."""
    into("a", "c").write(numbers, id=ID)
    for others in (("a", "b", "c"), ("a",), ("a", "b")):
        with raised(errors.CheckpointRefused, "LOAD_OTHER_SINKS"):
            into(*others).write(numbers, id=ID, compare=False)
    assert not values(tmp_path / "b")


def test_a_place_that_does_not_keep_it_is_refused(numbers: DataFrame, tmp_path: Path) -> None:
    """A relative path names another log elsewhere; readers of a sink's folder would find what lies in
    it.
    """
    sink = exactum.FileSink(tmp_path / "out")
    with raised(errors.SettingRefused, "LOAD_ARGUMENT", "decision_log"):
        exactum.exactly_once(sink, decision_log="loads").write(numbers, id=ID)
    with raised(errors.SettingRefused, "FOLDER_WITHIN", "decision_log"):
        exactum.exactly_once(sink, decision_log=tmp_path / "out" / "loads").write(numbers, id=ID)
    places = {"decision_log": tmp_path / "log", "staging": tmp_path / "out" / "rows"}
    with raised(errors.SettingRefused, "FOLDER_WITHIN", "staging"):
        exactum.exactly_once(sink, **places).write(numbers, id=ID)
    assert not list(tmp_path.rglob("part-*"))


def test_two_at_once(tmp_path: Path, into: Folders, numbers: DataFrame) -> None:
    """The same load from two threads: whoever is fenced says so, and the rows are there once."""
    outcomes: list[Any] = []

    def load() -> None:
        try:
            outcomes.append(into("a", "b").write(numbers, id=ID))
        except errors.ExactumError as error:
            outcomes.append(error)

    threads = [threading.Thread(target=load) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_MAX_S)
    assert len(outcomes) == len(threads)
    into("a", "b").write(numbers, id=ID)
    assert values(tmp_path / "a") == values(tmp_path / "b") == ONCE


def test_dead_letters(tmp_path: Path, numbers: DataFrame) -> None:
    """What a sink refuses is put aside under the load's decision."""
    seen: list[Any] = []
    once = exactum.exactly_once(
        FolderSink(str(tmp_path / "a"), refuses_v=7),
        dead_letters=FolderSink(str(tmp_path / "dead"), name="dead"),
        decision_log=tmp_path / "log",
        on_event=seen.append,
    )
    assert once.write(numbers, id=ID).written
    assert values(tmp_path / "a") == ONCE - Counter([7])
    assert len(rows(tmp_path / "dead")) == 1
    assert [each.rows for each in seen if isinstance(each, events.RowsDeadLettered)] == [1]


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_rows_wait_below_the_decision_log(tmp_path: Path, numbers: DataFrame, scheme: str) -> None:
    """However its folder is written: a sink that stages rows needs nothing said."""
    sent: list[int] = []
    sink = exactum.WriteAheadSink(lambda batch, key: sent.extend(batch["v"].to_pylist()))
    assert (
        exactum.exactly_once(sink, decision_log=f"{scheme}{tmp_path}/log")
        .write(numbers, id=ID)
        .written
    )
    assert Counter(sent) == ONCE
    assert (tmp_path / "log" / "_staging").is_dir()


def test_each_sink_has_its_view(tmp_path: Path, numbers: DataFrame) -> None:
    """``rows=`` is what it is in a query."""
    even = FolderSink(str(tmp_path / "even"), name="even", rows=lambda f: f.where("v % 2 = 0"))
    every = FolderSink(str(tmp_path / "every"), name="every")
    exactum.exactly_once(even, every, decision_log=tmp_path / "log").write(numbers, id=ID)
    assert values(tmp_path / "even") == Counter(range(0, ROWS, 2))
    assert values(tmp_path / "every") == ONCE


def test_what_can_be_no_load(
    tmp_path: Path, into: Folders, numbers: DataFrame, spark: SparkSession
) -> None:
    """Each is refused before anything is opened."""
    streaming = spark.readStream.format("rate").load()
    with raised(errors.FrameRefused, "LOAD_FRAME", "start"):
        into("a").write(streaming, id=ID)
    with raised(errors.SettingRefused, "LOAD_ARGUMENT", "id="):
        into("a").write(numbers, id=" ")
    with raised(errors.SettingRefused, "LOAD_ARGUMENT", "decision_log"):
        exactum.exactly_once(FolderSink(str(tmp_path / "a"))).write(numbers, id=ID)
    weaker = exactum.at_least_once(FolderSink(str(tmp_path / "a")), decision_log=tmp_path / "log")
    with raised(errors.SettingRefused, "LOAD_ARGUMENT", "exactly_once"):
        weaker.write(numbers, id=ID)
    assert not (tmp_path / "a").exists() and not (tmp_path / "log").exists()


def test_it_is_refused_in_a_micro_batch(query: Any, into: Folders) -> None:
    """Of which it does not know the bad records."""
    query.give(1)
    text = query.run(lambda batch, batch_id: into("a").write(batch, id=f"{batch_id}"))
    check_query_error(text, errors.FrameRefused, "LOAD_FRAME", "for_each_batch")


def into_a_topic_and_files(
    spark: SparkSession, servers: str, topic: str, folder: str, on_event: Any = None
) -> bool:
    """Whether this call has written it."""
    frame = spark.range(ROWS).selectExpr("cast(id AS string) AS key", "cast(id AS string) AS value")
    once = exactum.exactly_once(
        exactum.KafkaSink(topic, bootstrap_servers=servers),
        exactum.FileSink(f"{folder}/out", format="json"),
        decision_log=f"{folder}/log",
        on_event=on_event,
    )
    return once.write(frame, id=ID).written


JOB = """
import os, sys
import exactum
from tests.spark.test_load import into_a_topic_and_files
*places, dies = sys.argv[1:]
def seen(event):
    if type(event).__name__ == dies:
        os.kill(os.getpid(), 9)
into_a_topic_and_files(exactum.local_session("load", master="local[2]"), *places, seen)
"""


@pytest.mark.parametrize(
    "deaths",
    [
        pytest.param(("EpochDecided",), id="decided"),
        pytest.param(("EpochBegan", "EpochDecided"), id="begun", marks=pytest.mark.deep),
    ],
)
def test_killed_into_a_topic_and_files(
    spark: SparkSession, broker: Broker, tmp_path: Path, deaths: tuple[str, ...]
) -> None:
    """SIGKILL once it is decided, or while it is begun as well: the next call finishes it from what
    was prepared, nothing is computed for it, and both targets agree.
    """
    places = broker.servers, broker.topic(), str(tmp_path)
    for dies in deaths:
        python(JOB, *places, dies, status=-signal.SIGKILL)
    seen: list[Any] = []
    assert not into_a_topic_and_files(spark, *places, seen.append), "it was decided"
    assert [type(each) for each in seen].count(events.EpochRedelivered) == 1
    keys = Counter(record.key.decode() for record in broker.read(places[1]))
    files = [path for path in (tmp_path / "out").glob("*.json") if path.is_file()]
    lines = [json.loads(line) for path in files for line in path.read_text().splitlines()]
    assert keys == Counter(line["key"] for line in lines) == Counter(map(str, range(ROWS)))
