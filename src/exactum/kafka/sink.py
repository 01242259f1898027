"""``KafkaSink``: a Kafka topic as the target of a query."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from exactum.errors import SettingRefused
from exactum.kafka import messages, settings
from exactum.kafka.connection_settings import checked_servers, security_settings
from exactum.kafka.failure import access_refused
from exactum.kafka.log_requests import LogIdentity
from exactum.kafka.participant import KafkaParticipant
from exactum.kafka.producer_pool import ProducerPlan
from exactum.kafka.requests import OF_A_RUN, BrokerRequests, Patience
from exactum.kafka.settings import try_out
from exactum.kafka.topic import CONFIGS, TopicFacts, facts_of, name_trouble
from exactum.kafka.topic_reader import dead_letters_in
from exactum.kafka.transaction import KafkaScope, Partition, checked_prefix
from exactum.kafka.writer import KafkaWriterFactory
from exactum.problem import Problem
from exactum.protocol.dead_letter import DeadLetter
from exactum.protocol.model import Incarnation, new_incarnation
from exactum.protocol.participant import Participant
from exactum.protocol.sink import Guarantee, NotAFunction, OpenSink, QueryRun
from exactum.storage.storage import Storage

if TYPE_CHECKING:
    from exactum.kafka.inspection import KafkaInspector


BROKER_TIMEOUT_MAX_MS = 900_000
"""Kafka's default of transaction.max.timeout.ms: used where the user may not read the broker's
setting.
"""
TIMEOUT_MIN_MS = 1_000
OF_AN_OPERATOR = Patience(connect_ms=8_000, deadline_ms=20_000)
"""He waits for no longer."""
REQUEST_MAX, TIMEOUT_MAX = "socket.request.max.bytes", "transaction.max.timeout.ms"
"""The broker's settings that count."""


