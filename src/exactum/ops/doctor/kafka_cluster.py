"""One Kafka cluster: its nodes, what they are set to, its clock; then the topics, the group and the
transactions of the query that are there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field

from exactum.kafka.examination import ClusterExamination, KafkaTarget
from exactum.kafka.requests.broker_requests import TRANSACTION_LOG
from exactum.kafka.settings.settings import Settings
from exactum.monitor.words import duration
from exactum.ops.doctor import kafka_topics, kafka_transactions
from exactum.ops.doctor.examination import skew_findings
from exactum.ops.doctor.kafka_topics import MIN_ISR
from exactum.ops.problem import Problem, error, ok, unknown, warning

CONNECT_TIMEOUT_MS = 5_000
DEADLINE_MS = 10_000
VERSION_MIN, VERSION_ASKS_COORDINATOR = (3, 0), (3, 6)
TIMEOUT_MAX = "transaction.max.timeout.ms"
EXPIRATION = "transactional.id.expiration.ms"
VERIFICATION = "transaction.partition.verification.enable"
LOG_REPLICAS = "transaction.state.log.replication.factor"
LOG_MIN_ISR = "transaction.state.log.min.isr"
KEYS = (TIMEOUT_MAX, EXPIRATION, VERIFICATION, LOG_REPLICAS, LOG_MIN_ISR)
NodeSettings = Mapping[int, Mapping[str, str]]


@dataclass(frozen=True)
class ClusterSubject:
    """What of the query is on this cluster. ``settings`` hold passwords."""

    bootstrap_servers: str
    settings: Settings = field(default=(), repr=False)
    inputs: tuple[str, ...] = ()
    group: str | None = None
    sinks: tuple[KafkaTarget, ...] = ()

    @property
    def area(self) -> str:
        return f"Kafka {self.bootstrap_servers}"


def findings(subject: ClusterSubject, longest_outage_s: float | None) -> Iterator[Problem]:
    """``longest_outage_s``: how long the query, or all of it, may be down; None: not said."""
    with closing(connected(subject)) as asked:
        area = subject.area
        reached: list[int] = []
        yield from _nodes(area, asked, reached)
        if not reached:
            yield unknown(
                area,
                "No broker can be reached at the address that it advertises.",
                "Topics, rights and transactions were not looked at.",
                "Mend that first.",
            )
            return
        yield ok(area, f"Cluster {asked.cluster_id()} answers.")
        settings = {node: asked.configs("broker", str(node), KEYS) for node in reached}
        if subject.sinks:
            yield from _settings(area, asked, settings, longest_outage_s)
        yield from _clock(area, asked)
        topics = kafka_topics.TopicLook(asked, subject, longest_outage_s)
        yield from topics.findings()
        if subject.group is not None:
            yield from kafka_topics.group_findings(asked, subject.group)
        timeout_max_ms = least(settings, TIMEOUT_MAX)
        yield from kafka_transactions.findings(
            asked, subject.sinks, topics, timeout_max_ms, longest_outage_s
        )


def connected(subject: ClusterSubject) -> ClusterExamination:
    """
    Raises:
        ExactumError: as ``BrokerRequests``.
    """
    return ClusterExamination(
        subject.bootstrap_servers,
        subject.settings,
        "exactum doctor",
        connect_timeout_ms=CONNECT_TIMEOUT_MS,
        deadline_ms=DEADLINE_MS,
    )


def least(settings: NodeSettings, key: str) -> int | None:
    """The smallest value that a node has; None where none may be read."""
    values = [int(each[key]) for each in settings.values() if key in each]
    return min(values, default=None)


def _nodes(area: str, asked: ClusterExamination, reached: list[int]) -> Iterator[Problem]:
    for node in asked.nodes():
        name = f"Broker {node.node_id} at {node.address}"
        if node.trouble:
            yield error(
                area,
                f"{name} cannot be reached: {node.trouble}",
                "Clients connect to each broker at the address that it advertises, not only to the "
                "bootstrap servers.",
                "Start it, or correct its advertised.listeners for this network.",
            )
            continue
        reached.append(node.node_id)
        version = tuple(int(part) for part in node.version.split("."))
        if version < VERSION_MIN:
            yield error(
                area,
                f"{name} is Kafka {node.version}.",
                "exactly_once needs requests that Kafka has since 3.0.",
                "Update it to 3.0 or later, better 3.6 or later.",
            )
        elif version < VERSION_ASKS_COORDINATOR:
            yield warning(
                area,
                f"{name} is Kafka {node.version}.",
                "Before 3.6 a broker does not ask the coordinator before it takes a record: a "
                "late record of a failed task can open a transaction that nobody ends.",
                "Update it to 3.6 or later.",
            )
        else:
            yield ok(area, f"{name} is Kafka {node.version}.")


def _settings(
    area: str,
    asked: ClusterExamination,
    settings: NodeSettings,
    longest_outage_s: float | None,
) -> Iterator[Problem]:
    """What the nodes are set to, as far as it concerns transactions."""
    if not all(settings.values()):
        yield warning(
            area,
            "The brokers' settings may not be read.",
            "The largest transaction timeout is then taken for 15 minutes, and the other settings "
            "are not looked at.",
            "Grant DESCRIBE_CONFIGS on the cluster.",
        )
        return
    off = [node for node, each in settings.items() if each.get(VERIFICATION) == "false"]
    if off:
        yield warning(
            area,
            f"{VERIFICATION} is off on broker {_listed(off)}.",
            "A late record of a failed task can then open a transaction that nobody ends, and "
            "holds every reader back.",
            f"Set {VERIFICATION}=true (the default); it can be changed while brokers run.",
        )
    yield from _transaction_log(area, asked, settings)
    expiration_ms = least(settings, EXPIRATION)
    if expiration_ms and longest_outage_s is not None and expiration_ms / 1000 < longest_outage_s:
        yield warning(
            area,
            f"{EXPIRATION} is {duration(expiration_ms / 1000)}, shorter than the longest outage.",
            "After it the brokers do not know any more what became of a transaction. A decision "
            "record that was lost is then not noticed.",
            f"Raise {EXPIRATION} above the longest outage.",
        )


def _transaction_log(
    area: str, asked: ClusterExamination, settings: NodeSettings
) -> Iterator[Problem]:
    """As it is, where the user may see it; else as the brokers would make it."""
    seen = asked.topics([TRANSACTION_LOG]).get(TRANSACTION_LOG)
    replicas, in_sync = least(settings, LOG_REPLICAS), least(settings, LOG_MIN_ISR)
    if seen is not None:
        replicas = min((p.replicas for p in seen.partitions), default=replicas)
        own = asked.configs("topic", TRANSACTION_LOG, (MIN_ISR,))
        in_sync = int(own[MIN_ISR]) if MIN_ISR in own else in_sync
    if replicas is None or in_sync is None or (replicas > 1 and in_sync > 1):
        return
    yield warning(
        area,
        f"Kafka's own transaction log has replication factor {replicas}, min ISR {in_sync}.",
        "With the loss of one broker's disk it may lose how transactions ended.",
        f"Before the first transaction {LOG_REPLICAS}=3 and {LOG_MIN_ISR}=2; later reassign "
        f"{TRANSACTION_LOG} and set its {MIN_ISR}.",
    )


def _clock(area: str, asked: ClusterExamination) -> Iterator[Problem]:
    seen = asked.controller_clock()
    if seen is None:
        yield ok(
            area,
            "Its clock was not compared: that needs Kafka 3.3 and DESCRIBE on the cluster.",
        )
        return
    yield from skew_findings(area, "its controller", seen.skew_s, seen.uncertain_s)


def _listed(nodes: Sequence[int]) -> str:
    return ", ".join(map(str, nodes))
