"""An epoch that stands, and whose state cannot be had: it is computed once more, and its rows are
compared with those that were written.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import exactum
from exactum.errors import CheckpointRefused, UnknownFailure
from exactum.spark.jvm.java_class import JvmError
from exactum.spark.jvm.state import BatchPlan
from exactum.spark.run.committed_epochs import ON_DIFFERENCE
from tests.kit.errors import check_query_error
from tests.kit.spark import stateful
from tests.kit.spark.files import rows_in
from tests.kit.spark.torn_stream import (
    DIES_AT,
    EPOCHS,
    FORMAT_1,
    IN_MEMORY,
    Shown,
    Stream,
    configured,
    into_a_folder,
    lose_version,
)

pytestmark = pytest.mark.spark

COMPARED = "Its rows are compared with those that were written"
AGREES = f"epoch {DIES_AT} gives the rows that stand"


@pytest.fixture(autouse=True)
def no_snapshots(spark: SparkSession) -> Iterator[None]:
    """Spark's maintenance would make one behind a query that has ended, of what a test takes away."""
    with configured(spark, {"spark.sql.streaming.stateStore.minDeltasForSnapshot": "100"}):
        yield


def lose_state(stream: Stream) -> None:
    lose_version(stream.checkpoint, DIES_AT + 1)


def refused(stream: Stream, **how: Any) -> str:
    with pytest.raises(StreamingQueryException) as ended:
        stream.live(**how)
    check_query_error(str(ended.value), CheckpointRefused, "RESULT_DIFFERS")
    return str(ended.value)


def into_a_view(folder: Path) -> dict[str, Any]:
    return {"sinks": [exactum.FileSink(folder / "out", format="json", rows=all_of_it)]}


def all_of_it(frame: DataFrame) -> DataFrame:
    """What a function makes of a batch may be another thing each time."""
    return frame


NOT_COMPARED = "its record does not say which rows were written"


@pytest.mark.deep
@pytest.mark.parametrize(
    ("lost", "sinks", "said", "settings"),
    [
        pytest.param("state", into_a_folder, (COMPARED, AGREES), {}, id="a file is empty"),
        pytest.param("state_ids", into_a_folder, (COMPARED, AGREES), {}, id="no ids on record"),
        pytest.param("fingerprint", into_a_folder, (NOT_COMPARED,), {}, id="no hash on record"),
        pytest.param("state", into_a_view, (NOT_COMPARED,), {}, id="no sink sees the batch"),
        pytest.param("", into_a_folder, (COMPARED, AGREES), FORMAT_1, id="format 1, accepted"),
        pytest.param(
            "", into_a_folder, (COMPARED, AGREES), {**IN_MEMORY, **FORMAT_1}, id="in memory"
        ),
    ],
)
def test_state_that_cannot_be_had(
    spark: SparkSession,
    tmp_path: Path,
    undisturbed: Callable[[Any, str], Shown],
    caplog: pytest.LogCaptureFixture,
    lost: str,
    sinks: Any,
    said: Sequence[str],
    settings: dict[str, str],
) -> None:
    """The epoch is computed once more, and gives what it gave; where that cannot be compared, it
    says so. In format 1 nobody can tell whether the state is that of the output.
    """
    caplog.set_level("INFO", "exactum")
    accepted = {ON_DIFFERENCE: "warn"} if settings else {}
    with configured(spark, {**settings, **accepted}):
        stream = Stream(spark, tmp_path / "torn", stateful.update, "update", sinks=sinks)
        stream.live(DIES_AT)
        if lost not in ("", "state"):
            forget(stream, lost)
        if lost not in ("", "state_ids"):
            lose_state(stream)
        stream.live()
    assert all(words in caplog.text for words in said)
    whole = undisturbed(stateful.update, "update")
    assert stream.output() == whole.output
    assert settings or Shown.of(stream) == whole


parity = exactum.Rows("key = 'k1'", ["total * 2 AS twice"])


def sums(frame: DataFrame) -> DataFrame:
    return frame.groupBy().agg(f.sum("total").alias("total"))


def with_views(*rows: Any) -> Callable[[Path], dict[str, Any]]:
    def sinks(folder: Path) -> dict[str, Any]:
        views = [
            exactum.FileSink(folder / f"view{place}", format="json", rows=one)
            for place, one in enumerate(rows)
        ]
        return {"sinks": [*into_a_folder(folder)["sinks"], *views]}

    return sinks


@pytest.mark.parametrize(
    ("changed", "sinks", "how"),
    [
        pytest.param((2, 1, 1), into_a_folder, "as many rows (3)", id="value"),
        pytest.param(
            (1, 1), into_a_folder, "3 rows were written, and", id="rows", marks=pytest.mark.deep
        ),
        pytest.param(
            (2, 1, 1), with_views(parity), "as many rows (3)", id="columns", marks=pytest.mark.deep
        ),
        pytest.param(
            (2, 1, 1), with_views(sums), "as many rows (3)", id="persisted", marks=pytest.mark.deep
        ),
    ],
)
def test_another_result_is_refused(
    spark: SparkSession,
    tmp_path: Path,
    changed: tuple[int, ...],
    sinks: Any,
    how: str,
) -> None:
    """As often as it is started; until the query is given what it had, and then goes on as if
    nothing had been."""
    same = stateful.weights(spark, 1, 1, 1)
    stream = Stream(spark, tmp_path, stateful.heavy, "update", sinks=sinks)
    stream.live(DIES_AT, before=same)
    lose_state(stream)
    for _ in range(2):
        text = refused(stream, before=stateful.weights(spark, *changed))
        assert how in text
        assert f"{ON_DIFFERENCE}=warn" in text
    stream.live(before=same)
    totals = [(f"k{n}", 2 * epoch) for n in range(3) for epoch in range(1, EPOCHS + 1)]
    assert sorted((row["key"], row["total"]) for row in rows_in(tmp_path / "out")) == totals


