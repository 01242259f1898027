"""A job without Spark, which starts fast: copies a topic in small batches, with a checkpoint of
Spark's form.

Arguments: MODE BROKERS INPUT OUTPUT CHECKPOINT. MODE says when the position is kept.

    late     after the output: at least once
    early    before the output: at most once
    exact    in one transaction with the output; it ends when it has read everything
    altered  late, and the values count the batches of this life
    silent   late, and it writes nothing
    fails    it ends with an error
    ends     it ends at once, as if there were nothing to do
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from tests.kit.waiting import WAIT_MAX_S

BATCH_RECORDS = 20
COORDINATOR_TIMEOUT_S = WAIT_MAX_S
NO_COORDINATOR = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)
PAUSE_S = 0.1
"""Between output and position. Nearly all of a micro-batch, for a kill should fall into it."""


def kept(checkpoint: Path) -> tuple[int, dict[str, int]]:
    """The last batch that is done, and where it ends."""
    # Not what a kill has left of one that was being written: .30.tmp
    done = max((int(p.name) for p in (checkpoint / "commits").glob("[0-9]*")), default=-1)
    if done < 0:
        return done, {}
    ends = json.loads((checkpoint / "offsets" / str(done)).read_text().splitlines()[2])
    return done, next(iter(ends.values()))


def keep(folder: Path, batch: int, text: str) -> None:
    """In one step, as Spark does it."""
    (folder / f".{batch}.tmp").write_text(text)
    (folder / f".{batch}.tmp").rename(folder / str(batch))


def consumer_of(brokers: str, topic: str, start: dict[str, int]) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": brokers,
            "group.id": topic,
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 10,
        }
    )
    parts = consumer.list_topics(topic, timeout=WAIT_MAX_S).topics[topic].partitions
    consumer.assign([TopicPartition(topic, p, start.get(str(p), 0)) for p in parts])
    return consumer


def write(mode: str, producer: Producer, output: str, batch: int, messages: list[Message]) -> None:
    for message in messages:
        value = message.value() or b""
        producer.produce(
            output, value + b"-%d" % batch if mode == "altered" else value, message.key()
        )
    assert producer.flush(WAIT_MAX_S) == 0


def with_positions(mode: str, brokers: str, source: str, output: str, checkpoint: Path) -> None:
    for name in ("offsets", "commits"):
        (checkpoint / name).mkdir(parents=True, exist_ok=True)
    done, ends = kept(checkpoint)
    consumer, producer = (
        consumer_of(brokers, source, ends),
        Producer({"bootstrap.servers": brokers}),
    )
    first = done
    while True:
        messages = consumer.consume(BATCH_RECORDS, 0.05)
        if not messages:
            continue
        assert all(message.error() is None for message in messages)
        ends |= {str(m.partition()): (m.offset() or 0) + 1 for m in messages}
        done += 1
        keep(checkpoint / "offsets", done, f"v1\n{{}}\n{json.dumps({source: ends})}")
        if mode == "early":
            keep(checkpoint / "commits", done, "v1\n{}")
            time.sleep(PAUSE_S)
        if mode != "silent":
            write(mode, producer, output, done - first, messages)
        if mode != "early":
            time.sleep(PAUSE_S)
            keep(checkpoint / "commits", done, "v1\n{}")


def committed_by(group: Consumer, parts: list[TopicPartition]) -> list[TopicPartition]:
    """Where the group is. A broker that has just begun may have no coordinator for it yet, and the
    client hands that on.
    """
    deadline_s = time.monotonic() + COORDINATOR_TIMEOUT_S
    while True:
        try:
            return group.committed(parts, WAIT_MAX_S)
        except KafkaException as error:
            if error.args[0].code() not in NO_COORDINATOR or time.monotonic() > deadline_s:
                raise
        time.sleep(0.1)


def in_transactions(brokers: str, source: str, output: str) -> None:
    producer = Producer({"bootstrap.servers": brokers, "transactional.id": output})
    producer.init_transactions(WAIT_MAX_S)
    consumer = consumer_of(brokers, source, {})
    group = Consumer({"bootstrap.servers": brokers, "group.id": output})
    committed = committed_by(group, consumer.assignment())
    consumer.assign([TopicPartition(p.topic, p.partition, max(0, p.offset)) for p in committed])
    while messages := consumer.consume(BATCH_RECORDS, 1.0):
        producer.begin_transaction()
        for message in messages:
            producer.produce(output, message.value(), message.key())
        ends = {m.partition() or 0: (m.offset() or 0) + 1 for m in messages}
        positions = [TopicPartition(source, p, end) for p, end in ends.items()]
        producer.send_offsets_to_transaction(positions, group.consumer_group_metadata(), WAIT_MAX_S)
        time.sleep(PAUSE_S / 5)
        producer.commit_transaction(WAIT_MAX_S)


def main(mode: str, brokers: str, source: str, output: str, checkpoint: str) -> None:
    if mode == "fails":
        raise SystemExit("it cannot go on")
    if mode == "ends":
        return
    if mode == "exact":
        in_transactions(brokers, source, output)
    else:
        with_positions(mode, brokers, source, output, Path(checkpoint))


if __name__ == "__main__":
    main(*sys.argv[1:])
