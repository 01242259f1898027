"""Who holds a partition's last stable offset back: the producer of its oldest open transaction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from exactum.kafka.requests.broker_requests import BrokerRequests
from exactum.kafka.settings.connection_settings import security_settings
from exactum.kafka.transaction import Partition

CONNECT_TIMEOUT_MS = 5_000
DEADLINE_MS = 10_000


def short_lived(settings: Mapping[str, str], where: str) -> BrokerRequests:
    """Connections for a question or two of an onlooker, who gives up within seconds and closes
    them.

    ``settings`` are librdkafka's, with ``bootstrap.servers``; ``where`` names the caller in errors.

    Raises:
        SettingRefused: kafka-python cannot connect with these settings.
        Unavailable: no broker answered.
    """
    return BrokerRequests(
        settings["bootstrap.servers"],
        security_settings(settings),
        where,
        connect_timeout_ms=CONNECT_TIMEOUT_MS,
        deadline_ms=DEADLINE_MS,
    )


@dataclass(frozen=True)
class Holder:
    """``transactional_id`` is None where the user may not see it."""

    producer_id: int
    transactional_id: str | None


def holders(
    settings: Mapping[str, str], last_stable_offsets: Mapping[Partition, int], where: str
) -> dict[Partition, Holder]:
    """By partition the producer whose transaction begins at the last stable offset; left out where
    nobody's does.

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
        found: dict[Partition, int] = {}
        for partition, producers in requests.describe_producers(last_stable_offsets).items():
            starts = {
                p.transaction_start_offset: i
                for i, p in producers.items()
                if p.transaction_start_offset >= 0
            }
            if starts and min(starts) <= last_stable_offsets[partition]:
                found[partition] = starts[min(starts)]
        names = requests.ids_of_producers(set(found.values()))
        return {
            partition: Holder(producer_id, names.get(producer_id))
            for partition, producer_id in found.items()
        }
    finally:
        requests.close()
