"""The sources of a running query in the order of Spark's offset log, each with the options given
to its reader.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as f

from exactum.spark import start
from exactum.spark.live import RunningSource
from exactum.spark.source import watched_source
from tests.kit.spark.commit_log import forget_last_batch
from tests.kit.waiting import WAIT_MAX_S


@pytest.mark.deep
def test_sources_of(stream: Any, topics: Any, topic: Callable[..., str], tmp_path: Path) -> None:
    """Unions, self-unions, joins and other sources: line by line the source whose topic the
    offset log names.
    """
    a, b = topic("a", partitions=1), topic("b", partitions=1)
    topics.give(a, 2, partitions=1)
    topics.give(b, 2, partitions=1)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "x.json").write_text('{"topic": "file"}\n')
    files = stream.spark.readStream.schema("topic string").json(str(tmp_path / "in"))

    def read(name: str) -> Any:
        return stream.read(name, **{"my.Mark": name}).select("topic")

    one, two = read(a), read(b)
    left, right = one.alias("l"), one.alias("r")
    plans = {
        "one": (one, [a], [0]),
        "union": (two.union(one).union(two), [b, a, b], [0, 1, 0]),
        "self-union": (one.union(one.filter("topic != ''")), [a, a], [0, 0]),
        "self-join": (
            left.join(right, f.expr("l.topic = r.topic")).select("l.topic"),
            [a, a],
            [0, 1],
        ),
        "join": (
            one.alias("l").join(two.alias("r"), f.expr("l.topic = r.topic")).select("l.topic"),
            [a, b],
            [0, 1],
        ),
        "files first": (files.union(one), [None, a], [0, 1]),
        "files last": (one.union(files), [a, None], [0, 1]),
    }
    seen: dict[str, list[RunningSource]] = {}

    def look(name: str) -> Callable[[Any, int], None]:
        def batch(frame: Any, batch_id: int) -> None:
            if batch_id == 0:
                seen[name] = start._find(frame).sources()
            frame.write.format("noop").mode("append").save()

        return batch

    queries = {}
    for name, (frame, _, _) in plans.items():
        writer = frame.writeStream.foreachBatch(look(name)).option(
            "checkpointLocation", str(tmp_path / name)
        )
        queries[name] = writer.trigger(availableNow=True).start()
    for name, (_, marks, same_as) in plans.items():
        assert stream.end(queries[name]) is None
        assert [source.index for source in seen[name]] == list(range(len(marks)))
        assert [source.option("MY.mark") for source in seen[name]] == marks
        assert [source.same_as for source in seen[name]] == same_as
        assert [source.is_kafka for source in seen[name]] == [mark is not None for mark in marks]
        lines = (tmp_path / name / "offsets" / "0").read_text().splitlines()[2:]
        assert [next(iter(json.loads(line))) for line in lines] == [
            mark or "logOffset" for mark in marks
        ]
        for source in seen[name]:
            if source.metadata is not None:
                assert marks[source.index] in (tmp_path / name / source.metadata / "0").read_text()


# ---- a source made by Spark's own reader, spark.readStream.format("kafka"), under exactly_once ------

RECORDS = 10
WARNED = "kafka.isolation.level is not read_committed"


def abort_some(stream: Any, topic: str) -> None:
    """Records of a transaction that is aborted."""
    stream.broker.transaction(topic, topic, *[b"aborted"] * 2).abort_transaction(WAIT_MAX_S)


def test_plain_source_is_exact(
    stream: Any,
    topics: Any,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It works as read_kafka's does: each committed record once, also for a batch that is run
    again.
    """
    name = topics.topic("plain", partitions=2)
    topics.give(name, RECORDS)
    abort_some(stream, name)

    def run() -> str | None:
        level = {"kafka.isolation.level": "read_committed"}
        return stream.run(topics.by_spark(stream.spark, subscribe=name, **level))  # type: ignore[no-any-return]

    assert run() is None
    expected = [(name, p, o) for p in (0, 1) for o in range(RECORDS)]
    assert stream.rows() == expected
    forget_last_batch(stream.checkpoint)
    assert run() is None
    assert stream.rows() == expected
    assert WARNED not in caplog.text
    topics.made_anew(name)
    topics.give(name, RECORDS * 3)
    monkeypatch.setattr(watched_source, "SURE_AFTER_S", 1.0)
    assert "deleted and made anew" in (run() or ""), "its topics are watched as well"


@pytest.mark.variants(1)
@pytest.mark.parametrize("level", [{}, {"kafka.isolation.level": "read_uncommitted"}])
def test_plain_source_that_reads_uncommitted(
    level: dict[str, str],
    stream: Any,
    topics: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Kafka's default isolation level shows aborted records, so the log warns of it, once for
    each run.
    """
    name = topics.topic("uncommitted", partitions=2)
    topics.give(name, RECORDS)
    abort_some(stream, name)
    assert stream.run(topics.by_spark(stream.spark, subscribe=name, **level)) is None
    assert len(stream.rows()) == 2 * RECORDS + 2, "the aborted ones too"
    assert [r.levelname for r in caplog.records if WARNED in r.getMessage()] == ["WARNING"]
