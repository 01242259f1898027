"""A topic that was deleted and made anew between two runs, with exactly as many records: Spark finds
nothing new in it, and so has no micro-batch in which anybody could compare.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from exactum.errors import CheckpointRefused
from exactum.spark.runtime.spark_jars import FORMAT
from exactum.spark.source import read_kafka
from exactum.spark.source.columnar import SPARKS
from tests.kit.errors import check_query_error

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    ("by", "arguments", "trigger"),
    [
        (FORMAT, {}, {"availableNow": True}),
        (SPARKS, {}, {"availableNow": True}),
        (FORMAT, {}, {"processingTime": "100 milliseconds"}),
        (FORMAT, {"stop": "latest"}, {"processingTime": "100 milliseconds"}),
    ],
    ids=["available now", "by Spark's source", "for good", "to a stop"],
)
def test_as_many_records_as_before(
    stream: Any,
    topics: Any,
    topic: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
    by: str,
    arguments: dict[str, Any],
    trigger: dict[str, Any],
) -> None:
    name = topic("same", partitions=1)
    while not set(topics.id_of(name)) & set("+/"):  # Kafka itself writes - and _ for them
        name = topic("same", partitions=1)
    topics.give(name, 5, partitions=1)
    if by == SPARKS:
        monkeypatch.setattr(read_kafka, "kafka_format", lambda _session: SPARKS)
    assert stream.run(stream.read(name)) is None
    assert stream.run(stream.read(name, **arguments)) is None, "the same topic goes on"
    topics.made_anew(name, 1)
    topics.give(name, 5, partitions=1)
    error = stream.run(stream.read(name, **arguments), **trigger) or ""
    check_query_error(error, CheckpointRefused, "TOPIC_CHANGED", f"'{name}'")
    assert error.startswith("exactum.errors.") and "Nothing of this batch was written" in error
    assert len(stream.rows()) == 5
