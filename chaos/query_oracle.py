"""The oracle of one query: what went in, and what every target of it shows, by plain clients past
the proxies.
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from chaos.servers import Servers
from exactum.checkpoint.layout import DECISIONS
from tests.kit.crash import oracle
from tests.kit.crash.jobs import named
from tests.kit.crash.oracle import OracleFailure
from tests.kit.targets.bank import bank
from tests.kit.targets.ledger import Posting, Targets, Transfers, check_shown

GROUP_TIMEOUT_S = 30.0
PRODUCE_TIMEOUT_S = 240.0
"""The broker may be killed meanwhile, and be slow to come back."""
SHOWN_MAX = 3
MAX_OFFSETS = 20
"""Transfers in an epoch, over all partitions."""


@dataclass
class QueryOracle:
    """One query's input, targets and checkpoint."""

    servers: Servers
    folder: Path
    sinks: Sequence[str]
    seed: int
    twice: bool = False
    """Every third transfer is in the input a second time, as after an at-least-once producer."""
    parent: QueryOracle | None = None
    """The query that this one is a fork of: it reads the same transfers, from ``since`` on."""
    since: Mapping[int, int] = field(default_factory=dict)
    """Offsets by partition of the input."""
    transfers: Transfers = field(init=False)
    targets: Targets = field(init=False)

    def __post_init__(self) -> None:
        number = self.servers.number()
        self.transfers = (
            self.parent.transfers if self.parent else Transfers(f"transfers-{number}", self.seed)
        )
        self.targets = Targets(
            self.servers.kafka.direct,
            f"postings-{number}",
            self.servers.postgres,
            self.servers.mysql,
            f"bank{number}",
            self.folder,
            self.sinks,
        )

    def open(self) -> None:
        """Make the topics and tables."""
        for topic in {self.targets.topic} | (set() if self.parent else {self.transfers.topic}):
            self.servers.kafka.create_topic(topic, partitions=2)
        self.targets.create()

    def fork(self, batch_id: int) -> QueryOracle:
        """The query_oracle of a query that begins after this epoch, with targets of its own."""
        folder = self.folder / "fork"
        folder.mkdir()
        since = self.checkpoint.ends(batch_id)
        return QueryOracle(self.servers, folder, self.sinks, self.seed, parent=self, since=since)

    def spec(self, log: str = "", **kafka: Any) -> dict[str, Any]:
        """Of a start of this query, through the proxies. ``log``: the server that has the
        decisions; ``kafka``: further settings of that sink.
        """
        servers, database = self.servers, self.targets.database
        brokers = servers.led_brokers
        settings: dict[str, dict[str, Any]] = {
            "kafka": {"topic": self.targets.topic, "bootstrap_servers": brokers, **kafka},
            "postgres": {"url": servers.url("postgres", database)},
            "mysql": {"url": servers.url("mysql", database)},
            "files": {"path": str(self.targets.files)},
            "delta": {"path": str(self.targets.delta)},
            "iceberg": {"folder": str(self.folder / "iceberg")},
        }
        return {
            "query": named(bank),
            "checkpoint": str(self.checkpoint.folder),
            "source": self.transfers.topic,
            "bootstrap_servers": brokers,
            "max_offsets": MAX_OFFSETS,
            "sinks": {kind: settings[kind] for kind in self.sinks},
            **({"log": servers.url(log, database)} if log else {}),
        }

    @property
    def bootstrap_servers(self) -> str:
        return self.servers.kafka.direct

    @property
    def checkpoint(self) -> oracle.Checkpoint:
        return oracle.Checkpoint(self.folder / "checkpoint", self.transfers.topic)

    @property
    def query_id(self) -> str:
        return self.checkpoint.query_id

    def produce(self, count: int) -> None:
        first = self.transfers.count
        self.transfers.produce(self.bootstrap_servers, count, PRODUCE_TIMEOUT_S)
        if self.twice:
            self._again(first)

    def _again(self, first: int) -> None:
        """Send every third transfer from ``first`` once more, and count it once."""
        chance = random.Random(self.seed)
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "enable.idempotence": True,
                "log_level": 0,
            }
        )
        for number in range(first, self.transfers.count, 3):
            (_, target, amount), (_, source, _) = self.transfers.postings[
                2 * number : 2 * number + 2
            ]
            value = {"id": number, "source": source, "target": target, "amount": amount}
            producer.produce(
                self.transfers.topic, json.dumps(value), source if chance.random() < 0.5 else target
            )
        if producer.flush(PRODUCE_TIMEOUT_S):
            raise OracleFailure("the input could not be produced")

    # ---- what is there ---------------------------------------------------------------------------

    def check_so_far(self) -> None:
        """At any moment: nothing twice, nothing that nobody transferred, nothing of an epoch that
        is not decided.
        """
        allowed = self._allowed()
        for sink, postings in self.targets.read().items():
            early = Counter(postings) - allowed
            if early:
                raise OracleFailure(
                    f"{sink} shows {early.total()} postings too many or too early: "
                    f"{sorted(early)[:SHOWN_MAX]}"
                )

    def _allowed(self) -> Counter[Posting]:
        """The postings of decided epochs. Those of all transfers, where offsets do not tell
        them.
        """
        logged = (self.checkpoint.folder / DECISIONS).exists()
        if self.twice or not logged:
            return Counter(self.transfers.postings)
        return Counter(self.transfers.before(self.checkpoint.ends(self.checkpoint.decided())))

    def check_exact(self) -> None:
        """At rest: every posting once in each target, nothing left open, prepared or staged."""
        # first: the broker makes visible what is committed a moment after it says so
        if "kafka" in self.sinks:
            oracle.check_at_rest(self.bootstrap_servers, [self.targets.topic], self.query_id)
        expected = Counter(self.transfers.postings) - Counter(self.transfers.before(self.since))
        check_shown(self.targets, expected.elements())
        left = {server: what for server, what in self.targets.left_over().items() if what}
        if left:
            raise OracleFailure(f"left over: {left}")

    def reader(self) -> oracle.CommittedReader:
        """Runs all through the faults; knows the topic of the Kafka sink."""
        return oracle.CommittedReader(self.bootstrap_servers, [self.targets.topic])

    def check_reader(self, reader: oracle.CommittedReader) -> None:
        """Who read all along saw what a later reader sees."""
        oracle.check_same(
            reader.caught_up(), oracle.read_all(self.bootstrap_servers, [self.targets.topic])
        )

    # ---- the consumer group ----------------------------------------------------------------------

    def group_offsets(self, group: str) -> dict[int, int]:
        asked = ConsumerGroupTopicPartitions(
            group, [TopicPartition(self.transfers.topic, p) for p in (0, 1)]
        )
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})
        answer = admin.list_consumer_group_offsets([asked])[group].result(20)
        return {tp.partition: tp.offset for tp in answer.topic_partitions if tp.offset >= 0}

    def await_mirrored(self, group: str, batch_id: int) -> None:
        """Wait until the group stands at the end of this batch."""
        deadline = time.monotonic() + GROUP_TIMEOUT_S
        while self.group_offsets(group) != self.checkpoint.ends(batch_id):
            if time.monotonic() > deadline:
                raise OracleFailure(
                    f"the group stands at {self.group_offsets(group)} instead of "
                    f"{self.checkpoint.ends(batch_id)}, the end of batch {batch_id}"
                )
            time.sleep(0.05)
