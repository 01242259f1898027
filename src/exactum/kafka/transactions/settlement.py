"""What became of transactions: by the coordinator where it speaks of exactly these, else by the
log.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from exactum.kafka.outcome import Marker, TransactionOutcome, from_description, from_markers
from exactum.kafka.requests.broker_requests import BrokerRequests
from exactum.kafka.transaction import KafkaTransaction
from exactum.kafka.transactions.readback import LogReader

K = TypeVar("K")


def outcomes_of(
    requests: BrokerRequests, transactions: Mapping[K, KafkaTransaction]
) -> dict[K, TransactionOutcome]:
    """The outcome of each.

    Raises:
        OutcomeUnknown: a log could not be read.
        Unavailable, SettingRefused: as the requests.
    """
    found = requests.describe_transactions(t.transactional_id for t in transactions.values())
    outcomes = {
        key: from_description(found[t.transactional_id], *t.producer)
        for key, t in transactions.items()
    }
    unknown = [key for key, outcome in outcomes.items() if outcome is TransactionOutcome.UNKNOWN]
    logs = LogReader(requests, {p for key in unknown for p, _ in transactions[key].partitions})
    for key in unknown:
        t = transactions[key]
        markers: list[Marker] = []
        for partition, (first_offset, _) in t.partitions:
            markers.append(logs.read_back(partition, first_offset, t.producer).marker)
            if markers[-1] in (Marker.COMMIT, Marker.ABORT):
                break
        outcomes[key] = from_markers(markers, found[t.transactional_id], *t.producer)
    return outcomes
