"""One epoch, several targets with views of their own, and dead letters: all stand or fall
together.
"""

from __future__ import annotations

import json
import secrets
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as f

import exactum
from exactum import events
from exactum.errors import FrameRefused
from tests.kit.errors import check_query_error
from tests.kit.spark.folder_sink import FolderSink, arm, disarm, rows


def reads(folder: Path) -> Any:
    """A column function that leaves a file for each time a row is computed."""

    def touch(v: int) -> int:
        with (folder / str(v)).open("a") as count:
            count.write("x")
        return v

    return f.udf(touch, "long", useArrow=False)


def jobs_of_this_run(frame: Any) -> set[int]:
    """The ids of Spark's jobs so far of the query whose batch ``frame`` is."""
    context = frame.sparkSession.sparkContext
    context._jsc.sc().listenerBus().waitUntilEmpty()
    return set(
        context.statusTracker().getJobIdsForGroup(context.getLocalProperty("spark.jobGroup.id"))
    )


def test_each_sink_sees_its_own_view(query: Any, tmp_path: Path) -> None:
    """A filter, one that leaves no rows, an aggregate and the whole batch, in one epoch. A task without
    rows of a view opens nothing for it: not a transaction in a target that gets nothing.
    """
    large = FolderSink(str(tmp_path / "large"), rows=exactum.Rows("v > 2"))
    none = FolderSink(str(tmp_path / "none"), rows=exactum.Rows("v > 100"))
    sums = FolderSink(
        str(tmp_path / "sums"), rows=lambda batch: batch.groupBy("k").agg(f.sum("v").alias("v"))
    )
    query.give(1, 2, 3, 4)
    assert query.run(query.exactly_once(large, none, query.sink, sums)) is None
    assert query.values() == [1, 2, 3, 4]
    assert sorted(row["v"] for row in rows(tmp_path / "large")) == [3, 4]
    assert sorted((row["k"], row["v"]) for row in rows(tmp_path / "sums")) == [("e", 6), ("o", 4)]
    assert list((tmp_path / "none" / "visible").iterdir()) == []
    (done,) = query.seen(events.EpochCompleted)
    stand = [len([*(tmp_path / to / "visible").iterdir()]) for to in ("large", "out", "sums")]
    assert (done.rows, done.transactions) == (8, sum(stand))


def test_a_job_for_each_function_reads_the_source_once(query: Any, tmp_path: Path) -> None:
    """Each row of the batch is computed once, however many jobs there are; sinks that share a
    function share one.
    """
    counts = tmp_path / "counts"
    counts.mkdir()
    touched = reads(counts)
    views = [lambda batch, n=n: batch.where(f"v > {n}").distinct() for n in (0, 1)]
    sinks = [
        FolderSink(str(tmp_path / str(n)), name=f"s{n}", rows=view)
        for n, view in enumerate((*views, views[1]))
    ]
    query.give(*range(10))
    once = query.exactly_once(*sinks)
    assert query.run(once, transform=lambda frame: frame.withColumn("v", touched("v"))) is None
    assert {file.name: file.read_text() for file in counts.iterdir()} == {
        str(v): "x" for v in range(10)
    }
    assert [len(rows(tmp_path / str(n))) for n in range(3)] == [9, 8, 8]


@pytest.mark.parametrize("by", ["a view", "a function"])
def test_a_function_that_reads_the_batch_twice(query: Any, by: str) -> None:
    """Each row is in it once, whatever its columns are when they are computed again."""

    def routed(batch: Any) -> Any:
        return batch.where("v < 50").union(batch.where("v >= 50"))

    query.give(*range(40))
    looked_up = f.udf(lambda: secrets.randbelow(100), "long", useArrow=False).asNondeterministic()
    if by == "a view":
        once = query.exactly_once(FolderSink(str(query.out), rows=routed))
    else:
        call = query.exactly_once().for_each_batch(checkpoint=query.checkpoint)
        once = lambda batch, batch_id: call(routed(batch), batch_id)  # noqa: E731
    frame = {
        "transform": lambda frame: frame.selectExpr("string(v) AS k").withColumn("v", looked_up())
    }
    assert query.run(once, **frame) is None
    assert sorted(int(row["k"]) for row in rows(query.out)) == list(range(40))


