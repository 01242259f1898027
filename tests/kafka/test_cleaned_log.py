"""A log that Kafka's log cleaner has passed: it keeps the last batch of a producer, without its
records, when the time of a marker is over (LogCleaner.java, discardBatchRecords).
"""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any

import pytest

from exactum.kafka.evidence import _LogCount
from exactum.kafka.readback import LogReader, LogWalk
from exactum.kafka.requests import BrokerRequests
from tests.kit.kafka.broker import Broker
from tests.kit.waiting import WAIT_MAX_S

HEAD_BYTES, LENGTH_AT, ATTRIBUTES_AT, COUNT_AT = 12, 8, 21, 57
EMPTY_BYTES = 61
CONTROL = 0x20


def cleaned(log: bytes) -> bytes:
    """The batches of a log, the first marker of which has gone."""
    found, at, was_cleaned = [], 0, False
    while at < len(log):
        size = HEAD_BYTES + struct.unpack_from(">i", log, at + LENGTH_AT)[0]
        batch = bytearray(log[at : at + size])
        (attributes,) = struct.unpack_from(">h", batch, ATTRIBUTES_AT)
        if attributes & CONTROL and not was_cleaned:
            was_cleaned, batch = True, batch[:EMPTY_BYTES]
            struct.pack_into(">i", batch, LENGTH_AT, EMPTY_BYTES - HEAD_BYTES)
            struct.pack_into(">i", batch, COUNT_AT, 0)
        found.append(bytes(batch))
        at += size
    assert was_cleaned
    return b"".join(found)


def test_a_marker_that_is_gone_is_passed_over(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By what looks for the end of a transaction, and by what counts all of them."""
    name = broker.topic("cleaned", partitions=1)
    producer = broker.initialised(name)
    for value in ("a", "b"):
        producer.begin_transaction()
        producer.produce(name, value, partition=0)
        producer.commit_transaction(WAIT_MAX_S)
    requests = BrokerRequests({"bootstrap.servers": broker.servers}, "test")
    described = requests.describe_transactions([name])[name]
    assert described is not None
    fetch = requests.fetch

    def fetched(partition: Any, offset: int, **more: Any) -> Any:
        answer = fetch(partition, offset, **more)
        records = cleaned(bytes(answer.records)) if offset == 0 else answer.records
        kept = {
            each: getattr(answer, each)
            for each in ("error_code", "log_start_offset", "high_watermark")
        }
        return SimpleNamespace(records=records, **kept)

    monkeypatch.setattr(requests, "fetch", fetched)
    of = described.producer_id, described.producer_epoch
    values: list[bytes | None] = []
    back = LogReader(requests, {(name, 0)}).read_back(
        (name, 0), 0, of, lambda records: values.extend(each.value for each in records)
    )
    assert (back.is_commit, values) == (True, [b"a", b"b"])
    counted = _LogCount(False).read(LogWalk(requests, (name, 0), 0, 4)).by_producer[of]
    assert (counted.records, counted.is_commit) == (2, True)
    requests.close()
