"""One Kafka transaction: its name, ``prefix/query/participant/incarnation/worker/slot``, and the
value by which any process can end it, as JSON in a record's payload.

An id belongs to one worker process: nobody else initialises it, but to fence what it left open. Ids
are matched exactly, part by part, so that a query whose prefix is ``app`` never touches what
belongs to ``app-eu`` or to another query.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from exactum.errors import InvariantBroken, SettingRefused
from exactum.protocol.model import Incarnation, PreparedTransaction, Sighting, of_another_sink
from exactum.protocol.sink import Scope

DEFAULT_PREFIX = "exactum"
_HEX = r"[0-9a-f]{16}"
NAME = re.compile(
    rf"(?P<prefix>.+)/(?P<query>[^/]+)/(?P<participant>[^/]+)/(?P<incarnation>{_HEX})/{_HEX}/[0-9]+"
)
SALVAGE_SLOT = 1_000_000
"""Slot of what a salvage sends; those of tasks count from 0."""


@dataclass(frozen=True)
class KafkaScope(Scope):
    """Its transactional ids, which begin with ``prefix``."""

    prefix: str = DEFAULT_PREFIX

    def __post_init__(self) -> None:
        if "/" in self.participant or "/" in self.query_id:
            raise InvariantBroken(f"A transaction scope has a slash in a part: {self}.")

    def transactional_id(self, incarnation: Incarnation, worker: str, slot: int) -> str:
        return f"{self.prefix}/{self.query_id}/{self.participant}/{incarnation}/{worker}/{slot}"

    def incarnation_of(self, transactional_id: str) -> Incarnation | None:
        """Which incarnation opened it; None when it does not belong to this scope."""
        match = NAME.fullmatch(transactional_id)
        mine = (self.prefix, self.query_id, self.participant)
        is_mine = match is not None and match.group("prefix", "query", "participant") == mine
        return Incarnation(match["incarnation"]) if match and is_mine else None

    def is_of_task(self, transactional_id: str) -> bool:
        """True for the id of a task's transaction; false for a salvage's."""
        return int(transactional_id.rpartition("/")[2]) < SALVAGE_SLOT

    def broker_pattern(self) -> str:
        """The same as a regular expression (RE2J) for ListTransactions (KIP-1152)."""
        # \Q..\E is understood by RE2J; Python's re.escape writes escapes that RE2J refuses.
        head = f"{self.prefix}/{self.query_id}/{self.participant}/"
        return f"\\Q{head}\\E{_HEX}/{_HEX}/[0-9]+"


def checked_prefix(prefix: str | None, where: str) -> str:
    """The prefix to use.

    Raises:
        SettingRefused: it is empty, or has characters that cannot stand in an ACL or a log line.
    """
    if prefix is None:
        return DEFAULT_PREFIX
    if (
        not isinstance(prefix, str)
        or not re.fullmatch(r"[A-Za-z0-9._:/-]{1,200}", prefix)
        or prefix.endswith("/")
    ):
        raise SettingRefused(
            "KAFKA_ARGUMENT",
            f"{where}: transactional_id_prefix={prefix!r} must be 1 to 200 letters, digits or . _ "
            ": - / and must not end with a slash.",
        )
    return prefix


# Tasks import this module: it must not bring kafka-python, which only the driver needs, into their
# workers.
Partition = tuple[str, int]
"""(topic, index)."""


@dataclass(frozen=True)
class KafkaTransaction:
    """``partitions`` and ``cluster_id`` come from verify: (first offset, records) by partition."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    cluster_id: str = ""
    partitions: tuple[tuple[Partition, tuple[int, int]], ...] = ()

    @property
    def producer(self) -> tuple[int, int]:
        return self.producer_id, self.producer_epoch

    @property
    def identity(self) -> str:
        """Names this transaction and no other, ever: each has a producer epoch of its own."""
        return f"{self.transactional_id}@{self.producer_id}:{self.producer_epoch}"

    def payload(self) -> str:
        """JSON text of what ends it."""
        return json.dumps(
            {
                "transactional_id": self.transactional_id,
                "producer_id": self.producer_id,
                "producer_epoch": self.producer_epoch,
            }
        )

    def prepared(self, participant: str, rows: int) -> PreparedTransaction:
        return PreparedTransaction(participant, self.identity, rows, self.payload())

    @staticmethod
    def is_one(value: PreparedTransaction | Sighting) -> bool:
        return NAME.fullmatch(value.identity.rpartition("@")[0]) is not None

    @staticmethod
    def of(value: PreparedTransaction | Sighting) -> KafkaTransaction:
        """Raises InvariantBroken: it is none of Kafka's."""
        if not KafkaTransaction.is_one(value):
            raise of_another_sink(value, "is none of Kafka's")
        fields: Mapping[str, Any] = json.loads(value.payload)
        return KafkaTransaction(
            fields["transactional_id"],
            fields["producer_id"],
            fields["producer_epoch"],
            fields.get("cluster_id", ""),
            tuple(
                ((topic, int(index)), (first, count))
                for topic, cells in fields.get("partitions", {}).items()
                for index, (first, count) in cells.items()
            ),
        )
