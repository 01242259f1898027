"""docs/state.md is run, not only read."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from exactum.local import LocalKafka
from tests.kit.crash import oracle
from tests.kit.docs.program import ran, replaced
from tests.kit.waiting import WAIT_MAX_S

DOCUMENT = Path(__file__).parents[2] / "docs/state.md"

pytestmark = [pytest.mark.broker, pytest.mark.spark]


@pytest.mark.in_turn
@pytest.mark.usefixtures("settings_put_back")
def test_the_examples_of_the_document(
    spark: SparkSession, kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path
) -> None:
    """The first program and the readers of its state, word by word but for the names of topics
    and folders.
    """
    program, readers, *_ = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    program = replaced(program, {"query.awaitTermination()": ""})
    names = {
        "localhost:9092": kafka.bootstrap_servers,
        "/data/totals": str(tmp_path / "checkpoint"),
        '"orders"': f'"{topic("orders", partitions=1)}"',
        'KafkaSink("totals"': f'KafkaSink("{topic("totals", partitions=1)}"',
        '.option("batchId", 41)': '.option("batchId", 0)',
    }
    for name, ours in names.items():
        program, readers = program.replace(name, ours), readers.replace(name, ours)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
    for key, amount in (("a", 1), ("b", 10), ("a", 2)):
        producer.produce(names['"orders"'].strip('"'), str(amount), key)
    assert producer.flush(WAIT_MAX_S) == 0
    space = ran(program)
    out = names['KafkaSink("totals"'].partition('"')[2].strip('"')
    oracle.check_at_rest(kafka.bootstrap_servers, [out], str(space["query"].id))
    assert {s.key: s.value for s in oracle.read_all(kafka.bootstrap_servers, [out])} == {
        "a": "3",
        "b": "10",
    }
    exec(readers, space)
    for frame in (space["totals"], space["older"]):
        assert {row.key.key: row.value.amount for row in frame.collect()} == {"a": 3, "b": 10}