def test_what_it_fails_with(spark: SparkSession, tmp_path: Path) -> None:
    """Is told as one of our errors, with what is in the sinks; and a start that computes it goes
    on.
    """

    def broken(number: int) -> bool:
        raise LookupError("no table")

    fails = f.udf(broken, "boolean", useArrow=False)
    stream = Stream(spark, tmp_path, stateful.update, "update")
    stream.live(DIES_AT)
    lose_state(stream)
    stream.make = lambda rows: stateful.update(rows.where(fails("number")))
    with pytest.raises(StreamingQueryException) as ended:
        stream.live()
    facts = "LookupError: no table", "stands in the sinks"
    check_query_error(str(ended.value), UnknownFailure, *facts)
    stream.make = stateful.update
    stream.live()
    assert stream.kept(deaths=2)


@pytest.mark.deep
def test_another_result_may_be_accepted(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stream = Stream(spark, tmp_path, stateful.heavy, "update")
    stream.live(DIES_AT, before=stateful.weights(spark, 1, 1, 1))
    lose_state(stream)
    with configured(spark, {ON_DIFFERENCE: "warn"}):
        stream.live(before=stateful.weights(spark, 2, 2, 2))
    assert "State and output would disagree" in caplog.text
    totals = {json.loads(line)["total"] for line in stream.output()}
    assert totals == {2, 4, 6, 12, 16}, "6 stands, and the state was 8"


@pytest.mark.parametrize("rows", [parity, sums], ids=["rows_and_columns", "a_job_of_its_own"])
@pytest.mark.deep
def test_what_a_view_adds_is_no_difference(
    spark: SparkSession, tmp_path: Path, rows: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The state is below the views: a random number in one of them is not compared."""
    caplog.set_level("INFO", "exactum")

    def random(frame: DataFrame) -> DataFrame:
        return rows(frame).withColumn("id", f.expr("uuid()"))

    sinks = with_views(random)
    stream = Stream(spark, tmp_path, stateful.update, "update", sinks=sinks)
    stream.live(DIES_AT)
    lose_state(stream)
    stream.live()
    assert AGREES in caplog.text


@pytest.mark.deep
def test_a_spark_that_does_not_answer(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A new one with other parts: each epoch that stands is computed once more, and compared."""
    caplog.set_level("INFO", "exactum")

    def no_answer(self: BatchPlan) -> Any:
        raise JvmError("no such method")

    monkeypatch.setattr(BatchPlan, "watermarks", no_answer)
    stream = Stream(spark, tmp_path, stateful.heavy, "update")
    stream.live(DIES_AT, before=stateful.weights(spark, 1, 1, 1))
    assert "as many rows (3)" in refused(stream, before=stateful.weights(spark, 2, 2, 2))
    stream.live(before=stateful.weights(spark, 1, 1, 1))
    assert "its record does not say what Spark has to know of it" in caplog.text
    assert AGREES in caplog.text


def forget(stream: Stream, *facts: str) -> None:
    """Take these facts out of the record of the epoch that stands."""
    found = 0
    for path in (stream.checkpoint / "exactum" / "decisions").rglob("*"):
        if not path.is_file():
            continue
        text = path.read_text()
        if '"engine"' not in text:
            continue
        record = json.loads(text)
        if record["batch_id"] == DIES_AT and record["decision"] == "commit":
            engine = json.loads(record["engine"])
            assert all(engine.pop(fact) for fact in facts)
            path.write_text(json.dumps({**record, "engine": json.dumps(engine)}))
            found += 1
    assert found == 1


def stamped(rows: DataFrame) -> DataFrame:
    return (
        rows.withColumn("now", f.current_timestamp())
        .groupBy("key")
        .agg(f.max("now").alias("newest"), f.sum("number").alias("total"))
    )


@pytest.mark.deep
@pytest.mark.parametrize(
    ("make", "mode"),
    [
        (stamped, "update"),
        (stateful.groups_by_the_clock, "append"),
        (stateful.timers, "append"),
        (stateful.full_outer, "append"),
        (stateful.sessions, "append"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_the_time_of_an_epoch_is_fixed(
    spark: SparkSession, tmp_path: Path, make: Any, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What depends on the clock, or on the watermark, gives the same when it is computed again."""
    caplog.set_level("INFO", "exactum")
    with configured(spark, stateful.SETTINGS.get(make, {})):
        stream = Stream(spark, tmp_path, make, mode)
        stream.live(DIES_AT)
        lose_state(stream)
        stream.live()
    assert AGREES in caplog.text
