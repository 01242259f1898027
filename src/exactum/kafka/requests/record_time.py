"""How old a record is, by its batch's header: one small fetch for each partition asked for."""

from __future__ import annotations

import struct
from collections.abc import Mapping

from exactum.kafka.requests.open_transactions import short_lived
from exactum.kafka.transaction import Partition

ANY_BATCH_BYTES = 1
"""A broker returns the first batch whole, however large, and nothing more."""

_HEADER = struct.Struct(">qiibihiqq")
"""Base offset, length, leader epoch, magic, checksum, attributes, last offset's delta, base and
highest timestamp: a record batch of Kafka's format v2."""
MAGIC = 2
APPENDED_BY_THE_BROKER = 1 << 3
"""The attribute of a batch whose time is the highest one: when the broker took it."""


def record_times(
    settings: Mapping[str, str], offsets: Mapping[Partition, int], where: str
) -> dict[Partition, int]:
    """The time in ms since 1970 of the first record at or after each offset; left out where the
    log has none, or does not say.

    It is the time of the record's batch: of the batch's first record where its producer set it.

    Args:
        settings: librdkafka's, with ``bootstrap.servers``.
        where: names the caller in errors.

    Raises:
        SettingRefused: READ on a topic is not granted, or kafka-python cannot connect with these
            settings.
        Unavailable: no answer within some seconds.
    """
    requests = short_lived(settings, where)
    try:
        fetched = {
            partition: requests.fetch(partition, offset, bytes_max=ANY_BATCH_BYTES)
            for partition, offset in offsets.items()
        }
        times = {partition: batch_time_ms(answer.records) for partition, answer in fetched.items()}
        return {partition: at_ms for partition, at_ms in times.items() if at_ms is not None}
    finally:
        requests.close()


def batch_time_ms(batch: bytes) -> int | None:
    """The time that the first batch's header says; None: it says none, or there is no batch."""
    if len(batch) < _HEADER.size:
        return None
    *_, magic, _, attributes, _, base_ms, highest_ms = _HEADER.unpack_from(batch)
    at_ms = highest_ms if attributes & APPENDED_BY_THE_BROKER else base_ms
    return int(at_ms) if magic == MAGIC and at_ms >= 0 else None