class KafkaSink(NotAFunction):
    """Writes a frame's rows to Kafka.

    Columns, as in Spark's own Kafka sink: ``value`` (string or binary; null is a tombstone),
    optional ``key`` (string or binary), ``headers`` (array of struct of key: string, value:
    binary), ``partition`` (int; null: by key) and ``topic`` (string), which is read only when the
    sink has no topic of its own.

    Args:
        topic: where all rows go; None: each row names its topic in the column ``topic``.
        bootstrap_servers: ``host:port`` or several, separated by commas.
        transactional_id_prefix: first part of all transactional ids, for ACLs; default ``exactum``.
            The query's id and the sink's name always follow, so queries never touch each other's
            transactions.
        transaction_timeout_ms: how long a prepared transaction may wait for its commit before the
            broker aborts it; default: the most that the broker allows (its
            transaction.max.timeout.ms).
        producer: further librdkafka settings (compression, batching, security). The ones that the
            guarantee rests on cannot be given.
        rows: the sink's own view of the batch, ``exactum.Rows`` or a function from DataFrame to
            DataFrame; default: the batch as it is.

    Raises:
        SettingRefused: a setting that cannot hold the guarantee.
    """

    def __init__(
        self,
        topic: str | None = None,
        *,
        bootstrap_servers: str,
        transactional_id_prefix: str | None = None,
        transaction_timeout_ms: int | None = None,
        producer: Mapping[str, object] | None = None,
        rows: Callable[[Any], Any] | None = None,
    ) -> None:
        where = f"KafkaSink({topic!r})" if topic is not None else "KafkaSink()"
        if topic is not None and (
            trouble := name_trouble(topic.encode(errors="backslashreplace"))
            if isinstance(topic, str)
            else "is no text"
        ):
            raise SettingRefused(
                "KAFKA_ARGUMENT",
                f"{where}: topic must be the name of a topic, or None. This name {trouble}.",
            )
        if transaction_timeout_ms is not None and (
            type(transaction_timeout_ms) is not int or transaction_timeout_ms < TIMEOUT_MIN_MS
        ):
            raise SettingRefused(
                "KAFKA_TIMEOUT",
                f"{where}: transaction_timeout_ms={transaction_timeout_ms!r} must be a whole "
                f"number of at least {TIMEOUT_MIN_MS}, better minutes, or None: it is how long a "
                "crashed query may stay down.",
            )
        self._where = where
        self.rows = rows
        self._topic = topic
        self._bootstrap_servers = checked_servers(bootstrap_servers, where)
        self._prefix = checked_prefix(transactional_id_prefix, where)
        self._timeout_ms = transaction_timeout_ms
        self._settings = settings.checked_producer(producer, where)

    @property
    def topic(self) -> str | None:
        """The one topic that it writes; None: each row names its own."""
        return self._topic

    def __repr__(self) -> str:
        return f"{self._where[:-1]}, bootstrap_servers={self._bootstrap_servers!r})"

    @property
    def name(self) -> str:
        return f"kafka:{self._topic or '*'}"

    @property
    def dead_letter_columns(self) -> Sequence[tuple[str, str]]:
        return messages.DEAD_LETTER_COLUMNS

    def check_columns(self, columns: Sequence[tuple[str, str]]) -> None:
        """See ``protocol.sink.Sink``."""
        messages.check_columns(columns, self._topic, self._where)

    def connect(self, patience: Patience = OF_A_RUN) -> BrokerRequests:
        """A connection to its brokers, made with the first request. The caller closes it."""
        own = {"bootstrap.servers": self._bootstrap_servers, **dict(self._settings)}
        return BrokerRequests(own, self._where, patience)

    @property
    def transactional_id_prefix(self) -> str:
        """The first part of all its transactional ids."""
        return self._prefix

    @property
    def client_settings(self) -> Mapping[str, str]:
        """librdkafka's settings to connect with, secrets among them."""
        login = dict(security_settings(dict(self._settings)))
        return {"bootstrap.servers": self._bootstrap_servers, **login}

    def open(
        self, run: QueryRun, participant: str, columns: Sequence[tuple[str, str]] = ()
    ) -> OpenSink:
        """See ``protocol.sink.Sink``."""
        requests = self.connect()
        try:
            return self._open(run, participant, requests)
        except BaseException:
            requests.close()
            raise

    def inspector(
        self, query_id: str, participant: str, staging: Storage | None = None
    ) -> KafkaInspector:
        """See ``protocol.inspection.Inspectable``."""
        from exactum.kafka.inspection import KafkaInspector

        plan = self._plan(query_id, participant, new_incarnation())
        return KafkaInspector(plan, self.connect(OF_AN_OPERATOR))

    def dead_letters(self) -> Iterator[DeadLetter]:
        """See ``protocol.dead_letter.DeadLetterStore``."""
        if self._topic is None:
            raise SettingRefused(
                "DEAD_LETTERS_PLACE", f"{self!r} has no topic of its own, so they lie in several."
            )
        return dead_letters_in(self._topic, self.client_settings, repr(self))

    waits_in_staging = False

    def prove(self, longest_outage_s: float | None = None) -> Iterator[Problem]:
        """See ``protocol.inspection.Provable``."""
        from exactum.kafka.proof import prove_sink

        return prove_sink(self, self._where, self._prefix, longest_outage_s)

    def _open(self, run: QueryRun, participant: str, requests: BrokerRequests) -> OpenSink:
        facts = TopicFacts(0) if self._topic is None else self._facts(self._topic, requests)
        of_the_broker = requests.configs("broker", "", (REQUEST_MAX, TIMEOUT_MAX))
        largest = of_the_broker.get(REQUEST_MAX)
        plan = replace(
            self._plan(run.query_id, participant, run.incarnation),
            settings=settings.with_sizes(
                self._settings,
                self._topic is not None,
                facts.batch_bytes_max,
                settings.REQUEST_BYTES_MAX if largest is None else int(largest),
            ),
            transaction_timeout_ms=self._timeout(of_the_broker.get(TIMEOUT_MAX)),
        )
        logs: Mapping[Partition, LogIdentity] = {}  # before a task has written
        if run.guarantee is Guarantee.EXACTLY_ONCE:
            self._check_transactions(plan, facts, requests)
            if self._topic is not None:
                logs = requests.identities((self._topic, i) for i in range(facts.partitions))
            try_out(plan.producer_settings("tried"), self._where)
        cluster_id = requests.cluster_id()
        topics = "all topics" if self._topic is None else f"topic {self._topic!r}"

        def reach(former: str, trace: Mapping[str, str]) -> Participant | None:
            if trace.get("kafka") != cluster_id:
                return None
            scope = KafkaScope(run.query_id, former, trace["prefix"])
            return KafkaParticipant(replace(plan, scope=scope), self.connect(), cluster_id)

        return OpenSink(
            KafkaParticipant(plan, requests, cluster_id, logs),
            KafkaWriterFactory(plan, self._topic, facts),
            f"{topics} of Kafka cluster {cluster_id}",
            {"kafka": cluster_id, "prefix": self._prefix},
            reach,
            timeout_ms=plan.transaction_timeout_ms,
        )

    def _facts(self, topic: str, requests: BrokerRequests) -> TopicFacts:
        found = requests.topics([topic]).get(topic)
        if found is None:
            raise SettingRefused(
                "KAFKA_TOPIC_MISSING",
                f"{self._where}: the topic {topic!r} does not exist at {self._bootstrap_servers}, "
                "or the user lacks DESCRIBE on it. Create it first, with the number of partitions "
                "that you want: exactum never creates topics.",
            )
        if not found.may("WRITE"):
            what = f"may not write to the topic {topic!r} at {self._bootstrap_servers}"
            raise access_refused(
                f"{self._where}: the user {what}. Nothing was written", "WRITE on the topic"
            )
        return facts_of(found.partitions, requests.configs("topic", topic, CONFIGS))

    def _plan(self, query_id: str, participant: str, incarnation: Incarnation) -> ProducerPlan:
        return ProducerPlan(
            bootstrap_servers=self._bootstrap_servers,
            settings=self._settings,
            scope=KafkaScope(query_id, participant, self._prefix),
            incarnation=incarnation,
            transaction_timeout_ms=BROKER_TIMEOUT_MAX_MS,
            topic=self._topic,
        )

    def _timeout(self, shown: str | None) -> int:
        """``shown``: the longest timeout that the broker allows; None: it may not be read."""
        allowed_ms = int(shown) if shown is not None else None
        if self._timeout_ms and allowed_ms is not None and self._timeout_ms > allowed_ms:
            raise SettingRefused(
                "KAFKA_TIMEOUT",
                f"{self._where}: transaction_timeout_ms={self._timeout_ms} is above the "
                f"{allowed_ms} ms that the broker allows (transaction.max.timeout.ms). Lower the "
                "one or raise the other.",
            )
        return self._timeout_ms or allowed_ms or BROKER_TIMEOUT_MAX_MS

    def _check_transactions(
        self, plan: ProducerPlan, facts: TopicFacts, requests: BrokerRequests
    ) -> None:
        """The broker has the requests that settle transactions, and lets this user send them."""
        if not requests.has_transaction_tools():
            raise SettingRefused(
                "KAFKA_VERSION",
                f"{self._where}: the broker at {self._bootstrap_servers} lacks "
                "DescribeTransactions, ListTransactions or DescribeProducers. exactly_once needs "
                "Kafka 3.0 or later.",
            )
        probe = plan.scope.transactional_id(plan.incarnation, "0" * 16, 0)
        requests.describe_transactions([probe])
        if self._topic is not None:
            requests.describe_producers((self._topic, i) for i in range(facts.partitions))