def test_views_of_rows_and_columns_share_a_job(query: Any, tmp_path: Path) -> None:
    """The batch as it is, and two views that choose and compute rows: one job, and no row is
    computed twice.
    """
    counts = tmp_path / "counts"
    counts.mkdir()
    touched = reads(counts)
    double = FolderSink(
        str(tmp_path / "double"), name="double", rows=exactum.Rows(columns=["v * 2 AS v"])
    )
    text = FolderSink(
        str(tmp_path / "text"),
        name="text",
        rows=exactum.Rows("v < 8", ["v", "upper(k) AS k"]),
    )
    query.give(*range(10), batches=2)
    jobs: list[int] = []
    batch = query.exactly_once(double, query.sink, text).for_each_batch(checkpoint=query.checkpoint)

    def counted(frame: Any, batch_id: int) -> None:
        before = jobs_of_this_run(frame)
        batch(frame, batch_id)
        jobs.append(len(jobs_of_this_run(frame) - before))

    assert query.run(counted, transform=lambda frame: frame.withColumn("v", touched("v"))) is None
    assert jobs == [1, 1]
    assert {file.name: file.read_text() for file in counts.iterdir()} == {
        str(v): "xx" for v in range(10)
    }
    assert query.values() == sorted([*range(10)] * 2)
    assert sorted(row["v"] for row in rows(tmp_path / "double")) == sorted([*range(0, 20, 2)] * 2)
    assert sorted((row["v"], row["k"]) for row in rows(tmp_path / "text")) == sorted(
        [(v, "EO"[v % 2]) for v in range(8)] * 2
    )
    assert [done.rows for done in query.seen(events.EpochCompleted)] == [28, 28]


def test_rows_refused_in_a_shared_job(query: Any, tmp_path: Path) -> None:
    """A dead letter has the columns of the view whose sink refused it, and the other sink has
    the row. It falls with its epoch, and comes once with the next attempt.
    """
    dead = FolderSink(str(tmp_path / "dead"))
    arm(tmp_path / "dead", "prepare", times=4)
    picky = FolderSink(
        str(tmp_path / "picky"),
        name="picky",
        refuses_v=4,
        rows=exactum.Rows(columns=["v * 2 AS v"]),
    )
    query.give(1, 2, 3)
    assert "injected at prepare" in query.run(
        query.exactly_once(picky, query.sink, dead_letters=dead)
    )
    assert query.values() == rows(tmp_path / "picky") == rows(tmp_path / "dead") == []
    disarm(tmp_path / "dead")
    query.events.clear()
    assert query.run(query.exactly_once(picky, query.sink, dead_letters=dead)) is None
    assert query.values() == [1, 2, 3]
    assert sorted(row["v"] for row in rows(tmp_path / "picky")) == [2, 6]
    (letter,) = rows(tmp_path / "dead")
    assert json.loads(eval(letter["value"])) == {"v": 4}
    assert (letter["sink"], letter["error"]) == ("picky", "v=4 may not be")
    assert [event.rows for event in query.seen(events.RowsDeadLettered)] == [1]


