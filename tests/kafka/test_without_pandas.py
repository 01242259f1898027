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
    writer.write(batches.get_batch(0))
prepared = writer.prepare()
print(record_batch([prepared]).num_rows, prepared.rows, "pandas" in sys.modules)
writer.abort()
"""


@pytest.mark.broker
@pytest.mark.parametrize("keys", [[None, b"a", None], [b"a", b"b", b"c"]])
def test_pandas_is_not_imported(broker: Broker, tmp_path: Path, keys: list[bytes | None]) -> None:
    assert importlib.util.find_spec("pandas"), "without it this test could not fail"
    batch = pa.record_batch({"key": pa.array(keys, pa.binary()), "value": ["x", "", None]})
    with pa.ipc.new_file(tmp_path / "batch", batch.schema) as file:
        file.write_batch(batch)
    topic = broker.topic("plain", partitions=2)
    done = python(TASK, broker.servers, topic, tmp_path / "batch")
    assert done.stdout.strip() == "1 3 False", done.stderr
