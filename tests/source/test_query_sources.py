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

pytestmark = [pytest.mark.broker, pytest.mark.spark]


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