@pytest.mark.parametrize(
    "view",
    [exactum.Rows("v > 1", ["v"]), lambda batch: batch.where("v > 1").distinct()],
    ids=["a shared job", "the second job"],
)
def test_a_failure_in_one_view_undoes_all(query: Any, tmp_path: Path, view: Any) -> None:
    """Neither sink shows a row, what a job before has prepared is swept, and the next run writes
    all, once. Sinks of one name have participants of their own.
    """
    other = FolderSink(str(tmp_path / "other"), rows=view)
    arm(tmp_path / "other", "prepare", times=8)
    query.give(1, 2)
    assert "injected at prepare" in query.run(query.exactly_once(query.sink, other))
    assert query.values() == query.values("staged") == rows(tmp_path / "other") == []
    assert rows(tmp_path / "other", "staged") == []
    disarm(tmp_path / "other")
    assert query.run(query.exactly_once(query.sink, other)) is None
    assert query.values() == [1, 2]
    assert [row["v"] for row in rows(tmp_path / "other")] == [2]
    stands = (tmp_path / "other" / "visible").iterdir()
    assert {file.name.partition("+")[0] for file in stands} == {"folder-2"}


def test_a_view_that_is_no_frame_is_refused(query: Any, tmp_path: Path) -> None:
    """Before anything is written, with the function's name; and one that leaves out what its sink
    needs.
    """
    query.give(1)
    none = FolderSink(str(tmp_path / "x"), rows=lambda batch: None)
    text = query.run(query.exactly_once(query.sink, none))
    check_query_error(text, FrameRefused, "VIEW_RESULT", "NoneType")
    narrow = FolderSink(str(tmp_path / "x"), needs=("v",), rows=lambda batch: batch.select("k"))
    assert "The frame has no column 'v'." in query.run(query.exactly_once(query.sink, narrow))
    assert query.values() == []


@pytest.mark.deep
@pytest.mark.parametrize(
    ("others", "had"),
    [
        (["k"], "k string for"),
        (["v", "k"], "v bigint, k string for"),
        (["k", "cast(v AS string) AS v"], "k string, v string for"),
        (["*", "1 AS w"], "k string, v bigint, w int for"),
    ],
)
@pytest.mark.parametrize("whole", [True, False])
def test_a_batch_with_other_columns(
    query: Any, tmp_path: Path, others: list[str], had: str, whole: bool
) -> None:
    """A later batch of other columns is not what the sinks were asked for: readers of CSV would
    find values under the names of others.
    """
    numbers: list[int] = []

    def changed(batch: Any) -> Any:
        return batch.selectExpr(*others) if numbers[-1] else batch

    settings = {} if whole else {"rows": changed}
    once = exactum.exactly_once(exactum.FileSink(tmp_path / "csv", format="csv", **settings))
    write = once.for_each_batch(checkpoint=query.checkpoint)

    def each(batch: Any, number: int) -> None:
        numbers.append(number)
        write(changed(batch) if whole else batch, number)

    query.give(1)
    query.give(2)
    text = query.run(each)
    facts = "Batch 1", f"{had} files:{tmp_path}/csv", "k string, v bigint"
    check_query_error(text, FrameRefused, "VIEW_CHANGED", *facts)
    files = list((tmp_path / "csv").glob("part-*"))
    assert [file.read_text() for file in files] == ['"k","v"\n"o",1\n']


def test_a_batch_that_the_user_keeps_stays_kept(query: Any, tmp_path: Path) -> None:
    """What a function persists it may use after exactum's call: with the values that the sinks
    have, though they are others each time they are computed.
    """
    sums = FolderSink(
        str(tmp_path / "sums"), rows=lambda batch: batch.groupBy("k").agg(f.max("v").alias("v"))
    )
    call = query.exactly_once(query.sink, sums).for_each_batch(checkpoint=query.checkpoint)
    after: list[str] = []

    def batch(frame: Any, batch_id: int) -> None:
        frame.persist()
        try:
            call(frame, batch_id)
            after.extend(row["k"] for row in frame.collect())
        finally:
            frame.unpersist()

    query.give(1, 2, 3)
    fresh = f.udf(lambda: secrets.token_hex(8), "string", useArrow=False).asNondeterministic()
    assert query.run(batch, transform=lambda frame: frame.withColumn("k", fresh())) is None
    written = sorted(row["k"] for row in rows(query.out))
    assert sorted(after) == written
    assert sorted(row["k"] for row in rows(tmp_path / "sums")) == written
