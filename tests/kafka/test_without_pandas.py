"""A task that writes to Kafka does without pandas, which Arrow's conversions import."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pyarrow as pa
import pytest

from tests.kit.kafka.broker import Broker
from tests.kit.python import python

TASK = """
import sys
import pyarrow as pa
from exactum.kafka.sink import KafkaSink
from exactum.protocol.model import new_incarnation
from exactum.protocol.sink import Guarantee, QueryRun, TaskName, WriteOrder
from exactum.spark.write.write_task import record_batch

servers, topic, file = sys.argv[1:]
run = QueryRun(topic, new_incarnation(), Guarantee.EXACTLY_ONCE)
sink = KafkaSink(topic, bootstrap_servers=servers)
opened = sink.open(run, sink.name)
writer = opened.writers.open(WriteOrder(run, 0, 0, 1), TaskName(0, 0, 0))
with pa.ipc.open_file(file) as batches:
    for number in range(batches.num_record_batches):
        writer.write(batches.get_batch(number))
prepared = writer.prepare()
print(record_batch([prepared]).num_rows, prepared.rows, "pandas" in sys.modules)
writer.abort()
"""


@pytest.mark.broker
def test_pandas_is_not_imported(broker: Broker, tmp_path: Path) -> None:
    """Neither for keys of which some are null, nor for others."""
    assert importlib.util.find_spec("pandas"), "without it this test could not fail"
    given = [[None, b"a", None], [b"a", b"b", b"c"]]
    batches = [
        pa.record_batch({"key": pa.array(keys, pa.binary()), "value": ["x", "", None]})
        for keys in given
    ]
    with pa.ipc.new_file(tmp_path / "batches", batches[0].schema) as file:
        for batch in batches:
            file.write_batch(batch)
    topic = broker.topic("plain", partitions=2)
    done = python(TASK, broker.servers, topic, tmp_path / "batches")
    assert done.stdout.strip() == "1 6 False", done.stderr
